from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from builders import make_data, make_plan, make_schema
from privmix import InvalidInputError, Release, Schema, plan_release, release, verify
from privmix.inputs.extractor import ExtractorIdentity
from privmix.planning.plan import PrivacyUnit
from privmix.publishing import folder as store
from privmix.publishing.card import dataset_card
from privmix.publishing.certificate import Certificate
from privmix.schema.table import NumericColumn, TableSchema


@pytest.fixture(scope="module")
def releases(tmp_path_factory, poisson_plan, stratified_plan):
    folder = tmp_path_factory.mktemp("releases")
    return {
        plan.design: release(*make_data(plan.data_schema, 60), plan, out=folder / plan.design)
        for plan in (poisson_plan, stratified_plan)
    }


def test_arrays_have_the_certified_shapes(releases):
    poisson, stratified = releases["poisson"], releases["stratified"]
    assert poisson.features.shape == (40, 5)
    assert poisson.features.dtype == np.float32
    assert poisson.label_weights.shape == (40, 3)
    assert poisson.labels is None
    assert stratified.features.shape == (30, 5)
    assert stratified.labels.tolist() == [0] * 10 + [1] * 10 + [2] * 10
    assert stratified.label_weights is None


@pytest.mark.parametrize("design", ["poisson", "stratified"])
def test_other_tools_read_the_parts(releases, design):
    opened = releases[design]
    data = opened.folder / "data"
    frame = pd.read_parquet(data)
    assert np.array_equal(np.stack(frame["features"]), opened.features)
    assert pyarrow.dataset.dataset(data).count_rows() == opened.num_mixtures
    kinds = {field.name: str(field.type) for field in pyarrow.dataset.dataset(data).schema}
    label = {"poisson": "label_weights", "stratified": "label"}[design]
    assert list(kinds) == ["features", label]
    assert kinds["features"] == "fixed_size_list<element: float not null>[5]"


def test_blocks_join_to_the_arrays(releases):
    for opened in releases.values():
        blocks = list(opened.iter_blocks())
        assert np.array_equal(np.concatenate([b[0] for b in blocks]), opened.features)


