"""Read the cells of a table by its public schema, value by value.

What a cell means depends on its value and its column's description alone: types are never inferred
from the data, so that one odd cell cannot change how the others are read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privmix import _validate
from privmix.inputs.labels import EXACT_TYPES, FIRST_ROUNDED, is_rounded, refuse_floats
from privmix.inputs.raw.blocks import BadRecord, decoded, python_value, shown, to_number
from privmix.inputs.raw.frames import Rows, without_dictionary
from privmix.table_schema import (
    BooleanColumn,
    CategoricalColumn,
    Column,
    DatetimeColumn,
    NumericColumn,
    OrdinalColumn,
    TableSchema,
)

MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "NULL", "null"})
_TRUE = frozenset({"true", "t", "yes", "y", "1"})
_FALSE = frozenset({"false", "f", "no", "n", "0"})
# What Arrow's cells are in Python; an object of another class may look like any of them.
_PLAIN = (str, bool, int, float, Decimal, date, type(None))
_KINDS = (
    (NumericColumn, pa.float64()),
    (BooleanColumn, pa.bool_()),
    (DatetimeColumn, pa.timestamp("us", "UTC")),
    (CategoricalColumn, pa.string()),
    (OrdinalColumn, pa.string()),
)


def read_cells(
    table: pa.Table | Rows, schema: TableSchema
) -> tuple[pa.Table, dict[int, BadRecord]]:
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


def _read_column(
    cells: pa.ChunkedArray | NDArray[Any], column: Column
) -> tuple[pa.Array, dict[int, BadRecord]]:
    refuse_floats(column.name, cells, _integers(column))
    kind = next(arrow for python, arrow in _KINDS if isinstance(column, python))
    if isinstance(cells, np.ndarray):  # of objects, each read as what it is
        values, problems = _read_values(cells, column)
        found = {row: problem for row, problem in enumerate(problems) if problem is not None}
        return pa.array(values, type=kind), found
    coded = _plain(cells, column).dictionary_encode()
    # The last stands for nulls.
    values, problems = _read_values([*coded.dictionary, pa.scalar(None)], column)
    codes = coded.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False)
    read = pa.array(values, type=kind).take(pa.array(codes))
    is_bad = np.array([problem is not None for problem in problems])
    wrong = {int(row): problems[codes[row]] for row in np.flatnonzero(is_bad[codes])}
    return read, {row: problem for row, problem in wrong.items() if problem is not None}


def _read_values(cells: Iterable[Any], column: Column) -> tuple[list[Any], list[BadRecord | None]]:
    """Read cells, or Arrow's scalars, one by one; a bad one is None, with what is wrong with it."""
    values: list[Any] = []
    problems: list[BadRecord | None] = []
    for cell in cells:
        try:
            value = python_value(cell, column.name) if isinstance(cell, pa.Scalar) else cell
            values.append(read_value(value, column))
            problems.append(None)
        except BadRecord as problem:
            values.append(None)
            problems.append(problem)
    return values, problems


def _plain(cells: pa.ChunkedArray, column: Column) -> pa.Array:
    """Return one array of a type that Python has values of."""
    cells = without_dictionary(cells)
    kind = cells.type
    if pa.types.is_null(kind) or pa.types.is_string_view(kind):
        cells = cells.cast(pa.string())
    elif pa.types.is_timestamp(kind) and kind.unit == "ns":  # what is below a microsecond is cut
        universal = cells.cast(pa.timestamp("ns", "UTC"))  # where no hour is there twice
        cut = _microseconds(universal.cast(pa.int64()))
        cells = cut.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us", kind.tz))
    elif (
        isinstance(kind, pa.BaseExtensionType)
        or pa.types.is_nested(kind)
        or pa.types.is_time(kind)
        or pa.types.is_duration(kind)
    ):
        _validate.fail(column.name, "a column of numbers, texts, booleans or dates", f"{kind}")
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells


def _microseconds(nanoseconds: pa.ChunkedArray) -> pa.ChunkedArray:
    """Divide by 1000, rounding down; Arrow's own rounding overflows at the earliest times."""
    quotients = pc.divide(nanoseconds, 1000)
    above = pc.greater(pc.multiply(quotients, 1000), nanoseconds)
    return pc.subtract(quotients, above.cast(pa.int64()))


def read_value(value: object, column: Column) -> float | str | bool | datetime | None:
    """Read one cell; None is a missing value.

    Raises:
        BadRecord: A value that the column's type does not have, or a missing one where the column
            allows none.

    """
    value = decoded(value, column.name)
    if not isinstance(value, _PLAIN) or (type(value) is int and value.bit_length() > 1024):
        raise BadRecord("a number, a text, a truth value or a date", _type(value), column.name)
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
        if is_rounded(value) and _needs_all_digits(column):
            allowed = f"{EXACT_TYPES} from 2^53 on"
            raise BadRecord(allowed, f"the floating-point number {value}", column.name)
        return text
    if isinstance(column, NumericColumn):
        return to_number(value, column.name)
    if isinstance(column, BooleanColumn):
        return _boolean(str(text), column.name)
    return _time(value, column.name)


def _integers(column: Column) -> list[int]:
    """Return the categories that are integers; for hashed ones, a large one that may be there."""
    if isinstance(column, CategoricalColumn) and column.categories is None:
        return [FIRST_ROUNDED]
    categories: Iterable[str] = getattr(column, "categories", None) or ()
    return [int(text) for text in categories if re.fullmatch("-?[0-9]{1,100}", text)]


def _needs_all_digits(column: CategoricalColumn | OrdinalColumn) -> bool:
    """Whether large integers are told apart: where texts are hashed, or one is a category.

    Elsewhere they are all unknown, rounded or not.
    """
    return any(abs(n) >= FIRST_ROUNDED for n in _integers(column))


def _type(value: object) -> str:
    return f"a value of type {type(value).__name__}"


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
        raise BadRecord("true or false", shown(text), name)
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
    raise BadRecord("an ISO 8601 date or time", shown(value), name)
