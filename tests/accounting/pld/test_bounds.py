"""The loss distribution's bounds against the truth, computed in independent ways."""

import math

import numpy as np
import pytest

from privmix.accounting import (
    ComposedEvent,
    EligibleGaussianEvent,
    GaussianEvent,
    PoissonGaussianEvent,
    SignedGaussianEvent,
    UniformGaussianEvent,
    account,
    gdp_delta,
    gdp_epsilon,
)
from privmix.accounting.pld import (
    bounds,
    delta_bounds,
    delta_profile,
    epsilon_bounds,
    epsilon_upper,
)
from privmix.accounting.pld.composition import Tilted


def poisson(sampling_prob, noise_multiplier, count=1):
    return PoissonGaussianEvent(
        sampling_prob=sampling_prob, noise_multiplier=noise_multiplier, count=count
    )


def signed(sampling_prob, noise_multiplier, count=1):
    return SignedGaussianEvent(
        sampling_prob=sampling_prob, noise_multiplier=noise_multiplier, count=count
    )


def eligible(eligible_prob, sampling_prob, noise_multiplier, count=1):
    return EligibleGaussianEvent(
        eligible_prob=eligible_prob,
        sampling_prob=sampling_prob,
        noise_multiplier=noise_multiplier,
        count=count,
    )


def one_step_deltas(event, epsilon):
    """Both hockey-stick divergences of one step, by the midpoint rule on the densities."""
    s, q = event.noise_multiplier, event.sampling_prob
    share = getattr(event, "eligible_prob", 1.0)
    edges = np.linspace(-12.0 * s - 1.0, 12.0 * s + 1.0, 2_000_001)
    x = (edges[1:] + edges[:-1]) / 2.0

    def gaussian(mean):
        return np.exp(-((x - mean) ** 2) / (2.0 * s**2)) / (s * np.sqrt(2.0 * np.pi))

    idle = gaussian(0.0)
    is_signed = isinstance(event, SignedGaussianEvent)
    entered = (gaussian(1.0) + gaussian(-1.0)) / 2.0 if is_signed else gaussian(1.0)
    with_record = (1.0 - q) * idle + q * entered
    width = edges[1] - edges[0]
    return tuple(
        share * width * float(np.maximum(p - np.exp(epsilon) * r, 0.0).sum())
        for p, r in ((with_record, idle), (idle, with_record))
    )


ONE_STEP = [
    poisson(0.01, 1.0),
    poisson(0.3, 0.4),
    poisson(0.9, 3.0),
    signed(0.05, 0.7),
    signed(1.0, 1.0),
    eligible(0.03, 0.2, 0.8),
]


@pytest.mark.parametrize("event", ONE_STEP, ids=str)
def test_one_step_deltas_against_numerical_integration_in_both_directions(event):
    for epsilon in (0.0, 0.003, 0.02, 0.1, 0.5, 1.5):
        remove, add = one_step_deltas(event, epsilon)
        lower, upper = delta_bounds(event, epsilon)
        truth = max(remove, add)
        assert lower <= truth * (1 + 1e-7) + 1e-13
        assert upper >= truth * (1 - 1e-7)
        assert upper - lower <= 2e-3 * truth + 1e-9


def test_removal_is_not_always_the_worse_direction():
    """So that taking the maximum is put to the test above."""
    worse = {np.argmax(one_step_deltas(e, eps)) for e in ONE_STEP for eps in (0.0, 0.003, 0.1)}
    assert one_step_deltas(poisson(0.9, 3.0), 0.02)[1] > 0.0
    assert 0 in worse


# The truth comes from an inversion integral: no lattice, no Fourier transform (conftest.py).
COMPOSED = [
    (poisson(64 / 50000, 1.26, 50000), 1e-5),
    (poisson(1e-3, 20.0, 10**6), 1e-12),  # a default grid says 1.67 here; the truth is 0.317
    (poisson(0.0952, 5.63, 1235), 7e-10),
    (poisson(0.00283, 2.19, 11485), 4e-12),
    (signed(0.0036, 1.0, 10003), 1e-5),
    (signed(0.0114, 1.13, 189629), 4e-12),
    (signed(0.091, 2.29, 1092), 2e-10),
    (eligible(0.03, 64 / 1500, 1.26, 50000), 1e-5),
    (ComposedEvent(events=[poisson(0.01, 1.0, 1000), GaussianEvent(noise_multiplier=2.0)]), 1e-5),
    (ComposedEvent(events=[poisson(0.01, 1.0, 500), signed(0.02, 1.5, 800)]), 1e-7),
]


