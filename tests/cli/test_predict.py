"""Predictions of raw records and features, and how releases and models show themselves."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import privmix
from builders import make_data, make_plan, make_schema
from privmix import InvalidInputError, Schema, plan_release, release
from privmix.cli import app
from privmix.features import get_extractor, make_extractor
from privmix.learners.predictions import prediction_table
from privmix.markup import facts_html

TABLE = {
    "columns": [
        {"name": "age", "type": "numeric", "lower": 0, "upper": 100},
        {"name": "kind", "type": "categorical", "categories": ["a", "b"]},
    ]
}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A release of a table, its model's file, and the frame."""
    folder = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(0)
    old = rng.random(400) < 0.3
    frame = pd.DataFrame({"kind": rng.choice(["a", "b"], 400), "age": np.where(old, 80.0, 30.0)})
    schema = Schema(classes=["no", "yes"], num_records=400, table=TABLE)
    extractor = get_extractor("tabular", table=schema.table)
    plan = plan_release(schema, target_epsilon=8.0, target_delta=1e-5, design="hybrid")
    labels = np.where(old, "yes", "no")
    features = extractor.transform(frame)
    made = release(frame, labels, plan, out=folder / "r", test_seed=1, extractor=extractor)
    with pytest.warns(privmix.accounting.guarantee.NotPrivateWarning):
        model = privmix.NoiseAwareClassifier().fit(made)
    privmix.save_model(model, folder / "m.safetensors")
    frame.assign(label=labels).to_csv(folder / "t.csv", index=False)
    frame.to_csv(folder / "unlabelled.csv", index=False)
    return folder, model, frame, features, labels


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if code:
        assert isinstance(result.exception, InvalidInputError), result.output
        return str(result.exception)
    assert result.exit_code == 0, result.output or result.exception
    return result.stdout


def test_counts_are_planned_where_class_sums_do_not_show_sizes(table):
    folder, *_ = table
    steps = privmix.Release(folder / "r").certificate.preprocessing
    assert [step.step for step in steps] == ["class_counts", "center", "intercept", "unit_norm"]


def test_a_model_takes_the_frames_that_its_extractor_takes(table):
    _, model, frame, features, labels = table
    assert np.array_equal(model.predict(frame), model.predict(features))
    assert model.score(frame[["age", "kind"]], labels) == 1.0


def test_a_frame_that_lacks_columns_is_told_which(table):
    _, model, frame, features, _ = table
    extractor = make_extractor("tabular", table=model.extractor_.parameters["table"])
    due = "expected a frame with the schema's columns 'age', 'kind'"
    with pytest.raises(ValueError, match=f"^records: missing column 'age'; {due}$"):
        model.predict(frame[["kind"]])
    more = [f"more{i}" for i in range(features.shape[1] - 1)]
    wide = pd.DataFrame(
        features, columns=["age", *more]
    )  # as wide as the features, and no features
    with pytest.raises(ValueError, match=f"missing column 'kind'; {due}$"):
        model.predict(wide)
    with pytest.raises(ValueError, match=f"missing column 'age', 'kind'; {due}$"):
        model.predict(pd.DataFrame({"x": [1.0]}))
    for names in (extractor.get_feature_names_out(), [f"x{i}" for i in range(features.shape[1])]):
        named = pd.DataFrame(features, columns=names)
        assert np.array_equal(model.predict(named), model.predict(features))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_raw_records_are_predicted_to_a_file(table, tmp_path, ending):
    folder, model, frame, *_ = table
    out = tmp_path / f"p.{ending}"
    words = ("predict", folder / "m.safetensors", folder / "unlabelled.csv", "--out", out)
    assert json.loads(run(*words, "--json"))["num_records"] == 400
    found = pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)
    assert list(found) == ["label", "probability", "probability of no", "probability of yes"]
    assert (found["label"] == model.predict(frame)).all()
    shares = found[["probability of no", "probability of yes"]].to_numpy()
    np.testing.assert_allclose(shares, model.predict_proba(frame), rtol=1e-9)
    assert "--replace" in run(*words, code=2)
    run(*words, "--replace")


