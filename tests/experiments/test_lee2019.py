"""The claims of the DPMix experiments, at sizes for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    not (ROOT / "experiments").is_dir(), reason="needs a checkout with its experiments"
)


def test_more_records_in_a_row_need_less_noise():
    from experiments.lee2019.privacy import epsilons

    stddev = 0.2
    found = [epsilons(size, stddev)["theorem_1"] for size in (4, 16, 64)]
    assert found == sorted(found, reverse=True)
    low = epsilons(16, 0.0625)  # the low privacy regime, where Theorem 3 is the smaller
    assert low["theorem_3"] < low["theorem_1"]
    high = epsilons(16, 6.25)
    assert high["theorem_1"] < high["theorem_3"]


def test_a_release_has_the_papers_noise_and_costs_no_more_than_it_says(rng):
    from experiments.lee2019.mixing_degree import figures, paper_noise

    from utility import DataSet

    y = rng.integers(10, size=600)
    x = (np.eye(784, dtype=np.float32)[y] * 0.5).astype(np.float32)
    found = figures(DataSet(x, y, x[:50], y[:50]), 8, 1000.0, [])
    assert found["noise"] == paper_noise(8, 1000.0, 600)
    assert 0 < found["certified"] <= 1000.0
    assert paper_noise(8, 2000.0, 600) < found["noise"]
