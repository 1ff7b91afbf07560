"""``privmix schema`` writes a template and never over a schema that was filled in."""

from __future__ import annotations

import json
import sys

import pytest

from privmix import cli


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
        (["schema", "."], "--extractor for texts and images; received a folder"),
        (["schema", "--label", "y"], "INPUT: allowed is a table"),
    ):
        code, out, err = privmix(*words)
        assert (code, out) == (2, "")
        assert message in err and err.count("\n") == 1
    assert (tmp_path / "schema.json").read_text() == "mine"
