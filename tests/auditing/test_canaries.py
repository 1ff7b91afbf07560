"""Canaries: they reach the certified pairs, and what is scored is what is published."""

from __future__ import annotations

import hashlib
import math
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binom, chi2, norm

from audit_cases import DESIGNS, plan_of
from privmix import InvalidInputError
from privmix.auditing import audit, audit_one_run, likelihood
from privmix.auditing.canaries import CanarySet, most_canaries
from privmix.auditing.trials import published
from privmix.engine import release_records
from privmix.planning.plan import ReleasePlan
from privmix.rng import MasterKey
from privmix.running.journal import RunTerms


def canaries_of(design: str, count: int = 5) -> CanarySet:
    mechanism = plan_of(design, 5.0).mechanism
    return CanarySet.of(mechanism, 1.0, min(count, most_canaries(mechanism)))


@pytest.mark.parametrize("design", DESIGNS)
def test_what_is_run_costs_what_is_certified(design):
    plan = plan_of(design, 5.0)
    assert canaries_of(design).mechanism.event == plan.mechanism.event or design == "uniform"
    scaled = canaries_of(design).mechanism
    for part, own in zip(scaled.components, plan.mechanism.components, strict=True):
        assert part.inclusion_prob == own.inclusion_prob
        assert part.noise_multiplier == pytest.approx(own.noise_multiplier)


def test_canaries_are_of_classes_that_are_open_least_often():
    options = {"class_prob": (0.2, 0.6, 0.9), "eligibility": "random"}
    plan = plan_of("hierarchical", 5.0, **options)
    canaries = CanarySet.of(plan.mechanism, 1.0, 4)
    assert canaries.mechanism.class_prob == (0.2,) * 5
    assert canaries.mechanism.event == plan.mechanism.event
    report = audit(plan, runs=200, num_canaries=4, test_seed=0)
    assert report.verdict == "consistent", report.findings


@pytest.mark.parametrize("design", DESIGNS)
def test_the_size_of_all_records_is_known_before_they_are_made(design):
    canaries = canaries_of(design)
    made = canaries.records(np.ones(canaries.num_canaries, dtype=bool)).features
    missing = canaries.num_canaries if canaries.is_replaced else 0
    assert canaries.num_bytes == 8 * (len(made) + missing) * made.shape[1]
    canaries.check_size()


def test_crowds_that_take_too_much_memory_are_refused_before_they_are_made(monkeypatch):
    plan = plan_of("stratified", 5.0, sampling_prob=0.01)
    monkeypatch.setattr(CanarySet, "_all_records", None)  # whoever made them would fail
    with pytest.raises(InvalidInputError, match="num_canaries: expected at most 576, ") as caught:
        audit_one_run(plan)
    assert "with 400 records beside each, got 1000" in str(caught.value)
    for count, fits in ((576, True), (577, False)):
        canaries = CanarySet.of(plan.mechanism, 1.0, count)
        assert (canaries.num_bytes <= 2**30) is fits
    assert 8 * 401 * 576 * 580 <= 2**30 < 8 * 401 * 577 * 581
    monkeypatch.setattr(CanarySet, "crowd", 10**8)
    with pytest.raises(InvalidInputError, match="plan: expected a design whose classes"):
        audit(plan)


def test_a_smaller_data_set_of_uniform_has_the_same_share():
    mechanism = plan_of("uniform", 5.0).mechanism
    scaled = canaries_of("uniform").mechanism
    assert scaled.num_records == 100 and scaled.mix_size == 50
    assert scaled.sampling_prob == mechanism.sampling_prob


@pytest.mark.parametrize("design", DESIGNS)
def test_neighbours_differ_by_a_canary_on_the_clip_norm(design):
    canaries = canaries_of(design)
    nobody = np.zeros(canaries.num_canaries, dtype=bool)
    one = nobody.copy()
    one[0] = True
    without, with_it = canaries.records(nobody), canaries.records(one)
    norms = np.linalg.norm(with_it.features.astype(float), axis=1)
    assert norms.max() == with_it.feature_grid.sensitivity
    replaced = design == "uniform"
    assert with_it.count - without.count == (0 if replaced else 1)
    rows = [tuple(row) for row in np.c_[with_it.features, with_it.labels]]
    for row in np.c_[without.features, without.labels][replaced:]:
        rows.remove(tuple(row))
    assert len(rows) == 1 and rows[0][0] == with_it.feature_grid.sensitivity


@pytest.mark.parametrize("design", DESIGNS)
def test_the_rows_that_are_scored_are_those_of_a_release(design, tmp_path):
    """Bit for bit: the whole path of privmix.release, its files read back, under the same key."""
    canaries = canaries_of(design)
    records = canaries.records(np.arange(canaries.num_canaries) % 2 == 0)
    plan = ReleasePlan.for_config(canaries.mechanism, 1e-5, canaries.schema)
    made = release_records(records, plan, RunTerms(tmp_path / "made", test_seed=7))
    context = hashlib.sha256(plan.digest() + records.digest()).digest()
    tables = published(canaries.mechanism, 1.0, records, MasterKey.for_test(7, context))
    for rows, table in zip(tables, made.tables, strict=True):
        assert np.array_equal(rows.features, table.features)
        if rows.label_weights is not None:
            assert np.array_equal(rows.label_weights, table.label_weights)
    assert np.isfinite(canaries.scores(tables)).all()


