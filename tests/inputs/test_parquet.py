"""A folder of Parquet files is one table."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from privmix import InvalidInputError
from privmix.inputs.parquet import parquet_files
from privmix.inputs.raw import open_records
from raw_cases import TABLE, gather


class TestFolderOfParquetFiles:
    def folder(self, tmp_path, **second):
        first = pa.table({"text": ["a", "b"], "label": [0, 1]})
        pq.write_table(first, tmp_path / "0.parquet")
        pq.write_table(pa.table(second), tmp_path / "1.parquet")
        return tmp_path

    @pytest.mark.parametrize(
        ("second", "words"),
        [
            (
                {"text": ["c"], "label": ["1"]},
                "label: .* of int64, as in .*/0.parquet, .* of string",
            ),
            ({"text": [3], "label": [1]}, "text: .* of string, as in .*/0.parquet, .* of int64"),
            ({"text": ["c"]}, "label: missing column; expected the columns of"),
            ({"text": ["c"], "label": [1], "x": [1]}, "x: expected .*, got one more"),
        ],
    )
    def test_other_columns_are_named(self, tmp_path, second, words):
        with pytest.raises(InvalidInputError, match=rf"/1\.parquet: {words}"):
            open_records(self.folder(tmp_path, **second), kind="text", column="text", label="label")

    def test_any_order_of_the_columns(self, tmp_path):
        source = self.folder(tmp_path, label=[2], text=["c"])
        records = open_records(source, kind="text", column="text", label="label")
        assert gather(records) == (["a", "b", "c"], [0, 1, 2], [False] * 3)


def test_a_folder_of_parquet_files_is_the_same_to_all_readers(tmp_path):
    for place in ("0", ".hidden", "_new", "sub/3", "_old/4"):
        path = tmp_path / f"{place}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"age": [float(len(place))], "sex": ["f"], "label": ["a"]}), path)
    rows = gather(open_records(tmp_path, kind="table", table=TABLE, label="label"))[0]
    assert [row["age"] for row in rows] == [1.0, 5.0]
    assert parquet_files(tmp_path) == [tmp_path / "0.parquet", tmp_path / "sub" / "3.parquet"]


def test_files_of_a_folder_may_differ_in_whether_nulls_are_allowed(tmp_path):
    for i, nullable in enumerate((True, False)):
        fields = [pa.field("age", pa.float64(), nullable=nullable), pa.field("sex", pa.string())]
        table = pa.table({"age": [float(i)], "sex": ["f"]}, schema=pa.schema(fields))
        pq.write_table(table, tmp_path / f"{i}.parquet")
    records = open_records(tmp_path, kind="table", table=TABLE)
    assert [row["age"] for row in gather(records)[0]] == [0.0, 1.0]
