"""Random allocation against independent computations: integrals, another package, simulation."""

import math

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

from privmix import InvalidInputError
from privmix.accounting import (
    AllocationGaussianEvent,
    ComposedEvent,
    GaussianEvent,
    PoissonGaussianEvent,
    SignedAllocationGaussianEvent,
    SignedGaussianEvent,
    account,
    delta_at,
    delta_profile,
    epsilon_at,
    event_from_json,
    gdp_epsilon,
)
from privmix.accounting.pld import delta_bounds, epsilon_bounds
from privmix.accounting.pld.allocation import AllocationStep, _law, _one


def allocation(rows_per_record, num_rows, noise_multiplier, **options):
    return AllocationGaussianEvent(
        rows_per_record=rows_per_record,
        num_rows=num_rows,
        noise_multiplier=noise_multiplier,
        **options,
    )


def replaced(rows_per_record, num_rows, noise_multiplier):
    """Under replace_one, a record that may turn into its opposite."""
    return allocation(
        rows_per_record,
        num_rows,
        noise_multiplier / 2.0,
        presence_noise_multiplier=noise_multiplier,
        neighboring_relation="replace_one",
    )


def call(strike, noise):
    """E (u - k)_+ of the lognormal u, mean one: the formula of Black and Scholes."""
    positive = np.maximum(strike, 1e-300)
    d = -np.log(positive) * noise + 0.5 / noise
    value = ndtr(d) - np.exp(np.log(positive) + log_ndtr(d - 1.0 / noise))
    return np.where(strike <= 0.0, 1.0 - strike, value)


def one_of_few_deltas(num_rows, noise, epsilon):
    """Both hockey-stick divergences for 2 or 3 rows: the last variable in closed form."""
    nodes = np.linspace(-13.0, 13.0 + 1.0 / noise, 1201)
    weights = np.exp(-(nodes**2) / 2.0) * (nodes[1] - nodes[0]) / math.sqrt(2.0 * math.pi)
    u = np.exp(nodes / noise - 0.5 / noise**2)
    if num_rows == 2:
        rest, mass = u, weights
    else:
        rest, mass = (u[:, None] + u[None, :]).ravel(), np.outer(weights, weights).ravel()
    k = math.exp(epsilon)
    remove = float((mass * call(num_rows * k - rest, noise)).sum()) / num_rows
    # E (1 - k Z)_+ = E (k Z - 1)_+ + 1 - k
    strike = num_rows / k - rest
    put = call(strike, noise) - 1.0 + strike
    return remove, float((mass * put).sum()) * k / num_rows


@pytest.mark.parametrize(("num_rows", "noise"), [(2, 1.0), (2, 0.4), (2, 5.0), (3, 0.8)])
def test_bounds_bracket_integrals_for_few_rows(num_rows, noise):
    for epsilon in (0.05, 0.3, 1.0, 2.0):
        truth = max(one_of_few_deltas(num_rows, noise, epsilon))
        if truth < 1e-9:
            continue
        lower, upper = delta_bounds(allocation(1, num_rows, noise), epsilon)
        assert lower <= truth * (1.0 + 1e-6)
        assert upper >= truth * (1.0 - 1e-6)
        assert upper - lower <= 0.01 * truth


# Source: PyPI's pld-accounting 2.0 (Feldman and Shenfeld 2026, arXiv 2602.17284),
# gaussian_allocation_epsilon_range, default accuracy: lower and upper bound.
@pytest.mark.parametrize(
    ("rows_per_record", "num_rows", "noise", "delta", "low", "high"),
    [
        (1, 100, 1.0, 1e-5, 0.6085096, 0.6356520),
        (1, 1000, 1.0, 1e-5, 0.1363736, 0.1421823),
        (1, 1000, 0.5, 1e-5, 3.1255076, 3.1460680),
        (1, 10, 0.7, 1e-5, 4.3456844, 4.3788857),
        (1, 10000, 0.6, 1e-5, 0.2644113, 0.2773646),
        (2, 20, 1.5, 1e-5, 1.3162187, 1.3826508),
        (4, 100, 2.0, 1e-5, 0.7636375, 0.8038438),
        (3, 300, 1.0, 1e-5, 0.9328553, 0.9766477),
        (8, 64, 2.0, 1e-6, 2.3877497, 2.4600595),
        (16, 1000, 1.5, 1e-8, 1.9941183, 2.0660052),
    ],
)
def test_bounds_lie_within_those_of_another_package(
    rows_per_record, num_rows, noise, delta, low, high
):
    lower, upper = epsilon_bounds(allocation(rows_per_record, num_rows, noise), delta)
    assert low <= lower <= upper <= high
    assert upper - lower <= 0.005 * upper


