"""Where raw records come from: folders of images, tables, and sequences in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privmix import _validate
from privmix.inputs import delimited, parquet
from privmix.inputs.delimited import fail_column
from privmix.inputs.labels import BadRecordPolicy, refuse_floats
from privmix.inputs.raw.blocks import BadRecord, Limits, RawBlock, RawRecords, decoded, python_value
from privmix.inputs.raw.cells import blank_rows, read_cells
from privmix.inputs.raw.frames import Rows, without_dictionary
from privmix.inputs.raw.images import to_image
from privmix.inputs.raw.texts import to_text
from privmix.inputs.tally import Shares
from privmix.schema import Target
from privmix.schema.table import TableSchema
from privmix.schema.text_format import PLAIN, TextFormat

# Opens a source and yields its rows from a position on, as tables of any length.
Scan = Callable[[int], Iterator[pa.Table | Rows]]

_BATCH_ROWS = 256
_IMAGE_ROWS = 128  # of encoded images, held at once
_TABLE_CELLS = 1 << 21  # of a table, read at once
_TABLE_ROWS = 1 << 14


class _Source(RawRecords):
    """What all sources share: their policy, and the conversion of an item of their kind."""

    def __init__(
        self,
        kind: str,
        name: str,
        classes: Sequence[int] | Sequence[str],
        on_bad_record: BadRecordPolicy,
        limits: Limits,
        target: Target = "class",
        shares: Shares | None = None,
    ) -> None:
        self.kind = kind  # type: ignore[assignment]
        self.target = target
        self._name = name
        self.shares = shares or Shares()
        self.classes = classes
        self.on_bad_record = on_bad_record
        self.limits = limits
        self.count = None

    @property
    def name(self) -> str:
        """What errors call the source."""
        return self._name

    def _convert(self, item: Any) -> Any:
        if isinstance(item, BadRecord):
            raise item
        return (to_image if self.kind == "image" else to_text)(item, self.limits)


class ImageFolder(_Source):
    """Images in one folder for each class, in the order of their paths.

    Every file in a class folder is a record, at any depth; names that begin with a dot are not
    looked at. The class is the folder's name.
    """

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__("image", str(folder), **options)
        entries = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
        stray = [path.name for path in entries if not path.is_dir()]
        if stray:
            _validate.fail(f"{folder}", "a folder for each class and no file beside", stray[0])
        written = {str(value): value for value in self.classes}
        self._paths = [path for entry in entries for path in _files(entry)]
        self._labels = [
            written.get(name, name)
            for name in (path.relative_to(folder).parts[0] for path in self._paths)
        ]
        if not self._paths:
            _validate.fail(f"{folder}", "class folders with images", "no file")
        self.count = len(self._paths)

    def _blocks(self, size: int, start: int) -> Iterator[RawBlock]:
        for first in range(start, len(self._paths), size):
            chosen = slice(first, first + size)
            yield from self._judge(first, self._paths[chosen], self._convert, self._labels[chosen])

    def position(self, index: int) -> str:
        """Say where a record is found."""
        # Bytes that are not UTF-8 as they can be printed.
        return str(self._paths[index]).encode(errors="backslashreplace").decode()


def _files(folder: Path) -> list[Path]:
    found = []
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(base, name) for name in names if not name.startswith(".")]
    return sorted(found)


class Items(_Source):
    """Images or texts in a sequence: a list, an array, or a PyTorch data set of pairs.

    Args:
        item: Returns item ``index``, or a pair of item and label if ``paired``.
        count: How many there are.
        labels: Their labels, unless paired.
        units: Their owners, unless paired.

    """

    def __init__(
        self,
        item: Callable[[int], Any],
        count: int,
        *,
        labels: Sequence[Any] | None,
        units: Sequence[Any] | None = None,
        paired: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if count == 0:
            _validate.fail(self.name, "at least one record", "none")
        for position, given in (("labels", labels), ("units", units)):
            if given is not None and len(given) != count:
                _validate.fail(position, f"one for each of the {count} records", len(given))
        self._item, self._labels, self._units, self._paired = item, labels, units, paired
        self.count = count

    def _blocks(self, size: int, start: int) -> Iterator[RawBlock]:
        assert self.count is not None
        for first in range(start, self.count, size):
            rows = range(first, min(first + size, self.count))
            items = [self._get(row) for row in rows]
            labels: Sequence[Any] | None = None
            units = None if self._units is None else [_scalar(self._units[row]) for row in rows]
            if self._paired:
                labels = [_scalar(pair[1]) for pair in items]
                items = [pair[0] for pair in items]
            elif self._labels is not None:
                labels = [_scalar(self._labels[row]) for row in rows]
            yield from self._judge(first, items, self._convert, labels, units)

    def _get(self, row: int) -> Any:
        if not self._paired:
            return self._item(row)
        try:
            image, label = self._item(row)
        except Exception as error:  # a data set's own code on a damaged record
            reason = f"{type(error).__name__}: {error}"
            return BadRecord("a pair of record and label", reason), None
        return image, label

    def position(self, index: int) -> str:
        """Say where a record is found."""
        return f"{self.name}[{index}]"


class TableRecords(_Source):
    """Records in the rows of a table: a column of images or texts, or the schema's columns.

    Args:
        scan: Opens the source.
        names: Its columns.
        count: Its number of rows, where known.
        column: The column of images or texts.
        labels: The label columns: none, one, or one for each number of a label vector.
        unit: The column of owners, or None.
        table: The schema of the columns, for kind ``table``.
        untyped: Whether the source holds text only, so that the class 7 is written 7.
        form: How cells are written where they are text.

    """

    def __init__(
        self,
        scan: Scan,
        names: Sequence[str],
        count: int | None,
        *,
        column: str | None,
        labels: Sequence[str],
        unit: str | None,
        table: TableSchema | None,
        untyped: bool = False,
        form: TextFormat = PLAIN,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._counts_cells = self.kind == "table"
        self._reads_on = self.kind != "image"
        self._form = form
        self._column, self._labels, self._unit_column = column, tuple(labels), unit
        self._table = table
        self._scan, self.count = scan, count
        self._written = {str(value): value for value in self.classes} if untyped else {}
        self._untyped = untyped
        if len(set(names)) != len(names):
            _validate.fail(self.name, "columns with distinct names", "a repeated name")
        aside = [("label", label) for label in labels] + [("unit column", unit)]
        asked = [(f"{self.kind} column", column), *aside]
        asked += [
            ("schema.table.columns", c.name) for c in (() if table is None else table.columns)
        ]
        known = not untyped or any(name in names for _, name in asked)
        for option, wanted in asked:
            if wanted is not None and wanted not in names:
                fail_column(option, self.name, names, wanted, known)
        if table is not None:
            for option, name in aside:
                if name in {c.name for c in table.columns}:
                    allowed = f"no feature that is the {option}: delete the line of {name!r}"
                    _validate.fail("schema.table.columns", allowed, repr(name))
        elif column is None:
            _validate.fail(f"{self.kind} column", f"a column of {self.name}", "nothing")
        if count == 0:
            _validate.fail(self.name, "at least one record", "none")

    @property
    def used(self) -> list[str]:
        """The columns that are read."""
        wanted = [self._column] if self._table is None else [c.name for c in self._table.columns]
        return [name for name in [*wanted, *self._labels, self._unit_column] if name is not None]

    def _blocks(self, size: int, start: int) -> Iterator[RawBlock]:
        position = start
        if self.kind == "image":
            size = min(size, _IMAGE_ROWS)
        rows_read = size
        if self._table is not None:  # many at once, which is quicker
            fit = _TABLE_CELLS // len(self._table.columns)
            rows_read = max(1, min(fit, _TABLE_ROWS) // size) * size
        for rows in _rebatch(self._scan(start), rows_read):
            yield from self._rows(position, rows, size)
            position += rows.num_rows
        if position == start == 0:
            _validate.fail(self.name, "at least one record", "none")

    def _rows(self, start: int, rows: pa.Table | Rows, size: int) -> Iterator[RawBlock]:
        labels: Sequence[Any] | None = None
        if self._labels:
            if self.target == "class":
                refuse_floats(self._field("label"), rows[self._labels[0]], self.classes)
            columns = [_values(rows[name], "label") for name in self._labels]
            labels = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        units = None if self._unit_column is None else _values(rows[self._unit_column], "unit")
        if self._table is None:
            assert self._column is not None
            items = _values(rows[self._column])
            yield from self._judge(start, items, self._convert, labels, units)
            return
        cells, wrong = self._cells(start, rows, self._table)
        for first in range(0, rows.num_rows, size):
            chosen = slice(first, first + size)
            some = cells.slice(first, size)
            (block,) = self._judge(
                start + first,
                range(first, first + some.num_rows),
                lambda row: _raise(wrong, row),
                None if labels is None else labels[chosen],
                None if units is None else units[chosen],
            )
            yield block._replace(records=blank_rows(some, block.bad))

    def _cells(
        self, start: int, rows: pa.Table | Rows, schema: TableSchema
    ) -> tuple[pa.Table, dict[int, BadRecord]]:
        """Read the cells of some rows, and count them."""
        cells = read_cells(rows, schema)
        for name, read in cells.columns.items():
            self.tally.add_values(name, read.num_values, read.num_missed, read.hint)
            if read.wrong:
                row = min(read.wrong)
                problem, position = read.wrong[row], self.position(start + row)
                self.tally.add_bad(name, len(read.wrong), position, problem.expected, problem.got)
        return cells.table, cells.wrong

    def _label(self, label: Any) -> Any:
        if isinstance(label, tuple):  # of several columns
            return super()._label([self._read_label(value) for value in label])
        return super()._label(self._read_label(label))

    def _unit(self, index: int, value: Any) -> int | str:
        return super()._unit(index, self._bare(decoded(value, "unit")))

    def _bare(self, value: Any) -> Any:
        return value.strip() if self._form.strip and isinstance(value, str) else value

    def _read_label(self, value: Any) -> Any:
        value = self._bare(decoded(value, "label"))
        if not self._untyped:
            return value
        return self._written.get(value, value or None)  # an empty cell is no label

    def _field(self, field: str) -> str:
        if field == "unit":
            return f"unit column {self._unit_column!r}"
        if field == "label" and len(self._labels) == 1:
            return f"label column {self._labels[0]!r}"
        return field

    def position(self, index: int) -> str:
        """Say where a record is found."""
        return f"{self.name}[{index}]" + ("" if self._column is None else f", {self._column}")


def _raise(wrong: dict[int, BadRecord], row: int) -> None:
    if row in wrong:
        raise wrong[row]


def _values(column: pa.ChunkedArray | NDArray[Any], field: str = "") -> list[Any]:
    """Return a column's values; for one that Python cannot hold, what is wrong with it."""
    if isinstance(column, np.ndarray):
        return list(column)

    def value_or_problem(scalar: pa.Scalar) -> Any:
        try:
            return python_value(scalar, field)
        except BadRecord as problem:
            return problem

    return [value_or_problem(scalar) for scalar in without_dictionary(column)]


