from __future__ import annotations

import json
import math
import re
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import make_data, make_schema
from privmix import InvalidInputError, ReleasePlan, Schema, bound_records, plan_release
from privmix import mixer as mixer_module
from privmix.mechanism import DESIGNS
from privmix.planning.flags import make_plan
from privmix.planning.plan import PrivacyUnit
from privmix.planning.solve import configure
from privmix.preprocess import Center, RandomProjection, Subspace, UnitNorm
from privmix.rng import MasterKey


def sizes(num_records: int, num_classes: int, num_features: int = 5) -> dict[str, int]:
    return {
        "num_records": num_records,
        "num_classes": num_classes,
        "num_features": num_features,
    }


def test_default_sizes():
    many = configure(sizes(10003, 77, 384), "stratified", {}, 1.0)
    assert (many.sampling_prob, many.num_mixtures) == (0.5, 7700)
    few = configure(sizes(60000, 10), "poisson", {}, 1.0)
    assert (few.mix_size, few.num_mixtures) == (64, 60000)
    assert configure(sizes(20, 10), "poisson", {}, 1.0).mix_size == 10


@pytest.mark.parametrize("given", [[0.4, 0.2, 0.9], (0.4, 0.2, 0.9), np.array([0.4, 0.2, 0.9])])
def test_a_class_prob_for_each_class_is_planned_and_read_back(given):
    options = {"class_prob": given, "num_mixtures": 50, "mix_size": 5}
    plan = plan_release(
        make_schema(), target_epsilon=2.0, target_delta=1e-5, design="hierarchical", **options
    )
    assert 0.99 * 2 <= plan.epsilon <= 2
    assert (plan.mechanism.class_prob, plan.mechanism.eligibility) == ((0.4, 0.2, 0.9), "random")
    again = ReleasePlan.from_json(plan.to_json())
    assert again == plan
    assert again.digest() == plan.digest()


@pytest.mark.parametrize("design", DESIGNS)
def test_every_design_is_planned_and_read_back(design):
    options = {
        "stratified": {"rows_per_class": 5},
        "hierarchical": {"class_prob": 0.4, "num_mixtures": 50, "mix_size": 5},
        "transposed": {"rows_per_record": 3, "num_mixtures": 50},
    }.get(design, {"mix_size": 5, "num_mixtures": 50})
    plan = plan_release(
        make_schema(), target_epsilon=2.0, target_delta=1e-5, design=design, **options
    )
    assert 0.99 * 2 <= plan.epsilon <= 2
    assert plan.to_dict()["design"] == plan.design == design
    again = ReleasePlan.from_json(plan.to_json())
    assert again == plan
    assert again.digest() == plan.digest()


def test_digests_of_parameters_are_those_of_what_the_guarantee_follows_from():
    plan = plan_release(make_schema(), target_epsilon=2.0, target_delta=1e-5, design="stratified")
    same = plan.model_copy(update={"epsilon": 2.1, "accountants": {}, "peak_memory_bytes": 7})
    assert same.parameters_digest() == plan.parameters_digest()
    nameless = plan.model_copy(update={"data_schema": None})
    assert nameless.parameters_digest() == plan.parameters_digest()
    assert re.fullmatch("[0-9a-f]{64}", plan.parameters_digest())
    noisier = plan_release(
        make_schema(), target_epsilon=1.9, target_delta=1e-5, design="stratified"
    )
    others = [
        noisier,
        plan.model_copy(update={"delta": 1e-6}),
        plan.model_copy(update={"unit_column": "patient", "max_records_per_unit": 2}),
        plan.model_copy(update={"preprocessing": (UnitNorm(),)}),
    ]
    assert len({one.parameters_digest() for one in (plan, *others)}) == 5


@pytest.mark.parametrize("text", ["[" * 100_000, '{"num_records": ' + "9" * 5000 + "}", "[]", ""])
def test_plan_files_that_are_no_plans(text):
    with pytest.raises(InvalidInputError):
        ReleasePlan.from_json(text)


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
        ({"design": "magic"}, "poisson, signed, stratified, hybrid"),
        ({"design": "stratified", "mix_size": 5.0}, "mix_size"),
        ({"design": "poisson", "rows_per_class": 5}, "rows_per_class"),
        ({"design": "stratified", "sampling_prob": 1.5}, "sampling_prob"),
        ({"label_balance": 0.0}, "label_balance"),
        ({"target_epsilon": 1e-300}, "target_epsilon.*at least 1e-06"),
        ({"target_epsilon": 1e300}, "target_epsilon.*at most 10000"),
        ({"target_delta": 1e-310}, "target_delta.*at least 1e-300"),
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


