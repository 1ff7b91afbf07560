"""Raw records with owners, and with labels that are no class, through the command line."""

from __future__ import annotations

import hashlib
import io
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commands import Result
from extractors import make_images
from privmix import Release, Schema, load_model, plan_release, release, verify
from privmix.features import make_extractor

Image = pytest.importorskip("PIL.Image")

COUNT = 60
BUDGET = ("--epsilon", 4, "--delta", "1e-5", "--design", "signed", "--num-mixtures", 50)
RAW = ("--image-column", "img", "--extractor", "pixels:size=6")
UNITS = ("--unit-column", "patient", "--max-records-per-unit", 3)
TARGETS = {
    "class": {"classes": [0, 1]},
    "soft": {"classes": [0, 1, 2], "target": "soft"},
    "multilabel": {"classes": ["a", "b", "c"], "target": "multilabel", "max_labels": 2},
    "regression": {
        "classes": ["age", "dose"],
        "target": "regression",
        "target_bounds": [(0, 100), (-1, 1)],
    },
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def ok(result: Result) -> Result:
    assert result.code == 0, result.err
    return result


def png(array) -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


def make_labels(target: str) -> np.ndarray:
    rng = np.random.default_rng(1)
    return {
        "class": rng.integers(2, size=COUNT),
        "soft": rng.dirichlet([1, 1, 1], size=COUNT),
        "multilabel": rng.integers(2, size=(COUNT, 3)).astype(float),
        "regression": rng.uniform([0, -1], [100, 1], size=(COUNT, 2)),
    }[target]


def make_schema(target: str) -> Schema:
    return Schema(num_features=36, num_records=COUNT, feature_clip_norm=3.0, **TARGETS[target])


@pytest.fixture
def records(tmp_path):
    """Write images, owners and labels as a column of lists and as one column for each number."""

    def write(target: str, **changed) -> tuple:
        images = make_images(COUNT, (6, 6))
        labels = make_labels(target)
        owners = [f"p{i}" for i in np.random.default_rng(2).integers(12, size=COUNT)]
        schema = make_schema(target)
        columns = {"img": [png(image) for image in images], "patient": owners}
        columns["label"] = labels.tolist()
        if labels.ndim == 2:
            columns |= {str(n): v for n, v in zip(schema.classes, labels.T, strict=True)}
        pq.write_table(pa.table({**columns, **changed}), tmp_path / "raw.parquet")
        (tmp_path / "schema.json").write_text(schema.to_json())
        return images, labels, owners

    return write


def digests(folder) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("target", "units"),
    [("class", UNITS), ("soft", UNITS), ("multilabel", ()), ("regression", UNITS)],
)
def test_the_command_makes_what_python_makes(run, records, tmp_path, target, units):
    images, labels, owners = records(target)
    words = (tmp_path / "raw.parquet", *RAW, "--schema", tmp_path / "schema.json", *units)
    made = ok(run("release", *words, "--label", "label", *BUDGET, "--test-seed", 1, "--out", "a"))
    plan = plan_release(
        make_schema(target),
        target_epsilon=4,
        target_delta=1e-5,
        design="signed",
        num_mixtures=50,
        **({"unit_column": "patient", "max_records_per_unit": 3} if units else {}),
    )
    release(
        images,
        labels,
        plan,
        out="b",
        units=owners if units else None,
        extractor=make_extractor("pixels", size=6),
        test_seed=1,
    )
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    assert not list(tmp_path.glob(".*"))
    if units:
        assert "60 records of 12 owners, of which 35 take part (planned 60)" in made.err
        assert not any(name in (tmp_path / "a/certificate.json").read_text() for name in owners)
    if target != "class":  # by the schema's names
        ok(run("release", *words, *BUDGET, "--test-seed", 1, "--out", "c"))
        assert digests(tmp_path / "a") == digests(tmp_path / "c")


