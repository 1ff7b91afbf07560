"""Utilities that one record moves by at most one range, and the choice by them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from privmix import InvalidInputError
from privmix.accounting import bounded_range_from
from privmix.baselines import PublicPrototypes, public_prototypes

K, D, N = 3, 6, 300


def records():
    random = np.random.default_rng(0)
    y = random.integers(K, size=N)
    return np.eye(K, D)[y] * 0.8 + 0.1 * random.normal(size=(N, D)), y


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
@pytest.mark.parametrize(("least", "most"), [(0.0, 1.0), (-1.0, 1.0), (0.2, 0.3)])
def test_a_record_adds_from_zero_to_one_range_in_its_own_class(scale, least, most):
    candidates = np.random.default_rng(1).normal(size=(40, D))
    method = PublicPrototypes(K, candidates, least, most)
    x, y = records()
    unit = method._checked(D)
    change = method._utilities(scale * x, y, unit) - method._utilities(scale * x[1:], y[1:], unit)
    assert change.min() >= 0 and change.max() <= public_prototypes._POINTS
    assert not np.delete(change, y[0], axis=0).any()
    assert change[y[0]].any()


def test_the_rate_is_the_range_that_the_event_covers(monkeypatch):
    rates = []

    def keep(utilities, rate, stream):
        rates.append(rate)
        return 0

    monkeypatch.setattr(public_prototypes, "exponential_choice", keep)
    method = PublicPrototypes(K, np.eye(4, D))
    made = method.release(*records(), target_epsilon=1.0, target_delta=1e-5, test_seed=0)
    due = bounded_range_from(1 / made.event.noise_multiplier)
    assert all(0 < due - rate * public_prototypes._POINTS < 1e-9 for rate in rates)
    assert len(rates) == K and all(isinstance(rate, Fraction) for rate in rates)


def test_each_class_gets_the_candidate_most_like_it():
    """The wrong one has odds below exp(-40): no false alarms."""
    method = PublicPrototypes(K, np.eye(D)[::-1])
    made = method.release(*records(), target_epsilon=8.0, target_delta=1e-5)
    np.testing.assert_array_equal(made.statistics["chosen"], D - 1 - np.arange(K))
    np.testing.assert_array_equal(made.records()[0], np.eye(K, D))


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("candidates", PublicPrototypes(K, np.eye(4, D + 1))),
        ("candidates", PublicPrototypes(K, np.empty((0, D)))),
        ("candidates", PublicPrototypes(K, np.full((2, D), np.nan))),
        ("most", PublicPrototypes(K, np.eye(D), 0.5, 0.5)),
        ("least", PublicPrototypes(K, np.eye(D), -2.0)),
    ],
)
def test_bad_settings_are_refused_by_name(name, method):
    with pytest.raises(InvalidInputError, match=f"^{name}"):
        method.release(*records(), target_epsilon=1.0, target_delta=1e-5)
