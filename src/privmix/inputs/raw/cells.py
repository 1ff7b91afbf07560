"""Read the cells of a table by its public schema, value by value.

What a cell means depends on its value and its column's description alone: types are never inferred
from the data, so that one odd cell cannot change how the others are read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privmix import _validate
from privmix.inputs.delimited import plain_numbers, without_marks
from privmix.inputs.labels import EXACT_TYPES, FIRST_ROUNDED, is_rounded, refuse_floats
from privmix.inputs.missing import MISSING
from privmix.inputs.raw.blocks import BadRecord, decoded, python_value, shown, to_number
from privmix.inputs.raw.frames import Rows, without_dictionary
from privmix.schema.table import (
    BooleanColumn,
    CategoricalColumn,
    Column,
    DatetimeColumn,
    NumericColumn,
    OrdinalColumn,
    TableSchema,
)
from privmix.schema.text_format import PLAIN, TextFormat

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
# The years of Python, in microseconds since 1970.
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_999
_HINTED = 1000  # distinct values among which a reason is looked for


class Read(NamedTuple):
    """A column's values, and what is told of them.

    Attributes:
        values: In the column's type; null for what is missing or bad.
        wrong: The bad cells, by row.
        num_values: How many cells have something in them that is not bad.
        num_missed: How many of those miss the schema: categories that it does not list, numbers
            and times beyond its bounds.
        hint: What may be the reason.

    """

    values: pa.Array
    wrong: dict[int, BadRecord]
    num_values: int
    num_missed: int
    hint: str = ""


class Cells(NamedTuple):
    """The columns of a table, and for each bad row what is wrong with it."""

    table: pa.Table
    wrong: dict[int, BadRecord]
    columns: dict[str, Read]


def read_cells(table: pa.Table | Rows, schema: TableSchema) -> Cells:
    """Return the schema's columns in their types, with nulls for what is missing.

    Numbers become float64, dates and times UTC timestamps, categories the texts that stand for
    them. Reading the result again changes nothing.

    Raises:
        InvalidInputError: A column that is not there, or of a type without meaning here.

    """
    columns: dict[str, Read] = {}
    bad: dict[int, BadRecord] = {}
    for column in schema.columns:
        if column.name not in table.column_names:
            names = table.column_names
            shown = ", ".join(names[:8]) + ", ..." * (len(names) > 8)
            allowed = f"a column {column.name!r}, as the schema has it"
            _validate.fail("columns", allowed, f"only {shown}" if names else "none")
        read = _read_column(table[column.name], column, schema.format)
        columns[column.name] = read
        for row, problem in read.wrong.items():
            bad.setdefault(row, problem)
    return Cells(pa.table({name: read.values for name, read in columns.items()}), bad, columns)


def blank_rows(table: pa.Table, bad: NDArray[np.bool_]) -> pa.Table:
    """Return the table with all cells of the bad rows null."""
    if not bad.any():
        return table
    fine = pa.array(~bad)
    columns = [pc.if_else(fine, column, pa.scalar(None, column.type)) for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _read_column(cells: pa.ChunkedArray | NDArray[Any], column: Column, form: TextFormat) -> Read:
    refuse_floats(column.name, cells, _integers(column))
    kind = next(arrow for python, arrow in _KINDS if isinstance(column, python))
    if isinstance(cells, np.ndarray):  # of objects, each read as what it is
        found = _read_values(cells, column, form)
        wrong = {row: p for row, p in enumerate(found.problems) if p is not None}
        values = pa.array(found.values, type=kind)
        return _judged(values, wrong, int(np.sum(found.unlisted)), column)
    plain = _plain(cells, column)
    values, done = _read_at_once(plain, column, form)
    if values is not None and done.all():
        return _judged(values, {}, 0, column)
    rest = plain if values is None else plain.filter(pa.array(~done))
    coded = rest.dictionary_encode()
    # The last stands for nulls.
    found = _read_values([*coded.dictionary, pa.scalar(None)], column, form)
    codes = coded.indices.fill_null(len(found.values) - 1).to_numpy(zero_copy_only=False)
    others = pa.array(found.values, type=kind).take(pa.array(codes))
    rows = np.flatnonzero(~done)
    is_bad = np.array([problem is not None for problem in found.problems])[codes]
    wrong = {
        int(row): found.problems[code]
        for row, code in zip(rows[is_bad], codes[is_bad], strict=True)
    }
    unlisted = int(np.array(found.unlisted)[codes].sum())
    values = others if values is None else pc.replace_with_mask(values, pa.array(~done), others)
    return _judged(values, {r: p for r, p in wrong.items() if p is not None}, unlisted, column)


def _read_at_once(
    cells: pa.Array, column: Column, form: TextFormat
) -> tuple[pa.Array | None, NDArray[np.bool_]]:
    """Read the cells that need no rule of their own, with the result that :func:`read_value` has.

    Returns:
        The column's values, or None, and which of them are read.

    """
    kind, types = cells.type, pa.types
    if isinstance(column, NumericColumn):
        if types.is_floating(kind) or types.is_integer(kind):
            numbers = cells.cast(pa.float64(), safe=False).fill_null(math.nan).to_numpy()
            done = np.isfinite(numbers)
            for text in column.missing_values:
                done &= numbers != _float_or_nan(text)
            return pa.array(numbers), done
        if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind):
            numbers, done = plain_numbers(cells, form.decimal, but=column.missing_values)
            return pa.array(numbers), done
    elif column.missing_values:
        pass
    elif isinstance(column, BooleanColumn) and types.is_boolean(kind):
        return cells, np.asarray(cells.is_valid().to_numpy(zero_copy_only=False))
    elif isinstance(column, DatetimeColumn) and kind == pa.timestamp("us", "UTC"):
        moments = cells.cast(pa.int64()).fill_null(_LAST_TIME + 1).to_numpy()
        return cells, (moments >= _FIRST_TIME) & (moments <= _LAST_TIME)
    return None, np.zeros(len(cells), dtype=bool)


def _float_or_nan(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _judged(values: pa.Array, wrong: dict[int, BadRecord], unlisted: int, column: Column) -> Read:
    """Count the values that miss the schema; ``unlisted`` are those that became missing by it."""
    there = len(values) - values.null_count
    if isinstance(column, NumericColumn | DatetimeColumn):
        if isinstance(column, DatetimeColumn):
            numbers = values.cast(pa.int64()).drop_null().to_numpy() / 1e6
        else:
            numbers = values.drop_null().to_numpy()
        lower, upper = column.limits
        return Read(values, wrong, there, int(((numbers < lower) | (numbers > upper)).sum()))
    if isinstance(column, CategoricalColumn) and column.categories is not None:
        listed = pc.is_in(values, pa.array(column.categories, pa.string()), skip_nulls=True)
        missed = values.filter(pc.and_(values.is_valid(), pc.invert(listed)))
        hint = _hint(missed, column.categories) if len(missed) else ""
        return Read(values, wrong, there, len(missed), hint)
    return Read(values, wrong, there + unlisted, unlisted)


def _hint(missed: pa.Array, categories: Sequence[str]) -> str:
    """Say what would make categories of values that are none."""
    texts = missed.unique().to_pylist()[:_HINTED]
    known = set(categories)
    if any(text.strip() in known for text in texts):
        return 'blanks around cells: "format": {"strip": true} takes them off'
    short = {text.lstrip("0") for text in categories if text.startswith("0") and text.isdigit()}
    if any(text in short for text in texts):
        return "leading zeros are gone: write the column as text"
    return ""


class _Values(NamedTuple):
    values: list[Any]
    problems: list[BadRecord | None]
    unlisted: list[bool]


def _read_values(cells: Iterable[Any], column: Column, form: TextFormat) -> _Values:
    """Read cells, or Arrow's scalars, one by one; a bad one is None, with what is wrong with it.

    An ordinal value that is missing although there is something is not listed.
    """
    found = _Values([], [], [])
    ordinal = isinstance(column, OrdinalColumn)
    for cell in cells:
        value, problem, unlisted = None, None, False
        try:
            cell = python_value(cell, column.name) if isinstance(cell, pa.Scalar) else cell
            value = read_value(cell, column, form)
            unlisted = ordinal and value is None and not _means_missing(cell, column, form)
        except BadRecord as bad:
            problem = bad
        found.values.append(value)
        found.problems.append(problem)
        found.unlisted.append(unlisted)
    return found


def _means_missing(cell: object, column: Column, form: TextFormat) -> bool:
    text = _text(_stripped(decoded(cell), form))
    return text is None or text in MISSING or text in column.missing_values


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


def read_value(
    value: object, column: Column, form: TextFormat = PLAIN
) -> float | str | bool | datetime | None:
    """Read one cell; None is a missing value.

    Raises:
        BadRecord: A value that the column's type does not have, or a missing one where the column
            allows none.

    """
    value = _stripped(decoded(value, column.name), form)
    if not isinstance(value, _PLAIN) or (type(value) is int and value.bit_length() > 1024):
        raise BadRecord("a number, a text, a truth value or a date", _type(value), column.name)
    known = getattr(column, "categories", None) or ()
    text = _text(value)
    missing = text is None or (
        text not in known and (text in MISSING or text in column.missing_values)
    )
    if not missing and isinstance(column, OrdinalColumn) and text not in known:
        if not column.nullable:
            allowed = f"one of the {len(known)} categories (the column is not nullable)"
            raise BadRecord(allowed, shown(text), column.name)
        missing = True
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
        return _number(value, column, form)
    if isinstance(column, BooleanColumn):
        return _boolean(str(text), column)
    return _time(value, column)


def _stripped(value: object, form: TextFormat) -> object:
    return value.strip() if form.strip and isinstance(value, str) else value


def _integers(column: Column) -> list[int]:
    """Return the categories that are integers; for hashed ones and times, a large one that may be there."""
    if isinstance(column, CategoricalColumn) and column.categories is None:
        return [FIRST_ROUNDED]
    if isinstance(column, DatetimeColumn) and column.format is not None:
        latest = datetime.max.strftime(column.format)
        return [int(latest)] if re.fullmatch("[0-9]{1,100}", latest) else []
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


def _number(value: object, column: NumericColumn, form: TextFormat) -> float:
    """Read a number; a text by the marks and symbols that are declared."""
    if not isinstance(value, str):
        return to_number(value, column.name)
    try:
        text = _without_symbols(value.strip(), column.symbols)
        if form.thousands or form.decimal != ".":
            text = without_marks(text, form)
        return to_number(text, column.name)
    except (BadRecord, ValueError) as problem:
        finite = isinstance(problem, BadRecord) and problem.expected != "a number"
        allowed = problem.expected if finite else f"a number {_such_as_number(column, form)}"  # type: ignore[union-attr]
        raise BadRecord(allowed + _remedy(value), shown(value), column.name) from None


def _without_symbols(text: str, symbols: Sequence[str]) -> str:
    sign, bare = "", text
    if symbols and text[:1] in ("-", "+"):
        sign, bare = text[0], text[1:].lstrip()
    for symbol in symbols:
        if bare.startswith(symbol) or bare.endswith(symbol):
            bare = bare.removeprefix(symbol).removesuffix(symbol).strip()
    return sign + bare


def _such_as_number(column: NumericColumn, form: TextFormat) -> str:
    whole = f"1{form.thousands}234" if form.thousands else "1234"
    symbol = column.symbols[0] if column.symbols else ""
    return f"such as {symbol}{whole}{form.decimal}5"


def _remedy(text: str) -> str:
    """Say which line of the schema may be missing."""
    if not any(c.isdigit() for c in text):
        return ', or a text in the column\'s "missing_values" where it means that there is none'
    return (
        '; "format" (decimal, thousands) and the column\'s "symbols" and "missing_values" declare '
        "other ways of writing"
    )


def _boolean(text: str, column: BooleanColumn) -> bool:
    lower = text.strip().lower()
    if lower not in _TRUE and lower not in _FALSE:
        allowed = 'true or false, or a text in the column\'s "missing_values"'
        raise BadRecord(allowed, shown(text), column.name)
    return lower in _TRUE


def _time(value: object, column: DatetimeColumn) -> datetime:
    form = column.format
    try:
        # One missing value makes doubles of a column's integers.
        if isinstance(value, float | Decimal) and -1e40 < value < 1e40 and value % 1 == 0:
            value = int(value)
        if form is not None and isinstance(value, str | int) and not isinstance(value, bool):
            value = datetime.strptime(str(value).strip(), form)
        elif isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day)
        if isinstance(value, datetime):
            return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    except (ValueError, ArithmeticError):  # beyond Python's years; a decimal that is no number
        pass
    allowed = f"an ISO 8601 date or time such as {column.earliest}"
    if form is not None:
        moment = datetime.fromisoformat(column.earliest)
        allowed = f"a date or time such as {moment.strftime(form)}"
    if isinstance(value, str) and not any(c.isdigit() for c in value):
        allowed += ', or a text in the column\'s "missing_values"'
    elif form is None:
        allowed += ' (the column\'s "format", such as "%d.%m.%Y", declares another)'
    raise BadRecord(allowed, shown(value), column.name)
