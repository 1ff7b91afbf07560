"""The template of a schema tells names and types of columns, and nothing of the records."""

from __future__ import annotations

import json
from datetime import datetime

import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from privmix import InvalidInputError, Schema
from privmix.inputs.raw.template import features_template, schema_template

TABLE = pa.table(
    {
        "age": pa.array([17, None]),
        "price": pa.array([1.5, 2.5], pa.float32()),
        "town": pa.array(["Secretville", None]).dictionary_encode(),
        "note": ["x", "Secretville"],
        "none": pa.nulls(2),
        "smokes": [True, None],
        "seen": [datetime(2001, 2, 3), None],
        "img": pa.array([{"bytes": b"x", "path": None}] * 2),
        "y": [0, 1],
    }
)


def columns(text: str) -> list[dict]:
    return json.loads(text)["table"]["columns"]


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow"])
def test_types_of_the_file(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    if suffix == ".parquet":
        pq.write_table(TABLE, path)
    elif suffix == ".feather":
        pa.feather.write_feather(TABLE, path)
    else:
        with pa.ipc.new_stream(path, TABLE.schema) as writer:
            writer.write_table(TABLE)
    text, left_out = schema_template(path, "y")
    assert left_out == ["img"]
    bounds, categories = {"lower": None, "upper": None}, {"categories": None}
    assert columns(text) == [
        {"name": "age", "type": "numeric", **bounds},
        {"name": "price", "type": "numeric", **bounds},
        {"name": "town", "type": "categorical", **categories},
        {"name": "note", "type": "categorical", **categories},
        {"name": "none", "type": "categorical", **categories},
        {"name": "smokes", "type": "boolean"},
        {"name": "seen", "type": "datetime", "earliest": None, "latest": None},
    ]
    assert json.loads(text)["classes"] is json.loads(text)["num_records"] is None


def test_it_depends_on_no_value(tmp_path):
    """Other rows, another number of them, other categories, none missing: the same bytes."""
    other = {
        "age": [-5, 99, 3],
        "price": [0.0, 0.0, 1e30],
        "town": ["a", "b", "c"],
        "note": ["", "", ""],
        "none": ["now", "some", None],
        "smokes": [False] * 3,
        "seen": [datetime(1950, 1, 1)] * 3,
        "img": [{"bytes": b"", "path": None}] * 3,
        "y": [1, 1, 1],
    }
    schema = TABLE.schema.set(4, pa.field("none", pa.string()))
    cells = {name: pa.array(values, schema.field(name).type) for name, values in other.items()}
    pq.write_table(TABLE, tmp_path / "a.parquet")
    pq.write_table(pa.table(cells, schema=schema), tmp_path / "b.parquet")
    assert schema_template(tmp_path / "a.parquet") == schema_template(tmp_path / "b.parquet")
    frame = TABLE.to_pandas().drop(columns="img")
    frame.to_csv(tmp_path / "a.csv", index=False)
    pd.DataFrame({name: ["oops\xff"] for name in frame}).to_csv(
        tmp_path / "b.csv", index=False, encoding="latin-1"
    )
    text, left_out = schema_template(tmp_path / "a.csv")
    assert (text, left_out) == schema_template(tmp_path / "b.csv")
    assert columns(text) == [{"name": name, "type": None} for name in frame]


def test_it_says_what_to_fill_in(tmp_path):
    pq.write_table(TABLE, tmp_path / "t.parquet")
    text, _ = schema_template(tmp_path / "t.parquet", "y")
    steps = [
        ('"classes": null', '"classes": [0, 1]',
         r'classes: .* for example "classes": \["no", "yes"\]'),
        ('"num_records": null', '"num_records": 100', "num_records"),
        ('"name": "age", "type": "numeric", "lower": null, "upper": null',
         '"name": "age", "type": "numeric", "lower": 0, "upper": 120',
         r'age\.lower: .*\{"name": "age", "type": "numeric", "lower": 0, "upper": 100\}'),
        ('"lower": null, "upper": null', '"lower": 0, "upper": 9', r"price\.lower"),
        ('"name": "town", "type": "categorical", "categories": null',
         '"name": "town", "type": "categorical", "num_buckets": 4', r"town\.categories"),
        ('"categories": null', '"categories": ["x"]', r"note\.categories"),
        ('"categories": null', '"categories": ["x"]', r"none\.categories"),
        ('"earliest": null, "latest": null', '"earliest": "2000-01-01", "latest": "2020-01-01"',
         r"seen\.earliest"),
    ]  # fmt: skip
    for before, after, words in steps:
        with pytest.raises(InvalidInputError, match=words):
            Schema.from_json(text, "schema.json")
        text = text.replace(before, after, 1)
    schema = Schema.from_json(text, "schema.json")
    assert schema.num_features == schema.table.width == 2 + 2 + 5 + 3 + 3 + 2 + 2
    assert schema.feature_clip_norm == schema.table.norm_bound == 7**0.5
    assert Schema.from_json(schema.to_json()) == schema


def test_untyped_columns_ask_for_a_type(tmp_path):
    (tmp_path / "t.csv").write_text("age,y\n1,0\n")
    text, _ = schema_template(tmp_path / "t.csv", "y")
    text = text.replace('"classes": null, ', "").replace("null,", "[0, 1],", 1)
    text = text.replace('"num_records": null', '"num_records": 100')
    with pytest.raises(InvalidInputError, match=r"age\.type: required: one of numeric, cat"):
        Schema.from_json(text)


def test_refused(tmp_path):
    (tmp_path / "t.csv").write_text("age,y\n1,0\n")
    (tmp_path / "n.csv").write_text("1.5,2\n1,0\n")
    (tmp_path / "t.npz").touch()
    (tmp_path / "x.parquet").write_bytes(b"x")
    for name, words in (
        ("none.csv", "no such file"),
        ("t.npz", "ending in"),
        ("n.csv", "names of the columns"),
        ("x.parquet", "a whole parquet table"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            schema_template(tmp_path / name)
    with pytest.raises(
        InvalidInputError, match="--label: missing column 'z'; expected a column that"
    ):
        schema_template(tmp_path / "t.csv", "z")
    for made in (
        lambda: schema_template(tmp_path / "t.csv", ""),
        lambda: features_template(3, 1, [""]),
    ):
        with pytest.raises(
            InvalidInputError, match="--label: expected a name, text that is not empty"
        ):
            made()