def test_parts_are_of_bounded_size(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_PART_BYTES", 4096 * 8 * 4)
    plan = make_plan(make_schema(), "poisson", mix_size=6, num_mixtures=10_000)
    opened = release(*make_data(plan.data_schema, 60), plan, out=tmp_path / "r", test_seed=0)
    names = [path.name for path in sorted((tmp_path / "r" / "data").iterdir())]
    assert names == ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    assert opened.features.shape == (10_000, 5)


def test_the_card_has_front_matter_that_names_the_files(releases):
    for opened in releases.values():
        text = (opened.folder / "README.md").read_text()
        front = text.split("---\n")[1]
        assert "data_files: data/*.parquet" in front
        assert "differential-privacy" in front


@pytest.mark.parametrize(
    ("target", "design", "told"),
    [
        ("class", "adaptive", True),
        ("class", "hybrid", True),
        ("multilabel", "signed", True),
        ("regression", "adaptive", False),
    ],
)
def test_the_card_offers_synthetic_records_where_there_can_be_some(target, design, told):
    of_target = {"multilabel": {"max_labels": 2}, "regression": {"target_bounds": [[0, 1]] * 3}}
    facts = {"num_features": 5, "num_records": 200, "feature_clip_norm": 1.0}
    facts |= of_target.get(target, {})
    schema = Schema(classes=["a", "b", "c"], target=target, **facts)
    plan = plan_release(schema, target_epsilon=2.0, target_delta=1e-5, design=design)
    card = dataset_card(Certificate.for_plan(plan, private=True, files={}))
    assert ("privmix synthesize" in card) == told
    assert "privmix train" in card


@pytest.mark.parametrize(("design", "second"), [("adaptive", "residuals"), ("hybrid", "mixtures")])
def test_rows_of_several_kinds_are_not_one_array(tmp_path, design, second):
    schema = make_schema()
    plan = plan_release(schema, target_epsilon=2.0, target_delta=1e-5, design=design)
    made = release(*make_data(schema, 60), plan, out=tmp_path / "r")
    with pytest.raises(InvalidInputError) as found:
        made.features
    error = str(found.value)
    assert f"release.tables[1] ({second})" in error and f"a release of design {design}" in error
    assert "to_pandas()" in error and "synthesize(...)" in error


def test_no_private_fact_reaches_the_folder(tmp_path):
    """Two data sets of other sizes and class balance under one plan: only the rows differ."""
    schema = Schema(classes=["a", "b", "c"], num_features=4, num_records=500, feature_clip_norm=2.0)
    rng = np.random.default_rng(0)
    first = rng.standard_normal((500, 4)), rng.choice(["a", "b"], 500)
    second = 30 * rng.standard_normal((123, 4)), np.repeat("c", 123)
    for options in (
        {"design": "poisson", "mix_size": 20, "num_mixtures": 50},
        {"design": "stratified", "rows_per_class": 20},
    ):
        plan = plan_release(
            schema, target_epsilon=3.0, target_delta=1e-6, preprocessing=(), **options
        )
        a = release(*first, plan, out=tmp_path / f"{plan.design}-a")
        b = release(*second, plan, out=tmp_path / f"{plan.design}-b")
        listing = [
            sorted(
                (path.relative_to(r.folder).as_posix(), path.stat().st_size, path.stat().st_mode)
                for path in r.folder.rglob("*")
            )
            for r in (a, b)
        ]
        assert listing[0] == listing[1]
        certificates = [json.loads((r.folder / "certificate.json").read_text()) for r in (a, b)]
        for certificate in certificates:
            digest = certificate["files"].pop("data/part-00000.parquet")
            assert len(digest) == 64
        assert certificates[0] == certificates[1]
        assert (a.folder / "README.md").read_bytes() == (b.folder / "README.md").read_bytes()
        parts = [pq.ParquetFile(r.folder / "data" / "part-00000.parquet") for r in (a, b)]
        assert parts[0].schema_arrow == parts[1].schema_arrow
        assert parts[0].metadata.num_row_groups == parts[1].metadata.num_row_groups
        assert parts[0].metadata.metadata == parts[1].metadata.metadata
        column = parts[0].metadata.row_group(0).column(0)
        assert column.statistics is None
        if a.labels is not None:
            assert np.array_equal(a.labels, b.labels)


def test_a_folder_that_is_no_release(tmp_path):
    with pytest.raises(InvalidInputError, match="certificate.json"):
        Release(tmp_path)


def test_damaged_parts_are_named(tmp_path, poisson_plan):
    opened = release(*make_data(poisson_plan.data_schema, 60), poisson_plan, out=tmp_path / "r")
    part = next((tmp_path / "r" / "data").iterdir())
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(InvalidInputError, match="parts of at least 1280 bytes, .*, got 100"):
        opened.features
    part.unlink()
    with pytest.raises(InvalidInputError, match="parts of at least 1280 bytes, .*, got 0"):
        Release(tmp_path / "r").features


HOSTILE = "<img src=x onerror=alert(1)>`</code>`|[a](b)&amp;\u202e\x1b\n# x\\"


class TestForeignTextsInTheCard:
    @pytest.mark.parametrize("where", ["classes", "features", "columns", "unit", "extractor"])
    def test_they_are_shown_and_nothing_else(self, where):
        facts = {"classes": ["a", "b"], "num_features": 5, "feature_clip_norm": 1.0}
        identity, unit = None, PrivacyUnit()
        if where == "classes":
            facts["classes"] = ["a", HOSTILE]
        elif where == "features":
            facts["feature_names"] = ("a", "b", "c", "d", HOSTILE)
        elif where == "columns":
            column = NumericColumn(name=HOSTILE, lower=0.0, upper=1.0)
            facts = {"classes": ["a", "b"], "table": TableSchema(columns=(column,))}
        elif where == "unit":
            unit = PrivacyUnit(HOSTILE, 2)
        else:
            identity = ExtractorIdentity(name="x", parameters={"p": HOSTILE}, digest="0" * 64)
        schema = Schema(num_records=60, **facts)
        plan = make_plan(schema, "poisson", unit=unit, mix_size=6, num_mixtures=40)
        certificate = Certificate.for_plan(plan, private=True, files={})
        card = dataset_card(certificate.model_copy(update={"extractor": identity}))
        assert "&#60;img src=x onerror=alert(1)&#62;&#96;&#60;/code&#62;&#96;&#124;" in card
        assert all(line.isprintable() for line in card.split("\n"))
        assert "\n# x" not in card
        assert "<" not in card and "](" not in card

    def test_a_release_with_such_names_verifies(self, tmp_path):
        names = ["a", "b", HOSTILE]
        schema = Schema(classes=names, num_features=5, num_records=60, feature_clip_norm=1.0)
        x, y = make_data(make_schema(), 60)
        plan = make_plan(schema, "poisson", mix_size=6, num_mixtures=40)
        release(x, np.array(names)[y], plan, out=tmp_path / "r")
        assert verify(tmp_path / "r").reasons == ()
        assert "<img" not in (tmp_path / "r" / "README.md").read_text()
