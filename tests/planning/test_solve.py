"""The one number that a plan leaves open is solved for; what is not given is chosen by rule."""

from __future__ import annotations

import json
from typing import ClassVar

import numpy as np
import pytest

from builders import make_schema
from privmix import InvalidInputError, ReleasePlan, Schema, plan_release
from privmix.accounting import account, event_gdp_mu
from privmix.planning.rule import recommend_design
from privmix.planning.solve import choose_design, configure, solve_config
from privmix.preprocess import Intercept


def gdp_mu(event) -> float:
    return event_gdp_mu(event)[0]


def sizes(num_records: int, num_classes: int, num_features: int = 5) -> dict[str, int]:
    return {
        "num_records": num_records,
        "num_classes": num_classes,
        "num_features": num_features,
    }


class TestAutomaticDesign:
    target: ClassVar = {"target_epsilon": 1.0, "target_delta": 1e-5}

    def schema(self) -> Schema:
        return make_schema(num_classes=20, num_features=100, num_records=10_000)

    def test_it_is_the_default_and_follows_the_rule(self):
        plan = plan_release(self.schema(), **self.target)
        assert plan == plan_release(self.schema(), **self.target, design="auto")
        best = recommend_design(**sizes(10_000, 20, 100), epsilon=1.0, delta=1e-5)[0]
        assert plan.design == best.design
        steps = ["class_counts", "center", "unit_norm", "intercept"]
        assert [step.step for step in plan.preprocessing] == steps
        assert plan.preprocessing[1].budget_share == best.center_share
        signed = plan.mechanism.components[0]
        assert (signed.num_mixtures, signed.mix_size) == (best.num_mixtures, best.mix_size)
        assert 0.99 < plan.epsilon <= 1

    def test_what_is_given_stays(self):
        named = plan_release(self.schema(), **self.target, design="signed", num_mixtures=50)
        assert (named.design, named.mechanism.num_mixtures) == ("signed", 50)
        assert named.preprocessing[0].step == "center"
        balanced = plan_release(self.schema(), **self.target, label_balance=3.0)
        label = balanced.mechanism.label_noise_multiplier
        assert label == pytest.approx(3 * balanced.mechanism.feature_noise_multiplier)
        rows = plan_release(self.schema(), **self.target, rows_per_class=7)
        assert (rows.design, rows.mechanism.rows_per_class) == ("stratified", 7)
        plain = plan_release(self.schema(), **self.target, preprocessing=[])
        assert plain.preprocessing == ()
        few = plan_release(self.schema(), **self.target, num_mixtures=100)
        assert few.mechanism.components[0].num_mixtures == 100
        assert few.mechanism.components[0].mix_size > 100  # fewer rows afford larger ones

    def test_options_that_no_considered_design_has(self):
        with pytest.raises(InvalidInputError, match="design: expected one that has the options c"):
            plan_release(self.schema(), **self.target, class_prob=0.3)


def test_a_hybrid_plan_divides_its_budget():
    options = {"mix_size": 5, "num_mixtures": 500, "feature_budget": 0.25}
    config = configure(sizes(1000, 10), "hybrid", options, 2.0)
    sums, rows = (gdp_mu(part.event) for part in config.components)
    assert sums**2 == pytest.approx(0.75 / 4)
    assert rows**2 == pytest.approx(0.25 / 4)
    told = json.loads(ReleasePlan.for_config(config, 1e-5).to_json())
    assert [part["design"] for part in told["components"]] == ["stratified", "signed"]
    assert told["num_mixtures"] == 510
    with pytest.raises(InvalidInputError, match="num_mixtures"):
        ReleasePlan.from_json(json.dumps(told | {"num_mixtures": 511}))


