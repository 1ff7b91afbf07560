"""Raw records through the command line: extract, release, train, evaluate."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders import make_schema
from extractors import make_images, make_texts, save_sentence_model
from privmix import Release, Schema, load_model, plan_release, release, verify
from privmix.cli import main
from privmix.features import extraction, make_extractor
from privmix.features.kept import kept_features
from privmix.inputs.extractor import FeaturesHeader
from privmix.running.journal import RunFolder

Image = pytest.importorskip("PIL.Image")
BUDGET = ["--epsilon", "4", "--delta", "1e-5", "--design", "stratified"]

FORMS = ("expected", "not accepted", "required")  # of what is refused


@pytest.fixture
def run(monkeypatch, capsys):
    def call(*words, fails=0):
        monkeypatch.setattr(sys, "argv", ["privmix", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        assert (stop.value.code or 0) == fails, printed.err
        return printed.out, printed.err

    return call


def png(array) -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


def write_images(path, count=40, bad=()):
    """Hugging Face's image Parquet: bright images are class 1."""
    images = [a // 2 + 120 * (i % 2) for i, a in enumerate(make_images(count, (6, 6)))]
    cells = [{"bytes": png(a.astype(np.uint8)), "path": None} for a in images]
    for i in bad:
        cells[i] = {"bytes": b"corrupt", "path": None}
    labels = [i % 2 for i in range(count)]
    pq.write_table(pa.table({"img": cells, "label": labels}), path)


def write_schema(path, width, classes=(0, 1), num_records=40):
    schema = Schema(
        classes=classes, num_features=width, num_records=num_records, feature_clip_norm=1.0
    )
    path.write_text(schema.to_json())


def test_images_from_parquet_to_accuracy(run, tmp_path):
    source, schema, out = tmp_path / "a.parquet", tmp_path / "schema.json", tmp_path / "release"
    write_images(source)
    write_schema(schema, 36)
    raw = ["--label", "label", "--image-column", "img", "--extractor", "pixels:size=6"]
    _, told = run("release", source, *raw, "--schema", schema, *BUDGET, "--out", out)
    assert "for your eyes only: features of 40 records extracted" in told
    identity = make_extractor("pixels", size=6).identity
    assert Release(out).certificate.extractor == identity
    assert verify(out).valid
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.parquet", "release", "schema.json"]
    model = tmp_path / "model.safetensors"
    run("train", out, "--out", model)
    assert load_model(model).extractor_ == identity
    words = ["evaluate", model, source, "--label", "label", "--image-column", "img", "--json"]
    printed, _ = run(*words)
    features = tmp_path / "features.parquet"
    run("extract", source, *raw, "--out", features)
    again, _ = run("evaluate", model, features, "--label", "label", "--json")
    assert json.loads(printed) == json.loads(again)
    assert json.loads(printed)["num_test_records"] == 40


def test_another_extractor_is_refused(run, tmp_path):
    source, out = tmp_path / "a.parquet", tmp_path / "release"
    write_images(source)
    write_schema(tmp_path / "schema.json", 36)
    features, others = tmp_path / "features.parquet", tmp_path / "others.parquet"
    raw = ["--label", "label", "--image-column", "img"]
    run("extract", source, *raw, "--extractor", "pixels:size=6", "--out", features)
    run("extract", source, *raw, "--extractor", "pixels:size=2,channels=3", "--out", others)
    schema = ["--schema", tmp_path / "schema.json"]
    run("release", features, "--label", "label", *schema, *BUDGET, "--out", out)
    model = tmp_path / "model.safetensors"
    run("train", out, "--out", model)
    _, told = run("evaluate", model, others, "--label", "label", fails=2)
    assert "features of pixels(size=6" in told and "got pixels(size=2" in told
    spec = ["--extractor", "pixels:size=2,channels=3"]
    _, told = run("evaluate", model, source, *raw, *spec, fails=2)
    assert "which the certificate names" in told
    vectors = tmp_path / "vectors.npz"
    np.savez(vectors, x=np.ones((2, 36)), y=[0, 1])
    keys = ["--features-key", "x", "--label-key", "y"]
    _, told = run("evaluate", model, vectors, *keys, fails=2)
    assert "--features-as-given" in told
    run("evaluate", model, vectors, *keys, "--features-as-given")
    # A release of vectors as given has no extractor to apply.
    plain = tmp_path / "plain"
    data = np.random.default_rng(0).random((40, 36)) / 6
    plan = plan_release(
        Schema.from_json((tmp_path / "schema.json").read_text()),
        target_epsilon=4,
        target_delta=1e-5,
        design="stratified",
    )
    assert release(data, [0, 1] * 20, plan, out=plain).certificate.extractor is None
    run("train", plain, "--out", model, "--replace")
    run("evaluate", model, vectors, *keys)
    for words in ([source, *raw], [features, "--label", "label"]):
        run("evaluate", model, *words, fails=2)


def test_texts_from_csv_with_a_model_in_a_folder(run, tmp_path):
    folder = save_sentence_model(tmp_path / "model")
    source = tmp_path / "a.csv"
    with source.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["text", "intent"], *zip(make_texts(20), ["007", "8"] * 10, strict=True)])
    write_schema(tmp_path / "schema.json", 16, ("007", "8"), 20)
    raw = ["--label", "intent", "--text-column", "text", "--extractor", f"sentence:{folder}"]
    schema, out = ["--schema", tmp_path / "schema.json"], tmp_path / "release"
    run("release", source, *raw, *schema, *BUDGET, "--out", out)
    assert str(folder) not in (out / "certificate.json").read_text()
    run("train", out, "--out", tmp_path / "m.safetensors")
    words = ["evaluate", tmp_path / "m.safetensors", source, *raw[:4]]
    _, told = run(*words, fails=2)
    assert "sentence:FOLDER" in told or "is installed" in told
    run(*words, *raw[4:])
    # What is known of the classes is encoded by the same model.
    named = tmp_path / "named.safetensors"
    words = ["train", out, "--class-texts", "names", "--out", named]
    _, told = run(*words, fails=2)
    assert "sentence:FOLDER" in told or "is installed" in told
    assert not named.exists()
    run(*words, *raw[4:])
    texts = tmp_path / "texts.json"
    texts.write_text('{"007": "the spy", "8": "the number"}')
    run(*words[:3], texts, *words[4:], "--replace", *raw[4:])
    texts.write_text('{"007": "the spy"}')
    _, told = run(*words[:3], texts, *words[4:], "--replace", *raw[4:], fails=2)
    assert "none for '8'" in told
    # In two steps, a class that is a number is the one that is written so.
    write_schema(tmp_path / "schema.json", 16, (7, 8), 20)
    source.write_text(source.read_text().replace("007", "7"))
    features = tmp_path / "features.parquet"
    run("extract", source, *raw, "--out", features)
    assert FeaturesHeader.of_file(features).labels_as_text
    run("release", features, "--label", "intent", *schema, *BUDGET, "--out", tmp_path / "two")