@pytest.mark.parametrize(("event", "delta"), COMPOSED, ids=str)
def test_bounds_bracket_the_truth(event, delta, true_delta):
    lower, upper = epsilon_bounds(event, delta)
    assert true_delta(event, upper) <= delta * (1 + 1e-7)
    assert true_delta(event, lower) >= delta * (1 - 1e-7)
    assert upper - lower <= 2e-3 * upper


def test_bounds_bracket_the_truth_on_random_events(true_delta):
    rng = np.random.default_rng(11)
    for make in (poisson, signed) * 6:
        event = make(
            10 ** rng.uniform(-3, -1.3),
            10 ** rng.uniform(-0.1, 0.8),
            int(10 ** rng.uniform(3, 5.5)),
        )
        delta = 10 ** rng.uniform(-12, -3)
        lower, upper = epsilon_bounds(event, delta)
        assert true_delta(event, upper) <= delta * (1 + 1e-7)
        assert true_delta(event, lower) >= delta * (1 - 1e-7)
        assert upper - lower <= 3e-3 * upper


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-2])
@pytest.mark.parametrize("noise_multiplier", [0.05, 0.7, 3.0, 50.0])
def test_the_lattice_holds_a_gaussian(noise_multiplier, delta):
    """A step of next to no cost sends the plain Gaussian, known exactly, through the lattice."""
    event = ComposedEvent(
        events=[GaussianEvent(noise_multiplier=noise_multiplier), poisson(1e-9, 5.0)]
    )
    lower, upper = epsilon_bounds(event, delta)
    exact = gdp_epsilon(1.0 / noise_multiplier, delta)
    assert lower <= exact * (1 + 1e-6) + 1e-9
    assert upper >= exact * (1 - 1e-9)
    assert upper - lower <= 3e-3 * exact + 1e-9


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
@pytest.mark.parametrize(("noise_multiplier", "count"), [(0.3, 1), (2.0, 7), (1000.0, 10**6)])
def test_sampling_everyone_is_the_analytic_gaussian(noise_multiplier, count, delta):
    lower, upper = epsilon_bounds(poisson(1.0, noise_multiplier, count), delta)
    exact = gdp_epsilon(count**0.5 / noise_multiplier, delta)
    assert upper == pytest.approx(exact, rel=1e-6)
    assert lower <= upper


def test_several_deltas_at_once_agree_with_one_at_a_time():
    event, deltas = poisson(0.01, 1.0, 1000), [1e-3, 1e-5, 1e-9]
    together = epsilon_upper(event, deltas)
    alone = [epsilon_bounds(event, delta)[1] for delta in deltas]
    assert together == pytest.approx(alone, rel=1e-3)


def test_profile_agrees_with_single_deltas():
    event = signed(0.01, 1.0, 1000)
    epsilons = np.linspace(0.0, 2.0, 9)
    profile = delta_profile(event, epsilons)
    bounds = [delta_bounds(event, float(epsilon)) for epsilon in epsilons]
    for value, (lower, upper) in zip(profile, bounds, strict=True):
        assert lower <= value <= upper * 1.01 + 1e-14
    assert (np.diff(profile) <= 0.0).all()
    gaussian = delta_profile(GaussianEvent(noise_multiplier=1.0), epsilons)
    assert gaussian == pytest.approx([gdp_delta(1.0, e) for e in epsilons], rel=1e-9)


@pytest.mark.parametrize(
    "event",
    [
        poisson(1e-5, 0.3, 10**5),  # rare and nearly revealing
        poisson(0.5, 0.02),  # one step of loss above a thousand
        poisson(0.2, 0.05, 100),
        poisson(1e-9, 1.0, 10**6),
        signed(1.0, 0.1, 10),
        eligible(1e-4, 0.3, 0.3, 1000),
        eligible(0.03, 1e-4, 0.3, 10**4),
        poisson(0.3, 1e6, 3),
    ],
    ids=str,
)
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
def test_extremes_give_ordered_finite_bounds(event, delta):
    lower, upper = epsilon_bounds(event, delta)
    assert 0.0 <= lower <= upper < np.inf


