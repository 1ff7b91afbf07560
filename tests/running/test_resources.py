from __future__ import annotations

import pytest

from privmix import InvalidInputError
from privmix.running import resources
from privmix.running.resources import default_memory, parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1500, 1500),
        ("1500", 1500),
        ("1GB", 10**9),
        ("1.5 gb", 1_500_000_000),
        ("512MiB", 512 << 20),
        ("2kB", 2000),
        ("3 TiB", 3 << 40),
        ("7B", 7),
    ],
)
def test_sizes(text, size):
    assert parse_bytes("--max-memory", text) == size


@pytest.mark.parametrize(
    "text",
    ["", "GB", "-1GB", "1XB", "1 GB more", "nan", "inf", "1e9", "0", 0, -5, True, 1.5, "0.1"],
)
def test_no_sizes(text):
    with pytest.raises(InvalidInputError, match="--max-memory: expected"):
        parse_bytes("--max-memory", text)


def test_half_of_what_there_is_or_of_what_the_control_group_allows(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "_CONTROL_GROUP", tmp_path / "memory.max")
    whole = default_memory()
    assert whole > 1 << 26
    for text, size in (("max\n", whole), ("1000000\n", 500_000), (f"{10**18}\n", whole)):
        (tmp_path / "memory.max").write_text(text)
        assert default_memory() == size
