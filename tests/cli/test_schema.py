"""``privmix schema`` writes a template and never over a schema that was filled in."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from privmix import InvalidInputError, Schema, cli
from privmix.features import get_extractor
from privmix.features.pixels import PixelExtractor


@pytest.fixture
def privmix(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("age,y\n1,0\n")

    def run(*words: str):
        monkeypatch.setattr(sys, "argv", ["privmix", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return run


def test_template(privmix, tmp_path):
    due = {
        "classes": None,
        "num_records": None,
        "table": {"columns": [{"name": "age", "type": None}]},
    }
    code, out, err = privmix("schema", "t.csv", "--label", "y")
    assert (code, json.loads(out), err) == (0, due, "")
    code, out, _ = privmix("schema", "t.csv", "--label", "y", "--json")
    assert json.loads(out) == {"schema": due, "left_out": []}
    code, out, _ = privmix("schema", "t.csv", "--label", "y", "--out", "schema.json")
    assert code == 0 and "replace every null" in out
    assert json.loads((tmp_path / "schema.json").read_text()) == due
    code, _, err = privmix("plan", "--schema", "schema.json", "--epsilon", "1", "--delta", "1e-5")
    assert code == 2 and "schema.json" in err


def test_refused(privmix, tmp_path):
    (tmp_path / "schema.json").write_text("mine")
    for words, message in (
        (["schema", "t.csv", "--out", "schema.json"], "a new file"),
        (["schema", "t.csv", "--label", "z"], "--label"),
        (["schema", "none.csv"], "no such file"),
        (["schema", "."], "--extractor for texts and images, got a folder"),
        (["schema", "--label", "y"], "INPUT: required: a table"),
        (["schema", "t.csv", "--label", "y", "--extractor", "pixels"], "drop t.csv, --label y"),
        (
            ["schema", "t.csv", "--unit-column", "z"],
            "--unit-column: missing column 'z'; expected a column that the first line of",
        ),
        (["schema", "t.csv", "--label", "y", "--unit-column", "y"], "named once"),
        (["schema", "t.csv", "--label", "y", "--target", "yes"], "--target: expected one of"),
        (["schema", "t.csv", "--label", "y", "--label", "age", "--target", "class"], "1 column"),
    ):
        code, out, err = privmix(*words)
        assert (code, out) == (2, "")
        assert message in err and err.count("\n") == 1
    assert (tmp_path / "schema.json").read_text() == "mine"


def test_several_labels_and_owners(privmix, tmp_path):
    """Neither is a feature column, and the fields of the target are there to be filled in."""
    (tmp_path / "t.csv").write_text("age,y,dose,name\n1,0,3,me\n")
    words = ["schema", "t.csv", "--label", "y", "--label", "dose", "--unit-column", "name"]
    columns = {"columns": [{"name": "age", "type": None}]}
    due = {"classes": ["y", "dose"], "target": None, "num_records": None, "table": columns}
    _, out, _ = privmix(*words)
    assert json.loads(out) == due
    with pytest.raises(InvalidInputError, match="target"):
        Schema.from_json(
            out.replace('records": null', 'records": 9').replace("null}", '"boolean"}')
        )
    _, out, _ = privmix(*words, "--target", "multilabel")
    assert json.loads(out) == due | {"target": "multilabel", "max_labels": None}
    _, out, _ = privmix(*words, "--target", "soft")
    assert json.loads(out) == due | {"target": "soft"}
    _, out, _ = privmix(*words, "--target", "regression")
    assert json.loads(out) == due | {
        "target": "regression",
        "target_bounds": [[None, None], [None, None]],
    }
    filled = json.loads(out.replace("null, null", "0, 9").replace("null,", "100,", 1))
    filled["table"]["columns"][0] |= {"type": "numeric", "lower": 0, "upper": 9}
    assert Schema.from_json(json.dumps(filled)).num_classes == 2


@pytest.mark.parametrize("extractor", ["pixels:size=6,channels=3", "scattering:size=8"])
def test_bound_of_an_extractor(privmix, extractor):
    """The clip norm of a template is a norm that no vector passes, and is nearly reached."""
    pytest.importorskip("PIL")
    made = get_extractor(extractor)
    _, out, _ = privmix("schema", "--extractor", extractor)
    bound = json.loads(out)["feature_clip_norm"]
    white = np.full((8, 8, 3), 255, dtype=np.uint8)
    noisy = np.random.default_rng(0).integers(0, 256, size=(8, 8, 3), dtype=np.uint8)
    largest = np.linalg.norm(made.transform([white, noisy]), axis=1).max()
    assert 0.999 * bound < largest <= bound * (1 + 1e-6)


def test_no_bound_is_left_open(privmix, monkeypatch, tmp_path):
    monkeypatch.setattr(PixelExtractor, "norm_bound", None)
    words = ["schema", "--extractor", "pixels", "--label", "x", "--target", "regression"]
    code, out, _ = privmix(*words, "--out", "schema.json")
    assert code == 0 and "null" in out and "feature_clip_norm from public data" in out
    text = (tmp_path / "schema.json").read_text()
    assert json.loads(text) == {
        "classes": ["x"],
        "target": "regression",
        "target_bounds": [[None, None]],
        "num_records": None,
        "num_features": 784,
        "feature_clip_norm": None,
    }
    text = text.replace('records": null', 'records": 9')
    with pytest.raises(InvalidInputError, match=r"target_bounds\[0\]"):
        Schema.from_json(text.replace('norm": null', 'norm": 1'))
    text = text.replace("null, null", "0, 1")
    with pytest.raises(InvalidInputError, match="feature_clip_norm"):
        Schema.from_json(text)


def test_buckets_are_mentioned(privmix):
    _, out, _ = privmix("schema", "t.csv", "--label", "y", "--out", "schema.json")
    assert "num_buckets" in out
