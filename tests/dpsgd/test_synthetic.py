"""Synthetic images of known classes from folders and tables."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from builders import fed_pipe
from privmix import InvalidInputError
from privmix.dpsgd import read_synthetic


def encoded(shade: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (9, 7), (shade, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def test_folders_and_tables_agree(tmp_path):
    for name, shade in (("cat", 10), ("dog", 200)):
        (tmp_path / "made" / name).mkdir(parents=True)
        (tmp_path / "made" / name / "0.png").write_bytes(encoded(shade))
    (tmp_path / "made" / "cat" / "note.txt").write_text("no image")
    structs = [{"bytes": encoded(10), "path": None}, {"bytes": encoded(200), "path": None}]
    pq.write_table(pa.table({"image": structs, "label": ["cat", "dog"]}), tmp_path / "a.parquet")
    plain = [encoded(10), encoded(200)]
    pq.write_table(pa.table({"img": plain, "label": ["cat", "dog"]}), tmp_path / "b.parquet")
    for name in ("made", "a.parquet", "b.parquet"):
        found = read_synthetic(tmp_path / name, ["dog", "cat"], (3, 8, 6))
        assert found.inputs.shape == (2, 3, 8, 6)
        assert found.inputs.dtype == np.uint8
        assert found.labels.tolist() == ["cat", "dog"]
        assert found.inputs[:, 0].mean(axis=(1, 2)).tolist() == [10, 200]
    assert read_synthetic(tmp_path / "made", ["dog", "cat"], (1, 4, 4)).inputs.shape[1] == 1


def test_bad_images_are_named(tmp_path):
    (tmp_path / "made" / "cow").mkdir(parents=True)
    with pytest.raises(InvalidInputError, match="at least one image"):
        read_synthetic(tmp_path / "made", ["cow", "dog"], (3, 8, 8))
    (tmp_path / "made" / "cow" / "0.png").write_bytes(b"no image")
    with pytest.raises(InvalidInputError, match=r"0\.png: expected an image"):
        read_synthetic(tmp_path / "made", ["cow", "dog"], (3, 8, 8))
    with pytest.raises(InvalidInputError, match="one of the 2 classes"):
        read_synthetic(tmp_path / "made", ["cat", "dog"], (3, 8, 8))
    with pytest.raises(InvalidInputError, match="existing"):
        read_synthetic(tmp_path / "absent", ["cat", "dog"], (3, 8, 8))
    with pytest.raises(InvalidInputError, match="input_shape"):
        read_synthetic(tmp_path / "made", ["cow", "dog"], (7,))
    pq.write_table(pa.table({"picture": [b""], "label": ["cow"]}), tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match="columns image"):
        read_synthetic(tmp_path / "a.parquet", ["cow", "dog"], (3, 8, 8))


def test_pipes_are_no_images(tmp_path):
    (tmp_path / "made" / "cow").mkdir(parents=True)
    fed_pipe(tmp_path / "made" / "cow" / "0.png")
    fed_pipe(tmp_path / "a.parquet")
    for name in ("made", "a.parquet"):
        with pytest.raises(InvalidInputError, match="a regular file, got a pipe"):
            read_synthetic(tmp_path / name, ["cow", "dog"], (3, 8, 8))
