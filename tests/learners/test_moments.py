import numpy as np
import pytest

from privmix.learners import moments
from privmix.learners.moments import RowMoments, class_means


@pytest.mark.parametrize(("block_rows", "chunk"), [(1, 4096), (37, 10), (1000, 7)])
def test_moments_equal_brute_force_whatever_the_blocks(
    designs, make_blobs, monkeypatch, block_rows, chunk
):
    monkeypatch.setattr(moments, "_CHUNK", chunk)
    release = designs["poisson"](*make_blobs(), range(4), rows=103)
    release.block_rows = block_rows
    plain = RowMoments.of(release)
    features, labels = release.features.astype(float), release.label_values.astype(float)
    for found, x, y in (
        (plain, features, labels),
        (plain.centred(), features - features.mean(0), labels - labels.mean(0)),
    ):
        assert found.count == 103
        np.testing.assert_allclose(found.features, x.sum(0), atol=1e-12)
        np.testing.assert_allclose(found.labels, y.sum(0), atol=1e-12)
        np.testing.assert_allclose(found.gram, x.T @ x, atol=1e-12)
        np.testing.assert_allclose(found.cross, y.T @ x, atol=1e-12)
        np.testing.assert_allclose(found.label_gram, y.T @ y, atol=1e-12)


def test_rows_without_labels(designs, make_blobs):
    rows = designs["hybrid"](*make_blobs(), range(4)).tables[1]
    found = RowMoments.of(rows)
    x = rows.features.astype(float)
    np.testing.assert_allclose(found.gram, x.T @ x, atol=1e-12)
    assert found.labels.shape == (0,) and found.cross.shape == (0, 12)


def test_class_means_equal_brute_force(designs, make_blobs):
    release = designs["stratified"](*make_blobs(), range(4))
    means, noise = class_means(release)
    for k in range(4):
        rows = release.features[release.label_values == k].astype(float)
        np.testing.assert_allclose(means[k], rows.mean(0), atol=1e-12)
    assert noise == pytest.approx(release.feature_noise_stddev**2 / 5)