@pytest.mark.parametrize("name", ["unlabelled.csv", "r/predicted.csv"])
def test_no_input_is_overwritten_and_no_release_is_added_to(table, name):
    folder, *_ = table
    before = (folder / "unlabelled.csv").read_bytes()
    words = ("predict", folder / "m.safetensors", folder / "unlabelled.csv", "--out", folder / name)
    said = run(*words, "--replace", code=1)
    assert "another file than INPUT" in said or "outside of any release" in said
    assert (folder / "unlabelled.csv").read_bytes() == before
    assert not (folder / "r/predicted.csv").exists()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_no_other_file_is_written_to(table, tmp_path, ending):
    folder, *_ = table
    out = tmp_path / f"p.{ending}"
    victim, other = tmp_path / "victim", tmp_path / f".{out.name}.tmp"
    victim.write_text("precious")
    other.symlink_to(victim)
    words = ("predict", folder / "m.safetensors", folder / "unlabelled.csv", "--out", out)
    run(*words)
    assert victim.read_text() == "precious" and other.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [other.name, out.name, "victim"]
    )
    out.unlink()
    out.symlink_to("nowhere")  # a link to nothing is no new file
    assert "--replace" in run(*words, code=2)
    run(*words, "--replace")
    assert len(pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)) == 400


AS_GIVEN = ("--features-key", "x", "--features-as-given")


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": np.zeros((0, 3)), "y": np.zeros(0)}, "TEST: expected at least one record"),
        ({"x": np.zeros((4, 3)), "y": np.array(1)}, "labels: expected one for each record"),
        ({"x": np.array(1.0), "y": np.zeros(4)}, "x: expected an array of records"),
    ],
)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_without_records_are_said_to_be(table, tmp_path, arrays, said, save):
    save(tmp_path / "t.npz", **arrays)
    words = ("evaluate", table[0] / "m.safetensors", tmp_path / "t.npz", "--label-key", "y")
    assert said in run(*words, *AS_GIVEN, code=2)


def test_damaged_features_are_said_to_be(table, tmp_path):
    x = table[3]
    np.savez(tmp_path / "x.npz", x=x)
    np.save(tmp_path / "x.npy", x)
    for name, size, said in (
        ("x.npz", 100, "an .npz file"),
        ("x.npy", 0, "an array in .npy format"),
        ("x.npy", 100, "an array in .npy format"),
    ):
        damaged = tmp_path / f"damaged{name[1:]}"
        damaged.write_bytes((tmp_path / name).read_bytes()[:size])
        words = ("predict", table[0] / "m.safetensors", damaged, "--out", tmp_path / "p.csv")
        given = AS_GIVEN if name.endswith("z") else AS_GIVEN[2:]
        assert f"{damaged}: expected {said}" in run(*words, *given, code=2)


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        ([["secret"] * 4] * 3, "v: expected columns of numbers, or one of lists of numbers"),
        ([[1.0] * 4, [1.0]], "vectors of one length"),
        ([[[1.0, 2.0]], [[1.0]]], "vectors of one length"),
    ],
)
def test_lists_that_are_no_vectors_are_refused(table, tmp_path, vectors, said):
    pq.write_table(pa.table({"v": vectors}), tmp_path / "t.parquet")
    words = ("predict", table[0] / "m.safetensors", tmp_path / "t.parquet", "--out")
    found = run(*words, tmp_path / "p.csv", AS_GIVEN[2], code=2)
    assert said in found and "secret" not in found


@pytest.mark.parametrize("other", ["b", "probability of a"])
def test_a_label_that_is_called_as_a_probability_keeps_its_column(tmp_path, rng, other):
    facts = {"num_features": 3, "num_records": 60, "feature_clip_norm": 1.0, "max_labels": 2}
    schema = Schema(classes=["a", other], target="multilabel", **facts)
    x, y = rng.standard_normal((60, 3)), rng.integers(2, size=(60, 2))
    plan = make_plan(schema, "signed", 1.0, num_mixtures=400, mix_size=30)
    model = privmix.NoiseAwareClassifier().fit(release(x, y, plan, out=tmp_path / "r"))
    chance = "probability of" if other == "b" else "the probability of"
    found = prediction_table(model, x)
    assert found.column_names == ["a", other, f"{chance} a", f"{chance} {other}"]
    np.testing.assert_array_equal(found[other], model.predict(x)[:, 1])


