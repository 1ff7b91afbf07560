"""Open whatever holds raw records."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from privmix import _validate
from privmix.inputs.labels import BadRecordPolicy, refuse_floats
from privmix.inputs.raw.blocks import Kind, Limits, RawBlock, RawRecords
from privmix.inputs.raw.frames import as_rows, by_position, column_names, is_frame
from privmix.inputs.raw.scans import (
    ImageFolder,
    Items,
    Scan,
    TableRecords,
    open_ipc,
    scan_csv,
    scan_hugging_face,
    scan_ipc,
    scan_parquet,
    scan_table,
)
from privmix.inputs.readers import check_parts, parquet_files
from privmix.schema import TARGETS, Target
from privmix.table_schema import TableSchema

ARROW_SUFFIXES = (".arrow", ".feather", ".ipc")
SUFFIXES = (".parquet", ".csv", *ARROW_SUFFIXES)


def open_records(
    source: Any,
    *,
    kind: Kind,
    column: str | None = None,
    label: str | Sequence[str] | None = None,
    labels: Sequence[Any] | None = None,
    unit_column: str | None = None,
    units: Sequence[Any] | None = None,
    target: Target = "class",
    table: TableSchema | None = None,
    classes: Sequence[int] | Sequence[str] = (),
    on_bad_record: BadRecordPolicy = "error",
    limits: Limits | None = None,
) -> RawRecords:
    """Open raw records for reading in blocks.

    Args:
        source: A path: a folder of images with one folder for each class, a ``.parquet``,
            ``.csv``, ``.arrow``, ``.feather`` or ``.ipc`` file, a folder of Parquet files (at any depth; names that begin
            with a dot or an underscore are left out), or an
            ``.npz`` of images. Or an object: a pandas, polars or Arrow table, a Hugging Face
            ``Dataset``, a PyTorch ``Dataset`` of (record, label) pairs, an array of images, or a
            list of images or texts. A PyTorch data set must return the same record each time, made
            from that record alone: no random augmentation, no scaling by the whole set.
        kind: What a record is: ``image``, ``text`` or ``table``.
        column: The column of images or texts (of an ``.npz``: the array).
        label: The label column (of an ``.npz``: the array); without it there are no labels. For
            other targets than ``class`` also a list of columns, one for each of ``classes``.
        labels: Instead: the labels of an array or list.
        unit_column: The column of the records' owners (of an ``.npz``: the array), integers or
            strings. In a CSV file all are strings.
        units: Instead: the owners of the records of an array or list.
        target: What a label is; see ``Schema``. Folders of images have classes.
        table: The public schema of the columns, for kind ``table``.
        classes: Classes that labels must be among, matched by value; in text-only sources (CSV
            files, folder names) a class is what is written so. Empty: labels are not checked. For
            other targets: what the numbers of a label stand for.
        on_bad_record: ``error`` refuses a bad record and names it; ``zero`` blanks it. Bad are: an
            image that is damaged or beyond ``limits``, a text beyond them or not in UTF-8, a cell
            that is no value of its column, a missing label or one that is no class or no such
            vector, a missing owner.
        limits: Public bounds on a record.

    Raises:
        InvalidInputError: A source that cannot be read as such records. Bad records are met when
            their block is read.

    """
    _validate.one_of("kind", kind, ("image", "text", "table"))
    _validate.one_of("on_bad_record", on_bad_record, ("error", "zero"))
    if (kind == "table") != (table is not None):
        needed = "a table schema" if kind == "table" else "nothing beside another kind than table"
        _validate.fail("table", needed, "none" if table is None else "one")
    _validate.one_of("target", target, TARGETS)
    names = [] if label is None else [label] if isinstance(label, str) else list(label)
    if len(names) > 1 and (target == "class" or len(names) != len(classes)):
        many = "1 column" if target == "class" else f"1 or {len(classes)} columns"
        _validate.fail("label", f"{many} for target {target}", len(names))
    options: dict[str, Any] = {
        "target": target,
        "classes": tuple(classes),
        "on_bad_record": on_bad_record,
        "limits": limits or Limits(),
    }
    columns = {"column": column, "labels": names, "unit": unit_column}
    tabular = {"kind": kind, "table": table, **columns, **options}
    if isinstance(source, str | Path):
        return _open_path(Path(source), kind, options, tabular)
    if labels is not None and names:
        _validate.fail("labels", "nothing beside a label column", "labels")
    if isinstance(source, dict):
        _validate.fail("source", "one data set", f"several: {', '.join(map(str, source))}")
    if hasattr(source, "with_format") and hasattr(source, "select_columns"):
        if not hasattr(source, "__len__"):
            _validate.fail("source", "a data set of known length", "an iterable one")
        used = _used(tabular)
        found = list(source.column_names)
        _refuse_sequences(labels, units)
        scan = scan_hugging_face(source, [n for n in found if n in used])
        return TableRecords(scan, found, len(source), name="dataset", **tabular)
    if is_frame(source):
        _refuse_sequences(labels, units)
        rows = as_rows(source, _used(tabular))
        return TableRecords(
            scan_table(rows), column_names(source), rows.num_rows, name="table", **tabular
        )
    if unit_column is not None:
        _validate.fail("unit_column", "nothing for records without columns", repr(unit_column))
    if target == "class":
        refuse_floats("labels", labels, classes)
    sequences = (by_position(given) for given in (source, labels, units))
    return _open_items(*sequences, kind=kind, options=options)


def _refuse_sequences(labels: Any, units: Any) -> None:
    """Labels and owners of a table are in its columns."""
    for place, given, option in (("labels", labels, "label"), ("units", units, "unit_column")):
        if given is not None:
            _validate.fail(place, f"a column of the table, named by {option}", place)


def _open_items(
    source: Any, labels: Any, units: Any, *, kind: str, options: dict[str, Any]
) -> RawRecords:
    if kind == "table":
        _validate.fail("source", "a table with named columns", type(source).__name__)
    if isinstance(source, bytes) or not (
        hasattr(source, "__len__") and hasattr(source, "__getitem__")
    ):
        _validate.fail("source", "a path, a table or a sequence", type(source).__name__)
    in_memory = isinstance(source, list | tuple | np.ndarray) or hasattr(source, "detach")
    for place, given in (("labels", labels), ("units", units)):
        if not in_memory and given is not None:
            _validate.fail(place, "nothing beside a data set of (record, label) pairs", place)
    return Items(
        source.__getitem__,
        len(source),
        labels=labels,
        units=units,
        paired=not in_memory,
        kind=kind,
        name=f"{kind}s",
        **options,
    )


def _open_path(
    path: Path,
    kind: str,
    options: dict[str, Any],
    tabular: dict[str, Any],
) -> RawRecords:
    if not path.exists():
        _validate.fail(str(path), "an existing file or folder", "no such file")
    if path.is_dir():
        parts = parquet_files(path)
        if not parts and kind == "image":
            named = ("column", "image column"), ("labels", "label"), ("unit", "unit column")
            for key, option in named:
                if tabular[key]:
                    _validate.fail(option, "nothing for a folder of images", repr(tabular[key]))
            if options["target"] != "class":
                _validate.fail("target", "class for a folder of images", options["target"])
            return ImageFolder(path, **options)
        if not parts:
            _validate.fail(str(path), "a folder of Parquet files", "none in it")
    else:
        parts = [path]
    suffix = parts[0].suffix.lower()
    if suffix == ".npz":
        return _open_npz(path, kind, options, tabular)
    if suffix not in SUFFIXES:
        _validate.fail(str(path), f"a file ending in {', '.join(SUFFIXES)}", repr(path.suffix))
    with readable(path, suffix):
        names, count = _facts(parts, suffix, _used(tabular))
        used = [name for name in names if name in _used(tabular)]
    scan: Scan
    if suffix == ".parquet":
        scan = scan_parquet(parts, used)
    elif suffix == ".csv":
        scan = scan_csv(path, used)
    else:
        scan = scan_ipc(path, used)
    return _FileRecords(scan, names, count, name=str(path), untyped=suffix == ".csv", **tabular)


class _FileRecords(TableRecords):
    """Rows of a file; what goes wrong while it is read names the file."""

    def blocks(self, size: int, start: int = 0) -> Iterator[RawBlock]:
        with readable(Path(self.name), Path(self.name).suffix or ".parquet"):
            yield from super().blocks(size, start)


@contextmanager
def readable(path: Path, suffix: str) -> Iterator[None]:
    """Report what Arrow cannot read as an error about the file."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        _validate.fail(str(path), f"a whole {suffix[1:]} table", str(error).splitlines()[0])


