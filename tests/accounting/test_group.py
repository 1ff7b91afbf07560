"""Groups and replacement: exact for Gaussians, valid for the rest."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, norm

from privmix import InvalidInputError
from privmix.accounting import (
    CERTIFICATE_DELTAS,
    ComposedEvent,
    GaussianEvent,
    GroupEvent,
    PoissonGaussianEvent,
    SignedGaussianEvent,
    UniformGaussianEvent,
    account,
    calibrate,
    delta_at,
    epsilon_at,
    epsilon_under,
    event_from_json,
    event_gdp_mu,
    gdp_delta,
    gdp_epsilon,
    gdp_tradeoff,
    group_epsilon,
    per_record,
    pld,
    tradeoff_curve,
    tradeoff_report,
)
from privmix.accounting.group import chained_epsilon
from privmix.accounting.pld import bounds

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


def test_many_records_of_an_owner_are_found_by_their_loss_distribution():
    """Far above the answer a step's delta is below what is resolved: no reason to give up the search."""
    size = 256
    event = ComposedEvent(
        events=(
            SignedGaussianEvent(noise_multiplier=1.5, sampling_prob=1e-6, count=10**6),
            GaussianEvent(noise_multiplier=5600.0, count=30),
        )
    )
    found = account(group(event, size), DELTA)
    by_gdp = gdp_epsilon(event_gdp_mu(group(event, size))[0], DELTA)
    assert by_gdp < found.epsilon < 1.02 * by_gdp
    assert found.accountants["pld"].upper == found.epsilon


def test_the_search_of_a_chain_finds_its_epsilon_from_any_guess():
    size, noise = 20, 100.0

    def step(epsilon: float) -> float:
        return max(gdp_delta(1 / noise, epsilon), 1e-20)

    found = [chained_epsilon(step, DELTA, size, guess) for guess in (1e-12, 0.1, 1.0, 60.0, 1e9)]
    assert found == pytest.approx(len(found) * [found[0]], rel=1e-6)
    assert step(found[0] / size) * size < DELTA
    assert chained_epsilon(lambda _: 1.0, DELTA, size, 1.0) is None
    assert chained_epsilon(lambda _: 1e-20, DELTA, size, 1.0) == 0.0


@pytest.mark.parametrize("guess", [2.0, 4.0, 8.0, 200.0])
def test_the_search_of_a_chain_finds_a_narrow_window(guess):
    """Below it a step's delta is too large, above it what is not resolved of it grows too much."""

    def step(epsilon: float) -> float:
        return max(gdp_delta(2.0, epsilon), 1e-16)

    found = chained_epsilon(step, DELTA, 2, guess)
    assert found == pytest.approx(30.902, abs=1e-3)
    narrow = chained_epsilon(lambda e: 1e-2 if e < 17.5 else 2e-14, DELTA, 2, guess)
    assert narrow == pytest.approx(35.0)


@pytest.mark.parametrize("size", [0, -1, 1.5])
def test_impossible_groups(size):
    with pytest.raises(InvalidInputError, match="group_size"):
        group_epsilon(SAMPLED, DELTA, group_size=size)


def group(event, size: int, unit: str = "patient") -> GroupEvent:
    return GroupEvent(unit=unit, group_size=size, event=event)


