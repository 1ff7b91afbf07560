"""Units of privacy and other targets than classes on the command line."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders import make_data, make_schema
from commands import Result
from privmix import Release, Schema

BUDGET = ("--epsilon", 4, "--delta", "1e-5", "--design", "signed", "--num-mixtures", 50)
UNITS = ("--unit-column", "patient", "--max-records-per-unit", 3)


@pytest.fixture
def visits(tmp_path):
    """Records of patients, as a table with a label, and as one with two targets."""
    schema = make_schema(num_records=200)
    (tmp_path / "schema.json").write_text(schema.to_json())
    x, y = make_data(schema, 200)
    ids = [f"p{i}" for i in np.random.default_rng(0).integers(30, size=200)]
    features = {f"x{i}": x[:, i] for i in range(5)}
    pq.write_table(pa.table({**features, "patient": ids, "label": y}), tmp_path / "visits.parquet")
    targets = {"age": 60 + 30 * x[:, 0], "dose": 2 * x[:, 1]}
    pq.write_table(pa.table({**features, **targets}), tmp_path / "doses.parquet")
    numbers = Schema(
        classes=["age", "dose"],
        target="regression",
        target_bounds=[(0, 120), (-2, 2)],
        num_features=5,
        num_records=200,
        feature_clip_norm=1.0,
    )
    (tmp_path / "numbers.json").write_text(numbers.to_json())
    return tmp_path


def ok(result: Result) -> Result:
    assert result.code == 0, result.err
    return result


def test_units_from_the_plan_to_the_ledger(run, visits):
    schema, ledger = visits / "schema.json", visits / "l.db"
    plan = ok(
        run("plan", "--schema", schema, *BUDGET, *UNITS, "--json", "--out", visits / "p.json")
    )
    assert plan.json["unit_column"] == "patient"
    assert plan.json["max_records_per_unit"] == 3
    assert 3.9 < plan.json["epsilon"] <= 4
    shown = ok(run("plan", "--schema", schema, *BUDGET, *UNITS))
    assert "patient, at most 3 records of each" in shown.out
    opened = ("--ledger", ledger, "--dataset-id", "visits")
    ok(run("ledger", "open", *opened, "--epsilon-limit", 5, "--delta", "1e-5"))
    source = (visits / "visits.parquet", "--label", "label")
    made = ok(run("release", *source, "--plan", visits / "p.json", "--out", visits / "r", *opened))
    assert "200 records of 30 owners, of which 90 take part (planned 200)" in made.err
    # As a number of its own: the digest is random.
    assert not re.search(r"\b30\b", made.out.replace(str(visits), ""))
    ok(run("verify", visits / "r"))
    certificate = Release(visits / "r").certificate
    assert certificate.privacy_unit == "unit"
    assert certificate.data_schema.num_features == 5
    written = (visits / "r" / "certificate.json").read_text()
    assert not any(f'"p{i}"' in written for i in range(30))
    told = ok(run("account", "--release", visits / "r", "--delta", "1e-5", "--json"))
    assert told.json["epsilon"] == pytest.approx(certificate.epsilon, rel=1e-5)
    assert (told.json["unit_column"], told.json["max_records_per_unit"]) == ("patient", 3)
    shown = ok(run("account", "--release", visits / "r", "--delta", "1e-5", "--group-size", 2))
    assert "for patient, up to 3 records of each" in shown.out
    assert "for 2 of patient together" in shown.out
    spent = ok(run("ledger", "show", "--ledger", ledger, "--json")).json["datasets"][0]
    assert spent["epsilon_spent"] == pytest.approx(certificate.epsilon, rel=1e-5)


def test_records_beside_units_are_refused_by_the_ledger(run, visits):
    schema, ledger = visits / "schema.json", visits / "l.db"
    opened = ("--ledger", ledger, "--dataset-id", "visits")
    ok(run("ledger", "open", *opened, "--epsilon-limit", 50, "--delta", "1e-5"))
    source = (visits / "visits.parquet", "--label", "label", "--schema", schema, *BUDGET, *opened)
    ok(run("release", *source, *UNITS, "--out", visits / "r"))
    x, y = make_data(make_schema(), 200)
    np.savez(visits / "t.npz", x=x, y=y)
    plain = ("--features-key", "x", "--label-key", "y", "--schema", schema, *BUDGET, *opened)
    refused = run("release", visits / "t.npz", *plain, "--out", visits / "q")
    assert refused.code == 2
    assert "one kind of unit" in refused.err
    assert not (visits / "q").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--unit-column", "patient"), "max_records_per_unit"),
        (("--max-records-per-unit", 3), "unit_column"),
        (("--unit-column", "person", "--max-records-per-unit", 3), "--unit-column: .*'person'"),
        (("--unit-column", "patient", "--max-records-per-unit", 0), "at least 1"),
    ],
)
def test_bad_units_are_one_line(run, visits, options, words):
    source = (visits / "visits.parquet", "--label", "label", "--schema", visits / "schema.json")
    result = run("release", *source, *BUDGET, *options, "--out", visits / "r")
    assert result.code == 2
    assert len(result.err.strip().splitlines()) == 1
    assert re.search(words, result.err)
    assert not (visits / "r").exists()


def test_uniform_rows_have_no_units(run, visits):
    source = (visits / "visits.parquet", "--label", "label", "--schema", visits / "schema.json")
    budget = ("--epsilon", 4, "--delta", "1e-5", "--design", "uniform", "--num-mixtures", 50)
    result = run("release", *source, *budget, *UNITS, "--out", visits / "r")
    assert result.code == 2
    assert "unit_column: not accepted for a release under replace_one" in result.err


def test_regression_by_the_schemas_names_and_by_columns(run, visits):
    source = (visits / "doses.parquet", "--schema", visits / "numbers.json", *BUDGET)
    for name, options in (("a", ()), ("b", ("--label", "age", "--label", "dose"))):
        made = ok(run("release", *source, *options, "--out", visits / name, "--json"))
        assert "of the labels clipped" in made.err
        ok(run("verify", visits / name))
        published = Release(visits / name)
        assert published.label_weights.shape == (50, 2)
        assert published.certificate.data_schema.target == "regression"
    plan = json.loads(ok(run("plan", "--schema", visits / "numbers.json", *BUDGET, "--json")).out)
    assert plan["target"] == plan["schema"]["target"] == "regression"


def test_regression_is_learnt_and_evaluated(run, visits):
    """Loud enough to learn from: dose is 2 x1, age 60 + 30 x0."""
    table = pq.read_table(visits / "doses.parquet")
    budget = ("--epsilon", 5000, "--delta", "1e-5", "--design", "uniform", "--mix-size", 100)
    source = (visits / "doses.parquet", "--schema", visits / "numbers.json", *budget)
    ok(run("release", *source, "--num-mixtures", 2000, "--test-seed", 1, "--out", visits / "r"))
    model = visits / "m.safetensors"
    train = ("train", visits / "r", "--out", model)
    refused = run(*train, "--learner", "noise-aware")
    assert refused.code == 2
    assert "release.target: expected classes" in refused.err
    assert ok(run(*train, "--json")).json["learner"] == "noise-aware-regression"
    score = ok(run("evaluate", model, visits / "doses.parquet", "--json")).json
    assert score["r2"] > 0.8
    assert set(score["rmse"]) == {"age", "dose"}
    assert score["rmse"]["age"] < np.std(table["age"].to_numpy()) / 2
    assert score["rmse"]["dose"] < np.std(table["dose"].to_numpy()) / 2
    swapped = ("--label", "dose", "--label", "age")
    assert run("evaluate", model, visits / "doses.parquet", *swapped, "--json").json["r2"] < 0


def test_test_data_may_keep_the_column_of_owners(run, visits):
    table = visits / "visits.parquet"
    source = (table, "--label", "label", "--schema", visits / "schema.json")
    budget = ("--epsilon", 4, "--delta", "1e-5", "--design", "stratified")
    ok(run("release", *source, *budget, *UNITS, "--out", visits / "r"))
    model = visits / "m.safetensors"
    ok(run("train", visits / "r", "--out", model))
    test = ("evaluate", model, table, "--label", "label")
    refused = run(*test)
    assert refused.code == 2
    assert "patient: expected a column of numbers" in refused.err
    score = ok(run(*test, "--unit-column", "patient", "--json")).json
    without = visits / "without.parquet"
    pq.write_table(pq.read_table(table).drop_columns(["patient"]), without)
    same = ok(run("evaluate", model, without, "--label", "label", "--json")).json
    assert score == same
    assert run(*test, "--unit-column", "person").code == 2


def test_a_design_of_classes_is_refused(run, visits):
    budget = ("--epsilon", 4, "--delta", "1e-5", "--design", "hybrid")
    result = run("plan", "--schema", visits / "numbers.json", *budget)
    assert result.code == 2
    assert "design: expected poisson, signed, adaptive, uniform, transposed" in result.err


def test_explain_is_about_records_with_classes(run, visits):
    budget = ("--epsilon", 4, "--delta", "1e-5", "--explain")
    for options in (
        ("--schema", visits / "numbers.json"),
        ("--schema", visits / "schema.json", *UNITS),
        ("--num-records", 9, "--num-classes", 2, "--num-features", 3, "--max-records-per-unit", 2),
    ):
        result = run("plan", *options, *budget)
        assert result.code == 2
        assert "--explain" in result.err


def test_owners_in_an_npz_file_and_none_in_an_npy_file(run, visits):
    table = pq.read_table(visits / "visits.parquet")
    x = np.column_stack([table[f"x{i}"].to_numpy() for i in range(5)])
    y, owners = table["label"].to_numpy(), np.array(table["patient"].to_pylist())
    np.savez(visits / "v.npz", x=x, y=y, patient=owners)
    np.save(visits / "x.npy", x)
    np.save(visits / "y.npy", y)
    public = ("--schema", visits / "schema.json", *BUDGET, *UNITS)
    keys = ("--features-key", "x", "--label-key", "y")
    made = ok(run("release", visits / "v.npz", *keys, *public, "--out", visits / "r"))
    assert "200 records of 30 owners, of which 90 take part (planned 200)" in made.err
    refused = run(
        "release", visits / "x.npy", "--labels", visits / "y.npy", *public, "--out", visits / "q"
    )
    assert refused.code == 2
    assert "np.savez('data.npz', x=..., y=..., patient=...)" in refused.err


def test_raw_texts_given_as_features_are_told_what_they_need(run, visits):
    (visits / "t.csv").write_text("text,label\nmy card,0\nlost,1\n")
    public = ("--label", "label", "--schema", visits / "schema.json", *BUDGET)
    refused = run("release", visits / "t.csv", *public, "--out", visits / "r")
    assert refused.code == 2
    assert "text: expected a column of numbers (--text-column" in refused.err
    assert "--extractor" in refused.err


def test_release_without_a_plan_file(run, files):
    made = run(
        "release",
        files / "test.npz",
        "--features-key",
        "x",
        "--label-key",
        "y",
        "--schema",
        files / "schema.json",
        "--epsilon",
        2,
        "--delta",
        "1e-5",
        "--mix-size",
        20,
        "--num-mixtures",
        50,
        "--out",
        files / "r",
    )
    assert made.code == 0
    assert "privmix verify" in made.out
    assert run("verify", files / "r").out.startswith("valid: (1.9")


def test_a_dry_run_reads_checks_and_writes_nothing(run, files):
    before = sorted(files.iterdir())
    told = run(
        "release", files / "train.parquet", "--label", "label", "--schema", files / "schema.json",
        "--epsilon", 2, "--delta", "1e-5", "--out", files / "r", "--dry-run",
    )  # fmt: skip
    assert (told.code, told.out) == (0, "")
    assert "400 records (planned 400), 0.0% clipped" in told.err
    assert "everything is in order; nothing was drawn" in told.err
    assert sorted(files.iterdir()) == before


@pytest.mark.parametrize(("planned", "far"), [(201, False), (199, True), (799, False), (800, True)])
def test_the_holder_is_told_when_the_plan_is_for_others(run, files, planned, far):
    facts = json.loads((files / "schema.json").read_text()) | {"num_records": planned}
    (files / "other.json").write_text(json.dumps(facts))
    told = run(
        "release", files / "train.parquet", "--label", "label", "--schema", files / "other.json",
        "--epsilon", 2, "--delta", "1e-5", "--out", files / "r", "--dry-run",
    )  # fmt: skip
    assert ("far from the plan" in told.err) == far
