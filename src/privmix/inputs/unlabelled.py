"""Files of feature vectors without labels: records to predict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privmix import _validate
from privmix.inputs.delimited import is_delimited
from privmix.inputs.feature_names import Names


def read_features(
    path: Path, *, names: Names | None, key: str | None = None, ignore: Sequence[str] = ()
) -> NDArray[Any]:
    """Read feature vectors into memory.

    Args:
        path: A ``.parquet``, ``.csv`` or ``.tsv`` file, an ``.npy`` or an ``.npz`` file.
        names: The columns that are the features, in this order, if they have names; other columns
            are not read. Else all columns but ``ignore``, or a single column of vectors.
        key: Array of an ``.npz`` file.
        ignore: Columns that are no features.

    Returns:
        (count, d) numbers.

    Raises:
        InvalidInputError: A file of another kind, or without such columns.

    """
    place = str(path)
    try:
        if path.suffix == ".npy":
            return np.asarray(np.load(path, allow_pickle=False))
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                if key not in file:
                    _validate.fail("--features-key", f"one of {', '.join(file)}", key or "nothing")
                return np.asarray(file[key])
        if path.suffix == ".parquet":
            table = pq.read_table(path)
        elif is_delimited(path):
            tabs = pyarrow.csv.ParseOptions(delimiter="\t" if ".tsv" in path.suffixes else ",")
            table = pyarrow.csv.read_csv(path, parse_options=tabs)
        else:
            _validate.fail(place, "a .parquet, .csv, .tsv, .npy or .npz file", repr(path.suffix))
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(error, _validate.InvalidInputError):
            raise
        _validate.fail(place, "a readable file of feature vectors", str(error).splitlines()[0])
    found = table.column_names
    due = list(names) if names else [name for name in found if name not in ignore]
    if missing := [name for name in due if name not in found]:
        _validate.fail(place, f"a column {missing[0]!r}, which the model was given", "none")
    return _matrix(place, table.select(due))


def _matrix(place: str, table: pa.Table) -> NDArray[Any]:
    kinds = table.schema.types
    for name, kind in zip(table.column_names, kinds, strict=True):
        vectors = pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)
        if vectors and table.num_columns > 1:
            others = [other for other in table.column_names if other != name]
            allowed = f"nothing beside the column of vectors {name!r}; --ignore leaves columns out"
            _validate.fail(place, allowed, ", ".join(others[:5]))
        number = (
            pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)
        )
        if not (vectors or number):
            allowed = "columns of numbers; --ignore COLUMN leaves one out"
            _validate.fail(f"{place}: {name}", allowed, kind)
    if table.num_columns == 1 and not pa.types.is_primitive(kinds[0]):
        rows = table.column(0).to_pylist()
        if len({None if row is None else len(row) for row in rows}) > 1:
            _validate.fail(place, "vectors of one length", "several lengths")
        return np.array(rows, dtype=np.float64)
    return np.column_stack([column.to_numpy().astype(np.float64) for column in table.columns])
