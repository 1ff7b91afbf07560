import math
from fractions import Fraction

import numpy as np
import pytest

from privmix import clipping
from privmix.clipping import ClippedSum
from privmix.dpsgd.grid import network_grid


def clipped(vector: np.ndarray, clip_norm: float) -> np.ndarray:
    """What one vector adds."""
    sums = ClippedSum(vector.size, clip_norm, network_grid(clip_norm).scale)
    sums.add(vector)
    return sums.total


@pytest.mark.parametrize("clip_norm", [0.3, 1.0, 7.0])
@pytest.mark.parametrize("length", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_vector_is_clipped_and_truncated(clip_norm, length, dtype):
    vector = np.random.default_rng(0).standard_normal(10_001)
    vector = (vector * (length / np.linalg.norm(vector))).astype(dtype)
    added, units = clipped(vector, clip_norm), network_grid(clip_norm).scale
    due = vector.astype(float) * units * min(1, clip_norm / np.linalg.norm(vector.astype(float)))
    assert np.abs(added - due).max() <= 1 + 1e-6  # points
    assert (np.abs(added) <= np.abs(due) * (1 + 1e-9)).all()
    square = sum(int(value) ** 2 for value in added)
    assert square <= (Fraction(clip_norm) * Fraction(units)) ** 2


@pytest.mark.parametrize("excess", [2.0**-28, 2.0**-27, 2.0**-26])
def test_a_norm_that_came_out_too_small_does_not_lengthen_a_vector(monkeypatch, excess):
    """Whatever the norm in doubles, what is added obeys the bound in integers."""
    vector = np.array([6.0, 8.0, 0.0])
    monkeypatch.setattr(clipping, "_square_norm", lambda v: 100.0 / (1 + excess) ** 2)
    bound = Fraction(network_grid(5.0).scale) ** 2 * 25
    assert (
        bound * (1 - Fraction(1, 2**20)) < sum(int(v) ** 2 for v in clipped(vector, 5.0)) <= bound
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_vector_without_a_finite_norm_counts_as_zero(bad):
    vector = np.ones(5, dtype=np.float32)
    vector[3] = bad
    assert not clipped(vector, 1.0).any()


def test_the_sum_is_that_of_its_vectors():
    vectors = np.random.default_rng(1).standard_normal((7, 100)).astype(np.float32)
    sums = ClippedSum(100, 1.0, network_grid(1.0).scale)
    for vector in vectors:
        sums.add(vector)
    assert np.array_equal(sums.total, sum(clipped(vector, 1.0) for vector in vectors))


@pytest.mark.parametrize("clip_norm", [1e-200, 1e200, math.nan])
def test_norms_whose_squares_leave_the_range_of_doubles_are_refused(clip_norm):
    with pytest.raises(ValueError, match="clip norms are from"):
        ClippedSum(1, clip_norm, 1.0)