@st.composite
def configs(draw):
    design = draw(st.sampled_from(DESIGNS))
    rows = draw(st.integers(1, 40))
    options = {
        "stratified": {
            "sampling_prob": draw(st.floats(0.01, 1)),
            "rows_per_class": rows,
        },
        "hierarchical": {
            "mix_size": draw(st.floats(0.5, 8)),
            "num_mixtures": rows,
            "class_prob": draw(st.floats(0.2, 1)),
            "eligibility": draw(st.sampled_from(["balanced", "random"])),
        },
        "uniform": {"mix_size": draw(st.integers(1, 40)), "num_mixtures": rows}
        | draw(st.sampled_from([{}, {"weight_alpha": 0.5, "weight_clip": 0.2}])),
        "transposed": {
            "rows_per_record": draw(st.integers(1, rows)),
            "num_mixtures": rows,
            "neighboring_relation": draw(st.sampled_from(["add_or_remove_one", "replace_one"])),
        },
    }.get(design, {"mix_size": draw(st.floats(0.5, 40)), "num_mixtures": rows})
    if design == "adaptive":
        options["num_rounds"] = draw(st.integers(1, 5))
    if design not in ("stratified", "hybrid", "adaptive"):
        options["label_balance"] = draw(st.floats(0.1, 10))
    return configure(sizes(40, 3, 4), design, options, draw(st.floats(0.05, 100)))


@settings(max_examples=120, deadline=None)
@given(configs())
def test_sampler_noise_and_event_agree(config):
    """What the engine asks of the samplers and of the noise is what the event accounts for."""
    schema = make_schema(num_classes=3, num_features=4, num_records=40)
    records = bound_records(*make_data(schema, 40), schema)
    several = config.design in ("hybrid", "adaptive")
    events = config.event.events if several else [config.event]
    for part, event in zip(config.components, events, strict=True):
        assert part.event == event
        if part.design == "residual":  # samples nobody; see tests/rounds
            assert (event.noise_multiplier, event.count) == (
                part.noise_multiplier,
                part.num_mixtures / part.num_classes,
            )
        else:
            check_component(part, event, records)


def check_component(part, event, records) -> None:
    seen: dict[str, list] = {"bernoulli": [], "uniform": [], "transposed": [], "noise": []}

    def nobody(num_rows):
        return mixer_module.Inclusions(
            np.zeros(num_rows + 1, dtype=np.int64), np.empty(0, np.int32)
        )

    def bernoulli(stream, extra, prob, num_rows, num_records, *, signed):
        seen["bernoulli"].append((prob, num_rows, signed))
        return nobody(num_rows)

    def uniform(stream, size, num_rows, num_records):
        seen["uniform"].append((size, num_rows, num_records))
        return nobody(num_rows)

    def weights(stream, alpha, clip, num_rows, size):
        assert (alpha, clip, size) == (part.weight_alpha, part.weight_clip, part.mix_size)
        return np.empty(0, dtype=np.int32)

    def transposed(stream, rows, num_mixtures, num_records):
        seen["transposed"].append((rows, num_mixtures))
        return mixer_module.Choices(np.empty(0, np.int32), np.empty(0, np.int32))

    def noise(stream, extra, stddev, size, *, out):
        seen["noise"].append((stddev, size))
        return np.zeros(size, dtype=np.int64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixer_module, "bernoulli_inclusions", bernoulli)
        patch.setattr(mixer_module, "uniform_inclusions", uniform)
        patch.setattr(mixer_module, "dirichlet_weights", weights)
        patch.setattr(mixer_module, "transposed_choices", transposed)
        patch.setattr(mixer_module, "rounded_gaussian", noise)
        mixer = mixer_module.Mixer(part, records, MasterKey.for_test(0, b""))
        for block in part.blocks:
            mixer.rows(block)
    steps_noise = event.noise_multiplier
    if part.design == "transposed":
        assert seen["transposed"] == [(part.rows_per_record, part.num_mixtures)]
        assert (event.rows_per_record, event.num_rows) == (part.rows_per_record, part.num_mixtures)
        assert event.count == 1
    elif part.design == "uniform":
        assert {size for size, _, _ in seen["uniform"]} == {event.mix_size}
        assert {count for _, _, count in seen["uniform"]} == {event.num_records}
        assert sum(rows for _, rows, _ in seen["uniform"]) == event.count
    else:
        assert {prob for prob, _, _ in seen["bernoulli"]} <= {event.sampling_prob}
        assert {signed for _, _, signed in seen["bernoulli"]} <= {part.design == "signed"}
        if part.eligibility == "random":
            assert (event.eligible_prob, event.count) == (part.class_prob, part.num_mixtures)
        else:
            assert event.count == open_rows(mixer, int(records.labels[0]))
    assert sum(n for _, n in seen["noise"]) == part.num_mixtures * part.row_width
    check_noise(part, steps_noise, [stddev for stddev, _ in seen["noise"]])


