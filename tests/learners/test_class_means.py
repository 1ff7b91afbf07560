from types import SimpleNamespace

import numpy as np
import pytest

from privmix import InvalidInputError
from privmix.learners import NoiseAwareClassifier
from privmix.learners.class_means import linear_shrinkage, relative_class_sizes


def test_class_sizes_are_seen_through_noise(make_blobs, designs):
    rng = np.random.default_rng(0)
    means = rng.standard_normal((5, 400)) / 20
    sizes = np.array([2.0, 1.5, 1.0, 0.5, 0.0])
    noisy = sizes[:, None] * means + 0.02 * rng.standard_normal(means.shape)
    np.testing.assert_allclose(relative_class_sizes(noisy, 0.02**2), sizes, atol=0.15)
    assert (relative_class_sizes(np.zeros((3, 4)), 1.0) == 1).all()


def test_linear_shrinkage_is_one_for_spheres_and_small_for_one_direction():
    rng = np.random.default_rng(0)
    assert linear_shrinkage(rng.standard_normal((50, 300))) > 0.9
    line = np.outer(rng.standard_normal(200), np.ones(5))
    assert linear_shrinkage(line + 1e-3 * rng.standard_normal(line.shape)) < 0.1
    assert linear_shrinkage(np.zeros((3, 4))) == 1


@pytest.mark.parametrize("name", ["poisson", "signed", "stratified", "hybrid"])
def test_class_sizes_are_estimated(designs, make_blobs, name):
    x, y = make_blobs(num_records=3000)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    keep = (y != 3) | (np.arange(3000) % 4 == 0)
    options = {"noise": 0.5} if name == "stratified" else {"rows": 20_000, "noise": 0.3}
    release = designs[name](x[keep], y[keep], range(4), **options)
    model = NoiseAwareClassifier(class_prior="estimated").fit(release)
    truth = np.bincount(y[keep]) / keep.sum()
    np.testing.assert_allclose(model.class_prior_, truth, atol=0.04)


def test_lengths_of_centred_class_sums_are_no_sizes(designs, make_blobs):
    """Those of two classes add up to zero: they are equally long, whatever the sizes."""
    release = designs["stratified"](*make_blobs(), range(4))
    steps = (SimpleNamespace(step="center"),)
    release.preprocessor = SimpleNamespace(counted=None, num_inputs=12, steps=steps)
    with pytest.raises(InvalidInputError, match=r"class_prior.*class counts.*centred"):
        NoiseAwareClassifier(class_prior="estimated").fit(release)
