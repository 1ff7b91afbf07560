"""The limit holds whatever outputs choose the next event, and little is lost for it."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

from privmix import InvalidInputError
from privmix.accounting import (
    ComposedEvent,
    EligibleGaussianEvent,
    GaussianEvent,
    GroupEvent,
    PoissonGaussianEvent,
    SignedGaussianEvent,
    UniformGaussianEvent,
    account,
    adaptive_reading,
    admits,
    delta_profile,
    event_time,
    gdp_delta,
    gdp_mu_from,
)
from privmix.accounting.filters import _REVEALING, _dominates

LIMIT, DELTA = 1.0, 1e-5


def gaussian(gdp_mu):
    return GaussianEvent(noise_multiplier=1.0 / gdp_mu)


def revealing(prob):
    """Gives everything away, with a small probability."""
    return PoissonGaussianEvent(sampling_prob=prob, noise_multiplier=0.05)


def one_step_delta(event, epsilons):
    """Hockey-stick divergence of one step, with the record against without, at any real epsilon."""
    if isinstance(event, GaussianEvent):
        gdp_mu = 1.0 / event.noise_multiplier
        quantile = gdp_mu / 2.0 - epsilons / gdp_mu
        return ndtr(quantile) - np.exp(epsilons) * ndtr(quantile - gdp_mu)
    s, q = event.noise_multiplier, event.sampling_prob
    inside = (np.exp(epsilons) - (1.0 - q)) / q
    with np.errstate(divide="ignore", invalid="ignore"):
        start = s * np.log(inside) + 0.5 / s  # the loss passes epsilon here, in deviations
        with_record = (1.0 - q) * ndtr(-start) + q * ndtr(1.0 / s - start)
        deltas = with_record - np.exp(epsilons) * ndtr(-start)
    return np.where(inside <= 0.0, 1.0 - np.exp(epsilons), deltas)


def chosen_by_output_delta(first, options, epsilon):
    """Delta of a Gaussian event and then the worst of the options for what came out of it."""
    gdp_mu = 1.0 / first.noise_multiplier
    edges = np.linspace(-12.0, 12.0 + gdp_mu, 400_001)
    y = (edges[1:] + edges[:-1]) / 2.0
    loss = gdp_mu * y - gdp_mu**2 / 2.0
    density = np.exp(-((y - gdp_mu) ** 2) / 2.0) / math.sqrt(2.0 * math.pi)
    worst = np.max([one_step_delta(event, epsilon - loss) for event in options], axis=0)
    return float((density * worst).sum() * (edges[1] - edges[0]))


def largest(make, fits, low=1e-8, high=1.0):
    """The largest event that fits, to half a per cent."""
    while high / low > 1.005:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(make(middle)) else (low, middle)
    return make(low)


def largest_by_realised_events(make, first):
    def fits(event):
        return account(ComposedEvent(events=(first, event)), DELTA).epsilon <= LIMIT

    return largest(make, fits)


def largest_admitted(make, first):
    def fits(event):
        return admits([first], event, epsilon_limit=LIMIT, delta=DELTA).fits

    return largest(make, fits)


def test_a_choice_by_the_first_output_does_not_pass_the_limit():
    """Design 4.4, item 8: a ledger of realised events would admit either of two events."""
    first = gaussian(0.2)
    options = [largest_by_realised_events(make, first) for make in (gaussian, revealing)]
    for option in options:
        assert account(ComposedEvent(events=(first, option)), DELTA).epsilon <= LIMIT
    broken = chosen_by_output_delta(first, options, LIMIT)
    assert 1.6e-5 < broken < 2e-5  # far beyond the limit's 1e-5
    admitted = [o for o in options if admits([first], o, epsilon_limit=LIMIT, delta=DELTA).fits]
    assert len(admitted) < 2
    # The largest ones that are admitted stay within the limit, and are not much smaller.
    fitting = [largest_admitted(make, first) for make in (gaussian, revealing)]
    assert chosen_by_output_delta(first, fitting, LIMIT) <= DELTA
    assert 1.0 / fitting[0].noise_multiplier > 0.97 / options[0].noise_multiplier
    assert fitting[1].sampling_prob > 2e-8


EVENTS = [
    PoissonGaussianEvent(sampling_prob=64 / 50000, noise_multiplier=2.5, count=50000),
    PoissonGaussianEvent(sampling_prob=0.01, noise_multiplier=2.0, count=1000),
    SignedGaussianEvent(sampling_prob=0.0036, noise_multiplier=1.0, count=10003),
    EligibleGaussianEvent(
        eligible_prob=0.03, sampling_prob=64 / 1500, noise_multiplier=5.0, count=50000
    ),
    GaussianEvent(noise_multiplier=6.0),
    ComposedEvent(
        events=(
            GaussianEvent(noise_multiplier=8.0),
            SignedGaussianEvent(sampling_prob=0.003, noise_multiplier=1.2, count=5000),
        )
    ),
    GroupEvent(
        unit="patient",
        group_size=3,
        event=PoissonGaussianEvent(sampling_prob=0.01, noise_multiplier=6.0, count=1000),
    ),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.mechanism)
@pytest.mark.parametrize("limit", [1.0, 8.0])
def test_a_stretch_of_the_process_dominates_the_event(event, limit):
    time = event_time(event, epsilon_limit=limit, delta=DELTA)
    gdp_mu = math.sqrt(time) * gdp_mu_from(limit, DELTA)
    revealed = -math.expm1(-_REVEALING * DELTA * time)
    epsilons = np.linspace(0.0, 6.0, 137)  # other points than those it was checked at
    deltas = delta_profile(event, epsilons)
    stretch = [revealed + (1.0 - revealed) * gdp_delta(gdp_mu, e) for e in epsilons]
    assert (deltas <= np.asarray(stretch) * (1.0 + 1e-6) + 1e-14).all()


@pytest.mark.parametrize("event", EVENTS[:-1], ids=lambda event: event.mechanism)
def test_full_adaptivity_costs_little(event):
    reading = adaptive_reading([event, event, event], epsilon_limit=8.0, delta=DELTA)
    assert reading.planned_epsilon <= reading.epsilon <= 1.03 * reading.planned_epsilon
    assert reading.fits
    assert reading.slack == 8.0 - reading.epsilon


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.mechanism)
def test_one_charge_may_meet_the_limit_exactly(event):
    limit = account(event, DELTA).epsilon
    reading = admits([], event, epsilon_limit=limit, delta=DELTA)
    assert reading.fits
    assert reading.epsilon == reading.planned_epsilon == limit
    assert reading.slack == 0.0
    assert not admits([], event, epsilon_limit=limit * (1 - 1e-9), delta=DELTA).fits
    assert not admits([event], event, epsilon_limit=limit, delta=DELTA).fits


def test_plans_fixed_together_are_one_event_accounted_exactly():
    group = ComposedEvent(events=(EVENTS[0], EVENTS[2]))
    limit = account(group, DELTA).epsilon
    assert admits([], group, epsilon_limit=limit, delta=DELTA).fits
    assert not admits([EVENTS[0]], EVENTS[2], epsilon_limit=limit, delta=DELTA).fits


def test_the_times_of_gaussian_events_are_exact():
    scale = gdp_mu_from(LIMIT, DELTA)
    assert event_time(gaussian(scale), epsilon_limit=LIMIT, delta=DELTA) == pytest.approx(1.0)
    five = adaptive_reading([gaussian(0.1)] * 5, epsilon_limit=LIMIT, delta=DELTA)
    assert five.epsilon == pytest.approx(five.planned_epsilon, rel=0.02)


def test_domination_is_refused_just_below_the_exact_parameter():
    epsilons = np.linspace(0.0, 3.0, 400)
    deltas = np.array([gdp_delta(0.3, e) for e in epsilons])
    assert _dominates(0.3 * 1.001, 1e-9, epsilons, deltas)
    assert not _dominates(0.3 * 0.999, 1e-12, epsilons, deltas)


def test_what_was_charged_past_the_limit_blocks_everything_after_it():
    over = gaussian(1.0)
    assert not adaptive_reading([over], epsilon_limit=LIMIT, delta=DELTA).fits
    assert not admits([over], gaussian(1e-6), epsilon_limit=LIMIT, delta=DELTA).fits
    assert not admits([gaussian(0.1), over], gaussian(1e-6), epsilon_limit=LIMIT, delta=DELTA).fits
    boundless = GaussianEvent(noise_multiplier=1e-4)
    reading = admits([gaussian(0.1)], boundless, epsilon_limit=LIMIT, delta=DELTA)
    assert reading.epsilon is None
    assert not reading.fits
    assert reading.slack == 0.0


def test_no_charges_cost_nothing():
    reading = adaptive_reading([], epsilon_limit=LIMIT, delta=DELTA)
    assert (reading.epsilon, reading.planned_epsilon, reading.slack) == (0.0, 0.0, LIMIT)


def test_events_of_another_relation_or_unit_are_refused():
    uniform = UniformGaussianEvent(num_records=9, mix_size=3, noise_multiplier=90.0)
    with pytest.raises(InvalidInputError, match="neighboring_relation"):
        admits([EVENTS[0]], uniform, epsilon_limit=LIMIT, delta=DELTA)
    with pytest.raises(InvalidInputError, match="unit"):
        admits([EVENTS[0]], EVENTS[-1], epsilon_limit=LIMIT, delta=DELTA)
    with pytest.raises(InvalidInputError, match="epsilon_limit"):
        admits([], EVENTS[0], epsilon_limit=0.0, delta=DELTA)


def test_groups_of_different_sizes():
    """Their times are of one owner each; the first charge's chain takes the process along."""
    small = EVENTS[-1]
    large = small.model_copy(update={"group_size": 5})
    for first, second in ((small, large), (large, small)):
        reading = admits([first], second, epsilon_limit=8.0, delta=DELTA)
        assert reading.fits
        assert reading.epsilon > account(large, DELTA).epsilon


def test_the_integral_of_one_option_is_the_composition():
    """Guards the integral above."""
    first, second = gaussian(0.2), gaussian(0.15)
    found = chosen_by_output_delta(first, [second], LIMIT)
    assert found == pytest.approx(gdp_delta(0.25, LIMIT), rel=1e-6)
