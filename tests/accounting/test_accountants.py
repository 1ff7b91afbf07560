import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privmix._validate import InvalidInputError
from privmix.accounting import (
    CERTIFICATE_DELTAS,
    ComposedEvent,
    EligibleGaussianEvent,
    GaussianEvent,
    PoissonGaussianEvent,
    SignedGaussianEvent,
    UniformGaussianEvent,
    account,
    delta_at,
    epsilon_at,
    gdp_epsilon,
)
from privmix.accounting.accountants import _accounted


def poisson(sampling_prob, noise_multiplier, count=1):
    return PoissonGaussianEvent(
        sampling_prob=sampling_prob, noise_multiplier=noise_multiplier, count=count
    )


def signed(sampling_prob, noise_multiplier, count=1):
    return SignedGaussianEvent(
        sampling_prob=sampling_prob, noise_multiplier=noise_multiplier, count=count
    )


# Design, section 4.4 and the accounting issue: delta = 1e-5, two independent accountants agreed.
HIERARCHICAL = {"sampling_prob": 64 / 1500, "noise_multiplier": 1.26}  # n = 50000, m = 64, p = 0.03
GOLDEN = [
    (poisson(64 / 50000, 1.26, 50000), 1.0108),
    (poisson(0.01, 1.0, 1000), 1.8282),
    (poisson(1 / 50000, 0.35, 50000), 4.923),  # field case 1: the CLT says 1
    (signed(0.0036, 1.0, 10003), 1.031),
    (signed(0.002, 0.8, 60000), 2.511),
    (poisson(0.0036, 1.0, 10003), 1.94),  # the same rows without signs
    (poisson(0.002, 0.8, 60000), 4.26),
    (PoissonGaussianEvent(**HIERARCHICAL, count=1500), 7.604),  # balanced eligibility
    (EligibleGaussianEvent(**HIERARCHICAL, eligible_prob=0.03, count=50000), 7.617),
    (poisson(64 / 15000, 1.26, 15000), 1.981),  # balanced, p = 0.3
]


@pytest.mark.parametrize(("event", "epsilon"), GOLDEN, ids=str)
def test_golden_values(event, epsilon):
    accounting = account(event, 1e-5)
    assert accounting.epsilon == pytest.approx(epsilon, rel=5e-3)
    reading = accounting.accountants["pld"]
    assert reading.guarantee
    assert reading.upper - reading.lower <= 5e-3 * reading.upper


def test_golden_million_steps():
    """Design 4.4, issue: about 0.32, where a default grid says 1.67."""
    assert account(poisson(1e-3, 20.0, 10**6), 1e-12).epsilon == pytest.approx(0.3174, rel=2e-3)


def test_the_central_limit_never_certifies():
    """Field case 1: the approximation says 0.99 where the truth is 4.9."""
    accounting = account(poisson(1 / 50000, 0.35, 50000), 1e-5)
    reading = accounting.accountants["gdp"]
    assert reading.epsilon < 1.0
    assert not reading.guarantee
    assert reading.upper is None
    assert accounting.epsilon > 4.9


def test_the_smallest_valid_bound_is_certified():
    readings = account(poisson(0.01, 1.0, 1000), 1e-5).accountants
    assert set(readings) == {"pld", "rdp", "gdp"}
    valid = [r.upper for r in readings.values() if r.guarantee]
    assert account(poisson(0.01, 1.0, 1000), 1e-5).epsilon == min(valid)
    assert len(valid) == 2


def test_plain_gaussians_are_exact_by_every_road():
    accounting = account(GaussianEvent(noise_multiplier=2.0, count=4), 1e-5)
    assert accounting.accountants["gdp"].guarantee
    assert accounting.epsilon == pytest.approx(gdp_epsilon(1.0, 1e-5), rel=1e-9)
    whole = account(poisson(1.0, 2.0, 4), 1e-5)  # field case 5
    assert whole.epsilon == accounting.epsilon
    assert whole.accountants["gdp"].guarantee


