"""The examples run, and reach what their pages say."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"


@pytest.mark.skipif(not FOLDER.is_dir(), reason="needs a checkout with its examples")
def test_tabular(monkeypatch, capsys):
    pytest.importorskip("sksurv")
    monkeypatch.setattr(sys, "argv", ["tabular.py", "--seeds", "1", "--epsilon", "1"])
    runpy.run_path(str(FOLDER / "tabular.py"), run_name="__main__")
    printed = capsys.readouterr().out
    (line,) = [line for line in printed.splitlines() if line.startswith("privmix, epsilon 1")]
    accuracy, balanced = (float(part.split()[-1]) for part in line.split("+-")[:2])
    assert 0.76 < accuracy < 0.85
    assert 0.70 < balanced < 0.82
