"""``privmix compare``: cells mean what the table's schema says, in whatever file they are."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import privmix
from builders import make_data, make_plan, make_schema
from privmix import release
from privmix.cli import app
from privmix.cli._common import write_text
from privmix.features import make_extractor

SCHEMA = {
    "classes": ["no", "yes"],
    "num_records": 600,
    "table": {
        "columns": [
            {"name": "age", "type": "numeric", "lower": 0, "upper": 100, "missing_values": ["999"]},
            {"name": "smokes", "type": "boolean"},
            {"name": "seen", "type": "datetime", "earliest": "2020-01-01", "latest": "2030-01-01"},
        ],
        "format": {"delimiter": ";", "decimal": ",", "strip": True},
    },
}


def run(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output or done.exception
    return done


def frame(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    old = rng.random(600) < 0.5
    age = np.where(old, 70.0, 30.0) + rng.normal(0, 5, 600).round(1)
    return pd.DataFrame(
        {
            "age": np.where(rng.random(600) < 0.1, np.nan, age),
            "smokes": rng.random(600) < 0.3,
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 600), "D"),
            "died": np.where(old, "yes", "no"),
        }
    )


def test_the_schema_says_what_cells_mean(tmp_path):
    real, made = frame(0), frame(1)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    written = real.assign(
        age=[("999" if np.isnan(v) else f"{v:.1f}".replace(".", ",")) for v in real["age"]],
        smokes=np.where(real["smokes"], "yes", "no"),
        seen=real["seen"].dt.strftime("%Y-%m-%d"),
        died=[f" {v} " for v in real["died"]],
    )
    written.to_csv(tmp_path / "real.csv", sep=";", index=False)
    made.to_parquet(tmp_path / "made.parquet")
    words = ["compare", tmp_path / "real.csv", tmp_path / "made.parquet", "--label", "died"]
    words += ["--schema", tmp_path / "schema.json", "--json"]
    found = json.loads(run(*words).stdout)
    assert set(found["columns"]) == {"age", "smokes", "seen"}
    assert all(column["likeness"] > 0.85 for column in found["columns"].values()), found["columns"]
    assert abs(found["classes"]["yes"]["real"] - found["classes"]["yes"]["synthetic"]) < 0.1
    assert found["models"]["linear"]["synthetic"] > 0.9
    words = [*words[:5], "--json"]
    real.to_parquet(tmp_path / "real.parquet")
    words[1] = tmp_path / "real.parquet"
    assert "nothing says what cells mean" in run(*words).stderr.replace("\n", " ")


@pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")
def test_other_weights_of_a_soft_label_are_no_columns(tmp_path):
    x, classes = make_data(make_schema(num_records=200), 200)
    facts = {"num_features": 5, "num_records": 200, "feature_clip_norm": 1.0, "target": "soft"}
    weights = 0.8 * np.eye(3)[classes] + 0.2 / 3
    schema = privmix.Schema(classes=["a", "b", "c"], format={"delimiter": ";"}, **facts)
    plan = privmix.plan_release(schema, target_epsilon=8.0, target_delta=1e-5)
    release(x, weights, plan, out=tmp_path / "r", test_seed=1)
    names = [f"x{i}" for i in range(5)]
    rows = pd.DataFrame(np.hstack([x, weights]), columns=[*names, "a", "b", "c"])
    rows.to_parquet(tmp_path / "real.parquet")
    words = ("compare", tmp_path / "real.parquet", tmp_path / "r", "--label", "a", "--json")
    done = run(*words)
    assert list(json.loads(done.stdout)["columns"]) == names
    assert "nothing says" not in done.stderr


@pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")
def test_records_with_hashed_columns_are_compared_as_features(tmp_path, run):
    """Such a table cannot be drawn as rows, from a release or into a file."""
    schema = json.loads(json.dumps(SCHEMA))
    town = {"name": "town", "type": "categorical", "num_buckets": 4}
    schema["table"] = {"columns": [*schema["table"]["columns"], town]}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    facts = privmix.Schema.from_json(json.dumps(schema))
    towns = [f"town {i % 500}" for i in range(600)]
    real = frame(0).assign(town=towns)
    real.to_parquet(tmp_path / "real.parquet")
    plan = privmix.plan_release(facts, target_epsilon=20.0, target_delta=1e-5, design="signed")
    privmix.release(
        real, real["died"], plan, out=tmp_path / "r", test_seed=1,
        extractor=make_extractor("tabular", table=facts.table),
    )  # fmt: skip
    made = tmp_path / "made.parquet"
    words = ("--num-records", 600, "--label", "died", "--out", made)
    assert run("synthesize", tmp_path / "r", *words).code == 0
    where = ("--schema", tmp_path / "schema.json")
    for source, more in ((tmp_path / "r", ()), (tmp_path / "r", where), (made, ())):
        words = (tmp_path / "real.parquet", source, *more, "--label", "died", "--json")
        result = run("compare", *words)
        assert result.code == 0 and "compared as features" in result.err
        found = json.loads(result.out)
        assert list(found["columns"]) == [f"x{i}" for i in range(facts.num_features)]
        assert found["models"]["linear"]["synthetic"] > 0.9


def coded(path, seed: int = 0) -> None:
    """Write records in codes of their own, with a column that no schema names."""
    real = frame(seed)
    real.assign(
        age=[("999" if np.isnan(v) else f"{v:.1f}".replace(".", ",")) for v in real["age"]],
        smokes=np.where(real["smokes"], "yes", "no"),
        seen=real["seen"].dt.strftime("%Y-%m-%d"),
        ward="B",
    ).to_csv(path, sep=";", index=False)


def release_coded(folder, **facts) -> None:
    schema = privmix.Schema.from_json(json.dumps(SCHEMA | facts))
    design = "hybrid" if schema.target == "class" else "signed"
    plan = privmix.plan_release(schema, target_epsilon=50.0, target_delta=1e-5, design=design)
    records, extractor = frame(0), make_extractor("tabular", table=schema.table)
    labels = records["died"]
    if schema.target == "multilabel":
        labels = np.column_stack([records["died"] == "yes", records["smokes"]]).astype(int)
    privmix.release(records, labels, plan, out=folder, test_seed=1, extractor=extractor)


@pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")
@pytest.mark.parametrize("name", ["r", "made.csv", "made.parquet", "other.csv"])
def test_what_synthetic_records_are_of_says_what_cells_mean(tmp_path, name):
    coded(tmp_path / "real.csv")
    release_coded(tmp_path / "r")
    label = () if name == "other.csv" else ("--label", "died")
    if name != "r":
        words = ("--num-records", 600, *label, "--out", tmp_path / name)
        run("synthesize", tmp_path / "r", *words)
    words = ("compare", tmp_path / "real.csv", tmp_path / name, "--label", "died", "--json")
    found = json.loads(run(*words).stdout)
    assert set(found["columns"]) == {"age", "smokes", "seen"} and found["left_out"] == ["ward"]
    assert all(column["likeness"] > 0.7 for column in found["columns"].values()), found["columns"]
    assert set(found["classes"]) == {"no", "yes"}
    assert found["models"]["linear"]["synthetic"] > 0.9


@pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")
def test_a_schema_that_is_given_counts_before_that_of_a_release(tmp_path):
    coded(tmp_path / "real.csv")
    release_coded(tmp_path / "r")
    other = json.loads(json.dumps(SCHEMA))
    del other["table"]["columns"][2]
    (tmp_path / "schema.json").write_text(json.dumps(other))
    words = ("compare", tmp_path / "real.csv", tmp_path / "r", "--label", "died", "--json")
    found = json.loads(run(*words, "--schema", tmp_path / "schema.json").stdout)
    assert set(found["columns"]) == {"age", "smokes"}


@pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")
def test_a_column_that_synthetic_records_lost_is_named_and_any_column_may_be_the_label(tmp_path):
    coded(tmp_path / "real.csv")
    release_coded(tmp_path / "r")
    made = tmp_path / "made.parquet"
    run("synthesize", tmp_path / "r", "--num-records", 600, "--label", "died", "--out", made)
    pd.read_parquet(made).drop(columns="seen").to_parquet(made)
    words = ("compare", tmp_path / "real.csv", made, "--json", "--label")
    found = json.loads(run(*words, "died").stdout)
    assert set(found["columns"]) == {"age", "smokes"} and found["left_out"] == ["seen", "ward"]
    found = json.loads(run(*words, "smokes").stdout)
    assert set(found["columns"]) == {"age", "died"} and set(found["classes"]) == {"False", "True"}
    assert found["columns"]["died"]["likeness"] > 0.8


@pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")
@pytest.mark.parametrize("name", ["r", "made.csv"])
def test_other_labels_of_a_table_are_columns(tmp_path, name):
    coded(tmp_path / "real.csv")
    real = pd.read_csv(tmp_path / "real.csv", sep=";")
    real = real.assign(
        died=(real["died"] == "yes").astype(int), smoker=(real["smokes"] == "yes") * 1
    )
    real.to_csv(tmp_path / "real.csv", sep=";", index=False)
    columns = SCHEMA["table"]["columns"]
    table = {**SCHEMA["table"], "columns": [columns[0], columns[2]]}
    facts = {"classes": ["died", "smoker"], "target": "multilabel", "max_labels": 2}
    release_coded(tmp_path / "r", table=table, **facts)
    if name != "r":
        run("synthesize", tmp_path / "r", "--num-records", 600, "--out", tmp_path / name)
    words = ("compare", tmp_path / "real.csv", tmp_path / name, "--label", "died", "--json")
    found = json.loads(run(*words).stdout)
    assert set(found["columns"]) == {"age", "seen", "smoker"} and set(found["classes"]) == {
        "0",
        "1",
    }
    assert found["columns"]["smoker"]["kind"] == "numeric"
    assert found["columns"]["smoker"]["likeness"] > 0.8


def test_facts_beside_a_file_that_state_no_table_are_named(tmp_path):
    frame(0).to_parquet(tmp_path / "real.parquet")
    frame(1).to_parquet(tmp_path / "made.parquet")
    extractor = {"name": "tabular", "parameters": {"table": "{}"}, "digest": "0" * 64}
    (tmp_path / "made.parquet.json").write_text(json.dumps({"extractor": extractor}))
    words = ["compare", tmp_path / "real.parquet", tmp_path / "made.parquet", "--label", "died"]
    error = CliRunner().invoke(app, [str(word) for word in words]).exception
    assert "made.parquet.json: extractor.parameters.table" in str(error)


def test_no_page_is_written_into_a_release(tmp_path):
    (tmp_path / "certificate.json").touch()
    words = ["compare", "real.csv", "made.csv", "--html", str(tmp_path / "page.html")]
    assert "outside of any release" in str(CliRunner().invoke(app, words).exception)


def test_a_page_that_cannot_be_new_is_refused_before_anything_is_read(tmp_path):
    (tmp_path / "page.html").symlink_to("nowhere")
    words = ["compare", "real.csv", "made.csv", "--html", str(tmp_path / "page.html")]
    assert str(CliRunner().invoke(app, words).exception).startswith("--html: expected a new file")
    with pytest.raises(privmix.InvalidInputError, match=r"^--html: .*File exists"):
        write_text(tmp_path / "page.html", "", new=True, option="--html")


def test_seeds_are_those_that_models_take(tmp_path):
    for seed in ("4294967296", "-1"):
        words = ["compare", "real.csv", "made.csv", "--seed", seed]
        error = str(CliRunner().invoke(app, words).exception)
        assert error.startswith("--seed: ") and "at most 4294967295" in error


def test_synthetic_records_of_what_protects_nobody_are_said_to_be(tmp_path):
    schema = make_schema()
    x, y = make_data(schema, 60)
    plan = make_plan(schema, "stratified", 1.0, rows_per_class=5)
    release(x, y, plan, out=tmp_path / "tested", test_seed=0)
    release(x, y, plan, out=tmp_path / "private")
    np.savez(tmp_path / "real.npz", features=x, labels=y)
    said = "NOT PRIVATE"
    for folder, nobody in (("tested", True), ("private", False)):
        made = tmp_path / f"{folder}.npz"
        run("synthesize", tmp_path / folder, "--num-records", 200, "--out", made)
        for source in (made, tmp_path / folder):
            told = run("compare", tmp_path / "real.npz", source, "--json").stderr
            assert told.count(said) == nobody, (source, told)
        if nobody:
            (tmp_path / "tested.npz.json").unlink()  # nothing is said where nothing is known
            assert said not in run("compare", tmp_path / "real.npz", made, "--json").stderr


def test_one_of_several_labels_is_compared_and_no_other_is_ignored(tmp_path, rng):
    facts = {"num_features": 3, "num_records": 60, "feature_clip_norm": 1.0, "max_labels": 2}
    schema = privmix.Schema(classes=["a", "b"], target="multilabel", **facts)
    x, y = rng.standard_normal((60, 3)), rng.integers(2, size=(60, 2))
    plan = make_plan(schema, "signed", 1.0, num_mixtures=400, mix_size=30)
    release(x, y, plan, out=tmp_path / "r")
    pd.DataFrame(np.hstack([x, y]), columns=["x0", "x1", "x2", "a", "b"]).to_parquet(
        tmp_path / "real.parquet"
    )
    words = ["compare", str(tmp_path / "real.parquet"), str(tmp_path / "r"), "--json", "--label"]
    found = json.loads(run(*words, "a").stdout)
    assert set(found["columns"]) == {"x0", "x1", "x2", "b"} and found["classes"]
    for wrong, told in ((["a", "--label", "b"], "got a, b"), (["no such"], "x0, x1, x2, a, b")):
        error = str(CliRunner().invoke(app, words + wrong).exception)
        assert error.startswith("--label: ") and told in error


def test_arrays_are_named_as_release_names_them(tmp_path, rng):
    x, y = rng.standard_normal((60, 3)), rng.integers(2, size=60)
    np.savez(tmp_path / "real.npz", x=x, y=y)
    np.savez(tmp_path / "made.npz", features=x, labels=y)
    words = ["compare", tmp_path / "real.npz", tmp_path / "made.npz", "--json"]
    found = json.loads(run(*words, "--features-key", "x", "--label-key", "y").stdout)
    assert set(found["columns"]) == {"x0", "x1", "x2"}