class TestGroupEvents:
    """A unit's event is accounted for as the group of its records, everywhere alike."""

    gaussian = GaussianEvent(noise_multiplier=20.0, count=4)

    def test_plain_gaussians_are_exact_in_every_reading(self):
        event, gdp_mu = group(self.gaussian, 5), 5 * 2 / 20
        accounting = account(event, DELTA)
        assert accounting.epsilon == pytest.approx(gdp_epsilon(gdp_mu, DELTA), rel=1e-6)
        assert accounting.accountants["gdp"].guarantee
        assert event_gdp_mu(event) == (pytest.approx(gdp_mu), True)
        assert delta_at(event, 1.0) == pytest.approx(gdp_delta(gdp_mu, 1.0), rel=1e-6)
        fpr, fnr = tradeoff_curve(event)
        assert (fnr <= gdp_tradeoff(gdp_mu, fpr) + 1e-9).all()
        assert np.abs(fnr - gdp_tradeoff(gdp_mu, fpr)).max() < 5e-3

    @pytest.mark.parametrize("size", [2, 4])
    def test_every_reading_of_a_sampled_group_covers_the_truth(self, size):
        event = group(PoissonGaussianEvent(sampling_prob=0.3, noise_multiplier=1.5), size)
        for delta, epsilon in epsilon_at(event, (1e-2, 1e-4)).items():
            assert one_row_delta(0.3, 1.5, size, epsilon) <= delta
            accounting = account(event, delta)
            assert accounting.epsilon == epsilon
            for name in ("pld", "rdp"):
                upper = accounting.accountants[name].upper
                assert one_row_delta(0.3, 1.5, size, upper) <= delta
            assert not accounting.accountants["gdp"].guarantee
        for epsilon in (0.1, 0.5, 2.0):
            assert one_row_delta(0.3, 1.5, size, epsilon) <= delta_at(event, epsilon)

    def test_the_tradeoff_curve_covers_a_sampled_group(self):
        """No test between the two mixtures of one row errs less than the curve says."""
        prob, noise, size = 0.3, 1.5, 3
        event = group(PoissonGaussianEvent(sampling_prob=prob, noise_multiplier=noise), size)
        fpr, fnr = tradeoff_curve(event)
        thresholds = np.linspace(-6, 12, 400)
        absent = norm.sf(thresholds, 0, noise)
        present = sum(
            w * norm.cdf(thresholds, k, noise)
            for k, w in enumerate(binom.pmf(np.arange(size + 1), size, prob))
        )
        assert (np.interp(absent, fpr, fnr) <= present + 1e-12).all()
        assert tradeoff_report(event).advantage >= (1 - absent - present).max()

    def test_one_record_of_a_unit_is_a_record(self):
        event = group(SAMPLED, 1)
        assert account(event, DELTA).to_dict() == account(SAMPLED, DELTA).to_dict()
        assert epsilon_at(event) == epsilon_at(SAMPLED, CERTIFICATE_DELTAS)

    def test_certified_values_agree_with_each_other(self):
        event = group(ComposedEvent(events=(self.gaussian, SAMPLED)), 3)
        epsilon = account(event, DELTA).epsilon
        assert delta_at(event, epsilon) <= DELTA * (1 + 1e-9)
        assert delta_at(event, 0.98 * epsilon) > DELTA
        assert epsilon == group_epsilon(event.event, DELTA, group_size=3)

    def test_units_compose_at_the_largest_size(self):
        other = PoissonGaussianEvent(sampling_prob=0.02, noise_multiplier=3.0, count=7)
        both = ComposedEvent(events=(group(SAMPLED, 2), group(other, 5)))
        assert per_record(both) == (ComposedEvent(events=(SAMPLED, other)), 5)
        assert per_record(ComposedEvent(events=(both,)))[1] == 5
        assert (both.unit, both.neighboring_relation) == ("patient", "add_or_remove_one")
        due = account(group(ComposedEvent(events=(SAMPLED, other)), 5), DELTA).epsilon
        assert account(both, DELTA).epsilon == due

    def test_what_protects_others_does_not_compose(self):
        for events in (
            (group(SAMPLED, 2), SAMPLED),
            (group(SAMPLED, 2), group(SAMPLED, 2, "home")),
        ):
            with pytest.raises(InvalidInputError, match="one kind of unit"):
                ComposedEvent(events=events)

    def test_several_units_at_once(self):
        assert group_epsilon(group(SAMPLED, 2), DELTA, group_size=2) == group_epsilon(
            SAMPLED, DELTA, group_size=4
        )
        # Another unit in a unit's place: its records go and others come.
        assert epsilon_under(group(SAMPLED, 2), "replace_one", DELTA) == group_epsilon(
            SAMPLED, DELTA, group_size=4
        )

    def test_json_and_back(self):
        event = group(ComposedEvent(events=(self.gaussian, SAMPLED)), 3)
        assert event_from_json(event.model_dump_json()) == event
        both = ComposedEvent(events=(event, event))
        assert event_from_json(both.model_dump_json()) == both

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"group_size": 0}, "group_size"),
            ({"unit": " "}, "unit"),
            ({"unit": "record"}, "unit"),
            ({"event": GroupEvent(unit="a", group_size=2, event=SAMPLED)}, "event"),
        ],
    )
    def test_impossible_units(self, fields, words):
        with pytest.raises(InvalidInputError, match=words):
            GroupEvent(**{"unit": "patient", "group_size": 2, "event": SAMPLED, **fields})

    def test_a_group_without_a_bound_is_refused(self):
        with pytest.raises(InvalidInputError, match="group_size"):
            account(
                group(PoissonGaussianEvent(sampling_prob=0.5, noise_multiplier=0.01), 1000), DELTA
            )


def test_a_curve_of_delta_is_the_profile(monkeypatch):
    """The curve of a search, whose lattice is made once and whose orders are rounded, is a bound as
    good as the one that is made anew for each epsilon.
    """
    event = PoissonGaussianEvent(sampling_prob=0.01, noise_multiplier=1.5, count=500)
    made = []
    compose = bounds._compose
    monkeypatch.setattr(bounds, "_compose", lambda *a, **k: made.append(0) or compose(*a, **k))
    curve = pld.delta_curve(event)
    before = len(made)
    found = [curve(epsilon) for epsilon in (0.0, 0.2, 0.7, 1.5)]
    assert len(made) == before
    for epsilon, delta in zip((0.0, 0.2, 0.7, 1.5), found, strict=True):
        lower, _ = pld.delta_bounds(event, epsilon)
        (due,) = pld.delta_profile(event, np.array([epsilon]))
        assert delta >= lower
        assert delta == pytest.approx(due, rel=1e-6)


def test_a_search_over_groups_may_pass_what_has_no_bound():
    def rows(count):
        event = PoissonGaussianEvent(sampling_prob=0.5, noise_multiplier=8.0, count=count)
        return GroupEvent(unit="patient", group_size=3, event=event)

    target = {"target_epsilon": 2.0, "target_delta": 1e-5, "increasing": True, "integer": True}
    with pytest.raises(InvalidInputError, match="group_size"):
        account(rows(10**7), 1e-5)
    found = calibrate(rows, "count", lower=1, upper=10**7, **target)
    assert account(rows(found), 1e-5).epsilon <= 2.0 < account(rows(found + 1), 1e-5).epsilon
