"""The benchmarks run, at sizes that measure nothing."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs a checkout with its benchmarks")


@pytest.mark.parametrize(
    ("script", "options", "told"),
    [
        ("mixing", "-n 200 -T 64 -m 4 -d 8 --slices 1 --repeats 1 --no-growth", "ratio_limit"),
        (
            "mixing_cuda",
            "--device cpu --num-records 200 --num-features 8 --num-mixtures 64 --mix-size 4",
            None,
        ),
        ("probabilities", "--epsilon 8 --designs stratified --seeds 1", None),
    ],
)
def test_a_benchmark_prints_json(script, options, told, capsys, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(FOLDER)  # as a script has it
    monkeypatch.setattr(sys, "argv", [script, *options.split(), "--json"])
    runpy.run_path(str(FOLDER / f"{script}.py"), run_name="__main__")
    printed = json.loads(capsys.readouterr().out)
    assert told is None or printed[told] > 0


def test_the_parts_of_the_cluster_benchmark_fit_the_library():
    pytest.importorskip("distributed")
    parts = runpy.run_path(str(FOLDER / "dask_scaling.py"))
    config = parts["mechanism"](100, 8, 32, 4)
    assert parts["records"](100, 8).num_features == config.num_features == 8
