"""Read the cells of a table by its public schema, value by value.

What a cell means depends on its value and its column's description alone: types are never inferred
from the data, so that one odd cell cannot change how the others are read.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privmix import _validate
from privmix.columns import (
    BooleanColumn,
    CategoricalColumn,
    Column,
    DatetimeColumn,
    NumericColumn,
    OrdinalColumn,
    TableSchema,
)
from privmix.raw.records import BadRecord, decoded, python_value, to_number

MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "NULL", "null"})
_TRUE = frozenset({"true", "t", "yes", "y", "1"})
_FALSE = frozenset({"false", "f", "no", "n", "0"})
_KINDS = (
    (NumericColumn, pa.float64()),
    (BooleanColumn, pa.bool_()),
    (DatetimeColumn, pa.timestamp("us", "UTC")),
    (CategoricalColumn, pa.string()),
    (OrdinalColumn, pa.string()),
)


def read_cells(table: pa.Table, schema: TableSchema) -> tuple[pa.Table, dict[int, BadRecord]]:
    """Return the schema's columns in their types, with nulls for what is missing.

    Numbers become float64, dates and times UTC timestamps, categories the texts that stand for
    them. Reading the result again changes nothing.

    Returns:
        The columns, and for each bad row what is wrong with it; a bad cell is null.

    Raises:
        InvalidInputError: A column that is not there, or of a type without meaning here.

    """
    columns: dict[str, pa.Array] = {}
    bad: dict[int, BadRecord] = {}
    for column in schema.columns:
        if column.name not in table.column_names:
            shown = ", ".join(table.column_names[:8])
            _validate.fail("columns", f"the table's columns: {shown}", repr(column.name))
        columns[column.name], wrong = _read_column(table[column.name], column)
        for row, problem in wrong.items():
            bad.setdefault(row, problem)
    return pa.table(columns), bad


def blank_rows(table: pa.Table, bad: NDArray[np.bool_]) -> pa.Table:
    """Return the table with all cells of the bad rows null."""
    if not bad.any():
        return table
    fine = pa.array(~bad)
    columns = [pc.if_else(fine, column, pa.scalar(None, column.type)) for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _read_column(cells: pa.ChunkedArray, column: Column) -> tuple[pa.Array, dict[int, BadRecord]]:
    kind = next(arrow for python, arrow in _KINDS if isinstance(column, python))
    flat = _plain(cells, column)
    coded = flat.dictionary_encode()
    values: list[Any] = []
    problems: list[BadRecord | None] = []
    for scalar in [*coded.dictionary, pa.scalar(None)]:  # the last stands for nulls
        try:
            values.append(read_value(python_value(scalar, column.name), column))
            problems.append(None)
        except BadRecord as problem:
            values.append(None)
            problems.append(problem)
    codes = coded.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False)
    read = pa.array(values, type=kind).take(pa.array(codes))
    is_bad = np.array([problem is not None for problem in problems])
    wrong = {int(row): problems[codes[row]] for row in np.flatnonzero(is_bad[codes])}
    return read, {row: problem for row, problem in wrong.items() if problem is not None}


def _plain(cells: pa.ChunkedArray, column: Column) -> pa.Array:
    """Return one array of a type that Python has values of."""
    kind = cells.type
    if pa.types.is_dictionary(kind):
        cells, kind = cells.cast(kind.value_type), kind.value_type
    if pa.types.is_null(kind) or pa.types.is_string_view(kind):
        cells = cells.cast(pa.string())
    elif pa.types.is_timestamp(kind) and kind.unit == "ns":  # what is below a microsecond is cut
        cells = cells.cast(pa.timestamp("us", kind.tz), safe=False)
    elif pa.types.is_nested(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
        _validate.fail(column.name, "a column of numbers, texts, booleans or dates", f"{kind}")
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells


def read_value(value: object, column: Column) -> float | str | bool | datetime | None:
    """Read one cell; None is a missing value.

    Raises:
        BadRecord: A value that the column's type does not have, or a missing one where the column
            allows none.

    """
    value = decoded(value, column.name)
    known = getattr(column, "categories", None) or ()
    text = _text(value)
    missing = text is None or (
        text not in known and (text in MISSING or text in column.missing_values)
    )
    if not missing and isinstance(column, OrdinalColumn):
        missing = text not in known
    if missing:
        if not column.nullable:
            raise BadRecord("a value (the column is not nullable)", "nothing", column.name)
        return None
    if isinstance(column, CategoricalColumn | OrdinalColumn):
        return text
    if isinstance(column, NumericColumn):
        return to_number(value, column.name)
    if isinstance(column, BooleanColumn):
        return _boolean(str(text), column.name)
    return _time(value, column.name)


def _text(value: object) -> str | None:
    """Write a value as a category: 3, 3.0 and "3" are the same."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _boolean(text: str, name: str) -> bool:
    lower = text.strip().lower()
    if lower not in _TRUE and lower not in _FALSE:
        raise BadRecord("true or false", repr(text)[:80], name)
    return lower in _TRUE


def _time(value: object, name: str) -> datetime:
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day)
        if isinstance(value, datetime):
            return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        pass
    raise BadRecord("an ISO 8601 date or time", repr(value)[:80], name)
