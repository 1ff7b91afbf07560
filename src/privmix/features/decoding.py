"""From vectors back to the rows of a table, by the public schema of its columns."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privmix.features.number_curves import Curve, bin_noise, number_curves
from privmix.schema.table import (
    BooleanColumn,
    CategoricalColumn,
    Column,
    DatetimeColumn,
    NumericColumn,
    ScaledColumn,
    TableSchema,
)

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Indices = NDArray[np.int64]

_MICROSECONDS = 1e6
_SWEEPS = 6
# Beyond so many categories their shares are left as the vectors have them.
_MOST_MATCHED = 64
_NEVER = -1e9
# pandas' names of a NumPy type, and of its own that knows missing values.
_PANDAS_KINDS = {"object": ("unicode", "str"), "datetime64[us]": ("datetime", "datetime64[us]")}
_PANDAS_NULLABLE = {"int64": "Int64", "bool": "boolean"}


def cannot_decode(schema: TableSchema) -> str | None:
    """Say why vectors of a schema do not show a row, or return None."""
    if schema.fourier is not None:
        return "random Fourier features cannot be undone"
    for column in schema.columns:
        if isinstance(column, CategoricalColumn) and column.categories is None:
            return "hashed categories cannot be undone"
    return None


def exact_coordinates(schema: TableSchema) -> NDArray[np.bool_]:
    """Mark coordinates of columns whose part of a vector has norm 1, whatever the value."""
    marks: list[bool] = []
    for column in schema.columns:
        exact = isinstance(column, BooleanColumn) or (
            isinstance(column, CategoricalColumn) and column.unknown == "other"
        )
        marks += [exact] * column.width
    return np.array(marks + [True] * schema.constant, dtype=bool)


def constant_weights(schema: TableSchema) -> Vector | None:
    """Return (width,) weights that make 1 of the coordinates of any row with a value, if there are such.

    One-hot columns that have a place for every category add up to 1, with the place of a missing value, and so do
    bins. Those of few coordinates count most, so that as little noise as can be adds up.
    """
    if schema.fourier is not None:
        return None
    weights, start, total = np.zeros(schema.num_features), 0, 0.0
    for column in schema.columns:
        part = slice(start, start + column.width)
        if isinstance(column, ScaledColumn) and column.num_bins:
            part = slice(start + 1, start + column.width)
        elif not (isinstance(column, CategoricalColumn) and column.unknown == "other"):
            part = slice(start, start)
        start += column.width
        count = part.stop - part.start
        if count:
            weights[part] = 1 / count
            total += 1 / count
    if schema.constant:
        weights[-1] = 1.0
        total += 1.0
    return weights / total if total else None


@dataclass(frozen=True)
class _Choice:
    """How a column chooses among its categories, or between a value and none.

    Attributes:
        column: The column.
        start: Its first coordinate.
        biases: (groups, J) what is added to the scores of a group's records before the largest wins.
        curves: Of each group, or one for all: coordinates, rising, and the numbers between the bounds, -1 and 1,
            that they lead to; a line between any two, and beyond the last no further.

    """

    column: Column
    start: int
    biases: Matrix
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class TableDecoder:
    """Turns vectors into rows whose values are all within the schema's bounds and categories.

    A category is the one of largest coordinate, after biases that give every category the share that
    its coordinate has on average, within each group of records: coordinates of one-hot columns average
    to shares, the largest coordinate alone would favour the frequent. Numbers, times and ranks that have bins lie as
    the bins' shares say. Others are clamped, after a shift and a stretch with which clamped ones have the
    mean and the spread that the vectors have.
    A value beyond the categories (``other``) has no text, so that one of the categories stands in.

    Attributes:
        schema: The columns.

    """

    schema: TableSchema
    choices: tuple[_Choice, ...]

    @classmethod
    def fit(
        cls,
        schema: TableSchema,
        vectors: Matrix,
        groups: Indices,
        num_groups: int,
        weights: NDArray[np.float64],
    ) -> Self:
        """Match shares on vectors of the kind to be decoded.

        Args:
            schema: The columns; see :func:`cannot_decode`.
            vectors: (count, width) vectors.
            groups: (count,) group of each vector, such as its class.
            num_groups: Number of groups.
            weights: (count,) what each vector counts among all, adding up to 1.

        """
        choices, start = [], 0
        totals = np.bincount(groups, weights, num_groups).astype(np.float64)
        noise = bin_noise(schema, vectors, groups, num_groups)
        for column in schema.columns:
            scores = _scores(column, vectors[:, start : start + column.width])
            members = [scores[groups == group] for group in range(num_groups)]
            means = [(part if len(part) else scores).mean(axis=0) for part in members]
            shares = _shares(np.array(means), totals, column.nullable)
            biases = np.array([_biases(p, s) for p, s in zip(members, shares, strict=True)])
            curves: tuple[Curve, ...] = ()
            if isinstance(column, ScaledColumn):
                there = np.ones(len(groups), dtype=bool)
                if column.nullable:
                    there = (scores + biases[groups]).argmax(axis=1) == 0
                values = vectors[:, start : start + column.width]
                curves = number_curves(column, values, groups, weights, there, noise)
            choices.append(_Choice(column, start, biases, curves))
            start += column.width
        return cls(schema, tuple(choices))

    def decode(self, vectors: Matrix, groups: Indices) -> pa.Table:
        """Return the rows of (count, width) vectors of the given groups, an Arrow table."""
        values = [_values(choice, vectors, groups) for choice in self.choices]
        fields = [
            pa.field(choice.column.name, cells.type, nullable=choice.column.nullable)
            for choice, cells in zip(self.choices, values, strict=True)
        ]
        return pa.table(values, schema=pa.schema(fields))


def as_decoded(cells: pa.Table, schema: TableSchema) -> pa.Table:
    """Return cells that were read by the schema in the form of decoded rows, with pandas' types.

    Types are those of decoded rows, numbers and times are clamped to their bounds. Categories that are not
    listed stay the texts that they are, and are missing in a column whose categories are integers.
    """
    columns = [_formed(cells[column.name].combine_chunks(), column) for column in schema.columns]
    fields = [
        pa.field(column.name, found.type, nullable=column.nullable or found.null_count > 0)
        for column, found in zip(schema.columns, columns, strict=True)
    ]
    table = pa.table(columns, schema=pa.schema(fields))
    return table.replace_schema_metadata(pandas_types(table.schema))


def _formed(values: pa.Array, column: Column) -> pa.Array:
    missing = values.is_null().to_numpy(zero_copy_only=False)
    if isinstance(column, NumericColumn):
        return _numbers(column, np.clip(values.fill_null(0.0).to_numpy(), *column.limits), missing)
    if isinstance(column, DatetimeColumn):
        seconds = values.cast(pa.int64()).fill_null(0).to_numpy() / _MICROSECONDS
        return _times(column, np.clip(seconds, *column.limits), missing)
    if isinstance(column, BooleanColumn) or not _are_integers(column.categories):
        return values
    coded = values.dictionary_encode()
    texts = coded.dictionary.to_pylist()
    numbers = pa.array([int(text) if _is_integer(text) else None for text in texts], pa.int64())
    return numbers.take(coded.indices)


def pandas_types(schema: pa.Schema) -> dict[bytes, bytes]:
    """Return Arrow metadata by which pandas keeps integers and booleans with missing values what they are.

    Which columns these are follows from which may be missing, not from which are in one draw.
    """
    columns = []
    for field in schema:
        name = np.dtype(field.type.to_pandas_dtype()).name
        kind, own = _PANDAS_KINDS.get(name, (name, name))
        own = _PANDAS_NULLABLE.get(name, own) if field.nullable else own
        columns.append(
            {"name": field.name, "pandas_type": kind, "numpy_type": own, "metadata": None}
        )
    stated = {"index_columns": [], "column_indexes": [], "columns": columns}
    return {b"pandas": json.dumps(stated).encode()}


def _scores(column: Column, part: Matrix) -> Matrix:
    """Return (count, J) scores of what a cell can be, whose means are shares; missing is last."""
    missing = part[:, -1:] if column.nullable else np.zeros((len(part), 0))
    absent = missing if column.nullable else 0.0
    if isinstance(column, CategoricalColumn):
        assert column.categories is not None
        return np.hstack([part[:, : len(column.categories)], missing])
    if isinstance(column, BooleanColumn):
        value = part[:, :1]
        return np.hstack([(1 - absent - value) / 2, (1 - absent + value) / 2, missing])
    there = np.ones((len(part), 1)) - absent
    return np.hstack([there, missing])


def _shares(means: Matrix, weights: NDArray[np.float64], nullable: bool) -> Matrix:
    """Return (groups, J) shares, none negative, from the scores' means; missing is last.

    Shares of missing values average to that of all groups together, where noise is least: cut off
    at 0 in each group, noise would add up, and leave holes in a column that has none. What is too much is
    taken from all alike, so that a group that misses many keeps most of them.
    """
    values = np.maximum(means[:, :-1] if nullable else means, 0.0)
    values[values.sum(axis=1) <= 0] = 1.0
    values /= values.sum(axis=1, keepdims=True)
    if not nullable:
        return values
    missing = _together(means[:, -1], weights)[:, None]
    return np.hstack([values * (1 - missing), missing])


def _together(shares: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return shares from 0 to 1 with the weighted mean that the given ones have, if it is one."""
    due = max(float(weights @ shares), 0.0)
    low, high = 0.0, max(float(shares.max()), 0.0)
    if float(weights @ np.clip(shares, 0.0, 1.0)) <= due:
        return np.clip(shares, 0.0, 1.0)
    for _ in range(50):
        less = (low + high) / 2
        found = float(weights @ np.clip(shares - less, 0.0, 1.0))
        low, high = (less, high) if found > due else (low, less)
    return np.clip(shares - high, 0.0, 1.0)


