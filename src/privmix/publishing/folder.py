"""The parts of a release folder: their layout, names, columns and digests.

A folder holds ``certificate.json``, the dataset card ``README.md`` and Parquet parts under
``data/``. Every published value is a fixed function of one released integer.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privmix import _validate
from privmix.foreign.files import Entries, ForeignFolder
from privmix.mechanism import ReleaseConfig, ResidualConfig, TableConfig
from privmix.mixer import Rows
from privmix.publishing.certificate import FILE_NAME, SIGNATURE_NAME
from privmix.publishing.parquet_layout import Column, LayoutError, check_layout, size_bounds
from privmix.publishing.sealing import Sealable
from privmix.running.durable import remove_unfinished, sync, write_durably
from privmix.sampling import RowBlock

DATA_DIR = "data"


_PART_BYTES = 64 << 20


# Names of a release's tables in its ``component`` column, by the design of a release of several.
COMPONENTS = {
    "hybrid": ("class_sums", "mixtures"),
    "adaptive": ("mixtures", "residuals", "weights"),
}
# Number of the third of them: a round's public weights, which carry no noise, before its rows.
WEIGHTS = 2


TableBlock = tuple[int, RowBlock]


Part = tuple[int, list[TableBlock]]  # its number, and what it holds


def part_layout(mechanism: ReleaseConfig) -> list[list[TableBlock]]:
    """Divide the (table, block) pairs of a release into parts of bounded size, in order.

    The layout follows from the mechanism alone, so that a part can be made again by itself. A round
    (``adaptive``) is a part, since all others before it must be there first.
    """
    parts: list[list[TableBlock]] = [[]]
    size = 0
    tables: tuple[TableConfig, ...] = mechanism.components
    for table, config in enumerate(tables):
        for block in config.blocks:
            if size >= _PART_BYTES or (size and config.design == "residual"):
                parts.append([])
                size = 0
            if config.design == "residual":
                parts[-1].append((WEIGHTS, block))
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
    blocks: Iterable[tuple[int, Rows]],
    record: Callable[[str], object] = lambda digest: None,
) -> None:
    """Write one Parquet part from its blocks of (table, rows), whole or not at all.

    Args:
        path: The part.
        mechanism: What is released.
        blocks: What is in it.
        record: Told the part's SHA-256 before the part gets its name.

    """
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    with _DigestingFile(temporary) as file:
        _write_row_groups(file, mechanism, blocks)
    sync(temporary)
    record(file.digest)
    temporary.rename(path)
    sync(path.parent)


def part_features(folder: Path, number: int) -> Iterator[NDArray[np.float32]]:
    """Yield the features of each block of a part of one's own, in order."""
    with pq.ParquetFile(folder / part_name(number)) as file:
        for block in range(file.num_row_groups):
            column = file.read_row_group(block, columns=["features"]).column(0).combine_chunks()
            yield column.flatten().to_numpy().reshape(len(column), -1)


def part_bytes(mechanism: ReleaseConfig, blocks: Iterable[tuple[int, Rows]]) -> bytes:
    """Return what :func:`write_part` writes."""
    sink = io.BytesIO()
    _write_row_groups(sink, mechanism, blocks)
    return sink.getvalue()


def _write_row_groups(
    sink: io.RawIOBase | io.BytesIO, mechanism: ReleaseConfig, blocks: Iterable[tuple[int, Rows]]
) -> None:
    schema, names = _columns(mechanism), COMPONENTS.get(mechanism.design, ())
    # Noise does not compress; plain pages are the fastest to write and to read.
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(sink, schema, **options) as writer:
        for table, rows in blocks:
            arrays = [_column(name, names, table, rows) for name in schema.names]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _column(name: str, names: tuple[str, ...], table: int, rows: Rows) -> pa.Array:
    count = len(rows.features)
    if name == "component":
        return pa.array([names[table]] * count)
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
    """Return the SHA-256 of every file below a folder of one's own, except the certificate and its
    signature.

    Raises:
        InvalidInputError: Something in it is neither a regular file nor a folder. A stranger's folder
            is compared by :func:`check_listed`.

    """
    opened = ForeignFolder(folder)
    entries = opened.entries()
    if entries.others:
        _validate.fail(opened.position(min(entries.others)), "a regular file", "a link or a device")
    names = sorted(entries.files.keys() - {FILE_NAME, SIGNATURE_NAME})
    return {name: opened.digest(name) for name in names}


