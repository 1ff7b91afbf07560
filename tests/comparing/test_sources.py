"""Files to compare: what cannot be told apart is refused, by name."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privmix
from privmix.comparing.sources import read_columns


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
