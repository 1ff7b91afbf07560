"""``privmix evaluate --extractor``: the one that the release used, and no other."""

from __future__ import annotations

import json

import pytest

from privmix import Schema
from privmix._validate import InvalidInputError
from privmix.features.named import same_extractor
from privmix.features.tabular import TabularExtractor
from privmix.inputs.extractor import ExtractorIdentity

TABLE = {"columns": [{"name": "age", "type": "numeric", "lower": 0, "upper": 100}]}


def test_the_name_is_compared_before_a_model_is_loaded(monkeypatch):
    schema = Schema.from_json(json.dumps({"classes": [0, 1], "num_records": 10, "table": TABLE}))
    due = TabularExtractor(schema.table).identity
    for spec in (None, "tabular"):
        assert same_extractor(due, spec, None).identity == due

    def load(*_):
        raise AssertionError("loaded")

    monkeypatch.setattr("privmix.features.named.build_extractor", load)
    for spec in ("sentence", "sentence:other", "nosuch"):
        with pytest.raises(InvalidInputError, match="tabular.*got"):
            same_extractor(due, spec, None)


def test_models_are_compared_by_name_before_a_hub_is_asked(monkeypatch, tmp_path):
    """Unless the model is a folder: there the same weights may go by another name."""
    due = ExtractorIdentity(name="sentence", parameters={"model": "known"}, digest="0" * 64)
    built = []

    def load(spec, device):
        built.append(spec)
        raise KeyboardInterrupt

    monkeypatch.setattr("privmix.features.named.build_extractor", load)
    for spec in ("sentence:other", "sentence:other,device=cpu"):
        with pytest.raises(InvalidInputError, match="model=known.*got 'sentence:other"):
            same_extractor(due, spec, None)
    assert not built
    for spec in ("sentence", "sentence:known", f"sentence:{tmp_path}"):
        with pytest.raises(KeyboardInterrupt):
            same_extractor(due, spec, None)
    assert built == [due, "sentence:known", f"sentence:{tmp_path}"]
