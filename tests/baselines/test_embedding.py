"""The public maps have norm at most one, and their kernels."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from privmix import InvalidInputError  # noqa: E402
from privmix.baselines import FourierFeatures, HermiteFeatures, MeanEmbedding  # noqa: E402


@pytest.fixture
def values():
    return torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (50, 3)))


def test_fourier_features_have_norm_one_and_approach_the_gaussian_kernel(values):
    embedded = FourierFeatures(3, 40_000, 0.7)(values).numpy()
    np.testing.assert_allclose((embedded**2).sum(axis=1), 1.0, rtol=1e-12)
    distances = ((values[:, None] - values[None]) ** 2).sum(-1).numpy()
    # The mean of 40,000 bounded terms: Hoeffding gives 0.05 a false-alarm rate below 1e-20 a pair.
    np.testing.assert_allclose(embedded @ embedded.T, np.exp(-distances / 0.98), atol=0.05)


@pytest.mark.parametrize("rho", [0.1, 0.6, 0.9])
def test_hermite_features_have_norm_at_most_one_and_approach_mehlers_kernel(values, rho):
    short = HermiteFeatures(3, rho, 1.0)(values).numpy()
    assert ((short**2).sum(axis=1) <= 1 + 1e-12).all()
    whole = HermiteFeatures(150, rho, 1.0)(values).numpy()
    np.testing.assert_allclose((whole**2).sum(axis=1), 1.0, rtol=1e-6)
    v, w = values[:, None], values[None]
    kernel = torch.exp(-rho / (1 - rho**2) * (v - w) ** 2).mean(-1).numpy()
    np.testing.assert_allclose(whole @ whole.T, kernel, atol=1e-5)


@pytest.mark.parametrize("features", [FourierFeatures(784, 30, 10.0), HermiteFeatures(3)])
def test_a_record_changes_the_sums_by_its_own_integers_and_by_nothing_else(features):
    """In batches, rounding depends on the companions: a tail of few wide records showed it."""
    x = np.random.default_rng(0).uniform(size=(21, 784))
    y = np.zeros(21, dtype=np.int64)
    method = MeanEmbedding(2, 20, features)
    whole, without, own = (
        method._sums(x[s], y[s])[0] for s in (slice(21), slice(20), slice(20, 21))
    )
    np.testing.assert_array_equal(whole - without, own)


def test_a_generator_learns_the_classes_apart():
    random = np.random.default_rng(1)
    y = random.integers(2, size=400)
    x = np.where(y[:, None] == 1, 0.8, 0.2) + 0.05 * random.normal(size=(400, 2))
    method = MeanEmbedding(2, 400, FourierFeatures(2, 50, 0.5), num_steps=150, batch_size=100)
    made = method.release(x, y, target_epsilon=8.0, target_delta=1e-5, test_seed=0)
    rows, labels = made.records(200)
    right = (rows.mean(axis=1) > 0.5) == (labels[:, 1] == 1)
    assert right.mean() > 0.95


def test_a_length_must_be_positive(values):
    with pytest.raises(InvalidInputError, match="length"):
        FourierFeatures(3, 10, 0.0)(values)