def seal_folder(
    folder: Path,
    certificate: Sealable,
    due: Callable[[str], str | None],
    elsewhere: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Write the certificate of a folder's files, which makes the folder whole; return its digest.

    Args:
        folder: A folder of one's own. What the disk has must be what was written.
        certificate: What is certified, but for the files.
        due: The SHA-256 that a file of this name was written with; None for one that was not.
        elsewhere: Digests of files of the same whole that are elsewhere.

    Raises:
        InvalidInputError: A file is not as it was written.

    """
    remove_unfinished(folder)
    found = file_digests(folder)
    for name, digest in found.items():
        if digest != due(name):
            allowed = "a file as this run wrote it; resume (--resume) makes it again"
            _validate.fail(str(folder / name), allowed, "another file")
    files = dict(sorted({**found, **elsewhere}.items()))
    sealed = certificate.sealed(private=certificate.private, files=files)
    write_durably(folder / FILE_NAME, sealed.to_bytes())
    return sealed.digest()


def check_listed(
    folder: ForeignFolder,
    stated: Mapping[str, str],
    what: str,
    bounds: Mapping[str, tuple[int, int]],
) -> list[str]:
    """Compare the files of a stranger's folder with their digests; a line for each that differs.

    A file is read only if it is a regular one of a size that it can have. Certificate and signature are
    looked at elsewhere, whatever has their names.

    Args:
        folder: The folder.
        stated: SHA-256 of each file but the certificate, as the certificate has it.
        what: What the folder is, for the lines.
        bounds: Least and most bytes of every file that there can be.

    """
    entries = folder.entries()
    found = set(entries.files) - {FILE_NAME, SIGNATURE_NAME}
    others = set(entries.others) - {SIGNATURE_NAME}
    gone = stated.keys() - found - others
    reasons = [f"{name}: missing" for name in sorted(gone)]
    reasons += [f"{name}: no regular file" for name in sorted(others)]
    due = set(stated)
    strange = (found - (due & bounds.keys())) | _other_folders(entries, due)
    reasons += [f"{name}: not part of the {what}" for name in sorted(strange)]
    for name in sorted(found - strange):
        least, most = bounds[name]
        if not least <= entries.files[name] <= most:
            allowed = f"{most}" if least == most else f"{least} to {most}"
            size = entries.files[name]
            reasons.append(f"{name}: {size} bytes, where the certificate implies {allowed}")
        elif folder.digest(name) != stated[name]:
            reasons.append(f"{name}: changed since the {what} was sealed")
    return reasons


def _other_folders(entries: Entries, stated: set[str]) -> set[str]:
    """Return the folders that no stated file is in."""
    return {name for name in entries.folders if not any(f.startswith(f"{name}/") for f in stated)}


def is_part_name(name: str) -> bool:
    """Whether a file of a release, by its path below the folder, is a part."""
    return re.fullmatch(DATA_DIR + r"/part-[0-9]{5,}\.parquet", name) is not None


def least_part_bytes(mechanism: ReleaseConfig) -> int:
    """Return how many bytes the numbers of all parts take, without laying the parts out."""
    tables: tuple[TableConfig, ...] = mechanism.components
    return sum(4 * part.num_mixtures * part.row_width for part in tables)


def part_bounds(mechanism: ReleaseConfig) -> dict[str, tuple[int, int]]:
    """Return the least and the most bytes of each part, by name."""
    return {
        part_name(number): size_bounds([_row_group(mechanism, *block) for block in blocks])
        for number, blocks in enumerate(part_layout(mechanism))
    }


def part_problem(
    folder: ForeignFolder, name: str, mechanism: ReleaseConfig, blocks: list[TableBlock]
) -> str | None:
    """Say where a part differs from what the plan's writer makes of its rows, if it does.

    Everything is checked but the published numbers themselves: columns, labels, nulls, groups of
    rows, and that no byte is there for anything else.
    """
    try:
        with folder.open(name) as file:
            columns = [_row_group(mechanism, *block) for block in blocks]
            check_layout(file, _columns(mechanism), columns)
    except LayoutError as error:
        return str(error)
    return None


def _row_group(mechanism: ReleaseConfig, table: int, block: RowBlock) -> list[Column]:
    """Describe the columns of a row group as :func:`_write_row_groups` writes them."""
    tables: tuple[TableConfig, ...] = mechanism.components
    config, rows = tables[min(table, 1)], block.num_rows  # weights are laid out as their rows
    features = Column(rows, 4 * rows * config.num_features, config.num_features)
    if config.labels == "mixed":
        return [features, Column(rows, 4 * rows * config.num_classes, config.num_classes)]
    classes = np.full(rows, block.class_index or 0, dtype="<i8")
    if isinstance(config, ResidualConfig):
        classes = np.arange(rows, dtype="<i8")
    label = classes.tobytes()
    if len(mechanism.components) == 1:
        return [features, Column(rows, label)]
    name = COMPONENTS[mechanism.design][table].encode()
    names = Column(rows, (len(name).to_bytes(4, "little") + name) * rows)
    known = config.labels == "public"
    return [names, features, Column(rows, label if known else b"", present=known)]