def test_uniform_is_certified_under_its_own_relation():
    event = UniformGaussianEvent(num_records=50000, mix_size=64, noise_multiplier=1.26, count=5000)
    accounting = account(event, 1e-5)
    readings = accounting.accountants
    assert accounting.epsilon == readings["pld"].upper < readings["rdp"].upper
    assert accounting.neighboring_relation == "replace_one"
    assert epsilon_at(event, [1e-5])[1e-5] == pytest.approx(accounting.epsilon, rel=1e-3)
    assert delta_at(event, accounting.epsilon) == pytest.approx(1e-5, rel=0.02)


EXTREME = [
    poisson(0.01, 1e-4, 1000),
    poisson(1e-12, 1e-4, 10**6),
    poisson(0.01, 1e12, 10**12),
    poisson(1e-300, 1.0, 10**12),
    EligibleGaussianEvent(
        eligible_prob=1e-300, sampling_prob=0.5, noise_multiplier=1e-4, count=10**12
    ),
    UniformGaussianEvent(num_records=10**9, mix_size=10**6, noise_multiplier=1.0, count=10**4),
    UniformGaussianEvent(num_records=100, mix_size=10, noise_multiplier=1e-4, count=10),
]


@pytest.mark.parametrize("event", EXTREME, ids=str)
def test_extreme_events_are_answered(event):
    assert 0.0 <= account(event, 1e-5).epsilon < np.inf


def test_a_thousand_different_events_are_answered():
    """By few that dominate them: a little more than they cost, never less."""
    events = [poisson(0.001 + 1e-5 * i, 1.0 + 1e-3 * i, 2) for i in range(1000)]
    many = account(ComposedEvent(events=tuple(events)), 1e-5).epsilon
    least = account(poisson(0.006, 1.5, 2000), 1e-5)
    assert many > 0.5 * least.epsilon
    few = [poisson(0.001 + 1e-3 * i, 1.0 + 0.1 * i, 200) for i in range(10)]  # all cost less
    assert many > account(ComposedEvent(events=tuple(few)), 1e-5).epsilon
    above = [poisson(0.002 + 1e-3 * i, 1.0 + 0.1 * i, 200) for i in range(10)]  # all cost more
    assert many < 1.25 * account(ComposedEvent(events=tuple(above)), 1e-5).epsilon


@pytest.mark.parametrize("delta", [0.0, 1.0, 1.5, -1e-5, float("nan"), "1e-5", True])
def test_bad_deltas_are_refused(delta):
    """Field case 4."""
    for call in (
        lambda: account(poisson(0.01, 1.0), delta),
        lambda: epsilon_at(poisson(0.01, 1.0), [1e-5, delta]),
    ):
        with pytest.raises(InvalidInputError, match="delta"):
            call()


@pytest.mark.parametrize(
    "event",
    [poisson(0.01, 1.0), GaussianEvent(noise_multiplier=10.0), signed(0.1, 3.0, 10)],
    ids=str,
)
def test_a_large_delta_needs_no_epsilon(event):
    """Field case 4."""
    assert account(event, 0.9).epsilon == 0.0
    assert account(event, 0.9).accountants["pld"].lower == 0.0


def test_plain_data_survives_json():
    accounting = account(poisson(0.01, 1.0, 10), 1e-5)
    data = json.loads(json.dumps(accounting.to_dict()))
    assert type(accounting).from_json(json.dumps(data)) == accounting
    assert data["accountants"]["gdp"]["guarantee"] is False


def test_certificate_deltas():
    event = poisson(64 / 50000, 1.26, 50000)
    found = epsilon_at(event)
    assert tuple(found) == CERTIFICATE_DELTAS
    assert list(found.values()) == sorted(found.values())
    assert found[1e-5] == pytest.approx(account(event, 1e-5).epsilon, rel=1e-3)