def test_a_folder_of_images(run, tmp_path):
    for name, shade in (("cat", 10), ("dog", 200)):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        for i in range(10):
            (folder / f"{i}.png").write_bytes(png(np.full((6, 6), shade + i, np.uint8)))
    write_schema(tmp_path / "schema.json", 36, ("cat", "dog"), 20)
    words = [tmp_path / "photos", "--extractor", "pixels:size=6"]
    schema, out = ["--schema", tmp_path / "schema.json"], tmp_path / "release"
    run("release", *words, *schema, *BUDGET, "--out", out)
    assert verify(out).valid


def test_bad_records_by_policy_and_for_the_holder_alone(run, tmp_path):
    source, out = tmp_path / "a.parquet", tmp_path / "release"
    write_images(source, bad=(3, 20, 21))
    write_schema(tmp_path / "schema.json", 36)
    raw = ["--label", "label", "--image-column", "img", "--extractor", "pixels:size=6"]
    words = ["release", source, *raw, "--schema", tmp_path / "schema.json", *BUDGET, "--out", out]
    printed, told = run(*words, fails=2)
    assert "[3]" in told and "--on-bad-record zero" in told and not out.exists()
    printed, told = run(*words, "--on-bad-record", "zero", "--max-bad-share", "1", "--json")
    assert "40 records extracted, 3 bad ones blanked" in told
    assert "3 bad ones replaced by zero" in told
    published = (
        printed.replace(str(out), "")
        + (out / "certificate.json").read_text()
        + (out / "README.md").read_text()
    )
    assert not re.search(r"\bbad\b|blanked|replaced", published)


