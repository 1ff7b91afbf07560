"""Files of feature vectors without labels: records to predict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privmix import _validate
from privmix.inputs.arrays import npy_source, opened_npz
from privmix.inputs.columns import is_list, is_number, text_numbers
from privmix.inputs.delimited import is_delimited, read_header, readable, scan_text, suffix_of
from privmix.inputs.feature_names import Names
from privmix.schema.text_format import PLAIN, TextFormat

_IGNORE = "--ignore COLUMN leaves out one that is no feature, such as the label"


def read_features(
    path: Path,
    *,
    names: Names | None,
    width: int,
    key: str | None = None,
    ignore: Sequence[str] = (),
    form: TextFormat = PLAIN,
) -> NDArray[Any]:
    """Read feature vectors into memory.

    Args:
        path: A ``.parquet``, ``.csv`` or ``.tsv`` file, an ``.npy`` or an ``.npz`` file.
        names: The columns that are the features, in this order, if they have names; other columns
            are not read. Else all columns but ``ignore``, or a single column of vectors.
        width: How many features the model takes.
        key: Array of an ``.npz`` file.
        ignore: Columns that are no features.
        form: How a file of delimited text is written.

    Returns:
        (count, d) numbers.

    Raises:
        InvalidInputError: A file of another kind, or without such columns.

    """
    position = str(path)
    try:
        if path.suffix == ".npy":
            found = npy_source(path)
            return found.read(0, found.shape[0])
        if path.suffix == ".npz":
            with opened_npz(path, [("--features-key", key)]) as arrays:
                return np.asarray(arrays[key])
        if path.suffix == ".parquet":
            table = pq.read_table(path)
        elif is_delimited(path):
            return _read_text(path, names, width, ignore, form)
        else:
            _validate.fail(position, "a .parquet, .csv, .tsv, .npy or .npz file", repr(path.suffix))
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(error, _validate.InvalidInputError):
            raise
        _validate.fail(position, "a readable file of feature vectors", str(error).splitlines()[0])
    due = _due(position, table.column_names, names, ignore)
    return _matrix(position, table.select(due), width)


def _due(
    position: str, found: Sequence[str], names: Names | None, ignore: Sequence[str]
) -> list[str]:
    """Return the columns that are the features."""
    due = list(names) if names else [name for name in found if name not in ignore]
    if missing := [name for name in due if name not in found]:
        _validate.fail(position, f"a column {missing[0]!r}, which the model was given", "none")
    if not due:
        _validate.fail(position, "at least one column of numbers", "none")
    return due


def _read_text(
    path: Path, names: Names | None, width: int, ignore: Sequence[str], form: TextFormat
) -> NDArray[np.float64]:
    """Read a file of delimited text; a cell that is no number is refused by its position."""
    due = _due(str(path), read_header(path, form, names or ()), names, ignore)
    _check_width(str(path), due, width)
    runs, first = [np.empty((0, len(due)))], 0
    with readable(path, suffix_of(path)):
        for rows in scan_text(path, due, form):
            numbers = text_numbers(path, rows.select(due), form)
            wrong = np.argwhere(~np.isfinite(numbers))
            if wrong.size:
                row, column = (int(i) for i in wrong[0])
                allowed = f"a finite number in every row; {_IGNORE}"
                _validate.fail(f"{path}: {due[column]}[{first + row}]", allowed, "another cell")
            runs.append(numbers)
            first += len(numbers)
    return np.concatenate(runs)


def _check_width(position: str, columns: Sequence[str], width: int) -> None:
    if len(columns) != width:
        more = f", ... ({len(columns)} in all)" if columns[8:] else ""
        allowed = f"{width} columns of numbers, as the model takes; {_IGNORE}"
        _validate.fail(position, allowed, ", ".join(columns[:8]) + more)


def _matrix(position: str, table: pa.Table, width: int) -> NDArray[Any]:
    kinds = table.schema.types
    for name, kind in zip(table.column_names, kinds, strict=True):
        vectors = is_list(kind)
        if vectors and table.num_columns > 1:
            others = [other for other in table.column_names if other != name]
            allowed = f"nothing beside the column of vectors {name!r}; --ignore leaves columns out"
            _validate.fail(position, allowed, ", ".join(others[:5]))
        if not (_holds_numbers(kind) if vectors else is_number(kind)):
            allowed = f"columns of numbers, or one of lists of numbers; {_IGNORE}"
            _validate.fail(f"{position}: {name}", allowed, kind)
    if table.num_columns == 1 and not pa.types.is_primitive(kinds[0]):
        try:
            return np.array(table.column(0).to_pylist(), dtype=np.float64)
        except ValueError:
            _validate.fail(position, "vectors of one length", "several lengths")
    _check_width(position, table.column_names, width)
    return np.column_stack([column.to_numpy().astype(np.float64) for column in table.columns])


def _holds_numbers(kind: pa.DataType) -> bool:
    """Whether lists, at whatever depth, hold numbers."""
    while is_list(kind):
        kind = kind.value_type
    return is_number(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