def test_what_a_certificate_says_is_shown_as_its_word_alone(table):
    made = privmix.Release(table[0] / "r")
    for shown in (repr(made), made._repr_html_(), made.certificate._repr_html_()):
        assert "as its certificate says" in shown


def test_evaluation_tells_of_every_class(table):
    folder, *_ = table
    words = ("evaluate", folder / "m.safetensors", folder / "t.csv", "--label", "label")
    found = json.loads(run(*words, "--json"))
    assert found["accuracy"] == found["recall"]["yes"] == found["auc"] == 1.0
    assert 0.6 < found["majority_accuracy"] < 0.8
    lines = run(*words).splitlines()
    no, yes = (sum(found["confusion"][name].values()) for name in ("no", "yes"))
    start = lines.index("confusion:")
    assert lines[start + 1 : start + 3] == [f"  no: no {no}, yes 0", f"  yes: no 0, yes {yes}"]


def test_training_overwrites_no_model_unasked(table, tmp_path):
    folder, *_ = table
    words = ("train", folder / "r", "--out", tmp_path / "m.safetensors")
    run(*words, "--class-weight", "balanced")
    assert "--replace" in run(*words, code=2)
    run(*words, "--replace", "--class-prior", "0.9,0.1")
    assert "--class-prior" in run(*words, "--replace", "--class-prior", "much", code=2)
    kl = run(*words, "--replace", "--learner", "kl-softmax", "--class-weight", "balanced", code=2)
    assert "--class-weight" in kl


def test_rows_of_two_tables_are_asked_of_a_table(table):
    folder, *_ = table
    made = privmix.Release(folder / "r")
    with pytest.raises(InvalidInputError, match=r"release.tables\[0\]"):
        made.features
    frame = made.to_pandas()
    assert len(frame) == made.num_mixtures
    assert set(frame["component"]) == {"class_sums", "mixtures"}
    assert frame["label"].notna().sum() == 2
    sums = made.tables[0].to_pandas()
    assert sums["label"].tolist() == ["no", "yes"]
    np.testing.assert_array_equal(sums.filter(like="x").to_numpy(), made.tables[0].features)


@pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")
def test_notebooks_show_escaped_facts(table):
    folder, model, *_ = table
    made = privmix.Release(folder / "r")
    plan = made.certificate.to_plan()
    for shown in (made, made.certificate, plan, plan.data_schema, model, made.synthesize(9)):
        assert shown._repr_html_().startswith("<table>")
    assert facts_html("<b>", {"<i>": "<script>"}).count("<script>") == 0


def test_a_schema_from_a_frame_reads_names_and_types_alone():
    class Refusing(pd.DataFrame):
        """Its values may not be looked at."""

        def to_numpy(self, *_, **__):
            raise AssertionError

    frame = Refusing({"a": [1.0, 5.0], "b": [2, 3], "y": ["no", "yes"]})
    facts = {"label": "y", "classes": ["no", "yes"], "num_records": 10, "feature_clip_norm": 2.0}
    made = Schema.from_dataframe(frame, **facts)
    assert made.feature_names == ("a", "b") and made.num_features == 2
    assert made == Schema.from_dataframe(frame.iloc[:1], **facts)
    with pytest.raises(InvalidInputError, match="column y"):
        Schema.from_dataframe(frame, **{**facts, "label": "a"})
    with pytest.raises(InvalidInputError, match="label"):
        Schema.from_dataframe(frame, **{**facts, "label": "z"})


