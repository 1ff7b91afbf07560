"""Audits of the real code: sound designs pass and their epsilon is nearly reached; faults are caught."""

from __future__ import annotations

import numpy as np
import pytest

from audit_cases import DESIGNS, plan_of, training_plan
from planted_faults import (
    PARTIAL_FAULTS,
    RELEASE_FAULTS,
    TRAINING_FAULTS,
    realised_count,
    twice_the_rate,
)
from privmix import InvalidInputError
from privmix.accounting import GaussianEvent, gdp_epsilon
from privmix.auditing import (
    AuditReport,
    audit,
    epsilon_from_scores,
    judge,
    judge_one_run,
    subject_of,
)
from privmix.auditing.canaries import most_canaries
from privmix.auditing.trials import NoiseTotals, Trials
from privmix.dpsgd import AugmentationPlan, TrainingPlan

# All audits of sound code here raise a false alarm with probability 1e-3 at most, together.
SETTINGS = {4.0: 8192, 6.0: 5120, 8.0: 4096}  # epsilon: canaries in all
CONFIDENCE = 1 - 1e-3 / (len(SETTINGS) * len(DESIGNS) + 1)


def check_sound(report: AuditReport) -> None:
    assert report.verdict == "consistent", report.findings
    assert report.epsilon / 2 < report.lower_bound < report.epsilon
    assert report.lower_bound_without_assumptions <= report.lower_bound


@pytest.mark.parametrize("epsilon", SETTINGS)
@pytest.mark.parametrize("design", DESIGNS)
def test_sound_designs_pass_and_more_than_half_of_their_epsilon_is_found(design, epsilon):
    plan = plan_of(design, epsilon)
    runs = SETTINGS[epsilon] // most_canaries(plan.mechanism)
    check_sound(audit(plan, runs=runs, confidence=CONFIDENCE, test_seed=1))


def test_sound_training_passes_and_more_than_half_of_its_epsilon_is_found():
    check_sound(audit(training_plan(6.0), runs=64, confidence=CONFIDENCE, test_seed=1))


def test_a_training_with_augmentations_is_run_as_a_head_with_as_many():
    """A chi-square test of 16 runs' noise: it is that of the plan for K augmentations; false alarm 1e-3."""
    augmentation = AugmentationPlan.dp_mix_self(5, 4, transforms=())
    config = training_plan(6.0).config.model_copy(update={"augmentation": augmentation})
    plan = TrainingPlan.for_config(config, 1e-5)
    subject, event = subject_of(plan, 4)
    assert event == config.event
    assert subject.config.augmentation.num_augmentations == 9
    report = audit(plan, runs=16, num_canaries=8, test_seed=1)
    assert report.verdict == "consistent", report.findings


def test_a_report_says_what_its_bounds_take_for_granted():
    generator = np.random.default_rng(0)
    present = generator.random((16, 8)) < 0.5
    trials = Trials(present, generator.standard_normal((16, 8, 1)), NoiseTotals(0, 0.0, 0, 0))
    event = GaussianEvent(noise_multiplier=1.0)
    many, one = (f(trials, event, 1e-5, 0.99).lines()[1] for f in (judge, judge_one_run))
    assert many.endswith("for any mechanism whose canaries of one run are independent")
    assert one.endswith("whatever the mechanism is")


def test_class_weights_of_a_training_are_no_hindrance():
    plan = training_plan(6.0)
    changed = plan.config.model_copy(update={"class_weight": (1.0, 2.0, 0.5)})
    report = audit(TrainingPlan.for_config(changed, 1e-5), runs=8, num_canaries=8, test_seed=1)
    assert report.verdict == "consistent" and report.epsilon == plan.epsilon


@pytest.mark.parametrize("fault", RELEASE_FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("design", DESIGNS)
def test_planted_faults_of_releases_are_caught(design, fault, monkeypatch):
    if (design, fault) == ("uniform", realised_count):
        return  # rows of uniform have the same public number of records
    plan = plan_of(design, 5.0)
    fault(monkeypatch)
    count = min(16, most_canaries(plan.mechanism))
    trials = 2048 if fault is twice_the_rate else 640
    report = audit(plan, runs=trials // count, num_canaries=count, test_seed=2)
    assert report.verdict == "violated"


@pytest.mark.parametrize(
    ("design", "fault"),
    [(design, fault) for fault, designs in PARTIAL_FAULTS for design in designs],
    ids=lambda part: getattr(part, "__name__", part),
)
def test_faults_of_one_part_alone_are_caught(design, fault, monkeypatch):
    plan = plan_of(design, 5.0)
    fault(monkeypatch)
    count = min(16, most_canaries(plan.mechanism))
    report = audit(plan, runs=320 // count, num_canaries=count, test_seed=2)
    assert any(found.startswith("noise: ") for found in report.findings)


@pytest.mark.parametrize("fault", TRAINING_FAULTS, ids=lambda fault: fault.__name__)
def test_planted_faults_of_training_are_caught(fault, monkeypatch):
    plan = training_plan(6.0)
    fault(monkeypatch)
    report = audit(plan, runs=16, test_seed=2)
    assert report.verdict == "violated"


def test_scores_of_an_attack_give_a_bound_below_the_truth_and_noise_gives_none():
    """100 attacks on a mechanism of mu 1.5 and on nothing: at 99 % six are wrong once in 1800 times."""
    generator = np.random.default_rng(0)
    present = np.arange(2000) % 2 == 0
    truth = gdp_epsilon(1.5, 1e-5)
    found = {}
    for mu in (1.5, 0.0):
        scores = generator.standard_normal((100, 2000)) - mu * present  # lower for those there
        found[mu] = [epsilon_from_scores(one, present, 1e-5, 0.99) for one in scores]
    assert np.mean(found[1.5]) > 1.0 and max(found[1.5]) < truth
    assert sum(bound > 0.0 for bound in found[0.0]) < 6


@pytest.mark.parametrize(
    ("scores", "present", "place"),
    [
        ([0.0] * 19 + [float("nan")], [True] * 20, "scores"),
        ([[0.0]] * 20, [True] * 20, "scores"),
        ([0.0] * 20, [True] * 19, "present"),
        ([0.0] * 15, [True] * 15, "number of scores"),
    ],
)
def test_scores_that_are_none(scores, present, place):
    with pytest.raises(InvalidInputError, match=f"^{place}: "):
        epsilon_from_scores(scores, present, 1e-5)
