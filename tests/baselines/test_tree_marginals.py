"""Counts and distances that one record moves by at most what is stated, and the tree they give."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from privmix import InvalidInputError
from privmix.accounting import bounded_range_from
from privmix.baselines import Baseline, TreeMarginals, tree_marginals

K, N, SIZES = 2, 400, (3, 4, 5)
METHOD = TreeMarginals(K, N, SIZES)


def records(count: int = N):
    """Column 0 follows the class, column 2 follows column 1, which nothing else does."""
    random = np.random.default_rng(0)
    y, second = random.integers(K, size=count), random.integers(4, size=count)
    return np.column_stack([y + (random.random(count) < 0.1), second, second]), y


def noiseless(monkeypatch, x, y):
    seen, chosen = [], []

    def keep(sums, sensitivity, noise_multiplier, key, purpose):
        seen.append((sums.astype(float) / sensitivity, noise_multiplier))
        return np.random.default_rng(0).uniform(0, 100, sums.shape)

    def choose(utilities, rate, stream):
        chosen.append((np.array(utilities), rate))
        return 0

    monkeypatch.setattr(tree_marginals, "noisy", keep)
    monkeypatch.setattr(tree_marginals, "exponential_choice", choose)
    made = METHOD.release(x, y, target_epsilon=2.0, target_delta=1e-5, test_seed=0)
    return seen, chosen, made.event


def test_one_record_moves_counts_and_distances_by_no_more_than_is_accounted_for(monkeypatch):
    """Squared GDP parameters of all parts add up to that of the event."""
    x, y = records()
    one, choices, event = noiseless(monkeypatch, x, y)
    two, others, _ = noiseless(monkeypatch, x[1:], y[1:])
    spent = 0.0
    for (a, multiplier), (b, _) in zip(one, two, strict=True):
        assert np.linalg.norm(a - b) == pytest.approx(1.0)
        spent += 1 / multiplier**2
    for (a, rate), (b, _) in zip(choices, others, strict=True):
        moved = max(abs(int(v)) for v in a - b)
        assert 0 < moved <= 2 * tree_marginals._UNITS
        mu = np.sqrt(1 / (3 * event.noise_multiplier**2) / len(choices))
        assert isinstance(rate, Fraction)
        assert rate * 4 * tree_marginals._UNITS <= bounded_range_from(mu)
        spent += mu**2
    assert spent == pytest.approx(1 / event.noise_multiplier**2)


def test_the_tree_and_the_records_follow_what_depends_on_what():
    """At this budget a wrong edge has odds below exp(-100): no false alarms."""
    x, y = records(4000)
    method = TreeMarginals(K, 4000, SIZES)
    made = method.release(x, y, target_epsilon=200.0, target_delta=1e-5)
    assert isinstance(method, Baseline) and made.private
    assert any(name in made.statistics for name in ("columns 2, 3", "columns 3, 2"))
    drawn, labels = made.records(2000, seed=1)
    assert drawn.shape == (2000, 3) and (drawn < SIZES).all() and (drawn >= 0).all()
    assert (drawn[:, 1] == drawn[:, 2]).mean() > 0.9
    assert (drawn[:, 0] >= labels.argmax(axis=1)).mean() > 0.9


@pytest.mark.parametrize(
    ("name", "method", "x"),
    [
        ("sizes", TreeMarginals(K, N, (3, 4)), None),
        ("sizes", TreeMarginals(K, N, (3, 4, 0)), None),
        ("x", METHOD, np.full((N, 3), 3)),
        ("x", METHOD, np.full((N, 3), 0.5)),
        ("x", METHOD, np.full((N, 3), -1)),
    ],
)
def test_bad_tables_are_refused_by_name(name, method, x):
    codes, y = records()
    with pytest.raises(InvalidInputError, match=f"^{name}"):
        method.release(codes if x is None else x, y, target_epsilon=1.0, target_delta=1e-5)
