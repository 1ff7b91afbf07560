"""Scores of members and non-members: rates, limits, and no false alarms beyond the stated rate."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.metrics import roc_auc_score

from privmix import InvalidInputError
from privmix.attacks import MembershipScores


def test_the_auc_is_that_of_scikit_learn(rng):
    scores = MembershipScores(rng.integers(0, 20, 300) + 2, rng.integers(0, 20, 200))
    truth = np.repeat([1, 0], [300, 200])
    due = roc_auc_score(truth, np.concatenate([scores.members, scores.non_members]))
    assert scores.auc == pytest.approx(due, abs=1e-12)


def test_the_limits_of_the_auc_cover_the_truth(rng):
    """Members are N(1, 1): the AUC is 0.7602. Of 95 % limits 400 miss more than 45 times (1e-6)."""
    misses = 0
    for _ in range(400):
        scores = MembershipScores(rng.normal(1, 1, 150), rng.normal(0, 1, 100))
        _, low, high = scores.auc_interval()
        misses += not low <= 0.76025 <= high
    assert misses <= binom.isf(1e-6, 400, 0.06)  # 1 % beyond 5 %: it is a limit for large samples
    assert misses >= 3


def test_the_threshold_keeps_the_rate():
    scores = MembershipScores(np.arange(50.0, 150.0), np.arange(100.0))
    for rate, due in ((0.01, 1), (0.001, 0), (0.29, 29)):
        found = scores.detection(rate)
        assert found.false_positive_rate.estimate == due / 100
        assert found.true_positive_rate.estimate == (50 + due) / 100
    tied = MembershipScores(np.zeros(10), np.zeros(100)).detection(0.1)
    assert tied.true_positive_rate.estimate == tied.false_positive_rate.estimate == 0
    assert tied.false_positive_rate.high >= 0.1


def test_limits_hold_although_non_members_chose_the_threshold(rng):
    """The share of the population above the threshold is within the upper limit in 97.5 of 100."""
    misses = 0
    for _ in range(1000):
        scores = MembershipScores(rng.random(2), rng.random(200))
        found = scores.detection(0.05)
        misses += 1 - found.threshold > found.false_positive_rate.high
    assert 5 <= misses <= binom.isf(1e-6, 1000, 0.025)


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.1])
def test_no_false_alarms_beyond_the_stated_rate(rng, rate):
    """Non-members on both sides: at most 5 % of alarms at 95 % (false alarm of this test 1e-6)."""
    alarms = 0
    for _ in range(500):
        scores = MembershipScores(rng.standard_normal(1000), rng.standard_normal(1000))
        alarms += scores.detection(rate).leaks
    assert alarms <= binom.isf(1e-6, 500, 0.05)


def test_a_leak_is_found(rng):
    scores = MembershipScores(rng.normal(1, 1, 2000), rng.normal(0, 1, 2000))
    assert scores.detection(0.01).leaks
    assert scores.detection(0.01).true_positive_rate.estimate == pytest.approx(0.0924, abs=0.04)


def test_what_is_refused():
    fine = np.arange(5.0)
    with pytest.raises(InvalidInputError, match="members: expected scores of at least two records"):
        MembershipScores(fine[:1], fine)
    with pytest.raises(InvalidInputError, match="non_members: expected numbers, got NaN"):
        MembershipScores(fine, [1.0, np.nan])
    with pytest.raises(InvalidInputError, match="false_positive_rate"):
        MembershipScores(fine, fine).detection(1.0)
    with pytest.raises(InvalidInputError, match="confidence"):
        MembershipScores(fine, fine).detection(0.1, confidence=1.0)
    with pytest.raises(InvalidInputError, match="took_part"):
        MembershipScores.split(fine, [1, 0, 1, 0, 1])


def test_split():
    scores = MembershipScores.split([3.0, 1.0, 2.0, 0.0], np.array([True, False, True, False]))
    assert scores.members.tolist() == [3.0, 2.0]
    assert scores.auc == 1.0
    assert scores.auc_interval() == (1.0, 1.0, 1.0)
