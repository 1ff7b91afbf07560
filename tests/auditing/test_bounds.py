"""Bounds from counts: against exact probabilities, and calibrated where nothing is to be found."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from privmix.accounting import (
    AllocationGaussianEvent,
    ComposedEvent,
    GaussianEvent,
    GroupEvent,
    PoissonGaussianEvent,
    UniformGaussianEvent,
    account,
    gdp_epsilon,
    gdp_tradeoff,
    tradeoff_curve,
)
from privmix.auditing import (
    Counts,
    ErrorRates,
    NoiseFamily,
    clopper_pearson_upper,
    epsilon_from_rates,
    error_rates,
    gdp_mu_from_rates,
)
from privmix.auditing.bounds import smallest_factor, with_noise


@pytest.mark.parametrize("trials", [1, 7, 100])
@pytest.mark.parametrize("confidence", [0.5, 0.99])
def test_clopper_pearson_is_the_probability_at_which_so_few_are_as_unlikely_as_allowed(
    trials, confidence
):
    for successes in range(trials):
        bound = clopper_pearson_upper(successes, trials, confidence)
        assert binom.cdf(successes, trials, bound) == pytest.approx(1 - confidence, rel=1e-6)
    assert clopper_pearson_upper(trials, trials, confidence) == 1.0


def test_no_trials_say_nothing():
    assert clopper_pearson_upper(0, 0, 0.9) == 1.0
    rates = error_rates(Counts(0, 0, 0, 0), 0.9)
    assert rates == (1.0, 1.0)
    assert epsilon_from_rates(rates, 1e-5) == gdp_mu_from_rates(rates) == 0.0


def test_the_two_rates_share_the_error():
    """Each is Clopper and Pearson's bound at half of the error, so that both hold at the whole."""
    found = error_rates(Counts(3, 200, 40, 100), 0.9)
    due = [clopper_pearson_upper(*counts, 0.95) for counts in ((3, 200), (40, 100))]
    np.testing.assert_allclose(found, due, rtol=1e-12)


def test_both_rates_hold_together():
    """Of all outcomes of 30 and 20 trials, those outside the bounds have at most the probability allowed."""
    first, second, confidence = 0.2, 0.4, 0.9
    missed = 0.0
    for alarms in range(31):
        for misses in range(21):
            rates = error_rates(Counts(alarms, 30, misses, 20), confidence)
            if rates.false_positive_rate < first or rates.false_negative_rate < second:
                missed += binom.pmf(alarms, 30, first) * binom.pmf(misses, 20, second)
    assert 0.02 < missed <= 0.1


@pytest.mark.parametrize("rates", [ErrorRates(0.01, 0.5), ErrorRates(0.5, 0.01)])
def test_epsilon_of_rates_does_not_depend_on_which_data_set_is_which(rates):
    assert epsilon_from_rates(rates, 1e-5) == pytest.approx(math.log((1 - 1e-5 - 0.5) / 0.01))


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
def test_exact_rates_of_a_gaussian_mechanism_give_its_mu_and_no_more_than_its_epsilon(mu):
    for alarm in (0.001, 0.1, 0.7):
        rates = ErrorRates(alarm, float(gdp_tradeoff(mu, alarm)))
        assert gdp_mu_from_rates(rates) == pytest.approx(mu)
        assert epsilon_from_rates(rates, 1e-5) < gdp_epsilon(mu, 1e-5)


@pytest.mark.parametrize(
    "event",
    [
        GaussianEvent(noise_multiplier=2.0),
        PoissonGaussianEvent(sampling_prob=0.1, noise_multiplier=1.0, count=40),
        AllocationGaussianEvent(
            num_rows=10,
            rows_per_record=2,
            noise_multiplier=1.0,
            presence_noise_multiplier=2.0,
            neighboring_relation="replace_one",
        ),
        GroupEvent(unit="patient", group_size=2, event=GaussianEvent(noise_multiplier=3.0)),
    ],
)
def test_a_family_has_the_certified_curve_and_finds_back_its_own_noise(event):
    family = NoiseFamily(event)
    fpr = np.array([1e-3, 0.05, 0.3, 0.8])
    curve = np.interp(fpr, *tradeoff_curve(event, num_points=401))
    assert family.least_false_negative_rates(fpr) == pytest.approx(curve, abs=2e-3)
    # Rates on the curve of 1.5 times the noise are contradicted by that noise, nearly, and by no less.
    least = float(family.least_false_negative_rates(0.2, 1.5))
    factor = family.smallest_factor(ErrorRates(0.2, least))
    assert factor == pytest.approx(1.5, rel=0.01)
    assert family.factors(np.array([0.2]), np.array([least]))[0] == pytest.approx(1.5, rel=0.05)
    reading = account(with_noise(event, factor), 1e-5).accountants["pld"]
    assert family.epsilon(factor, 1e-5) == (reading.lower or 0.0)
    assert not family.refutes(ErrorRates(0.2, least))


@pytest.mark.parametrize(
    "event",
    [
        PoissonGaussianEvent(sampling_prob=0.1, noise_multiplier=1.0, count=40),
        UniformGaussianEvent(num_records=100, mix_size=50, noise_multiplier=1.0, count=10),
    ],
)
def test_what_a_factor_proves_is_no_more_than_is_proved_from_below(event):
    found = account(event, 1e-5)
    lower = found.accountants["pld"].lower
    assert 0.9 * found.epsilon < NoiseFamily(event).epsilon(1.0, 1e-5) <= lower < found.epsilon


def test_where_nothing_is_proved_from_below_a_factor_proves_nothing():
    event = PoissonGaussianEvent(sampling_prob=0.1, noise_multiplier=1.0, count=40)
    chain = GroupEvent(unit="patient", group_size=2, event=event)
    assert NoiseFamily(chain).epsilon(1.0, 1e-5) == 0.0 < account(chain, 1e-5).epsilon


def test_rates_that_prove_nothing_give_zero():
    family = NoiseFamily(GaussianEvent(noise_multiplier=1.0))
    factor = family.smallest_factor(ErrorRates(0.6, 0.6))
    assert factor == math.inf and family.epsilon(factor, 1e-5) == 0.0


def test_rates_of_an_open_release_go_beyond_every_factor():
    assert smallest_factor(lambda factor: True) == pytest.approx(2.0**-6)


def test_noise_of_all_parts_is_multiplied():
    parts = (GaussianEvent(noise_multiplier=1.0), GaussianEvent(noise_multiplier=3.0))
    changed = with_noise(ComposedEvent(events=parts), 2.0)
    assert [part.noise_multiplier for part in changed.events] == [2.0, 6.0]


def test_the_family_of_the_gaussian_mechanism_is_that_of_mu():
    rates = ErrorRates(0.1, 0.3)
    mu = gdp_mu_from_rates(rates)
    found = NoiseFamily(GaussianEvent(noise_multiplier=1.0)).smallest_factor(rates)
    assert 1 / found == pytest.approx(mu, rel=0.01)
    assert norm.cdf(norm.ppf(0.9) - mu) == pytest.approx(0.3)
