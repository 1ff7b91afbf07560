"""The examples in docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import privmix

SOURCE = Path(privmix.__file__).parent
NEEDS_TORCH = ("dpsgd",)
MODULES = sorted(
    ".".join(("privmix", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module(name, tmp_path, monkeypatch):
    if name.split(".")[1] in NEEDS_TORCH:
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)  # examples write folders
    module = importlib.import_module(name)
    failed, tried = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried > 0 and failed == 0


def test_the_public_names_that_people_start_with_have_an_example():
    from privmix import accounting

    started = ("Schema", "plan_release", "release", "Release", "verify", "NoiseAwareClassifier")
    counted = ("account", "calibrate", "epsilon_at", "tradeoff_curve")
    for owner, names in ((privmix, started), (accounting, counted)):
        for name in names:
            assert ">>> " in (getattr(owner, name).__doc__ or ""), name