def test_repetitions_lie_within_those_of_another_package():
    """As above, four epochs."""
    lower, upper = epsilon_bounds(allocation(1, 50, 0.8, count=4), 1e-6)
    assert 3.4606176 <= lower <= upper <= 3.5360512


@pytest.mark.parametrize(
    ("rows_per_record", "num_rows", "noise"),
    [(64, 50000, 1.26), (1, 1000, 1.0), (7, 100, 0.8), (10, 1000, 2.0)],
)
def test_allocation_costs_no_more_than_poisson_sampling(rows_per_record, num_rows, noise):
    """Feldman and Shenfeld 2026 for Gaussian noise; and not much less."""
    poisson = PoissonGaussianEvent(
        sampling_prob=rows_per_record / num_rows, noise_multiplier=noise, count=num_rows
    )
    lower, upper = epsilon_bounds(allocation(rows_per_record, num_rows, noise), 1e-5)
    assert lower <= upper <= epsilon_bounds(poisson, 1e-5)[1]
    assert upper - lower <= 5e-3 * upper


def test_both_bounds_hold_at_many_epsilons():
    event = allocation(3, 90, 0.9)
    epsilons = np.linspace(0.0, 3.0, 7)
    profile = delta_profile(event, epsilons)
    for epsilon, delta in zip(epsilons[1:], profile[1:], strict=True):
        lower, upper = delta_bounds(event, float(epsilon))
        assert lower <= upper <= delta * 1.01


@pytest.mark.parametrize("noise", [0.2, 0.7, 3.0])
@pytest.mark.parametrize("num_rows", [1, 2, 7, 1000, 10**6 + 1])
def test_laws_keep_mass_and_mean(num_rows, noise):
    """Q-mass 1 and P-mass 1, with what went to infinity; no mass is forgotten."""
    upper, lower = (_law(num_rows, noise, 6.0, side) for side in (True, False))
    assert upper.masses.sum() + upper.zero == pytest.approx(1.0, abs=1e-13 * max(num_rows, 10))
    assert (upper.masses * upper.values).sum() + upper.infinite == pytest.approx(
        1.0, abs=1e-13 * max(num_rows, 10)
    )
    assert 0.0 < upper.infinite < 1e-9
    assert 0.0 <= upper.zero < 1e-9
    assert lower.masses.sum() == pytest.approx(1.0, abs=1e-13 * max(num_rows, 10))
    assert (lower.masses * lower.values).sum() == pytest.approx(1.0, abs=1e-13 * max(num_rows, 10))
    for strike in (0.5, 1.0, 1.5, 4.0):
        gains = [
            (law.masses * np.maximum(law.values - strike, 0.0)).sum() + law.infinite
            for law in (lower, upper)
        ]
        assert gains[0] <= gains[1] * (1.0 + 1e-12 * num_rows)


def test_every_row_is_the_plain_gaussian_mechanism():
    for event in (allocation(5, 5, 2.0), allocation(1, 1, 2.0 / math.sqrt(5.0))):
        assert account(event, 1e-5).epsilon == pytest.approx(gdp_epsilon(5**0.5 / 2.0, 1e-5))


def test_more_rows_cost_less_and_repetitions_compose():
    costs = [account(allocation(1, rows, 0.8), 1e-6).epsilon for rows in (1, 2, 4, 15, 16, 1000)]
    assert costs == sorted(costs, reverse=True)
    twice = allocation(2, 50, 1.0, count=2)
    both = ComposedEvent(events=(allocation(2, 50, 1.0), allocation(2, 50, 1.0)))
    assert account(twice, 1e-5).epsilon == account(both, 1e-5).epsilon
    assert account(twice, 1e-5).epsilon > account(allocation(2, 50, 1.0), 1e-5).epsilon


def test_allocation_composes_with_other_mechanisms():
    both = ComposedEvent(events=(allocation(2, 50, 1.0), GaussianEvent(noise_multiplier=3.0)))
    lower, upper = epsilon_bounds(both, 1e-5)
    assert account(allocation(2, 50, 1.0), 1e-5).epsilon < lower <= upper <= lower * 1.006


