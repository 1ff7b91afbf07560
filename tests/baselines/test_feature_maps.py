"""The public maps have norm at most one, and their kernels."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from privmix import InvalidInputError  # noqa: E402
from privmix.baselines import FourierFeatures, HermiteFeatures  # noqa: E402


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


def test_a_length_must_be_positive(values):
    with pytest.raises(InvalidInputError, match="length"):
        FourierFeatures(3, 10, 0.0)(values)


MAPS = [FourierFeatures(3, 20, 0.7), HermiteFeatures(5)]


@pytest.mark.parametrize("features", MAPS)
def test_class_sums_are_sums_of_embedded_records(values, features):
    classes = np.arange(50) % 4
    rows = features.embed(values.numpy())
    due = [rows[classes == k].sum(axis=0) for k in range(5)]  # one class has nobody
    found = features.class_sums(values, torch.from_numpy(classes), 5)
    np.testing.assert_allclose(found.numpy(), due, atol=1e-12)
    np.testing.assert_allclose(features(values).numpy(), rows, atol=1e-12)


@pytest.mark.parametrize("features", MAPS)
def test_class_sums_have_their_gradient(features):
    x = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    classes = torch.tensor([0, 1, 1, 0])
    assert torch.autograd.gradcheck(lambda x: features.class_sums(x, classes, 3), (x,))


@pytest.mark.parametrize("features", MAPS)
def test_a_record_is_embedded_alike_in_any_company(values, features):
    x = values.numpy()
    whole = features.embed(x)
    np.testing.assert_array_equal(whole[7:12], features.embed(x[7:12]))
    np.testing.assert_array_equal(whole[49:], features.embed(x[49:]))


@pytest.mark.parametrize(("name", "value"), [("rho", 0.0), ("rho", 1.0), ("order", 0)])
def test_bad_hermite_features_are_refused(values, name, value):
    with pytest.raises(InvalidInputError, match=name):
        HermiteFeatures(**{name: value}).embed(values.numpy())
