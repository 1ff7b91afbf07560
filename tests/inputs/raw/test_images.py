"""Images from folders, tables and arrays; bad ones are judged one by one."""

from __future__ import annotations

import io
import struct
import warnings
import zlib

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from privmix import InvalidInputError
from privmix.inputs.raw import Limits, open_records
from raw_cases import gather, pictures, png


@pytest.fixture
def folder(tmp_path):
    for i, image in enumerate(pictures(7)):
        path = tmp_path / "images" / str(i % 2) / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(image))
    return tmp_path / "images"


class TestImages:
    order = (0, 2, 4, 6, 1, 3, 5)

    def test_a_folder_for_each_class(self, folder):
        records = open_records(folder, kind="image", classes=[0, 1])
        images, labels, bad = gather(records)
        assert all((a == pictures(7)[i]).all() for a, i in zip(images, self.order, strict=True))
        assert labels == [0, 0, 0, 0, 1, 1, 1]
        assert not any(bad)
        assert records.count == 7
        assert records.position(4) == str(folder / "1" / "1.png")

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
