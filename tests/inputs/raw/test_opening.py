"""Readers of raw records: images, texts and table rows, with bad ones judged one by one."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from privmix import InvalidInputError
from privmix.features import make_extractor
from privmix.inputs.parquet import parquet_files
from privmix.inputs.raw import Limits, open_records
from privmix.inputs.raw.blocks import object_array
from privmix.schema.table import TableSchema

TABLE = TableSchema(
    columns=[
        {"name": "age", "type": "numeric", "lower": 0, "upper": 100},
        {"name": "sex", "type": "categorical", "categories": ["f", "m"]},
    ]
)


def png(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "PNG")
    return buffer.getvalue()


def objects(values: list) -> pd.Series:
    return pd.Series(object_array(values), dtype=object)


def pictures(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 6, 5, 3), dtype=np.uint8)


def gather(records, size: int = 3, start: int = 0):
    """All blocks in one: records, labels, bad."""
    blocks = list(records.blocks(size, start))
    assert [b.start for b in blocks] == list(range(start, start + size * len(blocks), size))
    if records.kind == "table":
        rows = pa.concat_tables([b.records for b in blocks]).to_pylist()
    else:
        rows = [record for b in blocks for record in b.records]
    labels = None
    if blocks[0].labels is not None:
        labels = np.concatenate([b.labels for b in blocks]).tolist()
    return rows, labels, np.concatenate([b.bad for b in blocks]).tolist()


@pytest.fixture
def folder(tmp_path):
    for i, image in enumerate(pictures(7)):
        path = tmp_path / "images" / str(i % 2) / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(image))
    return tmp_path / "images"


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


class TestImages:
    order = (0, 2, 4, 6, 1, 3, 5)

    def test_a_folder_for_each_class(self, folder):
        records = open_records(folder, kind="image", classes=[0, 1])
        images, labels, bad = gather(records)
        assert all((a == pictures(7)[i]).all() for a, i in zip(images, self.order, strict=True))
        assert labels == [0, 0, 0, 0, 1, 1, 1]
        assert not any(bad)
        assert records.count == 7
        assert records.place(4) == str(folder / "1" / "1.png")

    def test_names_are_labels_without_integer_classes(self, folder):
        assert gather(open_records(folder, kind="image"))[1] == ["0"] * 4 + ["1"] * 3

    def test_dot_files_are_not_looked_at_and_stray_files_refused(self, folder):
        (folder / "0" / ".thumb").write_bytes(b"x")
        (folder / ".DS_Store").write_bytes(b"x")
        assert open_records(folder, kind="image").count == 7
        (folder / "list.txt").touch()
        with pytest.raises(InvalidInputError, match="no file beside, got list.txt"):
            open_records(folder, kind="image")

    def sources(self, tmp_path):
        data = [{"bytes": png(a), "path": None} for a in pictures(7)]
        table = pa.table({"img": data, "label": [i % 2 for i in range(7)]})
        pq.write_table(table, tmp_path / "t.parquet", row_group_size=2)
        pa.feather.write_feather(table, tmp_path / "t.feather")
        with pa.ipc.new_stream(tmp_path / "t.arrow", table.schema) as writer:
            writer.write_table(table)
        np.savez(tmp_path / "t.npz", img=pictures(7), label=np.arange(7) % 2)
        return {
            "parquet": tmp_path / "t.parquet",
            "feather": tmp_path / "t.feather",
            "arrow": str(tmp_path / "t.arrow"),
            "npz": tmp_path / "t.npz",
            "table": table,
            "pandas": table.to_pandas(),
            "polars": pl.from_arrow(table),
        }

    @pytest.mark.parametrize(
        "name", ["parquet", "feather", "arrow", "npz", "table", "pandas", "polars"]
    )
    def test_tables_of_images(self, tmp_path, name):
        source = self.sources(tmp_path)[name]
        records = open_records(source, kind="image", column="img", label="label", classes=[0, 1])
        images, labels, bad = gather(records)
        assert (np.array(images) == pictures(7)).all()
        assert labels == [0, 1, 0, 1, 0, 1, 0]
        assert not any(bad)
        for start in range(1, 7):
            assert (np.array(gather(records, 2, start)[0]) == pictures(7)[start:]).all()

    def test_a_path_stands_for_bytes_that_are_not_there(self, folder):
        cells = [
            {"bytes": None, "path": str(folder / "0" / "2.png")},
            {"bytes": png(pictures(7)[3]), "path": "elsewhere.png"},
        ]
        images, _, _ = gather(open_records(cells, kind="image"))
        assert (np.array(images) == pictures(7)[2:4]).all()
        with pytest.raises(InvalidInputError, match=r"images\[0\]: .*a file that can be read"):
            gather(open_records([{"bytes": None, "path": "elsewhere.png"}], kind="image"))

    def test_arrays_lists_and_pytorch_data_sets(self):
        torch = pytest.importorskip("torch")
        grey = pictures(4)[..., 0]
        for source in (grey, list(grey), [Image.fromarray(a) for a in grey], torch.tensor(grey)):
            images, labels, _ = gather(open_records(source, kind="image", labels=[1, 0, 1, 1]))
            assert (np.array(images) == grey[..., None]).all()
            assert labels == [1, 0, 1, 1]
        channels_first = torch.tensor(pictures(4)).permute(0, 3, 1, 2) / 255
        pairs = torch.utils.data.TensorDataset(channels_first, torch.arange(4))
        images, labels, _ = gather(open_records(pairs, kind="image"))
        assert (np.array(images) == pictures(4)).all()
        assert labels == [0, 1, 2, 3]

    def test_hugging_face_data_sets(self):
        datasets = pytest.importorskip("datasets")
        features = datasets.Features(
            img=datasets.Image(), label=datasets.ClassLabel(names=["no", "yes"])
        )
        rows = {"img": [Image.fromarray(a) for a in pictures(5)], "label": [0, 1, 1, 0, 1]}
        made = datasets.Dataset.from_dict(rows, features=features).select([4, 2, 0])
        images, labels, _ = gather(open_records(made, kind="image", column="img", label="label"))
        assert (np.array(images) == pictures(5)[[4, 2, 0]]).all()
        assert labels == [1, 1, 0]
        with pytest.raises(InvalidInputError, match="one data set, got several: train"):
            open_records(datasets.DatasetDict(train=made), kind="image", column="img")

    def test_modes(self):
        grey = Image.fromarray(pictures(1)[0][..., 0])
        palette = Image.fromarray(pictures(1)[0]).convert("P")
        clear = Image.fromarray(pictures(1)[0]).convert("RGBA")
        images = gather(open_records([grey, palette, clear], kind="image"))[0]
        assert [a.shape for a in images] == [(6, 5, 1), (6, 5, 3), (6, 5, 3)]

    def test_a_camera_held_sideways(self):
        exif = Image.Exif()
        exif[0x0112] = 6
        buffer = io.BytesIO()
        Image.fromarray(pictures(1)[0]).save(buffer, "PNG", exif=exif)
        (image,) = gather(open_records([buffer.getvalue()], kind="image"))[0]
        assert (image == np.rot90(pictures(1)[0], -1)).all()


def bomb(height: int, width: int) -> bytes:
    """A small PNG file that claims to be huge, and is: rows of zeros compress well."""

    def chunk(name: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(name + data)
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", crc)

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(min(height, 50) * (width + 1)))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


class TestBadImages:
    bad = (
        b"",
        b"no image",
        png(pictures(1)[0])[:60],
        bomb(20_000, 20_000),  # beyond Pillow's own limit
        bomb(9_000, 9_000),  # beyond ours only
        None,
    )

    @pytest.mark.parametrize("item", bad)
    def test_named_with_the_remedy(self, item):
        good = png(pictures(1)[0])
        with pytest.raises(InvalidInputError, match=r"images\[1\]: .*--on-bad-record zero"):
            gather(open_records([good, item, good], kind="image", labels=[0, 1, 0]))

    def test_blanked_without_touching_the_others(self):
        good = [png(a) for a in pictures(5)]
        mixed = [good[0], *self.bad, *good[1:]]
        records = open_records(
            mixed,
            kind="image",
            labels=range(len(mixed)),
            on_bad_record="zero",
            max_bad_share=1.0,
            classes=range(20),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            images, labels, bad = gather(records, 2)
        assert bad == [False] + [True] * 6 + [False] * 4
        assert [x for x, b in zip(images, bad, strict=True) if b] == [None] * 6
        assert labels == [0, *[None] * 6, 7, 8, 9, 10]
        kept = [x for x in images if x is not None]
        assert (np.array(kept) == pictures(5)).all()

    def test_large_images_make_short_blocks(self, monkeypatch):
        items = [png(a) for a in pictures(5)]
        monkeypatch.setattr("privmix.inputs.raw.blocks._BLOCK_BYTES", 2 * pictures(1).nbytes)
        for source in (items, pa.table({"img": items})):
            column = None if source is items else "img"
            blocks = list(open_records(source, kind="image", column=column).blocks(4))
            assert [block.start for block in blocks] == [0, 2, 4]
            assert (np.concatenate([block.records for block in blocks]) == pictures(5)).all()

    def test_public_limits(self):
        items = [png(pictures(1)[0])]
        for limits in (Limits(max_image_pixels=29), Limits(max_image_bytes=50)):
            with pytest.raises(InvalidInputError, match=r"at most|1 to 29 pixels"):
                gather(open_records(items, kind="image", limits=limits))
        with pytest.raises(InvalidInputError, match="max_image_pixels"):
            Limits(max_image_pixels=0)

    def test_sixteen_bits_and_values_outside(self):
        deep = Image.fromarray(np.zeros((4, 4), dtype=np.uint16))
        for item, words in (
            (deep, "8 bits"),
            (np.full((2, 2), 1.5), "floats in"),
            (np.full((2, 2), np.nan), "floats in"),
            (np.zeros((2, 2), dtype=np.int32), "uint8"),
            (np.zeros((2, 2, 4), dtype=np.uint8), "shape"),
            (np.zeros((0, 2), dtype=np.uint8), "pixels"),
        ):
            with pytest.raises(InvalidInputError, match=words):
                gather(open_records([item], kind="image"))

    def test_what_no_decoder_has_seen(self):
        """A list of unequal rows, an image that was opened but not decoded, a path with a NUL."""
        jpeg = io.BytesIO()
        Image.fromarray(np.tile(pictures(1)[0], (20, 20, 1))).save(jpeg, "JPEG")
        half = jpeg.getvalue()[: jpeg.tell() // 2]
        good = pictures(1)[0]

        def items():
            return [good, [[1, 2], [3]], Image.open(io.BytesIO(half)), "a\0b", good]

        for index in (1, 2, 3):
            with pytest.raises(InvalidInputError, match=r"images\[1\]: "):
                gather(open_records([good, items()[index]], kind="image"))
        _, _, bad = gather(
            open_records(items(), kind="image", on_bad_record="zero", max_bad_share=1.0)
        )
        assert bad == [False, True, True, True, False]

    def test_the_path_of_a_damaged_file_is_told(self, folder):
        (folder / "1" / "3.png").write_bytes(b"")
        with pytest.raises(InvalidInputError, match=r"1/3\.png: expected an image"):
            gather(open_records(folder, kind="image"))

    def test_a_data_set_that_raises(self):
        class Broken:
            def __len__(self):
                return 3

            def __getitem__(self, index):
                if index == 1:
                    raise OSError("truncated")
                return pictures(3)[index], index

        with pytest.raises(InvalidInputError, match=r"images\[1\].*truncated"):
            gather(open_records(Broken(), kind="image"))
        _, labels, bad = gather(
            open_records(Broken(), kind="image", on_bad_record="zero", max_bad_share=1.0)
        )
        assert (labels, bad) == ([0, None, 2], [False, True, False])


TEXTS = ['say "a, b"', "two\nlines", "", "plain", "\u00fc"]


class TestTexts:
    @pytest.mark.parametrize("name", ["csv", "parquet", "pandas", "polars", "list"])
    def test_sources(self, tmp_path, name):
        frame = pd.DataFrame({"id": range(5), "text": TEXTS, "label": list("abaab")})
        options = {"kind": "text", "column": "text", "label": "label", "classes": ["a", "b"]}
        if name == "csv":
            frame.to_csv(tmp_path / "t.csv", index=False, quoting=1)
            source = tmp_path / "t.csv"
        elif name == "parquet":
            frame.to_parquet(tmp_path / "t.parquet", row_group_size=2)
            source = tmp_path / "t.parquet"
        elif name == "list":
            source, options = TEXTS, {"kind": "text", "labels": list("abaab")}
        else:
            source = frame if name == "pandas" else pl.from_pandas(frame)
        records = open_records(source, **options)
        assert gather(records, 2) == (TEXTS, list("abaab"), [False] * 5)
        assert gather(records, 2, start=3)[0] == TEXTS[3:]

    def test_integer_classes_of_a_csv_file_are_matched_as_written(self, tmp_path):
        (tmp_path / "t.csv").write_text("text,label\nx,7\ny,007\n")
        records = open_records(
            tmp_path / "t.csv", kind="text", column="text", label="label", classes=[7, 8]
        )
        with pytest.raises(
            InvalidInputError, match=r"t\.csv\[1\], text, label column 'label': .*'007'"
        ):
            gather(records)

    def test_bad_texts_one_by_one(self, tmp_path):
        content = b"text,label\ngood,a\n,a\n\xff\xfe,a\n" + b"long" * 30 + b",a\nfine,\nfine,c\n"
        (tmp_path / "t.csv").write_bytes(content)
        options = {
            "kind": "text",
            "column": "text",
            "label": "label",
            "classes": ["a", "b"],
            "limits": Limits(max_text_chars=100),
        }
        records = open_records(
            tmp_path / "t.csv", on_bad_record="zero", max_bad_share=1.0, **options
        )
        texts, labels, bad = gather(records, 4)
        assert bad == [False, True, True, True, True, True]
        assert texts == ["good", *[None] * 5]
        assert labels == ["a", *[None] * 5]
        with pytest.raises(InvalidInputError, match=r"t\.csv\[1\], text: required: a text"):
            gather(open_records(tmp_path / "t.csv", **options))

    def test_a_number_is_no_text(self):
        with pytest.raises(InvalidInputError, match=r"texts\[0\]: .*type int"):
            gather(open_records([3], kind="text"))


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


@pytest.mark.parametrize("missing", [False, True])
def test_categories_of_pandas_stay_integers(missing):
    """With one of them missing pandas would make floating-point numbers of all."""
    ids = [2**53 + 1, 2**53]
    last = None if missing else ids[0]
    cells = pd.Series(pd.Categorical([*ids, last], categories=ids))
    frame = pd.DataFrame({"text": ["x", "y", "z"], "label": cells, "who": cells})
    options = {"kind": "text", "classes": ids, "on_bad_record": "zero", "max_bad_share": 1.0}
    columns = {"column": "text", "label": "label", "unit_column": "who"}
    sequences = {"labels": cells, "units": cells}
    for source, where in ((frame, columns), (["x", "y", "z"], sequences)):
        (block,) = open_records(source, **options, **where).blocks(9)
        assert block.labels.tolist() == block.units.tolist() == [*ids, last]


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


@pytest.mark.parametrize("nothing", [pd.NA, pd.NaT, float("nan"), None])
def test_what_pandas_has_for_a_missing_label(nothing):
    records = open_records(
        ["x", "y"], kind="text", labels=["a", nothing], on_bad_record="zero", max_bad_share=1.0
    )
    assert gather(records)[1:] == (["a", None], [False, True])


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


@pytest.mark.parametrize("shape", [(1, 101), (202, 2)])
def test_strips_are_bad_records(shape):
    strip, edge = np.zeros(shape, np.uint8), np.zeros((1, 100), np.uint8)
    for item in (strip, png(strip), Image.fromarray(strip)):
        records = open_records([edge, item], kind="image", on_bad_record="zero", max_bad_share=1.0)
        assert gather(records)[2] == [False, True]
    with pytest.raises(InvalidInputError, match="at most 100 times the short one"):
        gather(open_records([edge, strip], kind="image"))
    wide = open_records([strip], kind="image", limits=Limits(max_image_aspect=200))
    assert gather(wide)[2] == [False]


@pytest.mark.parametrize(
    "tensor", [torch.zeros(2, 2, dtype=torch.bfloat16), torch.zeros(2, 2).to_sparse()]
)
def test_tensors_that_numpy_cannot_hold_are_bad_records(tensor):
    records = open_records(
        [np.zeros((2, 2)), tensor], kind="image", on_bad_record="zero", max_bad_share=1.0
    )
    assert gather(records)[2] == [False, True]


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


def test_extension_types_are_refused_by_column():
    cells = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16)))
    frame = pa.table({"age": [1.0], "sex": cells})
    with pytest.raises(InvalidInputError, match="sex: expected a column of numbers, .*uuid"):
        gather(open_records(frame, kind="table", table=TABLE))


def test_polars_integers_beyond_64_bits():
    frame = pl.DataFrame({"age": [1.0], "sex": ["f"], "n": pl.Series([2**70], dtype=pl.Int128)})
    assert gather(open_records(frame, kind="table", table=TABLE))[2] == [False]
    with pytest.raises(InvalidInputError, match="integers of at most 64 bits"):
        open_records(frame, kind="table", table=TABLE, unit_column="n")