def test_in_two_steps(run, records, tmp_path):
    records("regression")
    schema = ("--schema", tmp_path / "schema.json")
    raw = (tmp_path / "raw.parquet", *RAW, *schema)
    ok(run("extract", *raw, "--unit-column", "patient", "--out", "features.parquet"))
    names = pq.read_schema(tmp_path / "features.parquet").names
    assert names == ["features", "age", "dose", "patient"]
    seed = ("--test-seed", 1)
    ok(run("release", "features.parquet", *schema, *UNITS, *BUDGET, *seed, "--out", "a"))
    ok(run("release", *raw, *UNITS, *BUDGET, *seed, "--out", "b"))
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    ok(run("release", *raw, *UNITS, *BUDGET, "--out", "c"))
    assert verify(tmp_path / "c").valid
    assert Release(tmp_path / "c").certificate.extractor.name == "pixels"


def test_bad_labels_and_owners_follow_the_policy(run, records, tmp_path):
    dose = make_labels("regression")[:, 1].tolist()
    dose[5] = None
    owners = ["p", None, " ", "NA"] + ["q"] * (COUNT - 4)
    records("regression", dose=dose, patient=owners)
    words = (tmp_path / "raw.parquet", *RAW, "--schema", tmp_path / "schema.json", *UNITS)
    words = ("release", *words, *BUDGET, "--out", "a")
    refused = run(*words)
    assert refused.code == 2
    assert "[1], img, unit column 'patient': required: an identifier" in refused.err
    assert not (tmp_path / "a").exists()
    made = ok(run(*words, "--on-bad-record", "zero", "--max-bad-share", "1"))
    assert "4 bad ones blanked" in made.err
    assert "of 2 owners, of which 4 take part" in made.err
    assert "4 bad ones replaced by zero" in made.err
    assert verify(tmp_path / "a").valid


@pytest.mark.parametrize(
    ("target", "changed", "words"),
    [
        ("multilabel", {"b": [2.0] * COUNT}, r"\[0\], img, label: expected 0 or 1"),
        ("soft", {"1": [0.9] * COUNT}, "label: expected weights of at least 0"),
        ("regression", {"age": ["old"] * COUNT}, "label: expected a number"),
        (
            "regression",
            {"patient": np.arange(COUNT) + 0.5},
            "unit column .*: expected an integer or",
        ),
        ("regression", {"patient": [b"\xff"] * COUNT}, "'patient': expected text in UTF-8"),
    ],
)
def test_what_is_no_label_or_owner_is_named(run, records, tmp_path, target, changed, words):
    records(target, **changed)
    source = (tmp_path / "raw.parquet", *RAW, "--schema", tmp_path / "schema.json", *UNITS)
    refused = run("release", *source, *BUDGET, "--out", "a")
    assert refused.code == 2
    *notes, error = refused.err.replace("loading the extractor\n", "").splitlines()
    assert all(note.startswith("for your eyes only: ") for note in notes)
    assert re.search(words, error), refused.err


def test_columns_that_are_not_there(run, records, tmp_path):
    records("regression")
    words = ("release", tmp_path / "raw.parquet", *RAW, "--schema", tmp_path / "schema.json")
    for options, place in (
        (("--label", "age"), r"\[0\], img, label column 'age': expected 2 numbers"),
        (("--label", "age", "--label", "x"), "label: missing column 'x'; expected a column of"),
        (("--label", "age", "--label", "dose", "--label", "a"), "1 or 2 columns"),
        (
            ("--unit-column", "x", "--max-records-per-unit", 1),
            "unit column: missing column 'x'; expected a column",
        ),
    ):
        refused = run(*words, *BUDGET, *options, "--out", "a")
        assert refused.code == 2
        assert re.search(place, refused.err), refused.err
    assert not (tmp_path / "a").exists()