@pytest.mark.parametrize(
    ("design", "unknown", "options"),
    [
        ("poisson", "mix_size", {"num_mixtures": 1000}),
        ("poisson", "num_mixtures", {"mix_size": 20}),
        ("signed", "mix_size", {"num_mixtures": 1000}),
        ("hybrid", "num_mixtures", {"mix_size": 200}),
        ("hierarchical", "mix_size", {"num_mixtures": 1000, "class_prob": 0.3}),
        ("hierarchical", "mix_size", {"num_mixtures": 1000, "class_prob": [0.9, 0.3, 0.5]}),
        ("uniform", "mix_size", {"num_mixtures": 50}),
    ],
)
def test_any_one_unknown_is_solved_for(design, unknown, options):
    target = 2.0
    arguments = {"noise_multiplier": 4.0, "target_epsilon": target, "target_delta": 1e-5}
    if design == "hybrid":  # its split absorbs any number of rows: nothing is to be solved for
        arguments["noise_multiplier"] = 1.0
        with pytest.raises(InvalidInputError, match="target_epsilon"):
            solve_config(sizes(1000, 3), design, options, unknown, **arguments)
        return
    config = solve_config(sizes(1000, 3), design, options, unknown, **arguments)
    assert account(config.event, 1e-5).epsilon <= target
    assert config.noise_multiplier == pytest.approx(4.0)
    value = getattr(config, unknown)
    if unknown == "num_mixtures" or design == "uniform":
        larger = {**options, unknown: value + 1}
    else:
        larger = {**options, unknown: min(1000, value * 1.01)}
    more = configure(sizes(1000, 3), design, larger, 4.0)
    assert account(more.event, 1e-5).epsilon > target


@pytest.mark.parametrize("given", [[], ["a"], [-1, 0.3, 0.3], [[0.5], [0.2, 0.1]], np.array(0.0)])
def test_a_class_prob_that_is_none_is_named(given):
    options = {"num_mixtures": 1000, "class_prob": given}
    arguments = {"noise_multiplier": 4.0, "target_epsilon": 2.0, "target_delta": 1e-5}
    with pytest.raises(InvalidInputError, match="class_prob"):
        solve_config(sizes(1000, 3), "hierarchical", options, "mix_size", **arguments)


def test_random_weights_are_planned_at_ordinary_sizes():
    for size in (20, 64, 100):
        plan = plan_release(
            make_schema(num_records=200),
            target_epsilon=1.0,
            target_delta=1e-5,
            design="uniform",
            mix_size=size,
            weight_alpha=1.0,
            weight_clip=0.2,
        )
        assert 0.99 < plan.epsilon <= 1


def test_solving_for_what_a_design_lacks():
    with pytest.raises(InvalidInputError, match="an option of stratified"):
        solve_config(
            sizes(1000, 3),
            "stratified",
            {},
            "mix_size",
            noise_multiplier=1.0,
            target_epsilon=1.0,
            target_delta=1e-5,
        )


@pytest.mark.parametrize(
    ("num_mixtures", "class_prob"), [(50000, 0.03), (7, 0.4), (100, 1 / 3), (3, 0.9)]
)
def test_balanced_eligibility_keeps_the_mix_size(num_mixtures, class_prob):
    options = {"num_mixtures": num_mixtures, "class_prob": class_prob, "mix_size": 20}
    config = configure(sizes(1000, 7), "hierarchical", options, 1.0)
    assert config.event.count == config.eligible_rows == max(1, round(num_mixtures * class_prob))
    expected = config.inclusion_prob * config.eligible_rows / num_mixtures * 1000
    assert expected == pytest.approx(20)


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


BANKING = {"num_records": 10_003, "num_classes": 77, "num_features": 384}


@pytest.mark.parametrize("design", ["adaptive", "hybrid", "signed", "poisson", "stratified"])
def test_a_design_named_by_hand_keeps_what_auto_would_give_it(design):
    """Sizes and centring, on Banking77; the first of the alternatives is what auto plans."""
    target = {"target_epsilon": 1.0, "target_delta": 1e-5}
    kind, options, steps = choose_design(BANKING, design, {}, None, **target)
    found = recommend_design(**BANKING, epsilon=1.0, delta=1e-5)
    best = next(one for one in found if one.design == design)
    assert (kind, options, steps) == (design, best.options, best.preprocessing or ())
    if best == found[0]:
        assert choose_design(BANKING, "auto", {}, None, **target) == (kind, options, steps)
    if design in ("adaptive", "hybrid"):
        assert steps  # it is centred


