"""privmix fit and privmix verify on a model folder."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from extractors import save_sentence_model
from privmix import InvalidInputError, Schema
from privmix.cli import app
from privmix.dpsgd import LinearHead, TrainedModel, verify_model
from privmix.dpsgd.model_certificate import read_certificate
from privmix.features import get_extractor
from privmix.features.sentence import SentenceExtractor
from privmix.running.ledger import Ledger
from training_cases import make_images

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture
def images(tmp_path):
    inputs, labels = make_images(80)
    np.savez(tmp_path / "images.npz", x=inputs, y=labels)
    np.savez(tmp_path / "flat.npz", x=inputs.reshape(80, -1)[:, :20] / 255, y=labels)
    return tmp_path


def run(folder, name, *options):
    common = ("--features-key", "x", "--label-key", "y", "--classes", "0,1,2")
    budget = ("--num-records", "80", "--batch-size", "20", "--epochs", "2")
    spent = ("--epsilon", "2", "--delta", "1e-5", "--out", str(folder / "model"))
    arguments = ["fit", str(folder / name), *common, *budget, *spent, *options]
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_images_on_a_backbone(images):
    Ledger(images / "l.db").open_dataset("people", epsilon_limit=3.0, delta=1e-5)
    charged = ("--ledger", str(images / "l.db"), "--dataset-id", "people")
    counts = ("--num-base", "3", "--num-mixed", "2", "--transforms", "flip")
    backbone = ("--backbone", "training_cases:Pooled")
    result = run(images, "images.npz", *counts, *backbone, *charged, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["private"] is True
    assert told["num_augmentations"] == 5
    assert told["epsilon"] <= 2
    assert Ledger(images / "l.db").balance("people").epsilon_spent == pytest.approx(
        told["epsilon"], rel=1e-5
    )
    outcome = CliRunner().invoke(
        app, ["verify", str(images / "model"), "--expect-digest", told["digest"], "--json"]
    )
    assert outcome.exit_code == 0
    assert json.loads(outcome.stdout)["valid"] is True
    with (images / "model" / "model.safetensors").open("ab") as file:
        file.write(b"x")
    assert CliRunner().invoke(app, ["verify", str(images / "model")]).exit_code == 1


def test_features_need_no_backbone(images):
    result = run(images, "flat.npz")
    assert result.exit_code == 0, result.output
    assert "num_augmentations: 1" in result.output
    assert "privmix verify" in result.output


@pytest.mark.parametrize(
    "name, options, place",
    [
        ("flat.npz", ("--method", "best"), "--method"),
        ("flat.npz", ("--model", "wrn-16-4"), "--model"),
        ("flat.npz", ("--num-mixed", "2"), "--num-mixed"),
        ("images.npz", ("--method", "dp-mix-diff"), "backbone|synthetic"),
        ("images.npz", ("--backbone", "nowhere:make"), "--backbone"),
        ("images.npz", ("--batch-size", "81"), "batch_size"),
        ("images.npz", ("--num-base", "0", "--num-mixed", "0"), "num_base"),
        (
            "images.npz",
            ("--backbone", "training_cases:Pooled", "--classes", "0,1"),
            "labels",
        ),
    ],
)
def test_bad_options_write_nothing(images, name, options, place):
    with pytest.raises(InvalidInputError, match=place):
        run(images, name, *options)
    assert not (images / "model").exists()
    assert not list(images.glob(".model*"))


RAW = ("--text-column", "text", "--label", "intent")


@pytest.fixture
def texts(tmp_path):
    """Texts whose words tell the class, a tiny sentence model, and a schema."""
    model = save_sentence_model(tmp_path / "model")
    rows = [("card my " * (1 + i % 3), "card") for i in range(40)]
    rows += [("lost when " * (1 + i % 3), "lost") for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["text,intent", *(f"{t},{c}" for t, c in rows)]))
    facts = {"classes": ["card", "lost"], "num_features": 16, "num_records": 80}
    schema = Schema(**facts, feature_clip_norm=1.0)
    (tmp_path / "schema.json").write_text(schema.to_json())
    return tmp_path, f"sentence:{model}"


def fit_texts(folder, *options, out="fitted", catch=False):
    spent = ("--epsilon", "8", "--delta", "1e-5", "--out", str(folder / out))
    public = ("--schema", str(folder / "schema.json"), "--batch-size", "20", "--epochs", "5")
    arguments = ["fit", *public, "--learning-rate", "8", *spent, *options]
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=catch)


def evaluate(*words):
    return CliRunner().invoke(app, ["evaluate", *map(str, words)], catch_exceptions=False)


def test_texts_through_an_extractor(texts, monkeypatch):
    folder, spec = texts
    source, raw = folder / "t.csv", (*RAW, "--extractor", spec)
    result = fit_texts(folder, source, *raw, "--json")
    assert result.exit_code == 0, result.output
    assert verify_model(folder / "fitted").valid
    certificate = read_certificate(folder / "fitted")
    assert certificate.extractor == get_extractor(spec).identity
    assert str(folder) not in certificate.model_dump_json()
    left = {path.name for path in folder.iterdir()}
    assert left == {"model", "t.csv", "schema.json", "fitted"}
    measured = evaluate(folder / "fitted", source, *raw, "--json")
    found = json.loads(measured.stdout)
    trained = TrainedModel(folder / "fitted", LinearHead(None))
    rows = [line.split(",") for line in source.read_text().splitlines()[1:]]
    predicted = trained.predict(get_extractor(spec).transform([text for text, _ in rows]))
    assert found["accuracy"] == np.mean(predicted == [intent for _, intent in rows])
    assert found["num_test_records"] == 80
    features = folder / "features.parquet"
    arguments = ["extract", source, *raw, "--out", features]
    CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    again = evaluate(folder / "fitted", features, "--label", "intent", "--json")
    assert json.loads(again.stdout) == found
    with pytest.raises(InvalidInputError, match="which the certificate names, got 'pixels'"):
        evaluate(folder / "fitted", source, *RAW, "--extractor", "pixels")
    with pytest.raises(InvalidInputError, match=r"features of sentence\(digest"):
        np.savez(folder / "x.npz", x=np.zeros((2, 16)), y=["card", "lost"])
        evaluate(folder / "fitted", folder / "x.npz", "--features-key", "x", "--label-key", "y")


def test_features_of_an_extractor_are_certified(texts):
    folder, spec = texts
    features = folder / "features.parquet"
    arguments = ["extract", folder / "t.csv", *RAW, "--extractor", spec, "--out", features]
    CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert fit_texts(folder, features, "--label", "intent").exit_code == 0
    assert read_certificate(folder / "fitted").extractor == get_extractor(spec).identity


def test_an_extraction_that_was_cut_off_goes_on(texts, monkeypatch):
    folder, spec = texts
    arguments = (folder / "t.csv", *RAW, "--extractor", spec)
    done = SentenceExtractor._features

    def cut(self, records):
        raise KeyboardInterrupt

    monkeypatch.setattr(SentenceExtractor, "_features", cut)
    assert fit_texts(folder, *arguments).exit_code != 0
    assert not (folder / "fitted").exists()
    monkeypatch.setattr(SentenceExtractor, "_features", done)
    result = fit_texts(folder, *arguments, "--resume")
    assert result.exit_code == 0, result.output
    assert not (folder / ".fitted.features").exists()


@pytest.mark.parametrize(
    "options, place",
    [
        ((*RAW,), "--extractor"),
        ((*RAW, "--extractor", "pixels:size=4"), "--text-column"),
        ((*RAW, "--extractor", "SPEC", "--backbone", "a:b"), "--backbone"),
        (
            (*RAW, "--extractor", "SPEC", "--classes", "a,b"),
            "--classes.*not accepted beside --schema",
        ),
        ((*RAW[:2], "--label", "none", "--extractor", "SPEC"), "'none'"),
        ((*RAW[:2], "--extractor", "SPEC"), "--label"),
        ((*RAW, "--extractor", "SPEC", "--batch-size", "81"), "batch_size"),
        ((*RAW, "--extractor", "SPEC", "--method", "dp-mix-self", "--mix", "cutmix"), "mix:"),
        ((*RAW, "--extractor", "SPEC", "--method", "self-aug", "--num-mixed", "2"), "--num-mixed"),
        ((*RAW, "--extractor", "SPEC", "--model", "wrn-16-4"), "--model"),
        ((*RAW, "--extractor", "SPEC", "--epochs", "-1"), "epochs"),
        ((*RAW, "--extractor", "SPEC", "--dataset-id", "people"), "ledger and dataset_id"),
        ((*RAW, "--extractor", "SPEC", "--ledger", "BOOK", "--dataset-id", "x"), "dataset_id"),
        (
            (*RAW, "--extractor", "SPEC", "--ledger", "no.db", "--dataset-id", "x"),
            "ledger: .*no.db",
        ),
        ((*RAW, "--extractor", "SPEC", "--ledger", "BOOK", "--dataset-id", "people"), "at most"),
    ],
)
def test_bad_options_for_raw_records(texts, monkeypatch, options, place):
    """They are refused before a single record is read."""
    folder, spec = texts
    monkeypatch.setattr(SentenceExtractor, "transform", None)
    book = folder / "l.db"
    Ledger(book).open_dataset("people", epsilon_limit=1.0, delta=1e-5)
    options = [str(book) if option == "BOOK" else option for option in options]
    given = [spec if option == "SPEC" else option for option in options]
    with pytest.raises(InvalidInputError, match=place):
        fit_texts(folder, folder / "t.csv", *given)
    assert not list(folder.glob(".fitted*")) and not (folder / "fitted").exists()


def test_features_of_a_refused_run_are_private_and_announced(texts, monkeypatch):
    folder, spec = texts
    store = folder / ".fitted.features"
    store.mkdir(mode=0o755)
    arguments = (folder / "t.csv", *RAW, "--extractor", spec)
    with pytest.raises(InvalidInputError, match="out="):  # others could have put something there
        fit_texts(folder, *arguments)
    store.chmod(0o700)
    seen = []

    def refuse(*args, **options):
        seen.append(store.stat().st_mode & 0o777)
        raise InvalidInputError(f"{store}/features.parquet", "something else", "this")

    with monkeypatch.context() as patch:
        patch.setattr("privmix.dpsgd.fit", refuse)
        result = fit_texts(folder, *arguments, catch=True)
    assert seen == [0o700]
    assert ".fitted.features" not in str(result.exception)
    assert str(result.exception).startswith("out=")
    assert f"private features are kept in {store}" in " ".join(result.stderr.split())
    assert fit_texts(folder, *arguments).exit_code == 0
    assert not store.exists()


def test_a_bad_record_is_named_without_an_option_that_is_not_there(texts):
    folder, spec = texts
    assert fit_texts(folder, folder / "t.csv", *RAW, "--extractor", spec).exit_code == 0
    with (folder / "t.csv").open("a") as file:
        file.write("\ncard,other")
    arguments = (folder / "t.csv", *RAW, "--extractor", spec)
    for command, advised in (
        (lambda: fit_texts(folder, *arguments, out="second"), False),
        (lambda: evaluate(folder / "fitted", *arguments, "--on-bad-record", "error"), True),
    ):
        with pytest.raises(
            InvalidInputError, match=r"\[80\], text, label column 'intent': .*'other'"
        ) as refused:
            command()
        assert ("leave-out leaves such records out" in str(refused.value)) == advised
        assert "zero" not in str(refused.value)
        assert "blanks" not in str(refused.value)
    assert not (folder / ".second.features").exists()


def test_owners_are_not_overlooked_and_protected_on_request(texts):
    folder, spec = texts
    lines = (folder / "t.csv").read_text().splitlines()
    owned = [f"{line},p{i % 30}" for i, line in enumerate(lines[1:])]
    (folder / "t.csv").write_text("\n".join([lines[0] + ",who", *owned]))
    features = folder / "f.parquet"
    words = ("--extractor", spec, "--unit-column", "who", "--out", features)
    arguments = ["extract", folder / "t.csv", *RAW, *words]
    CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    with pytest.raises(InvalidInputError, match="--unit-column: .*beside the column 'who'"):
        fit_texts(folder, features, "--label", "intent")
    assert not (folder / "fitted").exists()
    most = ("--max-records-per-unit", "2")
    vectors = (features, "--label", "intent", "--unit-column", "who")
    raw = (folder / "t.csv", *RAW, "--extractor", spec, "--unit-column", "who")
    for out, given in (("vectors", vectors), ("raw", raw)):
        result = fit_texts(folder, *given, *most, out=out)
        assert result.exit_code == 0, result.output
        certificate = read_certificate(folder / out)
        assert (certificate.unit_column, certificate.max_records_per_unit) == ("who", 2)
        assert "80 records of 30 owners, of which 60 take part" in " ".join(result.stderr.split())


def test_what_a_folder_cannot_rebuild_is_sent_to_python(images):
    backbone = ("--backbone", "training_cases:Pooled", "--method", "plain")
    assert run(images, "images.npz", *backbone).exit_code == 0
    with pytest.raises(InvalidInputError, match=r"dpsgd\.TrainedModel.*Pooled"):
        evaluate(images / "model", images / "images.npz")
    with (images / "model" / "model.safetensors").open("ab") as file:
        file.write(b"x")
    with pytest.raises(InvalidInputError, match="as it was sealed"):
        evaluate(images / "model", images / "images.npz")


@pytest.mark.parametrize("odd", [np.int16, np.float32])
def test_a_file_of_numbers_does_not_change_how_bytes_in_another_are_read(tmp_path, odd):
    folder = tmp_path / "parts"
    folder.mkdir()
    for number, (kind, count) in enumerate([(np.uint8, 20), (odd, 1)]):
        pd.DataFrame(
            {"a": np.full(count, 200, kind), "b": np.full(count, 100, kind), "y": [1] * count}
        ).to_parquet(folder / f"{number}.parquet", index=False)
    words = ["fit", str(folder), "--label", "y", "--classes", "0,1", "--num-records", "20"]
    words += ["--batch-size", "5", "--epochs", "1", "--epsilon", "1", "--delta", "1e-5"]
    words += ["--out", str(tmp_path / "model")]
    with pytest.raises(InvalidInputError, match=r"bytes \(uint8\) in all files or in none"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert not (tmp_path / "model").exists()
    (folder / "1.parquet").write_bytes((folder / "0.parquet").read_bytes())
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
