"""Sampling without replacement under replace_one: the loss distribution against integrals."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr

from privmix.accounting import (
    ComposedEvent,
    GaussianEvent,
    UniformGaussianEvent,
    account,
    gdp_epsilon,
    rdp_epsilon,
)
from privmix.accounting.pld import delta_bounds, epsilon_bounds


def uniform(num_records, mix_size, noise_multiplier, count=1):
    return UniformGaussianEvent(
        num_records=num_records,
        mix_size=mix_size,
        noise_multiplier=noise_multiplier,
        count=count,
    )


def density(x, prob, own, other, noise):
    def normal(mean):
        return np.exp(-((x - mean) ** 2) / (2.0 * noise**2)) / (noise * math.sqrt(2.0 * math.pi))

    return (1.0 - prob) * normal(other) + prob * normal(own)


@pytest.mark.parametrize(("prob", "noise"), [(0.1, 0.7), (0.5, 1.5), (0.01, 1.0)])
def test_one_step_is_bounded_tightly(prob, noise):
    """The worst step of all: another record in the place of the replaced one, one sensitivity away."""
    event = uniform(1000, round(1000 * prob), noise)
    for epsilon in (0.0, 0.01, 0.1, 0.5):
        loss = math.log1p(math.expm1(epsilon) / prob)
        start = noise * loss + 0.5 / noise  # in deviations
        truth = prob * (ndtr(1.0 / noise - start) - math.exp(loss) * ndtr(-start))
        lower, upper = delta_bounds(event, epsilon)
        assert lower <= truth * (1.0 + 1e-7) + 1e-14
        assert truth * (1.0 - 1e-7) <= upper
        assert upper - lower <= 5e-3 * truth + 1e-9


@pytest.mark.parametrize("prob", [0.1, 0.4])
def test_two_steps_of_any_kind_are_bounded(prob):
    """Each step with its own replaced, replacing and other record, all within one sensitivity."""
    noise = 1.2
    x = np.linspace(-9.0, 10.0, 1500)
    cell = (x[1] - x[0]) ** 2
    # (replaced, replacing, another one)
    kinds = [(0.0, 1.0, 0.0), (0.0, 1.0, 1.0), (0.0, 1.0, 0.5), (1.0, 0.0, 0.0), (1.0, 0.0, 1.0)]
    event = uniform(100, round(100 * prob), noise, count=2)
    largest = 0.0
    for epsilon in (0.05, 0.3):
        upper = delta_bounds(event, epsilon)[1]
        for first, second in itertools.product(kinds, kinds):
            p = np.outer(*(density(x, prob, kind[0], kind[2], noise) for kind in (first, second)))
            q = np.outer(*(density(x, prob, kind[1], kind[2], noise) for kind in (first, second)))
            found = cell * float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
            assert found <= upper * (1.0 + 1e-6)
            largest = max(largest, found / upper)
    assert largest > 0.9  # the bound is not idle


def test_it_certifies_less_than_renyi_divergences():
    for event in (uniform(1000, 10, 3.0, 1000), uniform(5000, 50, 4.0, 100)):
        lower, upper = epsilon_bounds(event, 1e-5)
        assert lower <= upper < 0.7 * rdp_epsilon(event, 1e-5)
        assert account(event, 1e-5).epsilon == upper


def test_sampling_everyone_is_the_plain_gaussian_mechanism():
    event = uniform(20, 20, 3.0, 4)
    assert account(event, 1e-5).epsilon == pytest.approx(gdp_epsilon(2.0 / 3.0, 1e-5))


def test_sampling_all_but_one_is_close_to_it():
    lower, upper = epsilon_bounds(uniform(1000, 999, 2.0), 1e-5)
    assert lower <= upper <= gdp_epsilon(0.5, 1e-5) * 1.001
    assert upper >= 0.99 * gdp_epsilon(0.5, 1e-5)


def test_it_composes_with_other_mechanisms_of_its_relation():
    gaussian = GaussianEvent(noise_multiplier=5.0, neighboring_relation="replace_one")
    both = ComposedEvent(events=(uniform(1000, 10, 3.0, 1000), gaussian))
    parts = [account(event, 1e-5).epsilon for event in both.events]
    assert max(parts) < account(both, 1e-5).epsilon < sum(parts)


def test_what_fits_no_lattice_has_its_renyi_bound():
    reading = account(uniform(1000, 10, 0.02, 10), 1e-5)
    assert reading.accountants["pld"] is None
    assert reading.epsilon == reading.accountants["rdp"].epsilon