def _scalar(value: Any) -> Any:
    """Return a NumPy or PyTorch scalar as a Python one."""
    return value.tolist() if hasattr(value, "tolist") else value


def _rebatch(tables: Iterator[pa.Table | Rows], size: int) -> Iterator[pa.Table | Rows]:
    """Cut a stream of tables into tables of ``size`` rows; the last may be shorter."""
    held: list[Any] = []
    rows = 0
    for table in tables:
        held.append(table)
        rows += table.num_rows
        while rows >= size:
            whole = _whole(held)
            yield whole.slice(0, size)
            held = [whole.slice(size)]
            rows -= size
    if rows:
        yield _whole(held)


def _whole(tables: list[Any]) -> pa.Table | Rows:
    # Of two files of a folder one may say that a column has no nulls.
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="default")


def _from(tables: Iterator[pa.Table], start: int) -> Iterator[pa.Table]:
    """Leave out the first ``start`` rows."""
    for table in tables:
        if start < table.num_rows:
            yield table.slice(start)
        start = max(0, start - table.num_rows)


def scan_parquet(paths: Sequence[Path], columns: Sequence[str]) -> Scan:
    """Scan Parquet files in order; whole row groups before the start are not read."""

    def scan(start: int) -> Iterator[pa.Table]:
        for _, _, table in parquet.scan_parquet(paths, columns, start, batch_rows=_BATCH_ROWS):
            yield table

    return scan


