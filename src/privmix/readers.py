"""Read labelled feature vectors from Parquet, CSV and ``.npz`` files."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privmix import _validate
from privmix.extractor import FeaturesHeader

SUFFIXES = (".parquet", ".csv", ".npz")


class LabelledData(NamedTuple):
    """Feature vectors, shape (count, num_features), and their labels, shape (count,)."""

    features: NDArray[Any]
    labels: NDArray[Any]


def read_labelled(
    path: str | Path,
    *,
    label: str | None = None,
    classes: Sequence[int] | Sequence[str] = (),
    features_key: str | None = None,
    label_key: str | None = None,
) -> LabelledData:
    """Read a file of labelled feature vectors.

    Args:
        path: A ``.parquet`` or ``.csv`` file, a folder of Parquet files, or an ``.npz`` file.
        label: Label column of a table. All other columns are features: numbers, or one column of
            lists of equal length.
        classes: Classes that labels are looked for among. CSV files hold text only: there a label
            is the class that is written so, and ``007`` is not 7.
        features_key: Array of an ``.npz`` file that holds the features.
        label_key: Array of an ``.npz`` file that holds the labels.

    Raises:
        InvalidInputError: A missing file, column or array, an empty file, another type of column.

    """
    path = Path(path)
    if not path.exists():
        _validate.fail(str(path), "an existing file", "no such file")
    suffix = ".parquet" if path.is_dir() else path.suffix.lower()
    if suffix not in SUFFIXES:
        _validate.fail(str(path), f"a file ending in {', '.join(SUFFIXES)}", repr(path.suffix))
    if suffix == ".npz":
        return _read_npz(path, features_key, label_key)
    if label is None:
        _validate.fail("--label", "the name of the label column", "nothing")
    return _split_table(path, _read_table(path, suffix, label), label, classes)


def _read_npz(path: Path, features_key: str | None, label_key: str | None) -> LabelledData:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            names = list(arrays)
            for option, key in (("--features-key", features_key), ("--label-key", label_key)):
                if key not in names:
                    _validate.fail(
                        option,
                        f"an array of {path}: {', '.join(names)}",
                        repr(key) if key else "nothing",
                    )
            return LabelledData(arrays[features_key], arrays[label_key])
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        _validate.fail(str(path), "an .npz file", error)
    except ValueError as error:
        if isinstance(error, _validate.InvalidInputError):
            raise
        _validate.fail(str(path), "an .npz file without pickled objects", error)


def _read_table(path: Path, suffix: str, label: str) -> pa.Table:
    try:
        if suffix == ".csv":
            as_text = pa.csv.ConvertOptions(column_types={label: pa.string()})
            table = pa.csv.read_csv(path, convert_options=as_text)
        else:
            table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        _validate.fail(str(path), f"a {suffix[1:]} table", reason)
    if table.num_rows == 0:
        _validate.fail(str(path), "at least one record", "none")
    return table


def _split_table(
    path: Path, table: pa.Table, label: str, classes: Sequence[int] | Sequence[str]
) -> LabelledData:
    if label not in table.column_names:
        columns = table.column_names
        shown = ", ".join(columns[:8]) + (f", ... ({len(columns)} in all)" if columns[8:] else "")
        _validate.fail("--label", f"a column of {path}: {shown}", repr(label))
    if len(set(table.column_names)) != table.num_columns:
        _validate.fail(str(path), "columns with distinct names", "a repeated name")
    rest = table.drop_columns([label])
    if rest.num_columns == 0:
        _validate.fail(str(path), "at least one feature column", "none")
    if rest.num_columns == 1 and _is_list(rest.schema.field(0).type):
        features = _list_column(path, rest.column_names[0], rest.column(0))
    else:
        features = np.column_stack(
            [_number_column(path, name, rest.column(name)) for name in rest.column_names]
        )
    labels = _label_column(table.column(label))
    header = FeaturesHeader.of_file(path)
    if path.suffix.lower() == ".csv" or (header is not None and header.labels_as_text):
        written = {str(value): value for value in classes}
        labels = np.array([written.get(text, text) for text in labels], dtype=object)
    return LabelledData(features, labels)


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    )


def _list_column(path: Path, name: str, column: pa.ChunkedArray) -> NDArray[Any]:
    flat = column.combine_chunks()
    if flat.null_count:
        first = flat.is_null().to_pylist().index(True)
        _validate.fail(f"{path}: {name}[{first}]", "a list of numbers", "null")
    widths = pa.compute.list_value_length(flat).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(widths != widths[0])
    if wrong.size:
        _validate.fail(
            f"{path}: {name}[{wrong[0]}]",
            f"{widths[0]} numbers, as in record 0",
            int(widths[wrong[0]]),
        )
    values = _number_column(path, name, pa.chunked_array([flat.flatten()]))
    return values.reshape(len(flat), int(widths[0]))


def _number_column(path: Path, name: str, column: pa.ChunkedArray) -> NDArray[Any]:
    kind = column.type
    if pa.types.is_null(kind):  # a column of a CSV file without a single value
        return np.full(len(column), np.nan)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        _validate.fail(f"{path}: {name}", "a column of numbers", f"a column of {kind}")
    if column.null_count:  # nulls become NaN, which the policy for bad records then meets
        column = column.cast(pa.float64())
    return np.asarray(column.to_numpy())


def _label_column(column: pa.ChunkedArray) -> NDArray[Any]:
    if pa.types.is_dictionary(column.type):
        column = pa.chunked_array([chunk.dictionary_decode() for chunk in column.chunks])
    return np.array(column.to_pylist(), dtype=object)
