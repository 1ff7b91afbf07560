"""Open whatever holds raw records."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from privmix import _validate
from privmix.inputs.arrays import opened_npz
from privmix.inputs.delimited import TEXT_SUFFIXES, read_header, readable, suffix_of
from privmix.inputs.labels import BadRecordPolicy, refuse_floats
from privmix.inputs.parquet import check_parts, parquet_files
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
from privmix.inputs.tally import MAX_BAD_SHARE, MAX_MISSED_SHARE, Shares
from privmix.schema import TARGETS, Target
from privmix.schema.table import TableSchema
from privmix.schema.text_format import PLAIN, TextFormat

ARROW_SUFFIXES = (".arrow", ".feather", ".ipc")
SUFFIXES = (".parquet", *ARROW_SUFFIXES, *TEXT_SUFFIXES)


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
    max_bad_share: float = MAX_BAD_SHARE,
    max_missed_share: float = MAX_MISSED_SHARE,
    limits: Limits | None = None,
    form: TextFormat | None = None,
) -> RawRecords:
    """Open raw records for reading in blocks.

    Args:
        source: A path: a folder of images with one folder for each class, a ``.parquet``,
            ``.arrow``, ``.feather`` or ``.ipc`` file, a ``.csv`` or ``.tsv`` file (also as ``.gz``
            or ``.zst``), a folder of Parquet files (at any depth; names that begin
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
        on_bad_record: ``error`` refuses a bad record and names it; ``zero`` blanks it. A bad record is
            an image that is damaged or beyond ``limits``, a text beyond them or not in UTF-8, a cell
            that is no value of its column, a missing label or one that is no class or no such
            vector, a missing owner.
        max_bad_share: With ``zero``, a larger share of bad records stops the reading.
        max_missed_share: A larger share of a column's values outside the table's schema does too.
        limits: Public bounds on a record.
        form: How a file of delimited text is written; that of ``table`` where there is one.

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
        "shares": Shares(max_bad_share, max_missed_share),
    }
    if form is None:
        form = PLAIN if table is None else table.format
    columns = {"column": column, "labels": names, "unit": unit_column, "form": form}
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
    for position, given, option in (("labels", labels, "label"), ("units", units, "unit_column")):
        if given is not None:
            _validate.fail(position, f"a column of the table, named by {option}", position)


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
    for position, given in (("labels", labels), ("units", units)):
        if not in_memory and given is not None:
            _validate.fail(position, "nothing beside a data set of (record, label) pairs", position)
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
        _validate.regular_file(path)
        parts = [path]
    suffix = suffix_of(parts[0])
    if suffix == ".npz":
        return _open_npz(path, kind, options, tabular)
    if suffix not in SUFFIXES:
        _validate.fail(str(path), f"a file ending in {', '.join(SUFFIXES)}", repr(path.suffix))
    untyped, form = suffix in TEXT_SUFFIXES, tabular["form"]
    with readable(path, suffix):
        names, count = _facts(parts, suffix, _used(tabular), form)
        used = [name for name in names if name in _used(tabular)]
    scan: Scan
    if suffix == ".parquet":
        scan = scan_parquet(parts, used)
    elif untyped:
        scan = scan_csv(path, used, form)
    else:
        scan = scan_ipc(path, used)
    return _FileRecords(scan, names, count, name=str(path), untyped=untyped, **tabular)


class _FileRecords(TableRecords):
    """Rows of a file; what goes wrong while it is read names the file."""

    def _blocks(self, size: int, start: int) -> Iterator[RawBlock]:
        with readable(Path(self.name), suffix_of(Path(self.name)) or ".parquet"):
            yield from super()._blocks(size, start)


def _facts(
    parts: Sequence[Path], suffix: str, used: Collection[str], form: TextFormat
) -> tuple[list[str], int | None]:
    """Return a file's column names, and its number of rows where the format states it."""
    schema = column_types(parts[0], form, used)
    if suffix == ".parquet":
        check_parts(parts, used)
        return schema.names, sum(pq.read_metadata(part).num_rows for part in parts)
    return schema.names, None


def column_types(path: Path, form: TextFormat = PLAIN, wanted: Collection[str] = ()) -> pa.Schema:
    """Return the column names and types of a file of rows, without looking at a single value.

    A file of delimited text states no types: there every column is ``null``. Of ``wanted`` columns
    at least one must be there: otherwise its first line may be a record.
    """
    suffix = suffix_of(path)
    if suffix == ".parquet":
        return pq.read_schema(path)
    if suffix in TEXT_SUFFIXES:
        names = read_header(path, form, wanted)
        return pa.schema([pa.field(name, pa.null()) for name in names])
    with pa.memory_map(str(path)) as source, open_ipc(source) as reader:
        return reader.schema


def _used(tabular: dict[str, Any]) -> set[str]:
    table: TableSchema | None = tabular["table"]
    wanted = {tabular["column"], *tabular["labels"], tabular["unit"]} - {None}
    return wanted | (set() if table is None else {column.name for column in table.columns})


def _open_npz(
    path: Path, kind: str, options: dict[str, Any], tabular: dict[str, Any]
) -> RawRecords:
    if len(tabular["labels"]) > 1:
        _validate.fail("label", "one array of an .npz file", ", ".join(tabular["labels"]))
    if kind != "image":
        _validate.fail(str(path), f"a file with {kind}s: {', '.join(SUFFIXES)}", ".npz")
    keys = (tabular["column"], next(iter(tabular["labels"]), None), tabular["unit"])
    named = list(zip(("image column", "label", "unit column"), keys, strict=True))
    with opened_npz(
        path, [named[0], *(pair for pair in named[1:] if pair[1] is not None)]
    ) as arrays:
        images, labels, units = (None if key is None else arrays[key] for key in keys)
    return _open_items(images, labels, units, kind=kind, options=options)
