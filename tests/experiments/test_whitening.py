"""The experiment on whitening with public data, at a size for tests and on made-up records."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).parents[2] / "experiments" / "whitening" / "public_whitening.py"
pytestmark = pytest.mark.skipif(not PATH.is_file(), reason="needs a checkout with its experiments")


def made_up(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(30), 8)
    x = rng.standard_normal((30, 6))[y] + 0.1 * rng.standard_normal((y.size, 6))
    np.savez(folder / "banking77-minilm.npz", x_train=x, y_train=y)
    return folder


def test_it_prints_a_row_for_every_setting(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PRIVMIX_DATA", str(made_up(tmp_path)))
    words = "public_whitening --epsilon 8 --designs hybrid --powers 0 0.15 --seeds 2"
    monkeypatch.setattr(sys, "argv", words.split())
    runpy.run_path(str(PATH), run_name="__main__")
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split(" | ")[2:4] for row in rows] == [
        ["0", "no"],
        ["0", "yes"],
        ["0.15", "no"],
        ["0.15", "yes"],
    ]


def test_whole_whitening_makes_public_records_spread_alike():
    whitened = runpy.run_path(str(PATH))["whitened"]
    rng = np.random.default_rng(0)
    public = rng.standard_normal((500, 4)) * [4.0, 2.0, 1.0, 0.5] + [3.0, 0.0, 0.0, 0.0]
    raw = whitened(public, public, 0.0, centred=True)
    even = whitened(public, public, 0.5, centred=True)
    np.testing.assert_allclose(np.linalg.norm(even, axis=1), 1.0)
    spread = [np.linalg.eigvalsh(np.cov(rows.T)) for rows in (raw, even)]
    assert spread[0][-1] > 10 * spread[0][0] and spread[1][-1] < 1.3 * spread[1][0]
    assert abs(even.mean(axis=0)).max() < 0.1
    assert abs(whitened(public, public, 0.0, centred=False).mean(axis=0)).max() > 0.3