def test_the_schema_must_fit_the_extractor(run, tmp_path):
    source = tmp_path / "a.parquet"
    write_images(source)
    write_schema(tmp_path / "schema.json", 35)
    raw = ["--label", "label", "--image-column", "img", "--extractor", "pixels:size=6"]
    words = ["release", source, "--schema", tmp_path / "schema.json", *BUDGET]
    _, told = run(*words, *raw, "--out", tmp_path / "r", fails=2)
    assert "schema.num_features: expected 36" in told
    write_schema(tmp_path / "schema.json", 36)
    for given, place in (
        (["--extractor", "pixels:size=6", "--text-column", "img"], "--text-column"),
        (["--extractor", "pixels:size=6"], "--image-column"),
        (["--image-column", "img"], "--extractor"),
        (["--extractor", "identity:width=36"], "not accepted for a file of feature vectors"),
    ):
        _, told = run(*words, "--label", "label", *given, "--out", tmp_path / "r", fails=2)
        assert place in told
    assert not (tmp_path / "r").exists() and not (tmp_path / ".r.features").exists()


def test_a_release_cut_off_while_extracting_resumes(run, tmp_path, monkeypatch):
    from privmix.features import extraction
    from privmix.features.pixels import PixelExtractor

    monkeypatch.setattr(extraction, "PART_RECORDS", 8)
    source, out = tmp_path / "a.parquet", tmp_path / "release"
    write_images(source)
    write_schema(tmp_path / "schema.json", 36)
    raw = ["--label", "label", "--image-column", "img", "--extractor", "pixels:size=6"]
    words = ["release", source, *raw, "--schema", tmp_path / "schema.json", *BUDGET, "--out", out]
    whole, done = PixelExtractor._features, []

    def count(self, records):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(len(records))
        return whole(self, records)

    monkeypatch.setattr(PixelExtractor, "_features", count)
    run(*words, fails=130)  # as for an interrupt
    assert not out.exists() and not RunFolder(out).is_unfinished
    monkeypatch.setattr(PixelExtractor, "_features", whole)
    run(*words, "--resume")
    assert verify(out).valid
    assert not (tmp_path / ".release.features").exists()


def test_an_extraction_killed_half_way_resumes_to_the_same_bytes(run, tmp_path):
    """A killed process, not an exception: what is on the disk decides."""
    source, out = tmp_path / "a.parquet", tmp_path / "features.parquet"
    write_images(source, count=2000)
    words = ["extract", source, "--image-column", "img", "--extractor", "pixels:size=64"]
    code = "from privmix.cli import main; main()"
    command = [sys.executable, "-c", code, *map(str, words), "--out", str(out)]
    started = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    parts, deadline = tmp_path / ".features.parquet.parts", time.monotonic() + 60
    while not (parts / "00000000").exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    assert (parts / "00000000").exists() and not out.exists()
    before = (parts / "00000000").stat().st_mtime_ns
    whole = tmp_path / "whole.parquet"
    run(*words, "--out", whole)
    run(*words, "--out", out)
    assert out.read_bytes() == whole.read_bytes()
    assert before and not parts.exists()


def test_release_in_python(tmp_path):
    images = make_images(40, (6, 6))
    plan = plan_release(
        make_schema(2, 36, 40), target_epsilon=4, target_delta=1e-5, design="stratified"
    )
    extractor = make_extractor("pixels", size=6)
    made = release(images, [0, 1] * 20, plan, out=tmp_path / "a", extractor=extractor)
    assert made.certificate.extractor == extractor.identity
    assert verify(made.folder).valid


