"""Bounds of one run: against exact randomised response, calibrated, and of use."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from audit_cases import plan_of, training_plan
from planted_faults import no_clipping, reused_noise, too_little_noise
from privmix import InvalidInputError
from privmix.accounting import GaussianEvent, gdp_epsilon, tradeoff_curve
from privmix.auditing import audit_one_run, one_run_epsilon, one_run_p_value, one_run_refutes
from privmix.auditing.one_run import best_guesses, one_run_noise_factor


def test_without_delta_the_p_value_is_that_of_randomised_response():
    for epsilon in (0.0, 1.0, 3.0):
        prob = 1 / (1 + math.exp(-epsilon))
        for correct in (0, 30, 45, 50):
            due = binom.sf(correct - 1, 50, prob)
            assert one_run_p_value(correct, 50, 200, epsilon, 0.0) == pytest.approx(due)


def test_delta_adds_at_most_what_all_canaries_may_be_given_away_by():
    plain = one_run_p_value(45, 50, 200, 1.0, 0.0)
    with_delta = one_run_p_value(45, 50, 200, 1.0, 1e-4)
    assert plain < with_delta <= plain + 2 * 200 * 1e-4
    assert one_run_p_value(0, 50, 200, 1.0, 1e-4) == 1.0


def test_randomised_response_is_refuted_no_more_often_than_allowed():
    """Exact: the probability of a count whose bound exceeds epsilon; refuted counts are the largest."""
    epsilon, guesses, confidence = 1.5, 200, 0.95
    prob = 1 / (1 + math.exp(-epsilon))
    curve = tradeoff_curve_of_response(epsilon)
    bounds = [one_run_epsilon(c, guesses, guesses, 1e-9, confidence) for c in range(guesses + 1)]
    refuted = [one_run_refutes(c, guesses, guesses, curve, confidence) for c in range(guesses + 1)]
    for wrong in ([bound > epsilon for bound in bounds], refuted):
        first = wrong.index(True)
        assert all(wrong[first:])
        assert binom.sf(first - 1, guesses, prob) <= 0.05
    assert binom.sf(bounds.index(next(b for b in bounds if b > epsilon)) - 2, guesses, prob) > 0.05


def tradeoff_curve_of_response(epsilon: float):
    corner = 1 / (1 + math.exp(epsilon))
    return np.array([0.0, corner, 1.0]), np.array([1.0, corner, 0.0])


def test_f_dp_finds_half_of_the_mu_of_a_gaussian_mechanism_and_never_all_of_it():
    """8192 canaries that are independent; false alarm 1e-3."""
    generator = np.random.default_rng(0)
    mu, count = 0.9, 8192
    present = generator.random(count) < 0.5
    scores = generator.standard_normal(count) + mu * present
    ((correct, guesses),) = best_guesses(scores, present, (0.05,))
    event = GaussianEvent(noise_multiplier=1 / mu)
    factor = one_run_noise_factor(correct, guesses, count, event, 0.999)
    assert 1.0 < factor < 2.1
    assert not one_run_refutes(correct, guesses, count, tradeoff_curve(event), 0.999)
    by_steinke = one_run_epsilon(correct, guesses, count, 1e-5, 0.999)
    assert 0.0 < by_steinke < gdp_epsilon(mu / factor, 1e-5)


def test_guesses_are_the_surest_on_both_sides():
    scores = np.array([0.1, 5.0, -3.0, 1.0, 2.0, -1.0, 0.0, 0.2])
    present = np.array([0, 1, 0, 1, 0, 0, 1, 1], dtype=bool)
    assert best_guesses(scores, present, (0.25, 0.5)) == [(2, 2), (3, 4)]


def test_nobody_guesses_right_more_often_than_he_guesses():
    with pytest.raises(InvalidInputError, match="correct: "):
        one_run_p_value(11, 10, 20, 1.0, 1e-5)
    with pytest.raises(InvalidInputError, match="guesses: "):
        one_run_refutes(1, 21, 20, tradeoff_curve_of_response(1.0), 0.9)
    assert not one_run_refutes(0, 10, 20, tradeoff_curve_of_response(1.0), 0.9)


@pytest.mark.parametrize("design", ["poisson", "signed"])
def test_one_run_passes_sound_code_and_finds_something(design):
    report = audit_one_run(plan_of(design, 8.0), confidence=1 - 5e-4, test_seed=1)
    assert report.verdict == "consistent" and report.num_runs == 1
    assert 0.5 < report.lower_bound < report.epsilon
    assert report.lower_bound_without_assumptions <= report.lower_bound


@pytest.mark.parametrize("fault", [too_little_noise, reused_noise])
def test_one_run_catches_faults_of_signed_rows(fault, monkeypatch):
    plan = plan_of("signed", 8.0)
    fault(monkeypatch)
    assert audit_one_run(plan, test_seed=1).verdict == "violated"


def test_one_run_catches_a_training_that_does_not_clip(monkeypatch):
    plan = training_plan(3.0)
    assert audit_one_run(plan, num_canaries=250, test_seed=1).verdict == "consistent"
    no_clipping(monkeypatch)
    report = audit_one_run(plan, num_canaries=250, test_seed=1)
    assert report.verdict == "violated" and report.findings[0].startswith("privacy: ")


def test_rows_with_one_canary_are_refused():
    with pytest.raises(InvalidInputError, match="plan: expected a design with several canaries"):
        audit_one_run(plan_of("uniform", 8.0))