def test_the_mechanism_itself_costs_no_more():
    """2 of 4 rows, simulated: 400,000 draws; the margin of 5 deviations fails once in 10^6 runs."""
    rng = np.random.default_rng(3)
    noise, epsilon = 1.2, 0.5
    x = rng.standard_normal((400_000, 4)) * noise
    log_u = (2.0 * x - 1.0) / (2.0 * noise**2)
    subsets = [(i, j) for i in range(4) for j in range(i)]
    z = np.mean([np.exp(log_u[:, i] + log_u[:, j]) for i, j in subsets], axis=0)
    upper = delta_at(allocation(2, 4, noise), epsilon)
    for gain in (np.maximum(z - math.exp(epsilon), 0.0), np.maximum(1 - math.exp(epsilon) * z, 0)):
        assert gain.mean() - 5.0 * gain.std() / math.sqrt(z.size) <= upper
    # and within a tenth of it: the bound is not idle
    gain = np.maximum(z - math.exp(epsilon), 0.0)
    assert gain.mean() >= 0.8 * upper


@pytest.mark.parametrize(
    ("noise", "rows_per_record", "num_rows"),
    [(1.0, 1, 10**12), (0.3, 1, 10**11 + 7), (50.0, 1000, 10**11), (0.01, 1, 10**6)],
)
def test_extreme_sizes_end(noise, rows_per_record, num_rows):
    event = allocation(rows_per_record, num_rows, noise)
    found = account(event, 1e-9)
    assert 0.0 <= found.epsilon <= gdp_epsilon(rows_per_record**0.5 / noise, 1e-9)


def test_next_to_no_noise_is_taken_as_if_the_rows_were_known():
    reading = account(allocation(1, 100, 0.02), 1e-5).accountants["pld"]
    assert reading.upper == gdp_epsilon(50.0, 1e-5)
    assert reading.lower == 0.0


class TestReplaceOne:
    @pytest.mark.parametrize("angle", [math.pi, math.pi / 2.0])
    def test_upper_bound_of_integrals_for_two_rows(self, angle):
        """Unit vectors at an angle: 2 rows of 2 coordinates, integrated on a grid or simulated."""
        rng = np.random.default_rng(8)
        noise = 1.5
        v = np.array([1.0, 0.0])
        w = np.array([math.cos(angle), math.sin(angle)])
        x = rng.standard_normal((300_000, 2, 2)) * noise  # rows, coordinates
        log_v, log_w = ((x @ vector - 0.5) / noise**2 for vector in (v, w))
        p, q = np.exp(log_v).mean(axis=1), np.exp(log_w).mean(axis=1)
        event = replaced(1, 2, noise)
        for epsilon in (0.2, 1.0):
            gain = np.maximum(p - math.exp(epsilon) * q, 0.0)
            margin = 5.0 * gain.std() / math.sqrt(gain.size)
            assert gain.mean() - margin <= delta_at(event, epsilon)

    def test_upper_bound_of_a_record_that_turns_around_in_two_of_four_rows(self):
        """Simulated: 400,000 draws; the margin of 5 deviations fails once in 10^6 runs."""
        rng = np.random.default_rng(9)
        noise, k = 2.5, math.exp(0.5)
        x = rng.standard_normal((400_000, 4)) * noise
        subsets = [(i, j) for i in range(4) for j in range(i)]
        p, q = (
            np.mean([np.exp((sign * (x[:, i] + x[:, j]) - 1.0) / noise**2) for i, j in subsets], 0)
            for sign in (1.0, -1.0)
        )
        gain = np.maximum(p - k * q, 0.0)
        upper = delta_at(replaced(2, 4, noise), 0.5)
        assert gain.mean() - 5.0 * gain.std() / math.sqrt(gain.size) <= upper
        assert gain.mean() >= 0.1 * upper

    def test_the_better_of_two_valid_bounds(self):
        many = account(replaced(64, 50000, 2.5), 1e-5)
        known_rows = gdp_epsilon(8.0 / 1.25, 1e-5)
        assert many.epsilon < known_rows / 10.0
        assert many.accountants["pld"].lower is None
        alone = account(allocation(64, 50000, 2.5), 1e-5).epsilon
        assert alone < many.epsilon < 3.0 * alone
        # A record that is in every row: the rows are known, and a chain of two is looser.
        assert account(replaced(4, 5, 2.5), 1e-5).epsilon <= gdp_epsilon(2.0 / 1.25, 1e-5)
        assert account(replaced(5, 5, 2.5), 1e-5).epsilon == pytest.approx(
            gdp_epsilon(5**0.5 / 1.25, 1e-5)
        )

    def test_all_readings_agree(self):
        event = replaced(3, 300, 2.0)
        epsilon = epsilon_at(event, [1e-5])[1e-5]
        assert epsilon == account(event, 1e-5).epsilon
        assert delta_at(event, epsilon) == pytest.approx(1e-5, rel=0.02)
        assert delta_profile(event, np.array([epsilon]))[0] == pytest.approx(1e-5, rel=0.02)

    def test_beside_other_mechanisms_the_rows_count_as_known(self):
        gaussian = GaussianEvent(noise_multiplier=3.0, neighboring_relation="replace_one")
        both = ComposedEvent(events=(replaced(4, 100, 6.0), gaussian))
        known = gdp_epsilon(math.sqrt(4.0 / 3.0**2 + 1.0 / 3.0**2), 1e-5)
        assert account(both, 1e-5).epsilon == pytest.approx(known, rel=1e-6)