def test_rows_of_a_table(run, tmp_path):
    source = tmp_path / "a.csv"
    rows = [f"{20 + i},{'ab'[i % 2]},{i % 2}" for i in range(40)]
    source.write_text("\n".join(["age,colour,bought", *rows, ",,"]))
    columns = [
        {"name": "age", "type": "numeric", "lower": 0, "upper": 100},
        {"name": "colour", "type": "categorical", "categories": ["a", "b"]},
    ]
    schema = {"classes": [0, 1], "num_records": 40, "table": {"columns": columns}}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    words = [
        source,
        "--label",
        "bought",
        "--extractor",
        "tabular",
        "--on-bad-record",
        "zero",
        "--max-bad-share",
        "1",
    ]
    given, out = ["--schema", tmp_path / "schema.json"], tmp_path / "release"
    bare = ["release", source, "--label", "bought", *given, *BUDGET, "--out", out]
    _, told = run(*bare, fails=2)
    assert "--extractor: required: --extractor tabular, since" in told
    _, told = run("release", *words, *given, *BUDGET, "--out", out)
    assert "1 bad ones blanked" in told
    assert told.index("loading the extractor") < told.index("features of 41 records extracted")
    _, told = run("release", *words, *given, *BUDGET, "--out", tmp_path / "b", "--dry-run")
    assert "privmix extract" in told
    assert Release(out).certificate.extractor.name == "tabular"
    run("train", out, "--out", tmp_path / "m.safetensors")
    source.write_text("\n".join(["age,colour,bought", *rows]))
    run("evaluate", tmp_path / "m.safetensors", source, "--label", "bought")
    # Features of another schema, as wide as these.
    schema["table"]["columns"][0]["upper"] = 50
    (tmp_path / "other.json").write_text(json.dumps(schema))
    made = tmp_path / "features.parquet"
    words = ("extract", source, "--label", "bought", "--extractor", "tabular", "--out", made)
    run(*words, "--schema", tmp_path / "other.json")
    words = ("release", made, "--label", "bought", *given, *BUDGET, "--out", tmp_path / "c")
    _, told = run(*words, fails=2)
    assert f"{made}: expected features of TabularExtractor(schema.table)" in " ".join(told.split())
    assert not (tmp_path / "c").exists()


def test_a_schema_for_texts_and_images_needs_the_extractor_alone(run, tmp_path):
    """Filled in, it fits the extractor, and a release made with it the records."""
    file = tmp_path / "schema.json"
    run("schema", "--extractor", "pixels:size=6", "--out", file)
    text = file.read_text()
    assert json.loads(text) == {
        "classes": None,
        "num_records": None,
        "num_features": 36,
        "feature_clip_norm": 6.0,
    }
    file.write_text(text.replace('"classes": null', '"classes": [0, 1]').replace("null", "40"))
    source = tmp_path / "a.parquet"
    write_images(source)
    raw = ["--label", "label", "--image-column", "img", "--extractor", "pixels:size=6"]
    run("release", source, *raw, "--schema", file, *BUDGET, "--out", tmp_path / "release")


def test_options_are_looked_at_before_anything_is_extracted(run, tmp_path, monkeypatch):
    source, schema, out = tmp_path / "a.parquet", tmp_path / "schema.json", tmp_path / "release"
    write_images(source)
    write_schema(schema, 36)
    raw = ["--image-column", "img", "--extractor", "pixels:size=6"]
    run("release", source, *raw, "--label", "label", "--schema", schema, *BUDGET, "--out", out)
    run("train", out, "--out", tmp_path / "m")
    book = tmp_path / "book.db"
    run(
        "ledger",
        "open",
        "--ledger",
        book,
        "--dataset-id",
        "d",
        "--epsilon-limit",
        1,
        "--delta",
        "1e-5",
    )
    taken = tmp_path / "taken.parquet"
    taken.write_text("somebody's")
    before = sorted(tmp_path.rglob("*"))

    def never(*_, **__):
        raise AssertionError("extracted")

    monkeypatch.setattr("privmix.features.extraction.extract", never)
    monkeypatch.setattr("privmix.features.extraction.transform_records", never)
    _, told = run("evaluate", tmp_path / "m", source, *raw, fails=2)
    assert "--label: required: the name of the label column" in told
    _, told = run("extract", source, *raw, "--out", taken, fails=2)
    assert "--out: expected a new file" in told
    budget = ["--schema", schema, *BUDGET, "--out", tmp_path / "other"]
    for option in ("--features-key", "--label-key", "--labels"):
        _, told = run("release", source, *raw, *budget, option, "x", fails=2)
        assert f"{option}: not accepted beside --extractor" in told
    wrong = (
        ("--backend", "nowhere"),
        ("--workers", 3),
        ("--max-memory", "much"),
        ("--ledger", tmp_path / "none.db"),
    )
    for option in wrong:
        _, told = run("release", source, *raw, "--label", "label", *budget, *option, fails=2)
        assert any(form in told for form in FORMS) and "eyes" not in told
    for option in ("--features-key", "--label-key"):
        _, told = run("evaluate", tmp_path / "m", source, *raw, option, "x", fails=2)
        assert f"{option}: not accepted for raw records" in told
    spent = [*raw, "--label", "label", *budget, "--ledger", book, "--dataset-id", "d"]
    _, told = run("release", source, *spent, fails=2)
    assert "which 0 is spent" in told
    assert taken.read_text() == "somebody's"
    assert sorted(tmp_path.rglob("*")) == before


