"""``privmix plan``: what it says, and that it ignores nothing."""

from __future__ import annotations

import json

import pytest


def test_plan_from_sizes(run):
    plan = run(
        "plan",
        "--num-records",
        10003,
        "--num-classes",
        77,
        "--num-features",
        384,
        "--epsilon",
        1,
        "--delta",
        "1e-5",
        "--json",
    ).json
    assert (plan["design"], plan["num_mixtures"]) == ("adaptive", 2000 + 20 * 77)
    steps = ["center", "unit_norm", "intercept"]
    assert [step["step"] for step in plan["preprocessing"]] == steps
    assert 0.99 < plan["epsilon"] <= 1
    assert plan["neighboring_relation"] == "add_or_remove_one"
    assert plan["accountants"]["gdp"]["guarantee"] is False
    assert plan["peak_memory_bytes"] > plan["disk_bytes"] > (2000 + 20 * 77) * 384 * 4


PLAN = ["plan", "--num-records", 100, "--num-classes", 3, "--num-features", 5]


def test_a_delta_above_one_over_n_is_noted(run):
    assert "above 1 / num_records" in run(*PLAN, "--epsilon", 1, "--delta", 0.02).err
    assert run(*PLAN, "--epsilon", 1, "--delta", "1e-5").err == ""


def test_plan_explains_and_chooses(run):
    told = run(*PLAN, "--epsilon", 1, "--delta", "1e-5", "--explain", "--json")
    found = told.json["alternatives"]
    errors = [alternative["predicted_error"] for alternative in found]
    assert errors == sorted(errors)
    designs = {a["design"] for a in found}
    assert designs == {"adaptive", "hybrid", "signed", "poisson", "stratified"}
    table = run(*PLAN, "--epsilon", 1, "--delta", "1e-5", "--explain").out
    assert "centre" in table and "features 0." in table and "balance" in table
    chosen = run(*PLAN, "--epsilon", 1, "--delta", "1e-5", "--design", "auto", "--json").json
    assert chosen["design"] == found[0]["design"]
    assert chosen["epsilon"] <= 1


@pytest.mark.parametrize(
    "others",
    [("--out", "p.json"), ("--design", "poisson"), ("--subspace", 3), ("--mix-size", 5),
     ("--center", 0), ("--class-counts",), ("--noise-multiplier", 3)],
)  # fmt: skip
def test_nothing_is_ignored_beside_explain(run, others):
    told = run(*PLAN, "--epsilon", 1, "--delta", "1e-5", "--explain", *others)
    assert told.code == 2
    assert f"{others[0]}: not accepted beside --explain" in told.err


def test_steps_that_are_given_replace_centring_and_say_so(run):
    plan = (*PLAN, "--epsilon", 1, "--delta", "1e-5", "--design", "signed", "--class-counts")
    assert "replace automatic centring" in run(*plan).err
    assert "replace" not in run(*plan, "--center", 0.01).err


def test_preprocessing_flags_are_steps_in_order(run):
    flags = ("--center", 0.05, "--class-counts", "--subspace", 3, "--design", "signed")
    plan = run(*PLAN, "--epsilon", 1, "--delta", "1e-5", *flags, "--json").json
    names = [step["step"] for step in plan["preprocessing"]]
    assert names == ["center", "unit_norm", "class_counts", "subspace", "unit_norm"]
    assert plan["preprocessing"][0]["budget_share"] == 0.05
    assert plan["num_features"] == 3
    assert 0.99 < plan["epsilon"] <= 1
    shown = run(*PLAN, "--epsilon", 1, "--delta", "1e-5", *flags).out
    assert "center (noise multiplier" in shown and "unit_norm (no cost)" in shown
    plain = run(*PLAN, "--epsilon", 1, "--delta", "1e-5", "--center", 0, "--json").json
    assert plain["preprocessing"] == []
    free = run(*PLAN, "--epsilon", 1, "--delta", "1e-5", "--random-projection", 2, "--json").json
    assert (free["preprocessing"][0]["step"], free["num_features"]) == ("random_projection", 2)


def test_preprocessing_needs_a_budget_to_take_its_share_of(run):
    told = run(*PLAN, "--delta", "1e-5", "--noise-multiplier", 2, "--center", 0.02)
    assert told.code == 2 and "--epsilon" in told.err


def test_a_class_prob_may_be_one_for_each_class(run):
    words = ("plan", "--num-records", 300, "--num-classes", 3, "--num-features", 5, "--epsilon", 1)
    words += ("--delta", "1e-5", "--design", "hierarchical", "--num-mixtures", 40, "--mix-size", 5)
    for text in ("0.4,0.2,0.9", "[0.4, 0.2, 0.9]"):
        config = run(*words, "--class-prob", text, "--json").json
        assert (config["class_prob"], config["eligibility"]) == ([0.4, 0.2, 0.9], "random")
    assert run(*words, "--class-prob", "0.4", "--json").json["class_prob"] == 0.4
    for text in ("0.4,0.2", "0.4,much,0.9", "0.4,0.2,nan", "0.4,0.2,2", ""):
        told = run(*words, "--class-prob", text)
        assert told.code == 2 and "class" in told.err, told.err


@pytest.mark.parametrize(
    ("more", "design", "noted"),
    [
        ({"target": "regression", "target_bounds": [[0, 1]] * 3}, "adaptive", True),
        ({"target": "regression", "target_bounds": [[0, 1]] * 3}, None, False),
        ({"target": "multilabel", "max_labels": 2}, None, False),
        ({"target": "soft"}, None, False),
        ({}, "adaptive", False),
    ],
)
def test_a_plan_that_allows_no_synthetic_records_says_so(run, tmp_path, more, design, noted):
    """Whoever needs them would learn it from the release, once the budget is spent."""
    facts = {"classes": ["a", "b", "c"], "num_features": 4, "num_records": 300} | more
    (tmp_path / "schema.json").write_text(json.dumps({"feature_clip_norm": 1.0} | facts))
    words = ("--schema", tmp_path / "schema.json", "--epsilon", 1, "--delta", "1e-5")
    told = run("plan", *words, *(() if design is None else ("--design", design)))
    assert told.code == 0, told.err
    assert ("--design signed allows them" in told.out) == noted
