"""The numbers of a design: what one record can change, and what the event says of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import make_plan, make_schema
from privmix import InvalidInputError
from privmix.accounting import account
from privmix.mechanism import joint_noise_multiplier, split_noise_multiplier, squared_change


@pytest.mark.parametrize("target", ["class", "soft", "multilabel", "regression"])
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_no_pair_of_records_passes_the_stated_change(relation, target, rng):
    """Unit vectors, tried at random and at the extremes: the largest change is reached."""
    feature, label = squared_change(relation, target)
    x = rng.standard_normal((200, 3))
    x = np.concatenate([x / np.linalg.norm(x, axis=1, keepdims=True), np.eye(3), -np.eye(3)])
    y = x if target == "regression" else np.eye(3) if target == "class" else np.abs(x)
    if relation == "add_or_remove_one":
        found = [(v**2).sum(axis=1).max() for v in (x, y)]
    else:
        found = [((v[:, None] - v[None]) ** 2).sum(axis=2).max() for v in (x, y)]
    assert found == pytest.approx([feature, label])


@pytest.mark.parametrize("target", ["class", "regression"])
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_the_joint_multiplier_is_the_change_of_a_row_in_units_of_its_noise(relation, target):
    feature_change, label_change = squared_change(relation, target)
    for feature, label in ((1.0, 1.0), (0.3, 2.0), (5.0, 0.1)):
        moved = math.hypot(math.sqrt(feature_change) / feature, math.sqrt(label_change) / label)
        joint = joint_noise_multiplier(feature, label, relation, target)
        assert joint == pytest.approx(1 / moved)
        again = split_noise_multiplier(joint, label / feature, relation, target)
        assert again == pytest.approx((feature, label))
    alone = joint_noise_multiplier(2.0, None, relation, target)
    assert alone == pytest.approx(2.0 / math.sqrt(feature_change))


@pytest.mark.parametrize(
    ("design", "options", "rows_of_a_record"),
    [
        ("poisson", {"mix_size": 6, "num_mixtures": 41}, 41),
        ("signed", {"mix_size": 6, "num_mixtures": 41}, 41),
        ("uniform", {"mix_size": 6, "num_mixtures": 41}, 41),
        ("stratified", {"sampling_prob": 0.5, "rows_per_class": 7}, 7),
        ("hierarchical", {"mix_size": 6, "num_mixtures": 50, "class_prob": 0.5}, 25),
    ],
)
def test_every_row_that_a_record_may_enter_is_charged(design, options, rows_of_a_record):
    assert make_plan(make_schema(), design, **options).mechanism.event.count == rows_of_a_record


def test_all_rows_that_a_record_enters_are_charged():
    plan = make_plan(make_schema(), "transposed", 3.0, rows_per_record=9, num_mixtures=40)
    event = plan.mechanism.event
    assert (event.num_rows, event.rows_per_record) == (40, 9)


def test_features_and_labels_have_each_their_noise():
    plan = make_plan(
        make_schema(), "poisson", 2.0, mix_size=6, num_mixtures=4, label_balance=3.0
    ).mechanism
    assert plan.label_noise_multiplier == pytest.approx(3 * plan.feature_noise_multiplier)
    for part, multiplier in (
        ("feature", plan.feature_noise_multiplier),
        ("label", plan.label_noise_multiplier),
    ):
        assert plan.noise_stddev(100.0, part) == pytest.approx(100 * multiplier)
        assert plan.published_stddev(1.0, part) == pytest.approx(multiplier / 6)


@given(
    st.floats(1e-3, 1e6),
    st.one_of(st.none(), st.floats(1e-3, 1e3)),
    st.sampled_from(["add_or_remove_one", "replace_one"]),
)
def test_splitting_and_joining_are_inverse(joint, balance, relation):
    feature, label = split_noise_multiplier(joint, balance, relation)
    assert (label is None) == (balance is None)
    if label is not None:
        assert math.isclose(label, balance * feature)
    assert math.isclose(joint_noise_multiplier(feature, label, relation), joint, rel_tol=1e-12)


def test_replacing_needs_twice_the_feature_noise_and_root_two_the_label_noise():
    assert joint_noise_multiplier(2.0, None, "replace_one") == joint_noise_multiplier(1.0, None)
    big = 1e9  # no part of the other
    assert joint_noise_multiplier(big, math.sqrt(2), "replace_one") == pytest.approx(1.0)
    assert joint_noise_multiplier(big, 1.0) == pytest.approx(1.0)


def by_class(class_prob, **options):
    sizes = {"mix_size": 6, "num_mixtures": 50, "class_prob": class_prob}
    return make_plan(make_schema(), "hierarchical", 2.0, **sizes | options).mechanism


class TestOneClassProbForEachClass:
    def test_a_record_enters_rows_as_often_whatever_its_class(self):
        config = by_class((0.2, 0.7, 1.0))
        entering = [p * config.inclusion_prob_of(k) for k, p in enumerate(config.class_prob)]
        assert entering == pytest.approx([config.sampling_prob] * 3, rel=1e-15)
        assert config.inclusion_prob == config.inclusion_prob_of(0)

    def test_the_rarest_class_is_charged(self):
        several = by_class((0.7, 0.2, 1.0)).event
        alone = by_class(0.2, eligibility="random").event
        assert several.eligible_prob == pytest.approx(alone.eligible_prob, rel=1e-14)
        assert several.eligible_prob > alone.eligible_prob  # by more than rounding
        assert several.model_copy(update={"eligible_prob": 0.2}) == alone

    @pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
    def test_no_other_class_costs_more(self, delta):
        """At every delta, by its own event: what the theorem of the event says."""
        whole = account(by_class((0.12, 0.5, 1.0)).event, delta).epsilon
        each = [
            account(by_class(p, eligibility="random").event, delta).epsilon
            for p in (0.12, 0.5, 1.0)
        ]
        assert each == sorted(each, reverse=True)
        assert whole >= each[0] * (1 - 1e-9)
        assert whole == pytest.approx(each[0], rel=1e-3)

    def test_one_step_of_a_rarer_class_dominates_at_every_epsilon(self):
        """By quadrature, both directions: hockey-stick divergences of the pairs themselves."""
        x, s, q = np.linspace(-12, 13, 200_001), 0.8, 0.05
        absent = np.exp(-((x / s) ** 2) / 2)
        shifted = np.exp(-(((x - 1) / s) ** 2) / 2)
        epsilons = np.array([0.01, 0.3, 1.0, 2.0, 3.0])

        def deltas(p):
            present = (1 - q / p) * absent + q / p * shifted
            both = ((present, absent), (absent, present))
            return p * np.array(
                [[np.maximum(a - np.exp(e) * b, 0).sum() for e in epsilons] for a, b in both]
            )

        for rare, frequent in ((0.05, 0.06), (0.1, 0.3), (0.3, 1.0)):
            assert (deltas(rare) >= deltas(frequent) * (1 - 1e-9)).all()
        assert (deltas(0.1)[0] > 1.05 * deltas(1.0)[0]).all()

    @pytest.mark.parametrize(
        ("class_prob", "options", "words"),
        [
            ((0.2, 0.7), {}, "one probability, or 3: one for each class"),
            ((0.2, 0.7, 1.0, 1.0), {}, "got 4 of them"),
            ((0.2, 0.7, 0.01), {}, "class_prob: expected a finite number and at least 0.1"),
            ((0.2, 0.7, 1.01), {}, "at most 1"),
            ((0.2, 0.7, float("nan")), {}, "class_prob"),
            ((), {}, "class_prob"),
            ((0.2, 0.7, 1.0), {"eligibility": "balanced"}, "expected one of random"),
        ],
    )
    def test_what_no_event_covers_is_refused(self, class_prob, options, words):
        with pytest.raises(InvalidInputError, match=words):
            by_class(class_prob, **options)

    def test_a_single_probability_is_written_as_before(self):
        written = by_class(0.2).model_dump_json()
        assert '"class_prob":0.2,"eligibility":"balanced"' in written
