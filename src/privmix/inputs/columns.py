"""Columns of a table as arrays: numbers, vectors in lists, labels and owners."""

from __future__ import annotations

import math
import re
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privmix import _validate
from privmix.inputs.delimited import read_numbers, without_marks
from privmix.inputs.missing import MISSING
from privmix.schema.text_format import PLAIN, TextFormat

_WORDS = dict.fromkeys((b"true", b"True", b"TRUE"), 1.0)
_WORDS |= dict.fromkeys((b"false", b"False", b"FALSE"), 0.0)


def text_numbers(path: Path, table: pa.Table, form: TextFormat = PLAIN) -> NDArray[np.float64]:
    """Read cells as numbers, each by itself; where it is no number it is NaN, a bad record.

    ``form`` says how numbers are written. A column of texts, none of which is a number, is refused with advice.
    """
    numbers = np.empty((table.num_rows, table.num_columns))
    for number, name in enumerate(table.column_names):
        cells = table.column(number).combine_chunks()
        cells = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
        numbers[:, number] = read_numbers(cells, partial(_text_number, form=form), form.decimal)
        if np.isnan(numbers[:, number]).all() and not _all_missing(cells):
            _fail_texts(path, name, "text")
    return numbers


def _all_missing(cells: pa.Array) -> bool:
    words = pa.array([word.encode() for word in MISSING], cells.type)
    return bool(pc.all(pc.or_(cells.is_null(), pc.is_in(cells, words))).as_py())


def _text_number(cell: bytes | None, form: TextFormat) -> float:
    """Return the number that a cell of delimited text is; NaN for no number."""
    text = cell or b""
    if text in _WORDS:
        return _WORDS[text]
    text = text.strip()
    if re.fullmatch(b"0[xX][0-9a-fA-F]{1,16}", text):  # the bits of an integer
        bits = int(text, 16)
        return float(bits - (bits >> 63 << 64))
    try:
        if form.thousands or form.decimal != ".":
            return float(without_marks(text.decode(), form))
        return math.nan if b"_" in text else float(text)
    except ValueError:
        return math.nan


def features_of(
    path: Path, table: pa.Table, first: int = 0, width: int | None = None
) -> NDArray[Any]:
    """Turn feature columns into an array; ``first`` is the number of the first record in errors.

    ``width`` is that of vectors in a column of lists, where it is known.
    """
    if table.num_columns == 1 and is_list(table.schema.field(0).type):
        return _list_column(path, table.column_names[0], table.column(0), first, width)
    columns = zip(table.column_names, table.columns, strict=True)
    return np.column_stack([_number_column(path, name, column) for name, column in columns])


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is one of lists."""
    return bool(
        pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    )


def is_number(kind: pa.DataType) -> bool:
    """Whether a type is one of numbers."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is one of texts or bytes."""
    types = pa.types
    checks = (types.is_string, types.is_large_string, types.is_string_view)
    return any(check(kind) for check in (*checks, types.is_binary, types.is_large_binary))


def _list_column(
    path: Path, name: str, column: pa.ChunkedArray, start: int, width: int | None
) -> NDArray[Any]:
    """Return vectors as rows; a null one is a row of NaN, for the policy for bad records.

    Of nulls alone whose ``width`` is not known the rows have no columns.
    """
    flat = column.combine_chunks()
    there = flat.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(there)
    flat = flat.drop_null()
    widths = pa.compute.list_value_length(flat).to_numpy(zero_copy_only=False)
    if len(rows):
        wrong = np.flatnonzero(widths != widths[0])
        if wrong.size:
            _validate.fail(
                f"{path}: {name}[{start + rows[wrong[0]]}]",
                f"{widths[0]} numbers, as in record {start + rows[0]}",
                int(widths[wrong[0]]),
            )
        width = int(widths[0])
    values = _number_column(path, name, pa.chunked_array([flat.flatten()]))
    if len(rows) == len(there):
        return values.reshape(len(rows), width or 0)
    vectors = np.full((len(there), width or 0), np.nan)
    vectors[rows] = values.reshape(len(rows), width or 0)
    return vectors


def _number_column(path: Path, name: str, column: pa.ChunkedArray) -> NDArray[Any]:
    kind = column.type
    if pa.types.is_null(kind):  # a column without a single value
        return np.full(len(column), np.nan)
    if not is_number(kind):
        _fail_texts(path, name, kind)
    if column.null_count:  # nulls become NaN, which the policy for bad records then meets
        column = column.cast(pa.float64(), safe=False)  # rounds, as NumPy does
    return np.asarray(column.to_numpy())


def _fail_texts(path: Path, name: str, kind: object) -> NoReturn:
    remedies = "--text-column or --image-column with --extractor turns raw records into numbers"
    _validate.fail(f"{path}: {name}", f"a column of numbers ({remedies})", f"a column of {kind}")


def label_column(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column's values, bytes as the text that they are in UTF-8.

    Other bytes stay what they are: no class and no owner, but their own record's fault alone.
    """
    if not pa.types.is_dictionary(column.type) and not pa.types.is_nested(column.type):
        column = column.dictionary_encode()  # each distinct label is one Python object
    if not pa.types.is_dictionary(column.type):
        return np.array(column.to_pylist(), dtype=object)
    found = [np.empty(0, dtype=object)]
    for chunk in column.chunks:
        distinct = np.array([*_distinct(chunk.dictionary), None], dtype=object)
        found.append(distinct[chunk.indices.fill_null(len(distinct) - 1).to_numpy()])
    return np.concatenate(found)


def _distinct(values: pa.Array) -> list[Any]:
    if not is_text(values.type):
        try:
            return list(values.to_pylist())
        except (OverflowError, ValueError) as error:  # a date beyond the years of Python
            _validate.fail(
                "a column of labels or owners", f"values that Python has, of {values.type}", error
            )
    raw = values.cast(pa.large_binary()).to_pylist()
    return [None if value is None else _text_or_bytes(value) for value in raw]


def _text_or_bytes(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