@pytest.mark.parametrize("design", ["poisson", "signed", "uniform", "hybrid"])
def test_label_noise_is_read_in_classes_of_nobody(design):
    """Certified noise by a chi-square test; false alarm 1e-4. ``hybrid`` has none."""
    canaries = canaries_of(design)
    records = canaries.records(np.arange(canaries.num_canaries) % 2 == 0)
    tables = published(canaries.mechanism, 1.0, records, MasterKey.for_test(1, b"labels"))
    noise = canaries.label_noise(tables, records)
    # Two of five canaries are not there; of uniform's three classes one has nobody.
    assert len(noise) == {"poisson": 100, "signed": 100, "uniform": 10, "hybrid": 0}[design]
    low, high = chi2.ppf([0.5e-4, 1 - 0.5e-4], max(1, len(noise)))
    assert not len(noise) or low < (noise**2).sum() < high


@pytest.mark.parametrize("design", DESIGNS)
def test_likelihood_ratios_average_to_one_where_nobody_is(design):
    """E[exp(L)] = 1 without the canary, if L is the log likelihood ratio; 4 standard errors, 6e-5 each."""
    if design in ("hierarchical", "adaptive"):
        return  # an approximation of the eligible rows; residuals taken to be as long as can be
    canaries = canaries_of(design, 32)
    nobody = np.zeros(canaries.num_canaries, dtype=bool)
    records = canaries.records(nobody)
    runs = 40 if canaries.num_canaries > 1 else 600
    ratios = np.concatenate(
        [
            canaries.scores(
                published(canaries.mechanism, 1.0, records, MasterKey.for_test(seed, b"average"))
            )[:, 0]
            for seed in range(runs)
        ]
    )
    # Bounded functions of L: with P and Q the two laws, E_Q[min(1, exp(L))] = P(L < 0) + Q(L >= 0).
    values = np.minimum(1.0, np.exp(ratios))
    everybody = canaries.records(~nobody)
    there = np.concatenate(
        [
            canaries.scores(
                published(canaries.mechanism, 1.0, everybody, MasterKey.for_test(seed, b"there"))
            )[:, 0]
            for seed in range(runs)
        ]
    )
    difference = values.mean() - (there < 0).mean() - (ratios >= 0).mean()
    spread = math.sqrt(
        (values - (ratios >= 0)).var() / len(ratios) + (there < 0).var() / len(there)
    )
    assert abs(difference) < 4 * spread


def test_allocation_by_brute_force():
    generator = np.random.default_rng(0)
    for total, degree in ((5, 2), (6, 1), (4, 4), (7, 6)):
        ratios = generator.standard_normal((total, 3)) * 4
        sums = [ratios[list(rows)].sum(axis=0) for rows in combinations(range(total), degree)]
        due = np.log(np.exp(sums).mean(axis=0))
        assert likelihood.allocated(ratios, degree) == pytest.approx(due, rel=1e-9, abs=1e-9)


def test_allocation_survives_what_a_double_does_not_hold():
    ratios = np.full((400, 1), 900.0)
    assert likelihood.allocated(ratios, 200)[0] == pytest.approx(200 * 900.0)
    assert likelihood.allocated(-ratios, 200)[0] == pytest.approx(-200 * 900.0)


def test_signed_ratio_by_its_two_densities():
    row, noise = np.linspace(-5, 5, 11), 0.8
    due = np.log((norm.pdf(row, 1, noise) + norm.pdf(row, -1, noise)) / 2 / norm.pdf(row, 0, noise))
    found = likelihood.signed_log_ratio(row / noise**2, noise**-2)
    assert found == pytest.approx(due)


def test_sampled_ratio_by_its_densities():
    row, noise, prob = np.linspace(-3, 3, 7)[:, None], 1.5, 0.3
    mixed = (1 - prob) * norm.pdf(row, 0, noise) + prob * norm.pdf(row, 1, noise)
    due = np.log(mixed / norm.pdf(row, 0, noise)).sum(axis=0)
    ratios = likelihood.shift_log_ratio(row, noise)
    assert likelihood.sampled(ratios, prob) == pytest.approx(due)
    assert likelihood.sampled(ratios, 1.0) == pytest.approx(ratios.sum(axis=0))


def test_crowded_labels_by_their_sums():
    crowd, prob, noise, open_prob = 30, 0.4, 1.2, 0.3
    labels, features = (
        np.array([[-0.5], [9.0], [13.2], [20.0]]),
        np.array([[0.2], [-1.0], [2.0], [0.0]]),
    )
    numbers = np.arange(crowd + 1)
    masses = binom.pmf(numbers, crowd, prob)

    def density(shift: float) -> np.ndarray:
        return (masses * norm.pdf(labels - numbers - shift, 0, noise)).sum(axis=1)[:, None]

    shut = (1 - open_prob) * norm.pdf(labels, 0, noise)
    there = (1 - prob) * density(0.0) + prob * density(1.0) * np.exp(features)
    due = np.log((shut + open_prob * there) / (shut + open_prob * density(0.0))).sum()
    crowded = likelihood.CrowdedLabels(crowd, prob, noise)
    found = crowded.log_ratio(labels, features, open_prob, prob)[0]
    assert found == pytest.approx(due, abs=1e-3)


def test_a_crowd_shows_the_coin():
    for prob, noise in ((0.05, 1.0), (0.4, 10.0), (1.0, 0.5)):
        crowd = likelihood.crowd_size(prob, noise)
        mean, deviation = crowd * prob, math.sqrt(crowd * prob * (1 - prob))
        assert mean - 6 * deviation >= 6 * noise * (1 - 1e-9)


def test_a_single_row_does_not_spread():
    assert likelihood.spread(np.ones((1, 3))).tolist() == [0.0, 0.0, 0.0]