def _biases(scores: Matrix, shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what to add to scores so that each wins as often as its share, by coordinate ascent."""
    count, width = scores.shape
    biases = np.zeros(width)
    if width == 1 or width > _MOST_MATCHED or count < 2:
        return biases
    biases[shares <= 0] = _NEVER
    for _ in range(_SWEEPS if width > 2 else 1):
        for j in np.flatnonzero((shares > 0) & (shares < 1)):
            lifted = scores + biases
            lifted[:, j] = -np.inf
            margins = scores[:, j] - lifted.max(axis=1)
            # Of "weibull" a share of new records is above the quantile that is unbiased.
            place = min(max(1 - shares[j], 0.0), 1.0)
            biases[j] = -np.quantile(margins, place, method="weibull")
    return biases


def _values(choice: _Choice, vectors: Matrix, groups: Indices) -> pa.Array:
    column = choice.column
    part = vectors[:, choice.start : choice.start + column.width]
    chosen = (_scores(column, part) + choice.biases[groups]).argmax(axis=1)
    missing = np.zeros(len(part), dtype=bool)
    if column.nullable:
        missing = chosen == choice.biases.shape[1] - 1
    if isinstance(column, CategoricalColumn):
        assert column.categories is not None
        return _texts(column.categories, chosen, missing)
    if isinstance(column, BooleanColumn):
        return pa.array(chosen == 1, mask=missing)
    scaled = np.empty(len(part))
    for group, curve in enumerate(choice.curves):
        mine = groups == group if len(choice.curves) > 1 else slice(None)
        scaled[mine] = np.interp(part[mine, 0], *curve)
    if isinstance(column, NumericColumn | DatetimeColumn):
        lower, upper = column.limits
        numbers = lower / 2 + upper / 2 + scaled * (upper / 2 - lower / 2)
        numbers = np.clip(numbers, lower, upper)
        if isinstance(column, NumericColumn):
            return _numbers(column, numbers, missing)
        return _times(column, numbers, missing)
    last = len(column.categories) - 1
    return _texts(column.categories, np.rint((scaled + 1) / 2 * last).astype(np.int64), missing)


def _texts(categories: tuple[str, ...], index: Indices, missing: NDArray[np.bool_]) -> pa.Array:
    """Return categories; as integers if all of them are written like integers."""
    values: Any = pa.array(categories, pa.string())
    if _are_integers(categories):
        values = pa.array([int(text) for text in categories], pa.int64())
    return values.take(pa.array(index, mask=missing))


def _are_integers(categories: tuple[str, ...] | None) -> bool:
    return categories is not None and all(map(_is_integer, categories))


def _is_integer(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(text) < 18 and str(int(text)) == text


def _numbers(column: NumericColumn, numbers: Matrix, missing: NDArray[np.bool_]) -> pa.Array:
    if not column.integer:
        return pa.array(numbers, mask=missing)
    whole = np.clip(np.rint(numbers), math.ceil(column.lower), math.floor(column.upper))
    return pa.array(whole.astype(np.int64), mask=missing)


def _times(column: DatetimeColumn, seconds: Matrix, missing: NDArray[np.bool_]) -> pa.Array:
    """Return times as timestamps, or as texts where the schema says how they are written."""
    if len(column.earliest) == len(column.latest) == len("2000-01-01"):  # days, not times
        lower, _ = column.limits
        seconds = np.maximum(np.floor(seconds / 86400) * 86400, lower)
    if column.format is not None:
        texts = [datetime.fromtimestamp(s, UTC).strftime(column.format) for s in seconds]
        return pa.array(texts, pa.string(), mask=missing)
    micros = np.rint(seconds * _MICROSECONDS).astype(np.int64)
    return pa.array(micros, pa.int64(), mask=missing).cast(pa.timestamp("us"))
