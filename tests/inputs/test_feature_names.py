"""Columns in another order, or with other names, are refused wherever names are stated."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from builders import make_data, make_plan
from privmix import (
    InvalidInputError,
    NoiseAwareClassifier,
    Schema,
    load_model,
    release,
    save_model,
    verify,
)
from privmix.cli import app

NAMES = ("age", "height", "weight", "pulse", "dose")
SWAPPED = ("height", "age", "weight", "pulse", "dose")
OTHER = ("age", "height", "weight", "pulse", "size")


def schema(**more) -> Schema:
    facts = {"num_features": 5, "num_records": 60, "feature_clip_norm": 1.0}
    facts |= {"feature_names": NAMES}
    return Schema(classes=(0, 1, 2), **(facts | more))


@pytest.fixture(scope="module")
def data():
    return make_data(schema(), 60)


@pytest.fixture(scope="module")
def published(data, tmp_path_factory):
    plan = make_plan(schema(), "poisson", 2.0, mix_size=6, num_mixtures=60)
    return release(*data, plan, out=tmp_path_factory.mktemp("named") / "r")


def frames(x, names):
    columns = dict(zip(names, x.T, strict=True))
    yield pa.table(columns)
    yield pytest.importorskip("pandas").DataFrame(columns)
    yield pytest.importorskip("polars").DataFrame(columns)


def write(path, data, names):
    table = pa.table({**dict(zip(names, data[0].T, strict=True)), "label": data[1]})
    (pa.csv.write_csv if path.suffix == ".csv" else pq.write_table)(table, path)
    return path


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_certificate_and_card_name_the_features(published):
    assert published.certificate.data_schema.feature_names == NAMES
    assert json.dumps(list(NAMES)) in (published.folder / "README.md").read_text()
    assert verify(published.folder).valid


def test_learners_keep_the_names_and_refuse_others(published, data, tmp_path):
    x, _ = data
    model = NoiseAwareClassifier().fit(published)
    assert model.feature_names_in_.tolist() == list(NAMES)
    save_model(model, tmp_path / "m.safetensors")
    for learner in (model, load_model(tmp_path / "m.safetensors")):
        due = learner.predict(x)
        for frame in frames(x, NAMES):
            assert (learner.predict(frame) == due).all()
        for frame in frames(x, SWAPPED):
            with pytest.raises(InvalidInputError, match="another order"):
                learner.predict_proba(frame)
        for frame in frames(x, OTHER):
            with pytest.raises(InvalidInputError, match="no 'dose'; also 'size'"):
                learner.predict(frame)


def test_releases_of_frames_are_checked_before_anything_is_drawn(data, tmp_path):
    plan = make_plan(schema(), "poisson", 2.0, mix_size=6, num_mixtures=60)
    for frame in frames(data[0], SWAPPED):
        with pytest.raises(InvalidInputError, match="another order"):
            release(frame, data[1], plan, out=tmp_path / "r")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_files_are_checked_by_release_and_evaluate(data, tmp_path, suffix):
    plan = make_plan(schema(), "poisson", 2.0, mix_size=6, num_mixtures=60)
    (tmp_path / "plan.json").write_text(plan.to_json())
    good, bad = (
        write(tmp_path / f"{word}{suffix}", data, names)
        for word, names in (("good", NAMES), ("bad", SWAPPED))
    )
    common = ("--label", "label", "--plan", tmp_path / "plan.json", "--out", tmp_path / "r")
    refused = run("release", bad, *common)
    assert isinstance(refused.exception, InvalidInputError)
    assert "another order" in str(refused.exception)
    made = run("release", good, *common)
    assert made.exit_code == 0, made.output
    model = tmp_path / "m.safetensors"
    run("train", tmp_path / "r", "--out", model)
    assert run("evaluate", model, good, "--label", "label").exit_code == 0
    refused = run("evaluate", model, bad, "--label", "label")
    assert "another order" in str(refused.exception)


def test_without_stated_names_nothing_is_compared(data, tmp_path):
    plan = make_plan(schema(feature_names=None), "poisson", 2.0, mix_size=6, num_mixtures=60)
    source = write(tmp_path / "t.parquet", data, SWAPPED)
    (tmp_path / "plan.json").write_text(plan.to_json())
    common = ("--label", "label", "--plan", tmp_path / "plan.json", "--out", tmp_path / "r")
    made = run("release", source, *common)
    assert made.exit_code == 0, made.output
    assert "states no feature_names" in made.stderr
    assert "height" not in (tmp_path / "r" / "certificate.json").read_text()
    model = NoiseAwareClassifier().fit(tmp_path / "r")
    assert not hasattr(model, "feature_names_in_")
    assert "feature_names" not in json.dumps(plan.to_dict())


def test_models_of_fit_are_checked(data, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "schema.json").write_text(schema().to_json())
    good, bad = (
        write(tmp_path / f"{word}.parquet", data, names)
        for word, names in (("good", NAMES), ("bad", SWAPPED))
    )
    common = ("--label", "label", "--schema", tmp_path / "schema.json", "--epsilon", 8)
    common += ("--delta", "1e-3", "--batch-size", 20, "--epochs", 1, "--out", tmp_path / "model")
    assert "another order" in str(run("fit", bad, *common).exception)
    made = run("fit", good, *common)
    assert made.exit_code == 0, made.output
    certificate = json.loads((tmp_path / "model" / "certificate.json").read_text())
    assert tuple(certificate["feature_names"]) == NAMES
    assert run("verify", tmp_path / "model").exit_code == 0
    assert run("evaluate", tmp_path / "model", good, "--label", "label").exit_code == 0
    refused = run("evaluate", tmp_path / "model", bad, "--label", "label")
    assert "another order" in str(refused.exception)


def test_an_estimator_that_fits_on_a_frame_keeps_its_names(data):
    pytest.importorskip("torch")
    from privmix.dpsgd import DPMixClassifier

    estimator = DPMixClassifier(
        None, 8.0, 1e-3, classes=(0, 1, 2), num_records=60, batch_size=20, epochs=1
    )
    (_, frame, _), (_, swapped, _) = frames(data[0], NAMES), frames(data[0], SWAPPED)
    estimator.fit(frame, data[1])
    assert estimator.feature_names_in_.tolist() == list(NAMES)
    assert (estimator.predict(frame) == estimator.predict(np.asarray(frame))).all()
    with pytest.raises(InvalidInputError, match="another order"):
        estimator.predict(swapped)
    assert estimator.certificate_.feature_names is None


@pytest.mark.parametrize(
    "names", [("a", "b"), ("a", "a", "b", "c", "d"), ("a", "b", "c", "d", ""), "abcde", (1, 2)]
)
def test_names_that_are_none_are_refused(names):
    with pytest.raises(InvalidInputError, match="feature_names"):
        schema(feature_names=names)
