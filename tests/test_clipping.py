"""The bound on a record holds exactly, in integers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privmix.clipping import FixedPoint

norms = st.floats(1e-12, 1e12)


def quantise(grid: FixedPoint, vectors) -> tuple[np.ndarray, int]:
    vectors = np.array(vectors)
    integers = np.empty(vectors.shape, dtype=np.int16)
    clipped = grid.quantise(vectors, integers)
    return integers, clipped


@given(norms)
def test_the_grid_is_the_finest_that_fits(clip_norm):
    grid = FixedPoint(clip_norm)
    bound = Fraction(clip_norm)
    assert bound * Fraction(2) ** grid.exponent <= 32767
    assert bound * Fraction(2) ** (grid.exponent + 1) > 32767


def test_grid_of_a_unit_norm():
    grid = FixedPoint(1.0)
    assert (grid.exponent, grid.scale, grid.sensitivity) == (14, 16384.0, 16384.0)
    assert grid.largest_square == 2**28


@settings(deadline=None)  # the first call compiles
@given(
    norms,
    st.lists(st.lists(st.floats(-1e300, 1e300), min_size=3, max_size=3), min_size=1, max_size=5),
)
def test_every_integer_vector_is_within_the_sensitivity(clip_norm, rows):
    grid = FixedPoint(clip_norm)
    integers, _ = quantise(grid, rows)
    for row in integers.tolist():
        bound = Fraction(clip_norm) * Fraction(2) ** grid.exponent
        assert sum(v * v for v in row) <= bound**2


def test_vectors_on_the_bound_stay_within_it(rng):
    # Rounding puts about half of these a little above the norm; the exact check shrinks them.
    for clip_norm in (1.0, 1.999, 0.3, 7.0):
        x = rng.standard_normal((2000, 3))
        x *= clip_norm / np.linalg.norm(x, axis=1, keepdims=True)
        grid = FixedPoint(clip_norm)
        integers, _ = quantise(grid, x)
        assert np.square(integers.astype(np.int64)).sum(axis=1).max() <= grid.largest_square
        assert np.abs(integers / grid.scale - x).max() < 2 / grid.scale


def test_truncation_moves_toward_zero():
    grid = FixedPoint(1.0)
    integers, clipped = quantise(grid, [[0.5 / 16384, -1.9 / 16384, 0.0]])
    assert integers.tolist() == [[0, -1, 0]]
    assert clipped == 0


def test_long_vectors_are_scaled_down():
    integers, clipped = quantise(FixedPoint(1.0), [[3.0, 4.0], [1e200, 0.0], [0.0, 0.6]])
    assert integers[:2].tolist() == [[9830, 13107], [16384, 0]]
    assert clipped == 2


def test_tiny_vectors_do_not_divide_by_zero():
    integers, clipped = quantise(FixedPoint(1e-12), [[5e-324, 0.0], [0.0, 0.0]])
    assert not integers.any()
    assert clipped == 0


def test_integers_that_rounding_puts_above_the_bound_are_shrunk():
    """Three equal entries whose exact length lies a hair below n sqrt 3: rounded up, they pass the bound."""
    above = 0
    for n in range(9001, 9101):
        clip_norm = math.sqrt(3) * n / 2**14
        while Fraction(clip_norm) ** 2 * 2**28 >= 3 * n**2:
            clip_norm = math.nextafter(clip_norm, 0)
        grid = FixedPoint(clip_norm)
        naive = int(clip_norm / math.sqrt(3) * grid.scale)
        above += 3 * naive**2 > grid.largest_square
        integers, _ = quantise(grid, np.full((1, 3), 10.0))
        assert np.square(integers.astype(np.int64)).sum() <= grid.largest_square
        assert np.abs(integers - naive).max() <= 1
    assert above > 50


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("position", [0, 3, 9])
def test_a_row_that_is_not_finite_becomes_zero_and_others_stay(bad, position):
    """Squares of what is left of it would overflow, and pass the check of the norm."""
    rows = np.full((3, 10), 1e8)
    rows[1, position] = bad
    grid = FixedPoint(1.0)
    out = np.ones((3, 10), dtype=np.int16)
    assert grid.quantise(rows, out) == 3
    assert not out[1].any()
    assert (out[0] == out[2]).all()
    assert out[0].any()
    assert (out.astype(np.int64) ** 2).sum(axis=1).max() <= grid.largest_square
