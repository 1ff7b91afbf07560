"""The parts of a release folder: their layout, names, columns and digests.

A folder holds ``certificate.json``, the dataset card ``README.md`` and Parquet parts under
``data/``. Every published value is a fixed function of one released integer.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privmix.mechanism import ReleaseConfig
from privmix.mixer import Rows
from privmix.publishing.certificate import FILE_NAME, SIGNATURE_NAME
from privmix.running.journal import sync
from privmix.sampling import RowBlock

DATA_DIR = "data"


_PART_BYTES = 64 << 20


# Names of a hybrid release's tables in its ``component`` column.
COMPONENTS = ("class_sums", "mixtures")


Piece = tuple[int, RowBlock]


Part = tuple[int, list[Piece]]  # its number, and what it holds


def part_layout(mechanism: ReleaseConfig) -> list[list[Piece]]:
    """Divide the (table, block) pieces of a release into parts of bounded size, in order.

    The layout follows from the mechanism alone, so that a part can be made again by itself.
    """
    parts: list[list[Piece]] = [[]]
    size = 0
    for table, config in enumerate(mechanism.components):
        for block in config.blocks:
            if size >= _PART_BYTES:
                parts.append([])
                size = 0
            parts[-1].append((table, block))
            size += 4 * block.num_rows * config.row_width
    return parts


def part_name(number: int) -> str:
    """Return the name of a part below the release folder."""
    return f"{DATA_DIR}/part-{number:05d}.parquet"


class _DigestingFile(io.RawIOBase):
    """A file that is written from front to back, and the SHA-256 of what was written.

    The digest is of the bytes that were meant, whatever the disk makes of them.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._file = os.fdopen(os.open(path, flags, 0o644), "wb")
        self._hasher = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._hasher.update(content)
        return self._file.write(content)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        if not self._file.closed:
            self._file.flush()

    def close(self) -> None:
        if not self._file.closed:
            self._file.close()
        super().close()

    @property
    def digest(self) -> str:
        return self._hasher.hexdigest()


def write_part(
    path: Path,
    mechanism: ReleaseConfig,
    pieces: Iterable[tuple[int, Rows]],
    record: Callable[[str], object] = lambda digest: None,
) -> None:
    """Write one Parquet part from its pieces of (table, rows), whole or not at all.

    Args:
        path: The part.
        mechanism: What is released.
        pieces: What is in it.
        record: Told the part's SHA-256 before the part gets its name.

    """
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    with _DigestingFile(temporary) as file:
        _write_pieces(file, mechanism, pieces)
    sync(temporary)
    record(file.digest)
    temporary.rename(path)
    sync(path.parent)


def part_bytes(mechanism: ReleaseConfig, pieces: Iterable[tuple[int, Rows]]) -> bytes:
    """Return what :func:`write_part` writes."""
    sink = io.BytesIO()
    _write_pieces(sink, mechanism, pieces)
    return sink.getvalue()


def _write_pieces(
    sink: io.RawIOBase | io.BytesIO, mechanism: ReleaseConfig, pieces: Iterable[tuple[int, Rows]]
) -> None:
    schema = _columns(mechanism)
    # Noise does not compress; plain pages are the fastest to write and to read.
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(sink, schema, **options) as writer:
        for table, rows in pieces:
            arrays = [_column(name, table, rows) for name in schema.names]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _column(name: str, table: int, rows: Rows) -> pa.Array:
    count = len(rows.features)
    if name == "component":
        return pa.array([COMPONENTS[table]] * count)
    if name == "label":
        return pa.array([None] * count if rows.labels is None else rows.labels, pa.int64())
    return _vectors(getattr(rows, name))


def _columns(mechanism: ReleaseConfig) -> pa.Schema:
    features = pa.field("features", _vector_type(mechanism.num_features), nullable=False)
    if len(mechanism.components) > 1:
        component = pa.field("component", pa.string(), nullable=False)
        return pa.schema([component, features, pa.field("label", pa.int64())])
    if mechanism.components[0].labels == "public":
        return pa.schema([features, pa.field("label", pa.int64(), nullable=False)])
    weights = _vector_type(mechanism.num_classes)
    return pa.schema([features, pa.field("label_weights", weights, nullable=False)])


def _vector_type(width: int) -> pa.DataType:
    # The child is named as Parquet readers name it, so that files and tables agree.
    return pa.list_(pa.field("element", pa.float32(), nullable=False), width)


def _vectors(rows: NDArray[np.float32] | None) -> pa.Array:
    assert rows is not None
    flat = pa.array(np.ascontiguousarray(rows).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, type=_vector_type(rows.shape[1]))


def file_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below ``folder`` except the certificate and its signature.

    Whatever is no regular file (a link, a pipe, a folder that has no place in a release) is listed
    with a remark in place of a digest. Links are never followed.
    """
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if stat.S_ISREG(path.lstat().st_mode):
            found[name] = _file_digest(path)
        elif path.is_symlink() or not (path.is_dir() and name == DATA_DIR):
            found[name] = "no regular file"
    for name in (FILE_NAME, SIGNATURE_NAME):
        if found.get(name) != "no regular file":
            found.pop(name, None)
    return found


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_part_name(name: str) -> bool:
    """Whether a file of a release, by its path below the folder, is a part."""
    return re.fullmatch(DATA_DIR + r"/part-\d{5,}\.parquet", name) is not None


def part_problem(path: Path, mechanism: ReleaseConfig) -> str | None:
    """Say what is wrong with a part's columns or with facts attached to them, if anything is."""
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        return str(error).splitlines()[0]
    if schema.metadata or not schema.equals(_columns(mechanism)):
        return "other columns than those of its design"
    return None
