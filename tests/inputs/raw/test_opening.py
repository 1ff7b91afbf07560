"""Readers of raw records: images, texts and table rows, with bad ones judged one by one."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pytest
from PIL import Image

from privmix import InvalidInputError
from privmix.features import make_extractor
from privmix.inputs.raw import open_records
from privmix.schema.table import TableSchema
from raw_cases import TABLE, gather, objects, pictures


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "a first line with the names"),
        ("text,label\n", "at least one record"),
        ("text,label,x,x\na,0,1,2\n", "distinct names"),
        ("text,caf\xe9\na,0\n".encode("latin-1"), "a first line in UTF-8"),
        ("text,label\na,0\n".encode("utf-16"), "a first line in UTF-8"),
        ("text,label\na,0\nb\n", "Expected 2 columns, got 1"),
    ],
)
def test_odd_csv_files_are_refused(tmp_path, content, words):
    path = tmp_path / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InvalidInputError, match=rf"t\.csv: .*{words}"):
        list(open_records(path, kind="text", column="text", label="label").blocks(9))


ODD = [
    "x",
    2.5,
    10**5000,
    b"\xff",
    [1],
    Decimal("2.50"),
    pd.NA,
    pd.NaT,
    1j,
    "b\ud800",
    pd.Period("2020"),
]
DATES = [datetime(2020, 1, 2), "2021-01-01", date(2022, 1, 1), pd.Timestamp("2023-01-01")]


class TestTables:
    frame = pd.DataFrame(
        {"age": [1.5, None, 300, 40], "sex": ["f", "m", None, "x"], "y": [0, 1, 1, 0]}
    )
    rows = (
        {"age": 1.5, "sex": "f"},
        {"age": None, "sex": "m"},
        {"age": 300.0, "sex": None},
        {"age": 40.0, "sex": "x"},
    )

    @pytest.mark.parametrize("name", ["csv", "parquet", "feather", "pandas", "polars", "arrow"])
    def test_sources(self, tmp_path, name):
        path = tmp_path / f"t.{name}"
        if name == "csv":
            self.frame.to_csv(path, index=False)
        elif name == "parquet":
            self.frame.to_parquet(path)
        elif name == "feather":
            pa.feather.write_feather(self.frame, path)
        source = {
            "pandas": self.frame,
            "polars": pl.from_pandas(self.frame),
            "arrow": pa.Table.from_pandas(self.frame),
        }.get(name, path)
        records = open_records(source, kind="table", table=TABLE, label="y", classes=[0, 1])
        assert gather(records) == (list(self.rows), [0, 1, 1, 0], [False] * 4)

    def test_odd_cells_change_nothing_for_the_others(self, tmp_path):
        """Types are never inferred: neither a text among numbers nor a bad label moves a bit."""
        clean = ["1e1,f,0", "007,m,1", "0.1,f,1", "NA,,0"]
        odd = ["oops,f,0", "inf,f,0", "1_0,f,0", "3,\xff,0", "3,f,2", "3,f,"]
        seen = {}
        for name, lines in (("clean", clean), ("odd", clean[:2] + odd + clean[2:])):
            (tmp_path / name).mkdir()
            path = tmp_path / name / "t.csv"
            path.write_bytes("\n".join(["age,sex,y", *lines, ""]).encode("latin-1"))
            records = open_records(
                path,
                kind="table",
                table=TABLE,
                label="y",
                classes=[0, 1],
                on_bad_record="zero",
                max_bad_share=1.0,
            )
            rows, labels, bad = gather(records, 3)
            seen[name] = [(r, y) for r, y, b in zip(rows, labels, bad, strict=True) if not b]
            blank = [(r, y) for r, y, b in zip(rows, labels, bad, strict=True) if b]
            assert blank == [({"age": None, "sex": None}, None)] * (6 if name == "odd" else 0)
        assert seen["odd"] == seen["clean"]

    def test_a_bad_cell_is_named(self, tmp_path):
        (tmp_path / "t.csv").write_text("age,sex\n1,f\nold,m\n")
        records = open_records(tmp_path / "t.csv", kind="table", table=TABLE)
        with pytest.raises(InvalidInputError, match=r"t\.csv\[1\], age: .* got 'old'"):
            gather(records)

    def test_mixed_pandas_columns(self):
        mixed = pd.DataFrame({"age": [1, "2", "x"], "sex": ["f", 3, None], "y": [0, 1, 0]})
        records = open_records(
            mixed,
            kind="table",
            table=TABLE,
            label="y",
            classes=[0, 1],
            on_bad_record="zero",
            max_bad_share=1.0,
        )
        rows, labels, bad = gather(records)
        assert rows[:2] == [{"age": 1.0, "sex": "f"}, {"age": 2.0, "sex": "3"}]
        assert (labels, bad) == ([0, 1, None], [False, False, True])
        records = open_records(
            mixed.assign(y=[0, "1", 1]),
            kind="table",
            table=TABLE,
            label="y",
            classes=[0, 1],
            on_bad_record="zero",
            max_bad_share=1.0,
        )
        assert gather(records)[2] == [False, True, True]

    @pytest.mark.parametrize("odd", ODD, ids=lambda value: type(value).__name__)
    @pytest.mark.parametrize(
        ("column", "cells"),
        [
            ({"type": "categorical", "categories": ["1", "2", "true"]}, [1.0, True, "2", 1]),
            ({"type": "categorical", "categories": ["1.0"]}, [Decimal("1.0"), "1.0"]),
            # Of one kind alone: Arrow would give them all the digits of the longest.
            ({"type": "categorical", "categories": ["1.0"]}, [Decimal("1.0")] * 2),
            ({"type": "ordinal", "categories": ["1", "2"]}, [2.0, 1, "2"]),
            ({"type": "numeric", "lower": 0, "upper": 9}, [True, 0.5, 3, "4", Decimal(7)]),
            ({"type": "boolean"}, [1.0, 0.0, True, "yes", 0]),
            ({"type": "datetime", "earliest": "1970-01-01", "latest": "2030-01-01"}, DATES),
        ],
        ids=lambda value: value["type"] if isinstance(value, dict) else "",
    )
    def test_one_cell_of_a_frame_changes_no_other(self, column, cells, odd):
        """An object column has no type, and none is inferred from what else is in it."""
        table = TableSchema(columns=[{"name": "c", **column}])
        options = {"kind": "table", "table": table, "on_bad_record": "zero", "max_bad_share": 1.0}
        extractor = make_extractor("tabular", table=table)
        without = pd.DataFrame({"c": pd.Series(cells, dtype=object), "other": 1})
        rows, _, bad = gather(open_records(without, **options))
        assert not any(bad)
        for place in range(len(cells) + 1):
            more = [*cells[:place], odd, *cells[place:]]
            frame = pd.DataFrame({"c": objects(more), "other": objects([odd] * len(more))})
            found, _, wrong = gather(open_records(frame, **options))
            others = [i for i in range(len(more)) if i != place]
            assert [found[i] for i in others] == rows
            assert not any(wrong[i] for i in others)
            if not wrong[place]:
                features = extractor.transform(frame)[others]
                assert np.array_equal(features, extractor.transform(without))

    @pytest.mark.parametrize(
        "cells",
        [
            ["2000-01-01 00:00:00.123456789", "2000-01-01 00:00:00.5", "2000-01-01"],
            ["1960-01-01 00:00:00.123456789", "1969-12-31 23:59:59.999999999"],
            # The hour that is there twice when summer time ends.
            ["2020-10-25 00:30:00.000000001+00:00", "2020-10-25 01:30:00.000000001+00:00"],
        ],
    )
    @pytest.mark.parametrize("number", [False, True])
    def test_times_are_the_same_in_a_column_of_objects(self, cells, number):
        """pandas makes one of a column of times where one cell is anything else."""
        times = pd.Series(pd.to_datetime(cells, format="ISO8601"))
        if times.dt.tz is not None:
            times = times.dt.tz_convert("Europe/Berlin")
        assert times.dtype != object
        column = {"type": "categorical", "num_buckets": 997}
        if number:
            middle = pd.Timestamp(cells[0]).floor("s")
            bounds = {"earliest": str(middle), "latest": str(middle + pd.Timedelta("1s"))}
            column = {"type": "datetime", **bounds}
        table = TableSchema(columns=[{"name": "c", **column}])
        extractor = make_extractor("tabular", table=table)
        alone = extractor.transform(pd.DataFrame({"c": times}))
        beside = extractor.transform(pd.DataFrame({"c": objects([*times, None])}))
        assert np.array_equal(beside[:-1], alone)

    def test_one_cell_of_texts_or_images_changes_no_other(self, tmp_path):
        image = np.zeros((4, 4), dtype=np.uint8)
        Image.fromarray(image).save(tmp_path / "a.png")
        encoded = (tmp_path / "a.png").read_bytes()
        images = [str(tmp_path / "a.png"), encoded, {"bytes": encoded, "path": None}, image]
        # Of one kind alone, too: beside bytes, Arrow would take paths for bytes.
        alike = [("image", [one]) for one in images]
        for kind, cells in (("text", ["a", "b"]), ("image", images), *alike):
            alone = gather(open_records(pd.DataFrame({"c": objects(cells)}), kind=kind, column="c"))
            assert alone[2] == [False] * len(cells)
            for odd in (*ODD, *images, "x"):
                frame = pd.DataFrame({"c": objects([*cells, odd])})
                records = open_records(
                    frame, kind=kind, column="c", on_bad_record="zero", max_bad_share=1.0
                )
                found, _, bad = gather(records)
                for seen, due in zip(found[:-1], alone[0], strict=True):
                    assert np.array_equal(seen, due)
                assert bad[:-1] == alone[2]

    def test_columns_of_the_same_name(self):
        for frame in (
            pd.DataFrame({"0": [7, 8], 0: [1, 2.5], "m": ["x", 1]}),
            pd.DataFrame([[1, 2]], columns=["age", "age"]),
        ):
            with pytest.raises(InvalidInputError, match="distinct names"):
                open_records(frame, kind="table", table=TABLE)

    def test_series_are_read_by_position(self):
        """Their index may be in any order: after a shuffle it is."""
        shuffled = pd.DataFrame({"t": ["a", "b", "c"], "y": [0, 1, 2], "u": ["p", "q", "r"]}).iloc[
            [2, 0, 1]
        ]
        for given in (shuffled["t"], ["c", "a", "b"]):
            records = open_records(given, kind="text", labels=shuffled["y"], units=shuffled["u"])
            (block,) = records.blocks(5)
            assert list(block.records) == ["c", "a", "b"]
            assert list(block.labels) == [2, 0, 1]
            assert list(block.units) == ["r", "p", "q"]

    @pytest.mark.parametrize(
        "made", [pl.Series, pa.array, pd.Index, lambda v: pa.chunked_array([v])]
    )
    def test_other_sequences(self, made):
        records = open_records(
            made(["a", "b"]), kind="text", labels=made([5, 6]), units=made([7, 8])
        )
        (block,) = records.blocks(5)
        assert list(block.records) == ["a", "b"]
        assert (list(block.labels), list(block.units)) == ([5, 6], [7, 8])

    def test_categories_of_polars(self):
        frame = pl.DataFrame(
            {
                "sex": pl.Series(["f", "m", None, "m"], dtype=pl.Categorical),
                "age": pl.Series(["3", "4", None, "3"], dtype=pl.Enum(["4", "3"])),
            }
        )[1:]
        rows, _, _ = gather(open_records(frame, kind="table", table=TABLE))
        assert rows == [{"age": age, "sex": sex} for age, sex in ((4, "m"), (None, None), (3, "m"))]
        texts, labels, bad = gather(
            open_records(
                frame,
                kind="text",
                column="sex",
                label="age",
                on_bad_record="zero",
                max_bad_share=1.0,
            )
        )
        assert (texts, labels) == (["m", None, "m"], ["4", None, "3"])
        assert bad == [False, True, False]

    def test_columns_that_are_not_there(self):
        with pytest.raises(
            InvalidInputError, match="missing column 'sex'; expected a column of table: age"
        ):
            open_records(pa.table({"age": [1]}), kind="table", table=TABLE)
        with pytest.raises(InvalidInputError, match="is the label: delete the line of 'sex'"):
            open_records(self.frame, kind="table", table=TABLE, label="sex")


class TestRefused:
    def test_sources(self, tmp_path):
        (tmp_path / "t.xlsx").touch()
        (tmp_path / "numbers.csv").write_text("1,2\n3,4\n")
        (tmp_path / "broken.parquet").write_bytes(b"x")
        (tmp_path / "broken.csv").write_text("text\na\nb,c\n")
        (tmp_path / "empty.csv").write_text("text\n")
        (tmp_path / "twice.csv").write_text("text,text\na,b\n")
        np.savez(tmp_path / "t.npz", img=pictures(2))
        for name, words in (
            ("none.csv", "no such file"),
            ("t.xlsx", "ending in"),
            ("numbers.csv", "names of the columns"),
            ("broken.parquet", "a whole parquet table"),
            ("broken.csv", "a whole csv table"),
            ("empty.csv", "at least one record"),
            ("twice.csv", "distinct names"),
            ("t.npz", "a file with texts"),
        ):
            with pytest.raises(InvalidInputError, match=words):
                gather(open_records(tmp_path / name, kind="text", column="text"))
        with pytest.raises(InvalidInputError, match="an array of .*: img, got 'x'"):
            open_records(tmp_path / "t.npz", kind="image", column="x")

    @pytest.mark.parametrize(
        ("source", "options", "words"),
        [
            ([], {}, "at least one record"),
            (["a"], {"labels": [0, 1]}, "labels: expected one for each of the 1 records"),
            (3, {}, "a path, a table or a sequence"),
            (b"bytes", {}, "a path, a table or a sequence"),
            (pa.table({"text": ["a"]}), {}, "text column: required"),
            (pa.table({"text": ["a"]}), {"column": "x"}, "text column: .*'x'"),
            (pa.table({"text": ["a"]}), {"column": "text", "labels": [0]}, "named by label"),
            (["a"], {"table": TABLE}, "not accepted beside another kind"),
            (["a"], {"on_bad_record": "skip"}, "error, zero"),
        ],
    )
    def test_arguments(self, source, options, words):
        with pytest.raises(InvalidInputError, match=words):
            open_records(source, kind="text", **options)
