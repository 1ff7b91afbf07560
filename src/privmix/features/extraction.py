"""Extract the features of raw records into a Parquet file, so that a cut-off run goes on.

Features are made in parts of a fixed number of records. A part is named by a hash of its records, the
extractor and the machine's libraries and threads, and is used again only where that is the same.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privmix import _validate
from privmix.inputs.extractor import FEATURES_KEY, Extractor, FeaturesHeader, Progress
from privmix.inputs.owners import match_units
from privmix.inputs.raw import RawBlock, RawRecords
from privmix.running.durable import name_anew, sync
from privmix.running.finished import read_checked, warn_of_damage, write_checked
from privmix.running.journal import check_private, lock_folder

PART_RECORDS = 512
_KEY_BYTES = 32
# What extractors decode, tokenise and compute with, where it is installed.
_LIBRARIES = ("kymatio", "pillow", "sentence-transformers", "timm", "tokenizers", "transformers")


class Extracted(NamedTuple):
    """Private counts of an extraction: records, and how many of them were bad and blanked."""

    num_records: int
    num_bad: int


def extract(
    records: RawRecords,
    extractor: Extractor,
    out: str | Path,
    *,
    label: str | Sequence[str] = "label",
    unit: str = "unit",
    labels_as_text: bool = False,
    keep_parts: bool = False,
    replace: bool = True,
    progress: Progress | None = None,
) -> Extracted:
    """Write the features of raw records to a Parquet file, whole or not at all.

    Run again after it was cut off, it goes on from the parts that are there, to the same bytes. A
    bad record under the policy ``zero`` becomes a zero vector without a label or an owner.

    Args:
        records: Records of the extractor's kind.
        extractor: The extractor.
        out: A ``.parquet`` file; replaced if it exists. Its columns: ``features``, the labels and
            the owners.
        label: Name of the label column; of the columns, for labels that are vectors.
        unit: Name of the column of owners.
        labels_as_text: Note in the file that labels are texts of classes.
        keep_parts: Keep the parts, for another run of the same kind.
        replace: Whether a file of this name may be replaced, also one that appears meanwhile.
        progress: Called with (records done, records in all or None) as features are made, first
            before any is; not for parts of an earlier run.

    Returns:
        The counts, for the data holder's eyes only.

    Raises:
        InvalidInputError: A bad record under the policy ``error``, no record at all, or a path that
            cannot be written to. Parts that are there by then stay, and the error has a note of it.

    """
    out = Path(out).absolute()
    taken = out.exists() and not out.is_file()  # by a folder, a pipe, a device
    if out.suffix != ".parquet" or taken or not out.parent.is_dir():
        _validate.fail(f"out={out}", "a .parquet file in an existing folder", "another")
    if records.kind != extractor.kind:
        _validate.fail("records", f"records of kind {extractor.kind}", records.kind)
    names = [label] if isinstance(label, str) else list(label)
    if len({*names, unit, "features"}) != len(names) + 2:
        allowed = "distinct names, none of them features"
        _validate.fail("label, unit", allowed, ", ".join([*names, unit]))
    context = _context(extractor)
    labels: list[NDArray[Any]] = []
    units: list[NDArray[Any]] = []
    counts = Extracted(0, 0)
    with _parts_folder(out) as folder:
        paths = []
        for number, block in enumerate(records.blocks(PART_RECORDS)):
            path, done = folder / f"{number:08d}", counts.num_records
            _make_part(path, block, extractor, context, _shifted(progress, done, records.count))
            paths.append(path)
            counts = Extracted(
                counts.num_records + len(block.bad), counts.num_bad + int(block.bad.sum())
            )
            labels += [] if block.labels is None else [block.labels]
            units += [] if block.units is None else [block.units]
        if not paths:
            _validate.fail("records", "at least one record", "none")
        header = FeaturesHeader(extractor=extractor.identity, labels_as_text=labels_as_text)
        columns = _label_columns(labels, names) | _unit_columns(units, unit)
        _assemble(out, paths, header, extractor.num_features, columns, replace)
        if not keep_parts:
            shutil.rmtree(folder)
    return counts


def parts_folder(out: Path) -> Path:
    """Return where the parts of a file in the making are kept."""
    return out.parent / f".{out.name}.parts"


@contextmanager
def _parts_folder(out: Path) -> Iterator[Path]:
    """Make the folder, readable by its owner alone, and keep other runs out of it."""
    folder = parts_folder(out)
    check_private(folder, out)
    found = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    others = [name for name in found if name != "lock" and not re.match(r"[0-9]+(\.|$)", name)]
    if others:  # it is removed in the end
        allowed = f"a path beside which {folder.name} is free for parts"
        _validate.fail(f"out={out}", allowed, "other files")
    lock = lock_folder(folder, out)
    try:
        yield folder
    except BaseException as error:
        if any(folder.glob("0*")):
            error.add_note(
                f"private features of the records before are kept in {folder}, and extracting to the "
                "same file goes on from them; remove that folder if you will not"
            )
        else:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def _context(extractor: Extractor) -> bytes:
    """Hash what decides the bits of features besides the record."""
    facts: list[object] = [extractor.identity.digest, platform.machine(), np.__version__]
    facts += [(name, _version(name)) for name in _LIBRARIES]
    torch = sys.modules.get("torch")
    if torch is not None:
        device = getattr(extractor, "device", None)
        facts += [torch.__version__, torch.get_num_threads(), torch.cuda.is_available(), device]
    return hashlib.sha256(repr(facts).encode()).digest()


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def _shifted(progress: Progress | None, before: int, total: int | None) -> Progress:
    """Return a callback for one part, which counts from the first record on."""
    return lambda done, _: None if progress is None else progress(before + done, total)


def _make_part(
    path: Path, block: RawBlock, extractor: Extractor, context: bytes, progress: Progress
) -> None:
    """Write the features of a block under its key, unless they are there."""
    key = _key(block, context)
    found = _checked_part(path)
    if (
        found is not None
        and found[0] == key
        and found[1].size == len(block.bad) * (extractor.num_features)
    ):
        return
    progress(0, None)
    made = extractor.transform(block.records, progress)
    features = np.ascontiguousarray(made, dtype=np.float32)
    if features.shape != (len(block.bad), extractor.num_features):
        allowed = f"shape {(len(block.bad), extractor.num_features)} from its transform"
        _validate.fail(f"extractor {extractor.identity.name}", allowed, features.shape)
    write_checked(path, key + features.tobytes())


def _checked_part(path: Path) -> tuple[bytes, NDArray[np.float32]] | None:
    """Return the key and the features of a part; None where there is none, or a damaged one."""
    content = read_checked(path)
    if content is None:
        if path.exists() or path.is_symlink():
            warn_of_damage(f"{path.parent.name}/{path.name}")
        return None
    return content[:_KEY_BYTES], np.frombuffer(content, np.float32, offset=_KEY_BYTES)


def _key(block: RawBlock, context: bytes) -> bytes:
    hasher = hashlib.sha256(context)
    if isinstance(block.records, pa.Table):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, block.records.schema) as writer:
            writer.write_table(block.records.combine_chunks())
        hasher.update(sink.getvalue())
        return hasher.digest()
    for record in block.records:
        if record is None:
            hasher.update(b"none;")
        elif isinstance(record, str):
            text = record.encode()
            hasher.update(b"text %d;" % len(text) + text)
        else:
            array = np.ascontiguousarray(record)
            hasher.update(f"{array.dtype.str} {array.shape};".encode())
            hasher.update(array.data)
    return hasher.digest()


def _label_columns(labels: list[NDArray[Any]], names: list[str]) -> dict[str, pa.Array]:
    """Return the labels as columns by name: one for classes, one for each number of a vector."""
    if not labels:
        return {}
    whole = np.concatenate(labels)
    if whole.ndim == 2:
        return {name: pa.array(column) for name, column in zip(names, whole.T, strict=True)}
    kinds = {type(label) for label in whole.tolist() if label is not None}
    if len(kinds) > 1:  # Arrow would refuse them, or change some
        received = " and ".join(sorted(kind.__name__ for kind in kinds))
        _validate.fail("labels", "labels of one type, or classes to match them with", received)
    try:
        return {names[0]: pa.array(whole.tolist())}
    except OverflowError:
        large = next(i for i, n in enumerate(whole) if n is not None and not _fits(n))
        allowed = "integers of at most 64 bits, or classes to match labels with"
        _validate.fail(f"labels[{large}]", allowed, "a larger integer")
    except pa.ArrowException:
        _validate.fail("labels", "integers or strings", f"values of type {kinds.pop().__name__}")


def _fits(label: int) -> bool:
    return -(2**63) <= label < 2**63


def _unit_columns(units: list[NDArray[Any]], name: str) -> dict[str, pa.Array]:
    if not units:
        return {}
    whole = np.concatenate(units)
    match_units(whole, strict=False)  # integers and strings together are refused, in its words
    try:
        return {name: pa.array(whole.tolist())}
    except OverflowError:
        _validate.fail("units", "integers of at most 64 bits, or strings", "a larger integer")


def _assemble(
    out: Path,
    paths: list[Path],
    header: FeaturesHeader,
    width: int,
    columns: dict[str, pa.Array],
    replace: bool,
) -> None:
    """Write the parts as row groups of one file, and move it into place."""
    vectors = pa.list_(pa.field("element", pa.float32(), nullable=False), width)
    fields = [pa.field("features", vectors, nullable=False)]
    fields += [pa.field(name, column.type) for name, column in columns.items()]
    schema = pa.schema(fields, metadata={FEATURES_KEY: header.model_dump_json()})
    temporary = out.with_name(f".{out.name}.tmp")
    temporary.unlink(missing_ok=True)
    # A file of its own, whatever has its name meanwhile, for its owner alone: features are private.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    done = 0
    with os.fdopen(handle, "wb") as file, pq.ParquetWriter(file, schema, **options) as writer:
        for path in paths:
            part = _checked_part(path)
            if part is None:
                allowed = "a part as it was written; another run makes it again"
                _validate.fail(str(path), allowed, "a damaged one")
            flat = part[1]
            count = len(flat) // width
            arrays = [pa.FixedSizeListArray.from_arrays(pa.array(flat), type=vectors)]
            arrays += [column.slice(done, count) for column in columns.values()]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            done += count
    sync(temporary)
    if replace:
        temporary.replace(out)
    else:
        _name_anew(temporary, out)
    sync(out.parent)


def _name_anew(temporary: Path, out: Path) -> None:
    """Give a finished file its name, in one step, unless there is such a file by now."""
    try:
        name_anew(temporary, out)
    except FileExistsError:
        _validate.fail(f"out={out}", "a new file", "one that exists now")
    finally:
        temporary.unlink(missing_ok=True)


def transform_records(
    records: RawRecords, extractor: Extractor, progress: Progress | None = None
) -> tuple[NDArray[np.float32], NDArray[Any] | None]:
    """Return (count, num_features) features and (count,) labels of raw records, in memory."""
    features, labels = [], []
    done = 0
    for block in records.blocks(PART_RECORDS):
        tell = _shifted(progress, done, records.count)
        tell(0, None)
        features.append(extractor.transform(block.records, tell))
        labels.append(block.labels)
        done += len(block.bad)
    if not features:
        _validate.fail("records", "at least one record", "none")
    known = [part for part in labels if part is not None]
    return np.concatenate(features), np.concatenate(known) if known else None
