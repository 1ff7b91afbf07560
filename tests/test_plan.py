from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import make_data, make_schema
from privmix import (
    InvalidInputError,
    ReleaseConfig,
    ReleasePlan,
    bound_records,
    engine,
    plan_release,
)
from privmix.accounting import account
from privmix.plan import (
    config_with_noise,
    joint_noise_multiplier,
    plan_layout,
    split_noise_multiplier,
)
from privmix.rng import MasterKey


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e3))
def test_splitting_and_joining_are_inverse(joint, balance):
    feature, label = split_noise_multiplier(joint, balance)
    assert math.isclose(label, balance * feature)
    assert math.isclose(joint_noise_multiplier(feature, label), joint, rel_tol=1e-12)


def test_defaults():
    many = plan_layout(num_records=10003, num_classes=77, num_features=384)
    assert (many["design"], many["sampling_prob"], many["num_mixtures"]) == (
        "stratified",
        0.5,
        7700,
    )
    few = plan_layout(num_records=60000, num_classes=10, num_features=5)
    assert (few["design"], few["mix_size"], few["num_mixtures"]) == ("poisson", 64, 60000)
    assert plan_layout(num_records=20, num_classes=10, num_features=5)["mix_size"] == 20


@pytest.mark.parametrize("number", range(20))
def test_calibrated_plans_land_at_or_just_below_the_target(number):
    rng = np.random.default_rng(number)
    schema = make_schema(
        num_classes=int(rng.integers(2, 100)), num_records=int(10 ** rng.uniform(2, 5))
    )
    epsilon, delta = 10 ** rng.uniform(-1, 1), 10 ** rng.uniform(-8, -4)
    options = (
        {"design": "poisson", "mix_size": float(rng.uniform(1, 100)), "num_mixtures": 1000}
        if number % 2
        else {"design": "stratified", "sampling_prob": rng.uniform(0.01, 1), "rows_per_class": 50}
    )
    if number % 2:
        options["mix_size"] = min(options["mix_size"], schema.num_records)
    plan = plan_release(schema, target_epsilon=epsilon, target_delta=delta, **options)
    recomputed = account(plan.event, delta).epsilon
    assert recomputed == pytest.approx(plan.epsilon, rel=1e-9)
    assert 0.99 * epsilon <= recomputed <= epsilon


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target_epsilon": 0.0}, "target_epsilon"),
        ({"target_epsilon": -1.0}, "target_epsilon"),
        ({"target_epsilon": math.nan}, "target_epsilon"),
        ({"target_delta": 0.0}, "target_delta"),
        ({"target_delta": 1.0}, "target_delta"),
        ({"mix_size": 61.0}, "mix_size.*at most 60"),
        ({"mix_size": 0.0}, "mix_size"),
        ({"num_mixtures": 0}, "num_mixtures"),
        ({"design": "magic"}, "poisson, stratified"),
        ({"design": "stratified", "mix_size": 5.0}, "mix_size"),
        ({"rows_per_class": 5}, "rows_per_class"),
        ({"design": "stratified", "sampling_prob": 1.5}, "sampling_prob"),
        ({"label_balance": 0.0}, "label_balance"),
    ],
)
def test_bad_arguments_are_named(options, words):
    arguments = {"target_epsilon": 1.0, "target_delta": 1e-5} | options
    with pytest.raises(InvalidInputError, match=words):
        plan_release(make_schema(), **arguments)


def test_json_round_trip(poisson_plan, stratified_plan):
    for plan in (poisson_plan, stratified_plan):
        again = ReleasePlan.from_json(plan.to_json())
        assert again == plan
        assert again.digest() == plan.digest()


def test_json_names_are_stable(stratified_plan):
    assert set(json.loads(stratified_plan.to_json())) >= {
        "design",
        "num_mixtures",
        "mix_size",
        "sampling_prob",
        "noise_multiplier",
        "feature_noise_multiplier",
        "label_noise_multiplier",
        "epsilon",
        "delta",
        "neighboring_relation",
        "accountants",
        "peak_memory_bytes",
        "disk_bytes",
    }


@pytest.mark.parametrize(
    "change",
    [
        {"mix_size": 7.0},
        {"noise_multiplier": 9.0},
        {"sampling_prob": 0.2},
        {"label_noise_multiplier": None},
        {"design": "stratified"},
        {"num_classes": 4},
        {"num_mixtures": 0},
    ],
)
def test_a_plan_file_that_contradicts_itself_is_refused(poisson_plan, change):
    text = json.dumps(poisson_plan.to_dict() | change)
    with pytest.raises(InvalidInputError):
        ReleasePlan.from_json(text)


def test_a_stratified_row_count_must_be_a_multiple_of_the_classes(stratified_plan):
    with pytest.raises(InvalidInputError, match="multiple of num_classes"):
        ReleasePlan.from_json(json.dumps(stratified_plan.to_dict() | {"num_mixtures": 31}))


configs = st.builds(
    lambda design, noise, balance, size, rows, prob: config_with_noise(
        plan_layout(
            num_records=40,
            num_classes=3,
            num_features=4,
            design=design,
            **(
                {"mix_size": size, "num_mixtures": rows}
                if design == "poisson"
                else {"sampling_prob": prob, "rows_per_class": rows}
            ),
        ),
        noise,
        balance,
    ),
    st.sampled_from(["poisson", "stratified"]),
    st.floats(0.05, 1e4),
    st.floats(0.1, 10),
    st.floats(0.5, 40),
    st.integers(1, 40),
    st.floats(0.01, 1),
)


@settings(max_examples=60, deadline=None)
@given(configs)
def test_sampler_noise_and_event_agree(config: ReleaseConfig):
    """What the engine asks of the sampler and of the noise is what the event accounts for."""
    schema = make_schema(num_classes=3, num_features=4, num_records=40)
    records = bound_records(*make_data(schema, 40), schema)
    seen: dict[str, list] = {"inclusion": [], "noise": []}

    def sampler(stream, extra, prob, num_rows, num_records):
        seen["inclusion"].append((prob, num_rows))
        return np.zeros(num_rows + 1, dtype=np.int64), np.empty(0, dtype=np.int32)

    def noise(stream, extra, stddev, size):
        seen["noise"].append((stddev, size))
        return np.zeros(size, dtype=np.int64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "bernoulli_inclusions", sampler)
        patch.setattr(engine, "rounded_gaussian", noise)
        mixer = engine.Mixer(config, records, MasterKey.for_test(0, b""))  # type: ignore[arg-type]
        own_rows = 0
        for block in config.blocks:
            mixer.rows(block)
            if block.class_index in (None, int(records.labels[0])):
                own_rows += block.num_rows
    event = config.event
    assert {prob for prob, _ in seen["inclusion"]} == {event.sampling_prob}
    assert own_rows == event.count  # the rows that record 0 may enter
    assert sum(n for _, n in seen["noise"]) == config.num_mixtures * config.row_width
    sensitivities = [records.feature_grid.sensitivity, records.label_grid.sensitivity]
    per_block = 1 if config.label_noise_multiplier is None else 2
    for first in range(0, len(seen["noise"]), per_block):
        stddevs = [stddev for stddev, _ in seen["noise"][first : first + per_block]]
        moved = sum((c / s) ** 2 for c, s in zip(sensitivities, stddevs, strict=False))
        # The noise drawn is never below the noise accounted for, and hardly above.
        assert event.noise_multiplier <= 1 / math.sqrt(moved) * (1 + 1e-15)
        assert event.noise_multiplier >= 1 / math.sqrt(moved) * (1 - 1e-11)
