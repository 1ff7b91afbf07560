"""Synthetic public images for DP-Mix-Diff: a folder, or a Parquet table, of images per class."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privmix import _validate
from privmix.dpsgd.training_records import require

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")


class SyntheticImages(NamedTuple):
    """Images (count, channels, height, width) uint8, and the class of each."""

    inputs: NDArray[np.uint8]
    labels: NDArray[Any]


def read_synthetic(
    path: str | Path, classes: Sequence[int] | Sequence[str], shape: tuple[int, ...]
) -> SyntheticImages:
    """Read synthetic images of known classes, resized to the records' shape.

    Args:
        path: A folder with one folder of images for each class, named as the class is written; or a
            Parquet file with a column of encoded images (bytes, or a struct with ``bytes``) named
            ``image`` or ``img`` and a column ``label`` of classes.
        classes: The plan's classes. A class without images is allowed.
        shape: (channels, height, width) of a record; 1 or 3 channels.

    Raises:
        InvalidInputError: No such file, an unknown class, no image, or what is no image.

    """
    path = Path(path)
    if len(shape) != 3 or shape[0] not in (1, 3):
        _validate.fail("input_shape", "(1 or 3, height, width) for synthetic images", shape)
    if not path.exists():
        _validate.fail(f"synthetic={path}", "an existing folder or Parquet file", "none")
    require("PIL")
    named = {str(name): name for name in classes}
    images, labels = [], []
    for position, name, content in _folder(path) if path.is_dir() else _table(path):
        if name not in named:
            shown = ", ".join(list(named)[:5])
            _validate.fail(f"{position}", f"one of the {len(named)} classes ({shown})", repr(name))
        images.append(_decode(position, content, shape))
        labels.append(named[name])
    if not images:
        _validate.fail(f"synthetic={path}", "at least one image", "none")
    return SyntheticImages(np.stack(images), np.array(labels))


def _folder(path: Path) -> Iterator[tuple[str, str, bytes]]:
    for folder in sorted(p for p in path.iterdir() if p.is_dir()):
        for file in sorted(folder.iterdir()):
            if file.suffix.lower() in SUFFIXES:
                _validate.regular_file(file)
                yield str(file), folder.name, file.read_bytes()


def _table(path: Path) -> Iterator[tuple[str, str, bytes]]:
    _validate.regular_file(path)
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        _validate.fail(str(path), "a Parquet table", str(error).splitlines()[0])
    column = next((name for name in ("image", "img") if name in table.column_names), None)
    if column is None or "label" not in table.column_names:
        _validate.fail(str(path), "columns image (or img) and label", table.column_names)
    for row, (image, label) in enumerate(
        zip(table[column].to_pylist(), table["label"].to_pylist(), strict=True)
    ):
        content = image.get("bytes") if isinstance(image, dict) else image
        if not isinstance(content, bytes):
            _validate.fail(f"{path}[{row}].{column}", "an encoded image", "none")
        yield f"{path}[{row}]", str(label), content


def _decode(position: str, content: bytes, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    from PIL import Image

    channels, height, width = shape
    try:
        with Image.open(io.BytesIO(content)) as image:
            plain = image.convert("RGB" if channels == 3 else "L")
            sized = plain.resize((width, height), Image.Resampling.BICUBIC)
    except (OSError, ValueError) as error:
        _validate.fail(position, "an image", error)
    pixels: NDArray[np.uint8] = np.asarray(sized, dtype=np.uint8)
    return np.moveaxis(pixels.reshape(height, width, channels), -1, 0)