@pytest.mark.parametrize(
    ("balance", "words"),
    [
        ("even", "equal, unequal"),
        ([0.5, 0.6, 0.1], "add up to 1"),
        ([0.5, 0.5], "3 shares"),
        ([1.0, 0.0, 0.0], "above 0"),
    ],
)
def test_a_wrong_class_balance_is_refused(balance, words):
    facts = make_schema().model_dump() | {"class_balance": balance}
    with pytest.raises(InvalidInputError, match=words):
        Schema(**facts)


def test_what_is_known_of_balance_decides_on_counts():
    sizes = {"num_features": 20, "num_records": 3000, "feature_clip_norm": 1.0}

    def steps(num_classes, balance):
        schema = Schema(classes=range(num_classes), class_balance=balance, **sizes)
        plan = plan_release(schema, target_epsilon=1.0, target_delta=1e-5, design="hybrid")
        return [step.step for step in plan.preprocessing]

    assert "class_counts" in steps(3, None)
    assert "class_counts" not in steps(3, "equal")
    assert "class_counts" not in steps(3, (0.5, 0.3, 0.2))
    assert "class_counts" not in steps(40, None)
    assert "class_counts" in steps(40, "unequal")


def test_a_model_of_fit_is_a_learner(tmp_path):
    pytest.importorskip("torch")
    from privmix.dpsgd import AugmentationPlan, LinearHead, fit, plan_training

    schema = make_schema()
    x, y = make_data(schema, 60)
    plan = plan_training(
        target_epsilon=8.0,
        target_delta=1e-5,
        epochs=2,
        classes=(0, 1, 2),
        input_shape=(5,),
        num_records=60,
        batch_size=20,
        augmentation=AugmentationPlan.plain(),
    )
    fit(x, y, plan, model=LinearHead(None), out=tmp_path / "model", test_seed=1)
    model = privmix.load_model(tmp_path / "model")
    assert model.predict_proba(x).shape == (60, 3)
    assert model.score(x, y) == np.mean(model.predict(x) == y)
    np.savez(tmp_path / "x.npz", x=x)
    run(
        "predict",
        tmp_path / "model",
        tmp_path / "x.npz",
        "--features-key",
        "x",
        "--out",
        tmp_path / "p.csv",
    )
    assert pd.read_csv(tmp_path / "p.csv")["label"].tolist() == model.predict(x).tolist()


def test_a_tables_model_knows_how_files_of_it_are_written(tmp_path):
    form = {"delimiter": ";", "decimal": ","}
    column = {"name": "age", "type": "numeric", "lower": 0, "upper": 100}
    schema = Schema(
        classes=["no", "yes"], num_records=400, table={"columns": [column], "format": form}
    )
    frame = pd.DataFrame({"age": np.where(np.arange(400) % 3 == 0, 80.5, 30.5)})
    labels = np.where(np.arange(400) % 3 == 0, "yes", "no")
    plan = plan_release(schema, target_epsilon=8.0, target_delta=1e-5, design="hybrid")
    extractor = get_extractor("tabular", table=schema.table)
    made = release(frame, labels, plan, out=tmp_path / "r", test_seed=1, extractor=extractor)
    with pytest.warns(privmix.accounting.guarantee.NotPrivateWarning):
        model = privmix.NoiseAwareClassifier().fit(made)
    privmix.save_model(model, tmp_path / "m.safetensors")
    frame.to_csv(tmp_path / "t.csv", index=False, sep=";", decimal=",")
    out = tmp_path / "p.csv"
    run("predict", tmp_path / "m.safetensors", tmp_path / "t.csv", "--out", out)
    assert (pd.read_csv(out)["label"] == labels).mean() > 0.95
    # Synthetic rows are written plainly, as the file beside them tells.
    made = tmp_path / "s.csv"
    run("synthesize", tmp_path / "r", "--num-records", 50, "--out", made)
    run(
        "predict",
        tmp_path / "m.safetensors",
        made,
        "--ignore",
        "label",
        "--out",
        tmp_path / "q.csv",
    )
    run("evaluate", tmp_path / "m.safetensors", made, "--label", "label")
