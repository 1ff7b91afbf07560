"""Files to compare: what cannot be told apart is refused, by name."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privmix
from privmix.comparing.sources import Facts, read_columns


def refused(path, label="label") -> str:
    with pytest.raises(privmix.InvalidInputError) as found:
        read_columns(path, label)
    return str(found.value)


def test_labels_of_arrays_are_no_feature(tmp_path):
    path = tmp_path / "some.npz"
    np.savez(path, features=np.zeros((30, 3)), labels=np.arange(30) % 2)
    assert read_columns(path, "x3").column_names == ["x0", "x1", "x2", "x3"]
    assert "x0 to x2" in refused(path, "x1")


def test_columns_of_one_name_are_refused_and_their_name_is_not_shown(tmp_path):
    path = tmp_path / "some.csv"
    path.write_text("secret,label,secret\n" + "1,a,2\n" * 30)
    found = refused(path)
    assert "columns of different names" in found and "secret" not in found
    path = tmp_path / "some.parquet"
    vectors = pa.array([[0.0, 1.0]] * 30)
    pq.write_table(pa.table({"v": vectors, "w": vectors, "label": ["a", "b"] * 15}), path)
    assert "columns of different names" in refused(path)


def test_columns_of_one_name_in_parquet_are_refused_before_they_are_read(tmp_path):
    path = tmp_path / "some.parquet"
    columns = [pa.array([1.0] * 30), pa.array([2.0] * 30), pa.array(["a", "b"] * 15)]
    pq.write_table(pa.Table.from_arrays(columns, names=["secret", "secret", "label"]), path)
    found = refused(path)
    assert "columns of different names" in found and "secret" not in found


def test_a_row_that_cannot_be_read_is_named_and_not_shown(tmp_path):
    path = tmp_path / "some.csv"
    path.write_text("name,n,label\n" + "a,1,x\n" * 200_000 + "Carol 123-45-6789,77\n")
    found = refused(path)
    assert "Row #200002: Expected 3 columns, got 2" in found and "Carol" not in found
    schema = privmix.Schema(
        classes=["x", "y"], num_records=30, num_features=1, feature_clip_norm=1.0
    )
    with pytest.raises(privmix.InvalidInputError, match=r"Expected 3 columns, got 2$"):
        read_columns(path, "label", schema)


@pytest.mark.parametrize("kind", [">f8", "<f2", np.longdouble, ">i2", bool, np.uint64])
def test_arrays_of_any_numbers_are_read(tmp_path, kind):
    path, x = tmp_path / "some.npz", np.eye(3)
    labels = np.array([0, 1, 2**64 - 1], dtype=np.uint64).astype(">u8")
    np.savez(path, features=x.astype(kind), labels=labels)
    table = read_columns(path, "label")
    assert table["x1"].to_pylist() == [0, 1, 0]
    assert table["label"].to_pylist() == [0, 1, 2**64 - 1]


def test_arrays_of_no_numbers_are_refused(tmp_path):
    path = tmp_path / "some.npz"
    for kind in (complex, str):
        np.savez(path, features=np.eye(3).astype(kind), labels=np.arange(3))
        assert "features: expected numbers, got an array of" in refused(path)
    np.savez(path, features=np.eye(3), labels=np.arange(3) * 1j)
    assert "labels: expected numbers or texts" in refused(path)
    np.savez(path, features=np.eye(3), labels=["a", "b", "c"])
    assert read_columns(path, "label")["label"].to_pylist() == ["a", "b", "c"]


NUMBERS = [pa.bool_(), pa.decimal128(3, 1), pa.int8(), pa.float32()]


@pytest.mark.parametrize("kind", [k(n) for n in NUMBERS for k in (pa.list_, pa.large_list)])
def test_vectors_of_any_numbers_are_numbers(tmp_path, kind):
    path, x = tmp_path / "some.parquet", np.eye(3).tolist()
    pq.write_table(pa.table({"v": pa.array(x).cast(kind), "label": ["a", "b", "c"]}), path)
    table = read_columns(path, "label")
    assert all(pa.types.is_floating(table[f"x{i}"].type) for i in range(3))
    assert table["x1"].to_pylist() == [0, 1, 0]


def test_lists_of_no_numbers_are_refused_in_words_of_compare(tmp_path):
    path = tmp_path / "some.parquet"
    for rows in ([["secret"]] * 3, [[[1.0]]] * 3):
        pq.write_table(pa.table({"v": rows, "label": ["a", "b", "c"]}), path)
        found = refused(path)
        assert "v: expected a column of numbers, times or texts, or of vectors" in found
        assert "secret" not in found and "--" not in found


@pytest.mark.parametrize("row", [[0.0], [0.0, 1.0, 2.0]])
def test_vectors_of_several_widths_are_named(tmp_path, row):
    path = tmp_path / "some.parquet"
    rows = pa.array([[0.0, 1.0]] * 29 + [row])
    pq.write_table(pa.table({"v": rows, "label": ["a", "b"] * 15}), path)
    assert "29" in refused(path)


def test_a_missing_vector_has_no_values(tmp_path):
    path = tmp_path / "some.parquet"
    rows = pa.array([[0.0, 1.0]] * 29 + [None])
    pq.write_table(pa.table({"v": rows, "label": ["a", "b"] * 15}), path)
    table = read_columns(path, "label")
    assert table.column_names == ["x0", "x1", "label"]
    assert np.isnan(table["x1"][29].as_py())


TABLE = """{"classes": %s, "num_records": 30, "table": {"columns": [
  {"name": "income", "type": "numeric", "lower": 0, "upper": 100},
  {"name": "town", "type": "categorical", "categories": ["Ulm"]}]}}"""


@pytest.mark.parametrize(
    ("classes", "labels", "due"),
    [
        ("[0, 1]", [True, False, 1.0], ["1", "0", "1"]),
        ("[0, 1]", [1.0, 0.0, None], ["1", "0", None]),
        ('["no", "yes"]', [" no", "yes", "maybe"], ["no", "yes", "maybe"]),
        ('["no", "yes"]', [0, 1, 1], ["0", "1", "1"]),
    ],
)
def test_labels_are_the_classes_that_a_release_takes_them_for(tmp_path, classes, labels, due):
    path = tmp_path / "some.parquet"
    kind = pa.bool_() if labels[0] is True else None
    column = pa.array([bool(v) for v in labels] if kind else labels, kind)
    pq.write_table(pa.table({"income": [1.0, 2.0, 3.0], "label": column}), path)
    facts = Facts.of(privmix.Schema.from_json(TABLE % classes))
    table = read_columns(path, "label", facts)  # and no town
    assert table["label"].to_pylist() == due
    assert table.column_names == ["income", "label"]


def test_a_column_whose_cells_are_mostly_unreadable_is_refused(tmp_path):
    path = tmp_path / "some.csv"
    facts = Facts.of(privmix.Schema.from_json(TABLE % "[0, 1]"))
    path.write_text("income,town,label\n" + '"1,5",Ulm,0\n' * 20 + "2,Ulm,1\n" * 10)
    with pytest.raises(privmix.InvalidInputError, match="income.*20 of 30") as found:
        read_columns(path, "label", facts)
    assert "1,5" not in str(found.value)