def signed(rows_per_record, num_rows, noise_multiplier, **options):
    return SignedAllocationGaussianEvent(
        rows_per_record=rows_per_record,
        num_rows=num_rows,
        noise_multiplier=noise_multiplier,
        **options,
    )


class TestSigned:
    @pytest.mark.parametrize("noise", [0.5, 1.0, 3.0])
    def test_bounds_bracket_integrals_for_two_rows(self, noise):
        x = np.linspace(-9.0 - 1.0 / noise, 9.0 + 1.0 / noise, 3001)  # in deviations
        mass = np.exp(-(x**2) / 2.0) * (x[1] - x[0]) / math.sqrt(2.0 * math.pi)
        u = np.exp(-0.5 / noise**2) * np.cosh(x / noise)
        z, weight = (u[:, None] + u[None, :]) / 2.0, np.outer(mass, mass)
        for epsilon in (0.02, 0.3, 1.0):
            k = math.exp(epsilon)
            truth = max(
                float((weight * np.maximum(gain, 0.0)).sum()) for gain in (z - k, 1.0 - k * z)
            )
            if truth < 1e-9:
                continue
            lower, upper = delta_bounds(signed(1, 2, noise), epsilon)
            assert lower <= truth * (1.0 + 1e-4)
            assert upper >= truth * (1.0 - 1e-4)
            assert upper - lower <= 0.01 * truth

    def test_every_row_is_signed_mixing_of_everyone(self):
        every = SignedGaussianEvent(sampling_prob=1.0, noise_multiplier=1.3, count=4)
        lower, upper = epsilon_bounds(signed(4, 4, 1.3), 1e-5)
        assert lower <= account(every, 1e-5).epsilon * (1.0 + 2e-3)
        assert upper == pytest.approx(account(every, 1e-5).epsilon, rel=2e-3)

    @pytest.mark.parametrize(
        ("rows_per_record", "num_rows", "noise"), [(36, 10003, 1.0), (4, 1000, 2.0)]
    )
    def test_between_nothing_and_signed_sampling(self, rows_per_record, num_rows, noise):
        """Close to independent inclusion at the same rate, and far below allocation without signs."""
        sampled = SignedGaussianEvent(
            sampling_prob=rows_per_record / num_rows, noise_multiplier=noise, count=num_rows
        )
        lower, upper = epsilon_bounds(signed(rows_per_record, num_rows, noise), 1e-5)
        cost = account(sampled, 1e-5).epsilon
        assert 0.9 * cost < lower <= upper < 1.001 * cost
        plain = account(allocation(rows_per_record, num_rows, noise), 1e-5).epsilon
        assert upper < 0.6 * plain

    @pytest.mark.parametrize("noise", [0.2, 1.0, 300.0])
    @pytest.mark.parametrize("num_rows", [1, 2, 1000])
    def test_laws_keep_mass_and_mean(self, num_rows, noise):
        for upper in (True, False):
            law = _law(num_rows, noise, 6.0, upper, True)
            assert law.masses.sum() + law.zero == pytest.approx(1.0, abs=1e-10)
            mean = (law.masses * law.values).sum() + law.infinite
            assert mean == pytest.approx(1.0, abs=1e-10)

    def test_the_mechanism_itself_costs_no_more(self):
        """2 of 4 rows, simulated: 400,000 draws; the margin of 5 deviations fails once in 10^6 runs."""
        rng = np.random.default_rng(5)
        noise, epsilon = 0.8, 0.5
        x = rng.standard_normal((400_000, 4)) * noise
        log_u = np.logaddexp(x / noise**2, -x / noise**2) - math.log(2.0) - 0.5 / noise**2
        subsets = [(i, j) for i in range(4) for j in range(i)]
        z = np.mean([np.exp(log_u[:, i] + log_u[:, j]) for i, j in subsets], axis=0)
        upper, k = delta_at(signed(2, 4, noise), epsilon), math.exp(epsilon)
        for gain in (np.maximum(z - k, 0.0), np.maximum(1.0 - k * z, 0.0)):
            assert gain.mean() - 5.0 * gain.std() / math.sqrt(z.size) <= upper
        # and within a tenth of it: the bound is not idle
        assert np.maximum(z - k, 0.0).mean() >= 0.8 * upper

    def test_the_unsigned_bound_holds_for_it(self):
        for sizes in ((1, 10, 0.5), (3, 40, 1.5)):
            costs = [account(make(*sizes), 1e-6).epsilon for make in (signed, allocation)]
            assert costs[0] < costs[1]

    def test_events_are_checked_and_survive_json(self):
        event = signed(3, 40, 1.5, count=2)
        assert event_from_json(event.model_dump_json()) == event
        with pytest.raises(InvalidInputError, match="rows_per_record"):
            signed(41, 40, 1.0)


