import numpy as np
import pytest

from privmix.learners.shares import denoised


def test_shares_are_shrunk_by_what_is_known_of_their_noise():
    sizes = np.array([90.0, 10.0])
    np.testing.assert_allclose(denoised(sizes, 0.0), [0.9, 0.1])
    np.testing.assert_allclose(denoised(sizes, 1000.0), [0.5, 0.5])
    few = denoised(np.array([100.0, -20.0]), 15.0)
    assert 0.1 < few[1] < 0.5 and few.sum() == pytest.approx(1)
    np.testing.assert_allclose(denoised(np.zeros(3), 0.0), np.full(3, 1 / 3))