def test_features_of_a_release_that_failed_are_told_of(run, tmp_path, monkeypatch):
    source, schema = tmp_path / "a.parquet", tmp_path / "schema.json"
    write_images(source)
    write_schema(schema, 36)
    raw = ["--label", "label", "--image-column", "img", "--extractor", "pixels:size=6"]
    release = ["release", source, *raw, "--schema", schema, *BUDGET, "--out", tmp_path / "r"]

    def full(*_, **__):
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("privmix.engine.release_records", full)
        _, told = run(*release, fails=1)
    kept = tmp_path / ".r.features"
    assert f"private features are kept in {kept}" in told.replace("\n", " ")
    assert kept.is_dir()
    run(*release, "--dry-run")
    assert not kept.exists()


def test_another_release_to_the_same_place_leaves_the_first_ones_features(run, tmp_path):
    source, schema, out = tmp_path / "a.parquet", tmp_path / "schema.json", tmp_path / "r"
    write_images(source)
    write_schema(schema, 36)
    raw = ["--label", "label", "--image-column", "img", "--extractor", "pixels:size=6"]
    with kept_features(out, print) as folder:
        for content in ({}, {"features.parquet": "private"}):  # before the first part, and after
            for name, text in content.items():
                (folder / name).write_text(text)
            before = {path.name: path.read_bytes() for path in folder.iterdir()}
            _, told = run(
                "release", source, *raw, "--schema", schema, *BUDGET, "--out", out, fails=2
            )
            assert "one run at a time, got another one in progress" in told
            assert "eyes" not in told
            assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert not folder.exists()
    run("release", source, *raw, "--schema", schema, *BUDGET, "--out", out)


@pytest.mark.parametrize("bad", [2, 36])
def test_an_extraction_that_stopped_says_where_it_goes_on(run, tmp_path, monkeypatch, bad):
    monkeypatch.setattr("privmix.features.extraction.PART_RECORDS", 16)
    source, out = tmp_path / "a.parquet", tmp_path / "f.parquet"
    write_images(source, bad=[bad])
    raw = ["--label", "label", "--image-column", "img", "--extractor", "pixels:size=6"]
    _, told = run("extract", source, *raw, "--out", out, fails=2)
    assert f"[{bad}], img" in told
    parts = tmp_path / ".f.parquet.parts"
    assert parts.exists() == (f"kept in {parts}" in told.replace("\n", " ")) == (bad > 16)
    write_images(source)
    run("extract", source, *raw, "--out", out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "f.parquet"]


@pytest.mark.parametrize("bad", [(), (2,)])
def test_extract_removes_no_folder_of_somebody_elses(run, tmp_path, bad):
    source, out = tmp_path / "a.parquet", tmp_path / "f.parquet"
    write_images(source, bad=bad)
    mine = tmp_path / ".f.parquet.parts" / "thesis.txt"
    mine.parent.mkdir(mode=0o700)
    mine.write_text("two years")
    words = ["extract", source, "--image-column", "img", "--extractor", "pixels:size=6"]
    assert "free for parts, got other files" in run(*words, "--out", out, fails=2)[1]
    assert mine.read_text() == "two years"