def test_rows_of_a_csv_file(run, tmp_path):
    """There every owner is a text: 7 and 007 are two."""
    table = {"columns": [{"name": "size", "type": "numeric", "lower": 0, "upper": 50}]}
    schema = Schema(num_records=COUNT, table=table, **TARGETS["regression"])
    (tmp_path / "schema.json").write_text(schema.to_json())
    rows = [f"{i % 50},{i},{i / COUNT},{'7' if i % 2 else '007'}" for i in range(COUNT)]
    (tmp_path / "t.csv").write_text("\n".join(["size,age,dose,patient", *rows]))
    words = ("t.csv", "--extractor", "tabular", "--schema", "schema.json", *UNITS, *BUDGET)
    made = ok(run("release", *words, "--out", "a"))
    assert "of 2 owners, of which 6 take part" in made.err
    assert verify(tmp_path / "a").valid


def test_arrays_of_an_npz_file(run, records, tmp_path):
    images, labels, owners = records("soft")
    np.savez(tmp_path / "raw.npz", img=np.stack(images), y=labels, patient=owners)
    schema, seed = ("--schema", "schema.json"), ("--test-seed", 1)
    for name, label in (("raw.npz", ("--label", "y")), ("raw.parquet", ())):
        words = (name, *label, *RAW, *schema, *UNITS, *BUDGET, *seed)
        ok(run("release", *words, "--out", name[4:]))
    assert digests(tmp_path / "npz") == digests(tmp_path / "parquet")


@pytest.mark.parametrize(
    ("target", "learner", "names"),
    [
        ("soft", "noise-aware", {"accuracy", "cross_entropy"}),
        (
            "multilabel",
            "noise-aware",
            {
                "mean_average_precision",
                "label_ranking_average_precision",
                "average_precision",
            },
        ),
        ("regression", "noise-aware-regression", {"r2", "rmse"}),
    ],
)
def test_what_is_learnt_is_evaluated_on_raw_records(run, records, tmp_path, target, learner, names):
    """From raw records, and from extracted ones, to the same scores."""
    records(target)
    raw, schema = ("raw.parquet", *RAW), ("--schema", "schema.json")
    budget = ("--epsilon", 4, "--delta", "1e-5", "--design", "poisson", "--num-mixtures", 50)
    ok(run("release", *raw, *schema, *budget, "--out", "a"))
    ok(run("train", "a", "--learner", learner, "--out", "m.safetensors"))
    found = ok(run("evaluate", "m.safetensors", *raw, "--json")).json
    assert names | {"num_test_records", "note", "private"} <= set(found)
    named = ("--unit-column", "patient")  # of raw records no column is a feature but theirs
    assert ok(run("evaluate", "m.safetensors", *raw, *named, "--json")).json == found
    ok(run("extract", *raw, *schema, "--out", "features.parquet"))
    assert ok(run("evaluate", "m.safetensors", "features.parquet", "--json")).json == found
    shown = ok(run("evaluate", "m.safetensors", *raw)).out
    assert all(f"{name}:" in shown for name in names) and "{" not in shown


@pytest.mark.parametrize("target", ["class", "regression"])
def test_owners_beside_features_are_asked_for(run, records, target):
    """The column is named, and the option; it is never a feature."""
    records(target)
    label = ("--label", "label") if target == "class" else ()
    schema, own = ("--schema", "schema.json"), ("--unit-column", "patient")
    ok(run("extract", "raw.parquet", *RAW, *schema, *label, *own, "--out", "f.parquet"))
    budget = ("--epsilon", 4, "--delta", "1e-5", "--design", "poisson", "--num-mixtures", 50)
    release = ("release", "f.parquet", *schema, *label, *budget, "--out", "a")
    refused = run(*release)
    assert refused.code == 2
    assert re.search("--unit-column: .* column 'patient'", refused.err), refused.err
    ok(run(*release, *UNITS))
    ok(run("train", "a", "--out", "m.safetensors"))  # with the learner of the target
    words = ("evaluate", "m.safetensors", "f.parquet", *label)
    refused = run(*words)
    assert refused.code == 2
    assert re.search("--unit-column: .* 'patient'", refused.err), refused.err
    ok(run(*words, *own))