def open_rows(mixer, own_class: int) -> int:
    """Rows that a record of a class may enter."""
    if mixer._eligible is not None:
        return int(mixer._eligible[:, own_class].sum())
    blocks = mixer.config.blocks
    return sum(b.num_rows for b in blocks if b.class_index in (None, own_class))


def check_noise(part, accounted: float, stddevs: list[float]) -> None:
    """The noise drawn is never below the noise accounted for, and hardly above."""
    change = {"add_or_remove_one": (1.0, 1.0), "replace_one": (2.0, math.sqrt(2))}
    unit = part.weight_bound * (1 if part.weight_clip is None else mixer_module.WEIGHT_SCALE)
    moves = [16384 * unit * factor for factor in change[part.neighboring_relation]]
    per_block = 2 if part.labels == "mixed" else 1
    for first in range(0, len(stddevs), per_block):
        block = stddevs[first : first + per_block]
        drawn = 1 / math.sqrt(sum((m / s) ** 2 for m, s in zip(moves, block, strict=False)))
        assert drawn * (1 - 1e-11) <= accounted <= drawn * (1 + 1e-14)


@pytest.mark.parametrize(
    "steps", ["center", Center(budget_share=0.1), ["center"], [{"step": "center"}], [Center], 5]
)
def test_what_is_no_list_of_steps_is_refused(steps):
    with pytest.raises(InvalidInputError, match="preprocessing: expected a list of steps"):
        plan_release(make_schema(), target_epsilon=1.0, target_delta=1e-5, preprocessing=steps)


def test_memory_of_steps_is_planned():
    """What releases of 64 records took at their peak is within what was planned."""

    def peak(width, *steps):
        schema = Schema(classes=(0, 1), num_features=width, num_records=64, feature_clip_norm=1.0)
        options = {"design": "stratified", "sampling_prob": 1.0, "rows_per_class": 1}
        target = {"target_epsilon": 1.0, "target_delta": 1e-5}
        return plan_release(schema, **target, **options, preprocessing=steps).peak_memory_bytes

    assert peak(4500, Subspace(num_directions=4)) > 1364 << 20
    assert peak(9000, RandomProjection(num_directions=9000)) > 1659 << 20
    assert peak(9000) < 1000 << 20


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"num_features": 10**7}, "num_features"),
        ({"num_features": 10**400}, "num_features"),
        ({"num_records": 10**9}, "num_records"),
        ({"num_records": 10**400}, "num_records"),
        ({"num_classes": 10**9}, "num_classes"),
        ({"design": "transposed", "num_mixtures": 10**11}, "num_mixtures"),
        ({"design": "poisson", "num_mixtures": 10**9}, "num_mixtures"),
        ({"design": "auto", "num_mixtures": 10**9}, "num_mixtures"),
        ({"design": "stratified", "rows_per_class": 10**9}, "num_mixtures"),
        ({"design": "poisson", "mix_size": 1e-300}, "mix_size"),
        ({"design": "poisson", "noise_multiplier": 1e-300, "epsilon": None}, "noise_multiplier"),
        ({"unit": PrivacyUnit("patient", 10**6)}, "max_records_per_unit"),
    ],
)
def test_sizes_without_an_end_are_refused(changes, place):
    """In a moment, with what is allowed, and no raw error."""
    sizes = {"num_records": 1000, "num_classes": 3, "num_features": 5}
    sizes |= {name: changes[name] for name in sizes if name in changes}
    others = {name: value for name, value in changes.items() if name not in sizes}
    target = {"epsilon": others.pop("epsilon", 1.0), "delta": 1e-5}
    known = {name: others.pop(name, None) for name in ("noise_multiplier",)}
    unit = {"unit": others.pop("unit")} if "unit" in others else {}
    started = time.monotonic()
    with pytest.raises(InvalidInputError, match=place):
        make_plan(None, sizes, others.pop("design", None), others, **target, **known, **unit)
    assert time.monotonic() - started < 10


def test_a_field_that_is_there_twice_is_refused():
    """Readers of JSON disagree on which of two values counts."""
    plan = plan_release(make_schema(), target_epsilon=1.0, target_delta=1e-5, design="poisson")
    text = plan.to_json().replace('"epsilon":', '"epsilon": 1e-3, "epsilon":', 1)
    with pytest.raises(InvalidInputError, match="epsilon' twice"):
        ReleasePlan.from_json(text)
