import numpy as np
import pytest

from privmix.learners import moments
from privmix.learners.errors_in_variables import PopulationMoments
from privmix.learners.moments import class_means, split_moments


@pytest.mark.parametrize(("block_rows", "chunk"), [(1, 4096), (37, 10), (1000, 7)])
def test_moments_equal_brute_force_whatever_the_blocks(
    designs, make_blobs, monkeypatch, block_rows, chunk
):
    monkeypatch.setattr(moments, "_CHUNK", chunk)
    release = designs["poisson"](*make_blobs(), range(4), rows=103)
    release.block_rows = block_rows
    kept, held = split_moments(release, 5)
    x, y = release.features.astype(float), release.label_values.astype(float)
    out = np.arange(103) % 5 == 4
    for found, rows in ((kept, ~out), (held, out), (kept + held, np.full(103, True))):
        assert found.count == rows.sum()
        np.testing.assert_allclose(found.features, x[rows].sum(0), atol=1e-12)
        np.testing.assert_allclose(found.labels, y[rows].sum(0), atol=1e-12)
        np.testing.assert_allclose(found.gram, x[rows].T @ x[rows], atol=1e-12)
        np.testing.assert_allclose(found.cross, y[rows].T @ x[rows], atol=1e-12)


def test_class_means_equal_brute_force(designs, make_blobs):
    release = designs["stratified"](*make_blobs(), range(4))
    means, noise = class_means(release)
    for k in range(4):
        rows = release.features[release.label_values == k].astype(float)
        np.testing.assert_allclose(means[k], rows.mean(0), atol=1e-12)
    assert noise == pytest.approx(release.feature_noise_stddev**2 / 5)


def test_population_moments_are_unbiased_where_the_rows_covariance_is_not(designs, make_blobs):
    """Averaged over 60 releases, each entry within 5 standard errors of the truth."""
    x, y = make_blobs(num_records=300, num_features=5, spread=0.5)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    centred = x - x.mean(0)
    found = []
    for seed in range(60):
        release = designs["poisson"](x, y, range(4), rows=2000, noise=1.5, seed=seed)
        kept, held = split_moments(release, 5)
        estimate = PopulationMoments.from_rows(kept + held, release)
        signal = estimate.covariance - estimate.noise * np.eye(5)
        found.append(np.vstack([signal, estimate.cross]))
    truth = np.vstack([centred.T @ centred, np.eye(4)[y].T @ centred]) / len(x)
    error = np.mean(found, axis=0) - truth
    stderr = np.std(found, axis=0) / np.sqrt(len(found))
    assert (np.abs(error) < 5 * stderr + 2e-3).all()
    assert estimate.noise > 0.1  # by which the uncorrected diagonal is off