@pytest.mark.parametrize("target", ["class", "soft", "regression"])
def test_bad_test_records_are_left_out(run, records, tmp_path, target):
    """Of raw records and of extracted ones: the scores of the others, and how many there were."""
    learner = "noise-aware-regression" if target == "regression" else "noise-aware"
    records(target)
    raw = ("raw.parquet", *RAW, "--label", "label")
    schema, zero = ("--schema", "schema.json"), ("--on-bad-record", "zero")
    leave_out = ("--on-bad-record", "leave-out")
    budget = ("--epsilon", 4, "--delta", "1e-5", "--design", "poisson", "--num-mixtures", 50)
    ok(run("release", *raw, *schema, *budget, "--out", "a"))
    ok(run("train", "a", "--learner", learner, "--out", "m.safetensors"))
    whole = pq.read_table(tmp_path / "raw.parquet")
    pq.write_table(whole.slice(2), tmp_path / "raw.parquet")
    due = ok(run("evaluate", "m.safetensors", *raw, *leave_out, "--json"))
    assert "num_left_out" not in due.json and "left out" not in due.err
    rows = whole.to_pylist()
    rows[0]["img"], rows[1]["label"] = b"corrupt", None
    pq.write_table(pa.Table.from_pylist(rows, schema=whole.schema), tmp_path / "raw.parquet")
    refused = run("evaluate", "m.safetensors", *raw, "--on-bad-record", "error")
    assert refused.code == 2 and "--on-bad-record leave-out" in refused.err
    found = ok(run("evaluate", "m.safetensors", *raw, *leave_out, "--json"))
    assert found.json == due.json | {"num_left_out": 2}
    assert "2 bad records of 60 left out" in found.err
    ok(run("extract", *raw, *schema, *zero, "--out", "f.parquet"))
    label = ("--label", "label") if target == "class" else ()
    words = ("evaluate", "m.safetensors", "f.parquet", *label)
    assert ok(run(*words, *leave_out, "--json")).json == found.json
    counted = run(*words, "--json")
    if target == "class":
        accuracy = pytest.approx(due.json["accuracy"] * 58 / 60)
        assert counted.json["accuracy"] == accuracy and counted.json["num_test_records"] == 60
        assert "2 bad records of 60 counted as wrong" in counted.err
        stopped = run(*words, "--max-bad-share", "0.01")
        assert stopped.code == 2 and "max-bad-share" in stopped.err
    else:  # no score but that of classes knows a wrong record
        assert counted.code == 2 and "--on-bad-record leave-out leaves" in counted.err
    # In a release of the same features the option is named too.
    refused = run("release", "f.parquet", *schema, *label, *budget, "--out", "b")
    assert refused.code == 2 and "--on-bad-record zero" in refused.err


@pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")
def test_a_model_predicts_raw_images(run, records, tmp_path):
    """By the extractor that it names: from a file, and as Pillow images in Python."""
    images, *_ = records("class")
    words = (tmp_path / "raw.parquet", *RAW, "--schema", tmp_path / "schema.json")
    ok(run("release", *words, "--label", "label", *BUDGET, "--test-seed", 1, "--out", "a"))
    ok(run("train", "a", "--out", "m.safetensors"))
    ok(run("predict", "m.safetensors", "raw.parquet", *RAW[:2], "--out", "p.parquet"))
    model = load_model("m.safetensors")
    found = model.predict([Image.fromarray(image) for image in images])
    assert pq.read_table("p.parquet")["label"].to_pylist() == found.tolist()
    vectors = make_extractor("pixels", size=6).transform(images)
    assert np.array_equal(found, model.predict(vectors))