def test_events_are_checked_and_survive_json():
    for event in (allocation(3, 40, 1.5, count=2), replaced(3, 40, 1.5)):
        assert event_from_json(event.model_dump_json()) == event
    for options, words in [
        ({"rows_per_record": 41}, "rows_per_record"),
        ({"num_rows": 0}, "num_rows"),
        ({"num_rows": 10**13}, "num_rows"),
        ({"neighboring_relation": "replace_one"}, "presence_noise_multiplier"),
        ({"presence_noise_multiplier": 1.0}, "presence_noise_multiplier"),
        (
            {"presence_noise_multiplier": 4.0, "neighboring_relation": "replace_one"},
            "presence_noise_multiplier",
        ),
    ]:
        base = {"rows_per_record": 3, "num_rows": 40, "noise_multiplier": 1.5}
        with pytest.raises(InvalidInputError, match=words):
            AllocationGaussianEvent(**(base | options))


def test_blocks_hold_all_rows_and_one_for_each_choice():
    assert allocation(3, 10, 1.0).blocks == ((3, 2), (4, 1))
    assert allocation(5, 10, 1.0).blocks == ((2, 5),)


class TestMassesBelowFloatingPoint:
    """Far out masses underflow, which may loosen a bound and must not break it."""

    @pytest.mark.parametrize(
        ("event", "delta"),
        [(allocation(5, 1000, 0.8), 1e-300), (allocation(2, 64, 0.08), 1e-120)],
    )
    def test_an_account_at_a_tiny_delta_is_no_error_of_numpy(self, event, delta):
        found = account(event, delta).epsilon
        revealed = gdp_epsilon(math.sqrt(event.rows_per_record) / event.noise_multiplier, delta)
        assert 0 < found < 4 * revealed
        lower, upper = epsilon_bounds(event, delta) or (0.0, found)
        assert lower <= found <= upper

    def test_no_value_of_the_lower_law_is_zero(self):
        for reach in (20.0, 38.0):
            law = _law(1000, 0.8, reach, False)
            assert (law.values > 0).all() and law.masses.sum() == pytest.approx(1)
            assert (AllocationStep(1000, 0.8).lower(0.01, reach).masses >= 0).all()

    @pytest.mark.parametrize("signed", [False, True])
    def test_the_upper_law_gives_infinity_the_mean_of_masses_that_underflow(self, signed):
        """P-mass at outcomes that Q has less than 1e-308 of is more than is beyond the grid."""
        noise, reach = 0.08, 30.0
        held = 38.5  # standard deviations: the normal mass beyond is below 1e-308
        lost = ndtr(-(held - 1 / noise)) - ndtr(-(reach + 2.0))
        assert _one(noise, reach, True, signed).infinite >= lost > 1e-160
