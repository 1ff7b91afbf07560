"""Stated numbers bound the computed ones, and no smaller one passes a recheck."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privmix import InvalidInputError
from privmix.accounting import GaussianEvent, PoissonGaussianEvent, account, tradeoff_curve
from privmix.accounting import stated as module
from privmix.accounting.stated import TradeoffCurve, stated_epsilon, statements

EVENT = PoissonGaussianEvent(sampling_prob=0.01, noise_multiplier=1.0, count=1000)
POSITIVE = st.floats(1e-9, 1e6)


@given(POSITIVE)
def test_what_is_stated_is_above_and_has_six_digits(epsilon):
    found = stated_epsilon(epsilon)
    assert epsilon * (1 + 9e-7) < found <= epsilon * (1 + 1.2e-5)
    assert float(f"{found:.6g}") == found


@given(POSITIVE, st.floats(-4.9e-7, 4.9e-7))
def test_a_machine_with_other_last_bits_states_one_of_three(epsilon, noise):
    """And all three are above what either machine computes."""
    other = epsilon * (1 + noise)
    accepted = {stated_epsilon(epsilon, shift) for shift in (-0.5, 0.0, 0.5)}
    assert stated_epsilon(other) in accepted
    assert min(accepted) >= epsilon


def test_zero_is_stated_as_zero():
    assert stated_epsilon(0.0) == 0.0


def test_every_delta_has_a_key_of_its_own():
    """Deltas that agree in six digits are told apart."""
    for delta in (1.0000001e-5, 1.0000002e-5):
        found = statements(EVENT, delta)[0]
        assert len(found.epsilon_by_delta) == 8
        assert found.epsilon_by_delta[repr(delta)] == found.epsilon
        assert set(map(float, found.epsilon_by_delta)) >= {1e-5, delta}


def test_readings_are_rounded_away_from_the_truth():
    raw, told = account(EVENT, 1e-5), statements(EVENT, 1e-5)[0]
    pld, stated = raw.accountants["pld"], told.accountants["pld"]
    assert stated.lower < pld.lower <= pld.upper < stated.upper
    assert told.epsilon == min(r.upper for r in told.accountants.values() if r.upper is not None)


@pytest.mark.parametrize("shift", [0, 1, 2])
@pytest.mark.parametrize("noise", [0.02, 1.0, 300.0])
def test_the_stated_curve_lies_below_the_certified_one(noise, shift):
    event = GaussianEvent(noise_multiplier=noise)
    fpr, fnr = tradeoff_curve(event, num_points=33)
    curve = statements(event, 1e-5)[shift].tradeoff_curve
    rates = np.unique([*fpr, *curve.false_positive_rate])
    told = np.interp(rates, curve.false_positive_rate, curve.false_negative_rate)
    true = np.interp(rates, fpr, fnr)
    assert (told <= true + 1e-15).all()
    assert np.abs(told - true).max() < 3e-4
    assert (curve.false_positive_rate[0], curve.false_negative_rate[-1]) == (0.0, 0.0)
    assert curve.true_positive_rate(0.01) >= 1 - np.interp(0.01, fpr, fnr)


@pytest.mark.parametrize(
    "rates", [((), ()), ((0.0,), (1.0,)), ((0.0, 1.0), (1.0,)), ((0.0, 2.0), (1.0, 0.0)),
              ((1.0, 0.0), (0.0, 1.0))]
)  # fmt: skip
def test_what_is_no_curve_is_refused_when_read(rates):
    with pytest.raises(InvalidInputError):
        TradeoffCurve(false_positive_rate=rates[0], false_negative_rate=rates[1])


def test_another_machines_accountant_is_within_the_margin(monkeypatch):
    """What a perturbed accountant states is among what is accepted here, number by number."""
    here = statements(EVENT, 1e-5)
    real = module.epsilon_at
    monkeypatch.setattr(
        module, "epsilon_at", lambda *a: {d: e * (1 + 3e-7) for d, e in real(*a).items()}
    )
    there = statements(EVENT, 1e-5)[0]
    for delta, epsilon in there.epsilon_by_delta.items():
        assert epsilon in {one.epsilon_by_delta[delta] for one in here}
        assert math.isfinite(epsilon)
