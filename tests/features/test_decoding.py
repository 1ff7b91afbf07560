from __future__ import annotations

import numpy as np
import pytest

from privmix.features.decoding import _shares

WEIGHTS = np.full(4, 0.25)


def missing(*means: float) -> np.ndarray:
    """Return the shares of missing values of four groups of a column with two values."""
    there = (1 - np.array(means)) / 2
    return _shares(np.column_stack([there, there, means]), WEIGHTS, True)[:, -1]


def test_noise_about_nothing_leaves_nothing_missing():
    assert missing(0.02, -0.03, 0.01, -0.01).max() < 1e-9


def test_shares_average_to_that_of_all_groups():
    assert missing(0.10, -0.03, 0.03, -0.02).mean() == pytest.approx(0.02)


def test_what_is_too_much_is_taken_from_all_groups_alike():
    found = missing(0.60, 0.05, -0.05, -0.02)
    # In proportion the first would lose nearly all that is cut off, and have .535.
    assert found[1] < 0.02 and found[0] > 0.55
    assert found.mean() == pytest.approx(0.145)


def test_shares_that_need_no_cut_stay():
    assert missing(1.0, 0.3, 0.0, 0.2).tolist() == [1.0, 0.3, 0.0, 0.2]