@pytest.mark.parametrize(
    "event", [signed(1.0, 0.01), eligible(0.5, 1.0, 1e-3), poisson(1e-4, 1e-3, 10)], ids=str
)
def test_what_fits_no_lattice_is_left_to_the_other_accountants(event):
    """P-masses below the smallest float would be lost, and with them large Q-masses."""
    assert epsilon_bounds(event, 1e-5) is None
    accounting = account(event, 1e-5)
    assert accounting.accountants["pld"] is None
    assert accounting.epsilon == accounting.accountants["rdp"].epsilon > 1000.0


def test_signed_pair_dominates_in_several_dimensions():
    """Others present, directions and norms random: the divergence stays within the pair's.

    Monte Carlo, values in [0, 1], 12 estimates each with Hoeffding's bound at 1e-9: a false alarm
    with probability 1.2e-8.
    """
    rng = np.random.default_rng(3)
    samples, slack = 200_000, np.sqrt(np.log(1e9) / (2 * 200_000))
    for trial in range(6):
        dims, s, q = 1 + trial, rng.uniform(0.3, 1.0), rng.uniform(0.1, 0.9)
        records = rng.normal(size=(3, dims))
        records *= (rng.uniform(0.5, 1.0, (3, 1)) if trial % 2 else 1.0) / np.linalg.norm(
            records, axis=1, keepdims=True
        )
        coins = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), -1).reshape(-1, 3)
        weights = np.where(coins == 0, 1.0 - q, q / 2.0).prod(axis=1)
        without = (coins[:, 0] == 0) * weights / (1.0 - q)
        centres = coins @ records
        drawn = rng.choice(len(weights), size=samples, p=weights)
        outcome = centres[drawn] + s * rng.normal(size=(samples, dims))
        density = np.exp(-((outcome[:, None] - centres) ** 2).sum(-1) / (2 * s**2))
        ratio = (density @ without) / (density @ weights)  # Q/P
        for epsilon in (0.2, 1.0):
            estimate = np.maximum(1.0 - np.exp(epsilon) * ratio, 0.0).mean()
            assert estimate - slack <= delta_bounds(signed(q, s), epsilon)[1]


@pytest.mark.parametrize("event", [poisson(0.02, 1.0, 300), signed(0.02, 0.7, 300)], ids=str)
def test_what_lies_beyond_the_lattice_counts_as_lost(event, true_delta, monkeypatch):
    """A lattice cut at three deviations misses what decides a small delta; the upper bound covers it."""
    epsilon = epsilon_upper(event, [1e-6])[0]
    truth = true_delta(event, epsilon)
    monkeypatch.setattr(bounds, "_reach", lambda steps, delta: 3.0)
    lower, upper = delta_bounds(event, epsilon)
    assert lower <= truth * (1 + 1e-7)
    assert upper >= truth


def test_errors_of_the_transform_widen_both_bounds():
    losses, masses = np.array([-1.0, 0.5, 1.0, 2.0]), np.array([0.4, 0.3, 0.2, 0.1])

    def bound(upper, round_off=0.0, aliased=0.0, relative_error=0.0):
        tilted = Tilted(1.0, 0.0, losses, masses, round_off, aliased, relative_error)
        return math.exp(tilted.log_delta(0.25, upper))

    exact = float((masses * np.exp(-losses) * -np.expm1(np.minimum(0.25 - losses, 0.0))).sum())
    for upper in (True, False):
        assert bound(upper) == pytest.approx(exact)
    for error in ({"round_off": 1e-3}, {"aliased": 1e-3}, {"relative_error": 1e-3}):
        assert bound(True, **error) > exact * (1 + 1e-6)
        assert bound(False, **error) < exact * (1 - 1e-6)


def test_both_directions_of_neighbours_count(true_delta):
    """Removal is the worse direction here: the bound of the other one alone would not cover it."""
    event = poisson(0.05, 0.8, 20)
    _, upper = epsilon_bounds(event, 1e-5)
    assert true_delta(event, upper) <= 1e-5 * (1 + 1e-7)
    assert true_delta(event, 0.99 * upper) > 1e-5


def test_bounds_of_very_many_steps_do_not_jump_with_the_noise():
    """A hundred million steps fit into no fine lattice; what is coarser changes little by little."""

    def upper(noise):
        sizes = {"num_records": 10**8, "mix_size": 64, "count": 10**8}
        return epsilon_upper(UniformGaussianEvent(noise_multiplier=noise, **sizes), [1e-5])[0]

    found = [upper(noise) for noise in (0.65290, 0.65295, 0.65300)]
    assert max(found) < 1.03 * min(found)
