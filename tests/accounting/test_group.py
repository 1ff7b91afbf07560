"""Groups and replacement: exact for Gaussians, valid for the rest."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, norm

from privmix import InvalidInputError
from privmix.accounting import (
    ComposedEvent,
    GaussianEvent,
    PoissonGaussianEvent,
    SignedGaussianEvent,
    UniformGaussianEvent,
    account,
    epsilon_under,
    gdp_epsilon,
    group_epsilon,
)

DELTA = 1e-5
SAMPLED = PoissonGaussianEvent(sampling_prob=0.01, noise_multiplier=2.0, count=100)


def test_a_group_of_one_is_a_record():
    for event in (SAMPLED, GaussianEvent(noise_multiplier=3.0, count=2)):
        assert group_epsilon(event, DELTA, group_size=1) == pytest.approx(
            account(event, DELTA).epsilon, rel=1e-9
        )


@pytest.mark.parametrize("size", [2, 3, 10])
def test_gaussian_groups_are_exact(size):
    event = ComposedEvent(
        events=(
            GaussianEvent(noise_multiplier=20.0, count=3),
            PoissonGaussianEvent(sampling_prob=1.0, noise_multiplier=30.0, count=2),
        )
    )
    gdp_mu = size * np.sqrt(3 / 20**2 + 2 / 30**2)
    assert group_epsilon(event, DELTA, group_size=size) == pytest.approx(
        gdp_epsilon(gdp_mu, DELTA), rel=1e-6
    )


def one_row_delta(prob: float, noise: float, size: int, epsilon: float) -> float:
    """True delta of one row when ``size`` records come: a mixture of Gaussians at 0, 1, ... size."""
    x = np.linspace(-12 * noise, size + 12 * noise, 400_001)
    weights = binom.pmf(np.arange(size + 1), size, prob)
    p = sum(w * norm.pdf(x, k, noise) for k, w in enumerate(weights))
    q = norm.pdf(x, 0, noise)
    step = x[1] - x[0]
    grow = np.maximum(p - np.exp(epsilon) * q, 0).sum() * step
    shrink = np.maximum(q - np.exp(epsilon) * p, 0).sum() * step
    return float(max(grow, shrink))


@pytest.mark.parametrize("size", [2, 4])
def test_sampled_groups_are_covered(size):
    event = PoissonGaussianEvent(sampling_prob=0.3, noise_multiplier=1.5, count=1)
    for delta in (1e-2, 1e-4):
        epsilon = group_epsilon(event, delta, group_size=size)
        assert one_row_delta(0.3, 1.5, size, epsilon) <= delta
        assert epsilon > account(event, delta).epsilon


def test_bounds_grow_with_the_group_and_fall_with_delta():
    sizes = [group_epsilon(SAMPLED, DELTA, group_size=k) for k in (1, 2, 3, 5)]
    assert sizes == sorted(sizes)
    deltas = [group_epsilon(SAMPLED, d, group_size=3) for d in (1e-3, 1e-5, 1e-7)]
    assert deltas == sorted(deltas)


def test_replacing_a_record():
    gaussian = GaussianEvent(noise_multiplier=5.0, count=1)
    assert epsilon_under(gaussian, "replace_one", DELTA) == pytest.approx(
        gdp_epsilon(2 / 5, DELTA), rel=1e-6
    )
    signed = SignedGaussianEvent(sampling_prob=0.01, noise_multiplier=2.0, count=100)
    for event in (SAMPLED, signed):
        own = account(event, DELTA).epsilon
        assert epsilon_under(event, "add_or_remove_one", DELTA) == own
        assert own < epsilon_under(event, "replace_one", DELTA)


def test_nothing_follows_from_replacing():
    uniform = UniformGaussianEvent(num_records=100, mix_size=5, noise_multiplier=2.0, count=10)
    replaced = GaussianEvent(noise_multiplier=5.0, count=1, neighboring_relation="replace_one")
    for event in (uniform, replaced):
        with pytest.raises(InvalidInputError, match=event.mechanism):
            epsilon_under(event, "add_or_remove_one", DELTA)
    assert epsilon_under(uniform, "replace_one", DELTA) == account(uniform, DELTA).epsilon


@pytest.mark.parametrize("size", [0, -1, 1.5])
def test_impossible_groups(size):
    with pytest.raises(InvalidInputError, match="group_size"):
        group_epsilon(SAMPLED, DELTA, group_size=size)
