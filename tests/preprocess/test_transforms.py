from __future__ import annotations

import numpy as np
import pytest

from privmix.clipping import clipped, rescaled
from privmix.preprocess.transforms import projected


@pytest.fixture
def rows(rng):
    rows = rng.standard_normal((40, 6))
    rows[0] = 0.0
    return rows * np.geomspace(1e-3, 1e3, 40)[:, None]


def test_clipping_shortens_long_rows_and_changes_no_other(rows):
    lengths = np.linalg.norm(rows, axis=1)
    found = clipped(rows, 2.0)
    short = lengths <= 2.0
    assert 0 < short.sum() < 40
    assert np.array_equal(found[short], rows[short])
    np.testing.assert_allclose(
        found[~short], 2.0 * rows[~short] / lengths[~short, None], rtol=1e-14
    )


def test_rescaling_gives_every_row_but_zeros_one_length(rows):
    found = rescaled(rows, 0.5)
    assert not found[0].any()
    np.testing.assert_allclose(np.linalg.norm(found[1:], axis=1), 0.5, rtol=1e-14)
    assert (np.sign(found) == np.sign(rows)).all()


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_squares_that_leave_the_range_of_doubles_do_no_harm(size):
    found = clipped(np.array([[3.0, 4.0]]) * size, 1.0)
    due = [[0.6, 0.8]] if size > 1 else [[3.0 * size, 4.0 * size]]
    np.testing.assert_allclose(found, due, rtol=1e-14)


def test_projection_is_a_matrix_product(rows, rng):
    directions = rng.standard_normal((3, 6))
    np.testing.assert_allclose(projected(rows, directions), rows @ directions.T, rtol=1e-12)