def test_delta_inverts_epsilon():
    event = signed(0.0036, 1.0, 10003)
    assert delta_at(event, account(event, 1e-5).epsilon) == pytest.approx(1e-5, rel=2e-2)
    assert delta_at(event, 0.0) > delta_at(event, 1.0)
    with pytest.raises(InvalidInputError, match="epsilon"):
        delta_at(event, -1.0)


def test_reading_twice_gives_the_same():
    event = signed(0.01, 1.0, 1000)
    first = account(event, 1e-5)
    kept = first.model_copy(update={"accountants": dict(first.accountants)})
    first.accountants.clear()  # of the caller's, not of what is remembered
    assert account(event, 1e-5) == kept
    assert _accounted.__wrapped__(event, 1e-5) == kept


def test_composition_is_free_of_order_and_of_splitting():
    parts = [poisson(0.01, 1.0, 300), signed(0.02, 1.5, 200), GaussianEvent(noise_multiplier=5.0)]
    whole = account(ComposedEvent(events=parts), 1e-6)
    assert account(ComposedEvent(events=parts[::-1]), 1e-6) == whole
    split = [poisson(0.01, 1.0, 100), *parts[1:], ComposedEvent(events=[poisson(0.01, 1.0, 200)])]
    assert account(ComposedEvent(events=split), 1e-6) == whole
    assert whole.epsilon > max(account(part, 1e-6).epsilon for part in parts)
    assert whole.epsilon < sum(account(part, 1e-6 / 3).epsilon for part in parts)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    make=st.sampled_from([poisson, signed]),
    sampling_prob=st.floats(1e-3, 0.3),
    noise_multiplier=st.floats(0.6, 5.0),
    count=st.integers(10, 20000),
    log_delta=st.floats(-10, -3),
)
def test_monotone_in_every_parameter(make, sampling_prob, noise_multiplier, count, log_delta):
    """By steps of 3 %, larger than the lattice's accuracy of 0.1 %."""

    def epsilon(q=1.0, s=1.0, t=1.0, d=1.0):
        event = make(sampling_prob * q, noise_multiplier * s, int(np.ceil(count * t)))
        return epsilon_at(event, [10**log_delta * d])[10**log_delta * d]

    base = epsilon()
    assert epsilon(q=1.03) >= base
    assert epsilon(s=1.03) <= base
    assert epsilon(t=1.06) >= base
    assert epsilon(d=1.1) <= base
    assert base == 0.0 or epsilon(q=1.03) > base


@pytest.mark.parametrize(
    ("event", "delta"), [(poisson(0.5, 0.02, 1), 1e-12), (poisson(0.1, 0.05, 3), 1e-5)]
)
def test_epsilons_of_a_thousand(event, delta):
    """The loss of a step that enters is at most about z/s + 1/(2 s^2), z the Gaussian quantile."""
    accounting = account(event, delta)
    reading = accounting.accountants["pld"]
    assert 300.0 < reading.lower <= reading.upper < 2000.0
    assert reading.upper - reading.lower <= 5e-3 * reading.upper


def test_what_dominates_many_mechanisms_bounds_them_from_above_alone():
    # The mechanisms that stand for these have a lower bound of 1.707, above the true 1.6875.
    many = [poisson(0.01 * (1 + i / 300), 1 + i / 977, 20) for i in range(40)]
    accounting = account(ComposedEvent(events=tuple(many)), 1e-5)
    assert accounting.epsilon >= 1.6875
    assert accounting.accountants["pld"].upper >= 1.6875
    assert accounting.accountants["pld"].lower is None
    few = account(ComposedEvent(events=tuple(many[:24])), 1e-5)
    assert few.accountants["pld"].lower is not None


def test_samples_rounded_up_to_everybody_bound_from_above_alone():
    many = [poisson(1 - 1e-4 * (1 + i), 40.0, 1) for i in range(40)]
    readings = account(ComposedEvent(events=tuple(many)), 1e-5).accountants
    assert [r.lower for r in readings.values() if r is not None] == [None] * 3
