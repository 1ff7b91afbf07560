"""Structural similarity: its formula, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from privmix import InvalidInputError
from privmix.attacks import structural_similarity


def test_of_a_picture_with_itself_and_with_noise(rng):
    one = rng.random((5, 16, 16))
    np.testing.assert_allclose(structural_similarity(one, one), 1.0, rtol=1e-12)
    assert np.abs(structural_similarity(one, rng.random((5, 16, 16)))).max() < 0.3


def test_a_constant_shift_by_its_formula():
    """Without structure only luminance counts: (2ab + c) / (a^2 + b^2 + c)."""
    a, b, c = 0.2, 0.6, 1e-4
    found = structural_similarity(np.full((1, 14, 14), a), np.full((1, 14, 14), b))
    assert found[0] == pytest.approx((2 * a * b + c) / (a * a + b * b + c), rel=1e-9)


def test_one_window_by_the_definition(rng):
    """An 11 by 11 picture has one window that does not reach over the border."""
    x, y = rng.random((2, 11, 11))
    offsets = np.arange(-5, 6)
    line = np.exp(-(offsets**2) / (2 * 1.5**2))
    weights = np.outer(line, line) / line.sum() ** 2
    mean_x, mean_y = (weights * x).sum(), (weights * y).sum()
    variances = (weights * (x - mean_x) ** 2).sum() + (weights * (y - mean_y) ** 2).sum()
    covariance = (weights * (x - mean_x) * (y - mean_y)).sum()
    due = (2 * mean_x * mean_y + 1e-4) * (2 * covariance + 9e-4)
    due /= (mean_x**2 + mean_y**2 + 1e-4) * (variances + 9e-4)
    assert structural_similarity(x[None], y[None])[0] == pytest.approx(due, rel=1e-9)


def test_pictures_too_small_for_a_window_are_refused():
    with pytest.raises(InvalidInputError, match="at least 11 by 11 pixels"):
        structural_similarity(np.zeros((1, 8, 8)), np.zeros((1, 8, 8)))
