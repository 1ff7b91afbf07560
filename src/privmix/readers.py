"""Read labelled feature vectors from Parquet, CSV, NumPy and Zarr, whole or in runs of records."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privmix import _validate
from privmix.extractor import FeaturesHeader
from privmix.sources import (
    ArraySource,
    IteratedSource,
    Source,
    npy_source,
    npz_source,
)

SUFFIXES = (".parquet", ".csv", ".npz", ".npy", ".zarr")
_BATCH_BYTES = 8 << 20
_BUFFER_BYTES = 32 << 20


class LabelledData(NamedTuple):
    """Feature vectors, shape (count, num_features), and their labels, shape (count,)."""

    features: NDArray[Any]
    labels: NDArray[Any]


class LabelledSource(NamedTuple):
    """Feature vectors that are read in runs, and their labels, shape (count,)."""

    features: Source
    labels: NDArray[Any]


def read_labelled(
    path: str | Path,
    *,
    label: str | None = None,
    classes: Sequence[int] | Sequence[str] = (),
    features_key: str | None = None,
    label_key: str | None = None,
    labels: str | Path | None = None,
) -> LabelledData:
    """Read a file of labelled feature vectors into memory; see :func:`open_labelled`."""
    opened = open_labelled(
        path,
        label=label,
        classes=classes,
        features_key=features_key,
        label_key=label_key,
        labels=labels,
    )
    features = opened.features.read(0, opened.features.shape[0])
    return LabelledData(features, opened.labels)


def open_labelled(
    path: str | Path,
    *,
    label: str | None = None,
    classes: Sequence[int] | Sequence[str] = (),
    features_key: str | None = None,
    label_key: str | None = None,
    labels: str | Path | None = None,
) -> LabelledSource:
    """Open a file of labelled feature vectors, to be read in runs of records.

    CSV files and compressed ``.npz`` files are read whole.

    Args:
        path: A ``.parquet`` or ``.csv`` file, a folder of Parquet files, an ``.npz`` or ``.npy``
            file, or a ``.zarr`` folder (extra ``zarr``).
        label: Label column of a table. All other columns are features: numbers, or one column of
            lists of equal length.
        classes: Classes that labels are looked for among. CSV files hold text only: there a label
            is the class that is written so, and ``007`` is not 7.
        features_key: Array of an ``.npz`` file or a Zarr group that holds the features.
        label_key: Array of an ``.npz`` file or a Zarr group that holds the labels.
        labels: ``.npy`` file with the labels of an ``.npy`` file.

    Raises:
        InvalidInputError: A missing file, column or array, an empty or truncated file, another type
            of column.

    """
    path = Path(path)
    if not path.exists():
        _validate.fail(str(path), "an existing file", "no such file")
    suffix = path.suffix.lower()
    if path.is_dir() and suffix != ".zarr":
        suffix = ".parquet"
    if suffix not in SUFFIXES:
        _validate.fail(str(path), f"a file ending in {', '.join(SUFFIXES)}", repr(path.suffix))
    if suffix == ".npy":
        return _open_npy(path, labels)
    if labels is not None:
        _validate.fail("--labels", "nothing, but for an .npy file", str(labels))
    if suffix == ".npz":
        return _open_npz(path, features_key, label_key)
    if suffix == ".zarr":
        return _open_zarr(path, features_key, label_key)
    if label is None:
        _validate.fail("--label", "the name of the label column", "nothing")
    if suffix == ".csv":
        features, found = _split_table(path, _read_table(path, label), label, classes)
        return LabelledSource(ArraySource(features), found)
    opened = _open_parquet(path, label)
    header = FeaturesHeader.of_file(path)
    if header is not None and header.labels_as_text:
        return opened._replace(labels=_as_classes(opened.labels, classes))
    return opened


def _open_npy(path: Path, labels: str | Path | None) -> LabelledSource:
    if labels is None:
        _validate.fail("--labels", f"the .npy file with the labels of {path}", "nothing")
    if not (labels := Path(labels)).is_file():
        _validate.fail("--labels", "an existing .npy file", f"{labels}: no such file")
    found = npy_source(labels)
    return LabelledSource(npy_source(path), found.read(0, found.shape[0] if found.shape else 0))


def _open_zarr(path: Path, features_key: str | None, label_key: str | None) -> LabelledSource:
    try:
        import zarr
    except ImportError:
        _validate.fail(str(path), "a format whose library is there", "pip install 'privmix[zarr]'")
    try:
        arrays: dict[str, Any] = dict(zarr.open_group(path, mode="r").arrays())
        _check_keys(path, sorted(arrays), features_key, label_key)
        features = arrays[str(features_key)]
        found = np.asarray(arrays[str(label_key)][...])
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        if isinstance(error, _validate.InvalidInputError):
            raise
        _validate.fail(str(path), "a Zarr group", str(error).splitlines()[0])
    if features.ndim != 2:
        _validate.fail(f"{path}: {features_key}", "two dimensions", f"shape {features.shape}")
    rows = features.chunks[0]

    def passes(start: int) -> Iterator[tuple[int, NDArray[Any]]]:
        for first in range(start // rows * rows, features.shape[0], rows):
            try:
                yield first, np.asarray(features[first : first + rows])
            except (OSError, ValueError, RuntimeError) as error:
                place = f"{path}: {features_key}[{first}]"
                _validate.fail(place, "a chunk that can be read", str(error).splitlines()[0])

    held = 2 * rows * features.shape[1] * features.dtype.itemsize
    return LabelledSource(IteratedSource(features.shape, features.dtype, passes, held), found)


def _open_parquet(path: Path, label: str) -> LabelledSource:
    """Open a Parquet file, or a folder of them, whose row groups are read one after another."""
    whole = _read_parquet_labels(path, label)
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    names = [n for n in pq.read_schema(files[0]).names if n != label]
    width = len(names)

    def passes(start: int) -> Iterator[tuple[int, NDArray[Any]]]:
        first = 0
        for file in files:
            buffer = max(1 << 12, min(1 << 20, _BUFFER_BYTES // max(1, len(names))))
            with pq.ParquetFile(file, pre_buffer=False, buffer_size=buffer) as opened:
                meta = opened.metadata
                sizes = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
                groups = list(range(len(sizes)))
                while groups and first + sizes[groups[0]] <= start:
                    first += sizes[groups.pop(0)]
                if not groups:
                    continue
                batch = max(1, _BATCH_BYTES // (8 * width))
                for run in opened.iter_batches(batch, row_groups=groups, columns=names):
                    yield first, _features_of(file, pa.Table.from_batches([run]), first)
                    first += run.num_rows

    def guarded(start: int) -> Iterator[tuple[int, NDArray[Any]]]:
        try:
            yield from passes(start)
        except (pa.ArrowException, OSError) as error:
            _validate.fail(str(path), "a .parquet table", str(error).splitlines()[0])

    _, sample = next(guarded(0))
    width = sample.shape[1]
    shape = (len(whole), width)
    held = 2 * _BUFFER_BYTES + 4 * _BATCH_BYTES
    return LabelledSource(IteratedSource(shape, sample.dtype, guarded, held), whole)


def _read_parquet_labels(path: Path, label: str) -> NDArray[Any]:
    """Check the columns, and read the one with the labels."""
    try:
        schema = pq.ParquetDataset(path).schema
        _check_columns(path, schema.names, label)
        table = pq.read_table(path, columns=[label])
    except (pa.ArrowException, OSError) as error:
        _validate.fail(str(path), "a parquet table", str(error).splitlines()[0])
    if table.num_rows == 0:
        _validate.fail(str(path), "at least one record", "none")
    return _label_column(table.column(label))


def _check_keys(
    path: Path, names: Sequence[str], features_key: str | None, label_key: str | None
) -> None:
    for option, key in (("--features-key", features_key), ("--label-key", label_key)):
        if key not in names:
            allowed = f"an array of {path}: {', '.join(names)}"
            _validate.fail(option, allowed, repr(key) if key else "nothing")


def _check_columns(path: Path, names: Sequence[str], label: str) -> None:
    if label not in names:
        shown = ", ".join(names[:8]) + (f", ... ({len(names)} in all)" if names[8:] else "")
        _validate.fail("--label", f"a column of {path}: {shown}", repr(label))
    if len(set(names)) != len(names):
        _validate.fail(str(path), "columns with distinct names", "a repeated name")
    if len(names) == 1:
        _validate.fail(str(path), "at least one feature column", "none")


def _open_npz(path: Path, features_key: str | None, label_key: str | None) -> LabelledSource:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            _check_keys(path, list(arrays), features_key, label_key)
            mapped = npz_source(path, str(features_key))
            features = ArraySource(arrays[features_key]) if mapped is None else mapped
            return LabelledSource(features, arrays[label_key])
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        _validate.fail(str(path), "an .npz file", error)
    except ValueError as error:
        if isinstance(error, _validate.InvalidInputError):
            raise
        _validate.fail(str(path), "an .npz file without pickled objects", error)


def _read_table(path: Path, label: str) -> pa.Table:
    try:
        as_text = pa.csv.ConvertOptions(column_types={label: pa.string()})
        table = pa.csv.read_csv(path, convert_options=as_text)
    except (pa.ArrowException, OSError) as error:
        _validate.fail(str(path), "a csv table", str(error).splitlines()[0])
    if table.num_rows == 0:
        _validate.fail(str(path), "at least one record", "none")
    return table


def _split_table(
    path: Path, table: pa.Table, label: str, classes: Sequence[int] | Sequence[str]
) -> LabelledData:
    _check_columns(path, table.column_names, label)
    features = _features_of(path, table.drop_columns([label]))
    return LabelledData(features, _as_classes(_label_column(table.column(label)), classes))


def _as_classes(texts: NDArray[Any], classes: Sequence[int] | Sequence[str]) -> NDArray[Any]:
    """Return labels of a source that knows texts only: the classes that are written so."""
    written = {str(value): value for value in classes}
    return np.array([written.get(text, text) for text in texts], dtype=object)


def _features_of(path: Path, table: pa.Table, first: int = 0) -> NDArray[Any]:
    """Turn feature columns into an array; ``first`` is the number of the first record in errors."""
    if table.num_columns == 1 and _is_list(table.schema.field(0).type):
        return _list_column(path, table.column_names[0], table.column(0), first)
    columns = zip(table.column_names, table.columns, strict=True)
    return np.column_stack([_number_column(path, name, column) for name, column in columns])


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    )


def _list_column(path: Path, name: str, column: pa.ChunkedArray, start: int = 0) -> NDArray[Any]:
    flat = column.combine_chunks()
    if flat.null_count:
        first = start + flat.is_null().to_pylist().index(True)
        _validate.fail(f"{path}: {name}[{first}]", "a list of numbers", "null")
    widths = pa.compute.list_value_length(flat).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(widths != widths[0])
    if wrong.size:
        _validate.fail(
            f"{path}: {name}[{start + wrong[0]}]",
            f"{widths[0]} numbers, as in record {start}",
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
    if not pa.types.is_dictionary(column.type) and not pa.types.is_nested(column.type):
        column = column.dictionary_encode()  # each distinct label is one Python object
    if not pa.types.is_dictionary(column.type):
        return np.array(column.to_pylist(), dtype=object)
    found = [np.empty(0, dtype=object)]
    for chunk in column.chunks:
        distinct = np.array([*chunk.dictionary.to_pylist(), None], dtype=object)
        found.append(distinct[chunk.indices.fill_null(len(distinct) - 1).to_numpy()])
    return np.concatenate(found)
