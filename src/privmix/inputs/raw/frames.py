"""Rows of frames in memory, whose cells may be Python's own.

A pandas column of type ``object`` says nothing about its cells, and a type inferred from all of
them would let one record change what is made of another. Such cells stay what they are, and are
read one by one.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privmix import _validate
from privmix.inputs.arrays import from_categories
from privmix.inputs.raw.blocks import object_array

# What Arrow raises for values or types that it does not have.
_NOT_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError)


class Rows:
    """Some columns of a frame, by name: Arrow's where they have a type, else arrays of objects."""

    def __init__(self, columns: dict[str, pa.ChunkedArray | NDArray[Any]], num_rows: int) -> None:
        self._columns = columns
        self.num_rows = num_rows

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
        return list(self._columns)

    def __getitem__(self, name: str) -> pa.ChunkedArray | NDArray[Any]:
        return self._columns[name]

    def slice(self, start: int, length: int | None = None) -> Rows:
        """Return a stretch of rows, without a copy."""
        stop = self.num_rows if length is None else min(start + length, self.num_rows)
        chosen = slice(start, stop)
        columns = {name: column[chosen] for name, column in self._columns.items()}
        return Rows(columns, max(0, stop - start))


def column_names(frame: Any) -> list[str]:
    """Return the columns' names of a pandas, polars or Arrow table, as texts."""
    schema = getattr(frame, "schema", None)
    names = schema.names if isinstance(schema, pa.Schema) else frame.columns
    return [str(name) for name in names]


def as_rows(frame: Any, used: Collection[str]) -> Rows | pa.Table:
    """Return those columns of a pandas, polars or Arrow table that are ``used`` and there.

    Raises:
        InvalidInputError: Something else, or columns with the same name.

    """
    if isinstance(frame, Rows):
        return frame
    if not is_frame(frame):
        _validate.fail("records", "a pandas, polars or Arrow table", type(frame).__name__)
    names = column_names(frame)
    if len(set(names)) != len(names):
        _validate.fail("records", "columns with distinct names", "a repeated name")
    if not hasattr(frame, "iloc"):
        try:
            return pa.table(frame.select([name for name in names if name in used]))
        except _NOT_ARROW as error:
            allowed = "columns of Arrow's types, integers of at most 64 bits among them"
            _validate.fail("records", allowed, str(error).splitlines()[0])
    columns = {
        name: _column(frame.iloc[:, number]) for number, name in enumerate(names) if name in used
    }
    return Rows(columns, len(frame))


def is_frame(source: Any) -> bool:
    """Whether something is a table of named columns in memory."""
    return hasattr(source, "__arrow_c_stream__") and (
        hasattr(source, "columns") or hasattr(source, "schema")
    )


def by_position(values: Any) -> Any:
    """Return a Series or an Arrow array as a list: an index may be in any order. All else as it is."""
    values = from_categories(values)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.to_pylist()
    return list(values) if hasattr(values, "to_list") else values


def without_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a dictionary-encoded column as one of its values; any other as it is."""
    if not pa.types.is_dictionary(column.type):
        return column
    kind = column.type.value_type
    kind = pa.string() if pa.types.is_string_view(kind) else kind  # as polars' categories are
    chunks = [chunk.dictionary.cast(kind).take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(chunks, type=kind)


def plain(value: Any) -> Any:
    """Return a cell of an object column as Python's own value; None for what pandas has for it.

    A time is cut to microseconds, as those of a column with a type are: its text is its category.
    """
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(value, "to_pydatetime"):
        return value.to_pydatetime(warn=False)
    if isinstance(value, np.datetime64):
        moment = value.astype("datetime64[us]").item()  # a number beyond Python's years
        return moment if moment is None or isinstance(moment, datetime) else value
    if isinstance(value, np.timedelta64):  # its item may be a number, which a span of time is not
        return value
    return value.item() if isinstance(value, np.generic) else value


def _column(series: Any) -> pa.ChunkedArray | NDArray[Any]:
    """Return a column of numbers, texts or times as Arrow's, any other as objects."""
    series, name = from_categories(series), series.name
    if getattr(series.dtype, "kind", "") == "c":  # one such number made all others ones
        allowed = "a column of numbers, texts, booleans or dates, or of objects"
        _validate.fail(str(name), allowed, f"{series.dtype}")
    if str(series.dtype) != "object":
        try:
            cells = pa.array(series, from_pandas=True)
        except _NOT_ARROW:
            pass
        else:
            if not isinstance(cells.type, pa.BaseExtensionType):
                return cells if isinstance(cells, pa.ChunkedArray) else pa.chunked_array([cells])
    return object_array([plain(value) for value in series])
