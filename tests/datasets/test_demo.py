from __future__ import annotations

import resource
import subprocess
import sys

import numpy as np
import pytest

from pace import slowness
from privmix.datasets import demo


def test_bundled_data():
    data = demo.load_demo_data()
    assert data.x_train.shape == (10_003, 384)
    assert data.x_test.shape == (3_080, 384)
    assert len(data.classes) == len(set(data.classes)) == 77
    assert np.bincount(data.y_test).tolist() == [40] * 77
    assert np.abs(np.linalg.norm(data.x_train, axis=1) - 1).max() < 1e-3


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "r"
    return folder, demo.run_demo(out=folder)


def test_its_report_takes_less_than_five_seconds_and_two_megabytes(made, tmp_path):
    """Processor time, the best of four tries, by the processor's speed: the machine may be shared."""
    seconds, limit = [], 5.0 * slowness()
    for number in range(4):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        page = tmp_path / f"{number}.html"
        command = [sys.executable, "-m", "privmix", "report", str(made[0]), "--out", str(page)]
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if seconds[-1] < limit:
            break
    assert min(seconds) < limit
    assert page.stat().st_size < 2_000_000


def test_the_demo_reaches_its_accuracy(made):
    """Means over runs lie near 0.83 with a standard deviation below 0.01; 0.78 is far below."""
    folder, result = made
    assert result["valid"] is True
    assert 0.99 < result["epsilon"] <= 1.0
    assert result["accuracy"] > 0.78
    assert 0.85 < result["accuracy_without_privacy"] < 0.92
    assert result["num_mixtures"] == 2_000 + 20 * 77
    assert result["seconds"] < 90
    assert sorted(p.name for p in folder.iterdir()) == [
        "README.md",
        "certificate.json",
        "data",
        "preprocessing.safetensors",
    ]