def _facts(
    parts: Sequence[Path], suffix: str, used: Collection[str]
) -> tuple[list[str], int | None]:
    """Return a file's column names, and its number of rows where the format states it."""
    schema = column_types(parts[0])
    if suffix == ".parquet":
        check_parts(parts, used)
        return schema.names, sum(pq.read_metadata(part).num_rows for part in parts)
    return schema.names, None


def column_types(path: Path) -> pa.Schema:
    """Return the column names and types of a file of rows, without looking at a single value.

    A CSV file states no types: there every column is ``null``.
    """
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return pq.read_schema(path)
    if suffix == ".csv":
        return pa.schema([pa.field(name, pa.null()) for name in _csv_header(path)])
    with pa.memory_map(str(path)) as source, open_ipc(source) as reader:
        return reader.schema


def _csv_header(path: Path) -> list[str]:
    """Read the first line alone; pyarrow would look on to guess types."""
    import csv

    # Bytes that are no UTF-8 may follow the header: that is for the records' own judgement.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        try:
            names = next(csv.reader(file), [])
        except csv.Error:
            names = []
    if not names or any(not name.strip() for name in names) or all(map(_is_number, names)):
        _validate.fail(str(path), "a first line with the names of the columns", "none")
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        _validate.fail(str(path), "a first line in UTF-8", "other bytes")
    return names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _used(tabular: dict[str, Any]) -> set[str]:
    table: TableSchema | None = tabular["table"]
    wanted = {tabular["column"], *tabular["labels"], tabular["unit"]}
    return wanted | (set() if table is None else {column.name for column in table.columns})


def _open_npz(
    path: Path, kind: str, options: dict[str, Any], tabular: dict[str, Any]
) -> RawRecords:
    if len(tabular["labels"]) > 1:
        _validate.fail("label", "one array of an .npz file", ", ".join(tabular["labels"]))
    keys = (
        ("image column", tabular["column"]),
        ("label", next(iter(tabular["labels"]), None)),
        ("unit column", tabular["unit"]),
    )
    if kind != "image":
        _validate.fail(str(path), f"a file with {kind}s: {', '.join(SUFFIXES)}", ".npz")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            names = list(arrays)
            for option, key in keys:
                if key not in names and not (option != "image column" and key is None):
                    allowed = f"an array of {path}: {', '.join(names)}"
                    _validate.fail(option, allowed, "nothing" if key is None else repr(key))
            images, labels, units = (None if key is None else arrays[key] for _, key in keys)
    except _validate.InvalidInputError:
        raise
    except Exception as error:
        _validate.fail(str(path), "an .npz file without pickled objects", error)
    return _open_items(images, labels, units, kind=kind, options=options)
