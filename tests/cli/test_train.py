"""``privmix train``."""

from __future__ import annotations

import re
from contextlib import nullcontext

import pytest

from privmix import NoiseAwareClassifier, load_model, save_model


def test_training_keeps_releases_whole(run, files):
    run(
        "release", files / "train.parquet", "--label", "label", "--schema", files / "schema.json",
        "--epsilon", 2, "--delta", "1e-5", "--num-mixtures", 20, "--test-seed", 3, "--out",
        files / "r",
    )  # fmt: skip
    told = run("train", files / "r", "--out", files / "r" / "m.safetensors")
    assert told.code == 2
    assert "outside of any release" in told.err
    told = run("train", files / "r", "--out", files / "m.safetensors")
    assert told.code == 0
    assert "protects nobody" in told.err
    (files / "r" / "README.md").write_text("another")
    told = run("train", files / "r", "--out", files / "m.safetensors", "--replace")
    assert told.code == 2
    assert "README.md: changed since" in told.err


@pytest.mark.parametrize(
    ("words", "others", "finding"),
    [
        (r'"epsilon": 1\.[0-9]+|"epsilon": 2\.0', '"epsilon": 0.5', "epsilon is 0.5, but its"),
        ('"private": false', '"private": true', "statement is NOT PRIVATE"),
    ],
)
def test_an_edited_certificate_is_refused_with_the_finding_of_verify(
    run, files, words, others, finding
):
    run(
        "release", files / "train.parquet", "--label", "label", "--schema", files / "schema.json",
        "--epsilon", 2, "--delta", "1e-5", "--num-mixtures", 20, "--test-seed", 3, "--out",
        files / "r",
    )  # fmt: skip
    assert run("train", files / "r", "--out", files / "sound.safetensors").code == 0
    assert load_model(files / "sound.safetensors").verified_ is True
    path = files / "r" / "certificate.json"
    text, count = re.subn(words, others, path.read_text())
    assert count
    path.write_text(text)
    assert finding in run("verify", files / "r").out
    for command, out, more in (
        ("train", "m.safetensors", ()),
        ("synthesize", "s.csv", ("--num-records", 10)),
    ):
        told = run(command, files / "r", "--out", files / out, *more)
        assert told.code == 2 and finding in told.err
        assert not (files / out).exists()
    with pytest.warns() if "private" not in words else nullcontext():
        model = NoiseAwareClassifier().fit(str(files / "r"))
    save_model(model, files / "unchecked.safetensors")
    assert load_model(files / "unchecked.safetensors").verified_ is False