@pytest.mark.parametrize(
    "design, name, value",
    [
        ("hybrid", "mix_size", 64),
        ("hybrid", "num_mixtures", 5000),
        ("hybrid", "feature_budget", 0.3),
        ("signed", "mix_size", 64),
        ("signed", "num_mixtures", 5000),
        ("signed", "label_balance", 1.0),
        ("poisson", "mix_size", 64),
        ("poisson", "num_mixtures", 5000),
        ("poisson", "label_balance", 1.0),
        ("stratified", "sampling_prob", 1.0),
    ],
)
def test_each_option_that_is_not_given_is_as_auto_would_have_it(design, name, value):
    """Option by option: one that is given stays, and drops no other and no centring."""
    target = {"target_epsilon": 1.0, "target_delta": 1e-5}
    rows = {"num_mixtures": value} if name == "num_mixtures" else {}
    found = recommend_design(**BANKING, epsilon=1.0, delta=1e-5, **rows)
    best = next(one for one in found if one.design == design)
    _, options, steps = choose_design(BANKING, design, {name: value}, None, **target)
    assert options == {**best.options, name: value}
    assert steps == best.preprocessing


@pytest.mark.parametrize("fourier", [False, True])
def test_rows_of_a_table_keep_their_lengths(fourier):
    """Random Fourier features all have one length; numbers of a column are more or less."""
    table = {"columns": [{"name": f"c{j}", "type": "boolean"} for j in range(40)]}
    if fourier:
        table["fourier"] = {"num_features": 64}
    facts = {"classes": list(range(4)), "num_records": 10_000, "table": table}
    schema = Schema.from_json(json.dumps(facts))
    plan = plan_release(schema, target_epsilon=1.0, target_delta=1e-5)
    names = [step.step for step in plan.preprocessing]
    assert names == [
        "class_counts",
        "center",
        *([] if fourier else ["intercept"]),
        "unit_norm",
        "intercept",
    ]
    assert plan.preprocessing[-1] == Intercept()


def test_lengths_of_few_columns_have_a_larger_constant():
    shares = []
    for count in (1, 4, 40):
        table = {"columns": [{"name": f"c{j}", "type": "boolean"} for j in range(count)]}
        facts = {"classes": [0, 1], "num_records": 10_000, "table": table}
        schema = Schema.from_json(json.dumps(facts))
        plan = plan_release(schema, target_epsilon=1.0, target_delta=1e-5, design="hybrid")
        shares += [step.share for step in plan.preprocessing if step.step == "intercept"]
    assert shares == [1 / 4, 1 / 16, 1 / 64]


def test_a_design_named_by_hand_keeps_what_is_given():
    target = {"target_epsilon": 1.0, "target_delta": 1e-5}
    every = {"mix_size": 64.0, "num_mixtures": 10_003, "feature_budget": 0.25}
    assert choose_design(BANKING, "hybrid", every, (), **target) == ("hybrid", every, ())
    _, _, steps = choose_design(BANKING, "hybrid", {}, (), **target)
    assert steps == ()
    # What the rule does not know is as it was.
    rows = {"num_mixtures": 50}
    assert choose_design(BANKING, "uniform", rows, None, **target) == ("uniform", rows, ())
    # Numbers are not centred, since scaling afterwards is not linear in them.
    numbers = {**BANKING, "num_classes": 1, "target": "regression"}
    _, options, steps = choose_design(numbers, "signed", {"mix_size": 64}, None, **target)
    assert (options["mix_size"], steps) == (64, ())
    assert options.keys() == {"mix_size", "num_mixtures", "label_balance"}