@pytest.mark.parametrize("schema", [True, False])
def test_a_class_folder_whose_name_is_not_utf8(run, tmp_path, schema):
    folder, facts = tmp_path / "images", tmp_path / "schema.json"
    for name in (b"0", b"caf\xe9"):
        path = folder / os.fsdecode(name) / os.fsdecode(b"\xff.png")
        path.parent.mkdir(parents=True)
        path.write_bytes(png(make_images(1, (6, 6))[0]))
    write_schema(facts, 36, classes=("0", "caf"), num_records=2)
    words = ["extract", folder, "--extractor", "pixels:size=6", "--out", tmp_path / "f.parquet"]
    words += ["--schema", facts] if schema else []
    _, told = run(*words, fails=2)
    assert "label: expected text in UTF-8" in told and "images/caf" in told
    run(*words, "--on-bad-record", "zero", "--max-bad-share", "1")
    assert pq.read_table(tmp_path / "f.parquet")["label"].to_pylist() == ["0", None]


def test_a_folder_that_is_not_this_commands_own_is_left_alone(run, tmp_path):
    source, schema, kept = (
        tmp_path / "a.parquet",
        tmp_path / "schema.json",
        tmp_path / ".r.features",
    )
    write_images(source)
    write_schema(schema, 36)
    raw = ["--label", "label", "--image-column", "img", "--extractor", "pixels:size=6"]
    release = ["release", source, *raw, "--schema", schema, *BUDGET, "--out", tmp_path / "r"]
    kept.mkdir(mode=0o700)
    (kept / "notes.txt").write_text("mine")
    _, told = run(*release, "--dry-run", fails=2)
    assert "other files" in told and (kept / "notes.txt").read_text() == "mine"
    (kept / "notes.txt").unlink()
    kept.rmdir()
    (tmp_path / "elsewhere").mkdir()
    kept.symlink_to(tmp_path / "elsewhere")
    _, told = run(*release, fails=2)
    assert "a symbolic link" in told and not list((tmp_path / "elsewhere").iterdir())


def test_features_are_for_their_owner_and_follow_no_link(run, tmp_path):
    source, victim, out = tmp_path / "a.parquet", tmp_path / "victim", tmp_path / "f.parquet"
    write_images(source)
    victim.write_text("mine")
    (tmp_path / ".f.parquet.tmp").symlink_to(victim)
    raw = ["--label", "label", "--image-column", "img", "--extractor", "pixels:size=6"]
    run("extract", source, *raw, "--out", out)
    assert victim.read_text() == "mine" and not out.is_symlink()
    assert out.stat().st_mode & 0o777 == 0o600
    out.unlink()
    out.symlink_to(tmp_path / "nowhere")
    _, told = run("extract", source, *raw, "--out", out, fails=2)
    assert "--out: expected a new file, got" in told and "which exists" in told


def test_extractors_stand_in_a_pipeline():
    pipelines = pytest.importorskip("sklearn.pipeline")
    linear = pytest.importorskip("sklearn.linear_model")
    extractor = make_extractor("pixels", size=2)
    steps = pipelines.make_pipeline(extractor, linear.LogisticRegression())
    images = [np.full((2, 2), 200 * (i % 2), dtype=np.uint8) for i in range(20)]
    labels = [i % 2 for i in range(20)]
    assert steps.fit(images, labels).score(images, labels) == 1
    with pytest.raises(AttributeError, match="size"):
        extractor.size = 3


def test_a_path_that_leads_nowhere_is_told_first(run, tmp_path):
    """Before a schema is read, a model is loaded or an option is missed."""
    for words in (
        ["release", "none.csv", "--out", tmp_path / "a"],
        ["extract", "none.csv", "--out", tmp_path / "a.parquet", "--extractor", "no-such"],
        ["fit", "none.csv", "--epsilon", 1, "--delta", 1e-5, "--out", tmp_path / "m"],
    ):
        _, told = run(*words, fails=2)
        assert told.startswith("error: none.csv: ") and "no such file" in told


def test_extract_leaves_a_file_that_appears_meanwhile(run, tmp_path, monkeypatch):
    source, out = tmp_path / "a.parquet", tmp_path / "features.parquet"
    write_images(source)
    make_part = extraction._make_part

    def appear(*given):
        out.write_text("theirs")
        make_part(*given)

    monkeypatch.setattr(extraction, "_make_part", appear)
    words = ["extract", source, "--image-column", "img", "--extractor", "pixels:size=6"]
    assert "a new file" in run(*words, "--out", out, fails=2)[1]
    assert out.read_text() == "theirs"
