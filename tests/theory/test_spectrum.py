import numpy as np
import pytest

from privmix.theory.spectrum import shrink_eigenvalues


@pytest.mark.parametrize(("width", "rows"), [(200, 800), (300, 150)])
def test_shrinking_comes_close_to_the_oracle(width, rows):
    rng = np.random.default_rng(0)
    truth = np.where(np.arange(width) < width // 2, 1.0, 3.0)
    sample = rng.standard_normal((rows, width)) * np.sqrt(truth)
    eigenvalues, basis = np.linalg.eigh(sample.T @ sample / rows)
    keep = eigenvalues > 1e-8
    assert keep.sum() == min(width, rows)
    eigenvalues, basis = eigenvalues[keep], basis[:, keep]
    oracle = (basis**2 * truth[:, None]).sum(0)
    shrunk = shrink_eigenvalues(eigenvalues, rows)
    assert np.mean((shrunk - oracle) ** 2) < 0.05 * np.mean((eigenvalues - oracle) ** 2)


def test_pure_noise_shrinks_to_its_variance():
    rng = np.random.default_rng(0)
    sample = rng.standard_normal((1000, 250))
    eigenvalues = np.linalg.eigvalsh(sample.T @ sample / 1000)
    inner = shrink_eigenvalues(eigenvalues, 1000)[10:-10]
    assert np.abs(inner - 1).max() < 0.1


def test_shrinking_is_scale_equivariant_and_survives_outliers():
    eigenvalues = np.array([1e-9, 0.9, 1.0, 1.0, 1.1, 1e6])
    shrunk = shrink_eigenvalues(eigenvalues, 1000)
    assert np.isfinite(shrunk).all() and (shrunk > 0).all()
    np.testing.assert_allclose(shrink_eigenvalues(7 * eigenvalues, 1000), 7 * shrunk)
    assert shrunk[-1] == pytest.approx(1e6, rel=0.1)