def scan_csv(path: Path, columns: Sequence[str], form: TextFormat = PLAIN) -> Scan:
    """Scan a file of delimited text."""
    return lambda start: _from(delimited.scan_text(path, columns, form), start)


def scan_ipc(path: Path, columns: Sequence[str]) -> Scan:
    """Scan an Arrow file, in the file format (also called Feather) or the stream format."""

    def scan(start: int) -> Iterator[pa.Table]:
        with pa.memory_map(str(path)) as source, open_ipc(source) as reader:
            batches = (
                (reader.get_batch(i) for i in range(reader.num_record_batches))
                if hasattr(reader, "num_record_batches")
                else iter(reader)
            )
            yield from _from((pa.Table.from_batches([b.select(columns)]) for b in batches), start)

    return scan


def open_ipc(source: Any) -> Any:
    """Open an Arrow file of either format."""
    try:
        return pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_stream(source)


def scan_table(table: pa.Table | Rows) -> Scan:
    """Scan a table in memory."""
    return lambda start: iter([table.slice(start)] if start < table.num_rows else [])


def scan_hugging_face(dataset: Any, columns: Sequence[str]) -> Scan:
    """Scan a Hugging Face data set; images stay encoded."""
    rows = dataset.select_columns(list(columns)).with_format("arrow")

    def scan(start: int) -> Iterator[pa.Table]:
        for first in range(start, len(rows), _BATCH_ROWS):
            yield rows[first : first + _BATCH_ROWS]

    return scan
