"""Cells whose values Python does not have."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from privmix import InvalidInputError
from privmix.inputs.raw import open_records
from privmix.schema.table import TableSchema
from raw_cases import gather


class TestValuesThatPythonDoesNotHave:
    """Arrow holds strings that are not UTF-8 and dates of any year; each is one bad record."""

    strings = pa.StringArray.from_buffers(
        3, pa.py_buffer(np.array([0, 1, 3, 4], np.int32)), pa.py_buffer(b"a\xff\xfeb")
    )
    dates = TableSchema(
        columns=[
            {"name": "d", "type": "datetime", "earliest": "1970-01-01", "latest": "2030-01-01"}
        ]
    )
    letters = TableSchema(columns=[{"name": "d", "type": "categorical", "categories": ["a", "b"]}])

    def check(self, rows, path, place, **options):
        pq.write_table(rows, path)
        for source in (rows, path):
            records = open_records(source, on_bad_record="zero", max_bad_share=1.0, **options)
            assert gather(records)[2] == [False, True, False]
            with pytest.raises(InvalidInputError, match=r"\[1\]" + place):
                gather(open_records(source, **options))

    def test_strings(self, tmp_path):
        path, fine = tmp_path / "t.parquet", ["x", "y", "z"]
        text = {"kind": "text", "column": "text"}
        self.check(pa.table({"text": self.strings}), path, ", text: .*UTF-8", **text)
        self.check(
            pa.table({"text": fine, "y": self.strings}),
            path,
            ", text, label column 'y': .*UTF-8",
            label="y",
            classes=["a", "b", "\ufffd\ufffd"],
            **text,
        )
        self.check(
            pa.table({"text": fine, "u": self.strings}),
            path,
            ", text, unit column 'u': .*UTF-8",
            unit_column="u",
            **text,
        )
        table = pa.table({"d": self.strings})
        self.check(table, path, ", d: .*UTF-8", kind="table", table=self.letters)
        table = pa.table({"d": self.strings.dictionary_encode()})
        self.check(table, path, ", d: .*UTF-8", kind="table", table=self.letters)

    def test_labels_of_a_csv_file(self, tmp_path):
        """Bytes that are no text are no class either, not even the class of the stand-in for them."""
        (tmp_path / "t.csv").write_bytes(b"text,y\nx,a\ny,\xff\n")
        records = open_records(
            tmp_path / "t.csv", kind="text", column="text", label="y", classes=["a", "\ufffd"]
        )
        with pytest.raises(InvalidInputError, match=r"\[1\], text, label column 'y': .*UTF-8"):
            gather(records)

    @pytest.mark.parametrize("kind", ["s", "ms", "us", "date32", "date64"])
    def test_dates(self, tmp_path, kind):
        if kind == "date32":
            cells = pa.array([0, 2**31 - 1, 1], pa.int32()).cast(pa.date32())
        else:
            far = pa.date64() if kind == "date64" else pa.timestamp(kind)
            cells = pa.array([0, 86_400_000 * (2**63 // 86_400_000 - 1), 86_400_000], pa.int64())
            cells = cells.cast(far)
        options = {"kind": "table", "table": self.dates}
        if kind == "s":  # Parquet has no seconds
            with pytest.raises(InvalidInputError, match=r"\[1\], d"):
                gather(open_records(pa.table({"d": cells}), **options))
        else:
            self.check(pa.table({"d": cells}), tmp_path / "t.parquet", ", d: ", **options)

    def test_half_a_character_in_a_frame(self):
        """pandas keeps strings that are no text in object columns; Arrow refuses all of them."""
        pd = pytest.importorskip("pandas")
        odd, fine = pd.Series(["a", "b\ud800", "c"], dtype=object), ["x", "y", "z"]
        options = {"kind": "text", "column": "text"}
        named = {"label": "y", "unit_column": "u"}
        for column, place in (("text", "text: "), ("y", "label column 'y'"), ("u", "unit column")):
            frame = pd.DataFrame({"text": fine, "y": fine, "u": fine} | {column: odd})
            with pytest.raises(InvalidInputError, match=rf"\[1\].*{place}.*UTF-8"):
                gather(open_records(frame, **named, **options))
            records = open_records(
                frame, on_bad_record="zero", max_bad_share=1.0, **named, **options
            )
            assert gather(records)[2] == [False, True, False]

    def test_labels_that_are_lists(self):
        table = pa.table({"text": ["a", "b"], "y": [[0], [1]]})
        options = {"kind": "text", "classes": (0, 1)}
        for source, given, place in (
            (table, {"column": "text", "label": "y"}, "label column 'y'"),
            (["a", "b"], {"labels": np.array([[0], [1]])}, "label"),
        ):
            with pytest.raises(InvalidInputError, match=rf"\[0\].* {place}: expected a single"):
                gather(open_records(source, **given, **options))
            records = open_records(
                source, on_bad_record="zero", max_bad_share=1.0, **given, **options
            )
            assert gather(records)[2] == [True, True]


def test_labels_that_lost_digits_are_refused():
    ids = [2**53 + 1, 2**53]
    lossy = pd.Series([2.0**53, None])
    options = {"kind": "text", "classes": ids, "on_bad_record": "zero", "max_bad_share": 1.0}
    words = "label.*: expected integers or texts .* got a column of (double|float64)"
    with pytest.raises(InvalidInputError, match=words):
        open_records(["x", "y"], labels=lossy, **options)
    frame = pd.DataFrame({"text": ["x", "y"], "label": lossy})
    with pytest.raises(InvalidInputError, match=words):
        list(open_records(frame, column="text", label="label", **options).blocks(9))
    mixed = open_records(["x", "y"], labels=[2.0**53, 2**53], **options)
    assert gather(mixed)[1:] == ([None, 2**53], [True, False])


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_the_earliest_and_latest_nanoseconds(zone):
    table = TableSchema(
        columns=[
            {"name": "t", "type": "datetime", "earliest": "2000-01-01", "latest": "2001-01-01"}
        ]
    )
    times = [-(2**63), -1001, -1000, -1, 0, 999, 1000, 2**63 - 1]
    cells = pa.table({"t": pa.array(times, pa.timestamp("ns", zone))})
    (block,) = open_records(cells, kind="table", table=table, max_missed_share=1.0).blocks(9)
    found = block.records["t"].cast(pa.int64()).to_pylist()
    assert found == [time // 1000 for time in times]
