"""Read labelled feature vectors from Parquet, CSV, NumPy and Zarr, whole or in runs of records."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privmix import _validate
from privmix.inputs.arrays import ArraySource, IteratedSource, Source, npy_source, npz_source
from privmix.inputs.extractor import FeaturesHeader
from privmix.inputs.labels import refuse_floats
from privmix.schema import Target

SUFFIXES = (".parquet", ".csv", ".npz", ".npy", ".zarr")
_BATCH_BYTES = 8 << 20
_CSV_WORDS = dict.fromkeys((b"true", b"True", b"TRUE"), 1.0)
_CSV_WORDS |= dict.fromkeys((b"false", b"False", b"FALSE"), 0.0)
_BUFFER_BYTES = 32 << 20


class LabelledData(NamedTuple):
    """Feature vectors, shape (count, num_features), their labels, shape (count,) for classes and
    (count, num_classes) for other targets, and the records' owners, shape (count,), if asked for.
    """

    features: NDArray[Any]
    labels: NDArray[Any]
    units: NDArray[Any] | None = None


class LabelledSource(NamedTuple):
    """Feature vectors that are read in runs, and the rest as ``LabelledData`` has it."""

    features: Source
    labels: NDArray[Any]
    units: NDArray[Any] | None = None


def read_labelled(
    path: str | Path,
    *,
    label: str | Sequence[str] | None = None,
    classes: Sequence[int] | Sequence[str] = (),
    features_key: str | None = None,
    label_key: str | None = None,
    labels: str | Path | None = None,
    target: Target = "class",
    unit_column: str | None = None,
) -> LabelledData:
    """Read a file of labelled feature vectors into memory; see :func:`open_labelled`."""
    opened = open_labelled(
        path,
        label=label,
        classes=classes,
        features_key=features_key,
        label_key=label_key,
        labels=labels,
        target=target,
        unit_column=unit_column,
    )
    features = opened.features.read(0, opened.features.shape[0])
    return LabelledData(features, opened.labels, opened.units)


def open_labelled(
    path: str | Path,
    *,
    label: str | Sequence[str] | None = None,
    classes: Sequence[int] | Sequence[str] = (),
    features_key: str | None = None,
    label_key: str | None = None,
    labels: str | Path | None = None,
    target: Target = "class",
    unit_column: str | None = None,
) -> LabelledSource:
    """Open a file of labelled feature vectors, to be read in runs of records.

    CSV files and compressed ``.npz`` files are read whole. A cell of a CSV file that is no number is NaN,
    a bad record.

    Args:
        path: A ``.parquet`` or ``.csv`` file, a folder of Parquet files, an ``.npz`` or ``.npy``
            file, or a ``.zarr`` folder (extra ``zarr``).
        label: Label column of a table. All other columns are features: numbers, or one column of
            lists of equal length. For other targets than ``class``: one column of numbers for each
            class or output, or one of lists; by default those that are named as the classes are.
        classes: Classes that labels are looked for among. CSV files hold text only: there a label
            is the class that is written so, and ``007`` is not 7.
        features_key: Array of an ``.npz`` file or a Zarr group that holds the features.
        label_key: Array of an ``.npz`` file or a Zarr group that holds the labels.
        labels: ``.npy`` file with the labels of an ``.npy`` file.
        target: What labels are; see ``Schema``.
        unit_column: Column of a table, or array of an ``.npz`` file or a Zarr group, with the owner
            of each record: an integer or a string. It is no feature. CSV files hold text only:
            there ``7`` and ``007`` are two owners.

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
        if unit_column is not None:
            allowed = (
                "nothing for an .npy file, which has features only: write features, labels and owners "
                f"with np.savez('data.npz', x=..., y=..., {unit_column}=...) and name them by "
                "--features-key x --label-key y"
            )
            _validate.fail("--unit-column", allowed, repr(unit_column))
        return _open_npy(path, labels)
    if labels is not None:
        _validate.fail("--labels", "nothing, but for an .npy file", str(labels))
    if suffix == ".npz":
        return _open_npz(path, features_key, label_key, unit_column)
    if suffix == ".zarr":
        return _open_zarr(path, features_key, label_key, unit_column)
    columns = _Columns(label_names(label, classes, target), unit_column, target, classes)
    if suffix == ".csv":
        table = _read_table(path, columns)
        features = _features_of(path, table.drop_columns(columns.others))
        found, units = columns.of(path, table)
        opened = LabelledSource(ArraySource(features), found, units)
    else:
        opened = _open_parquet(path, columns)
    header = FeaturesHeader.of_file(path)
    texts = suffix == ".csv" or (header is not None and header.labels_as_text)
    if texts and target == "class":
        return opened._replace(labels=_as_classes(opened.labels, classes))
    return opened


class _Columns(NamedTuple):
    """The columns of a table that are no features."""

    labels: list[str]
    unit: str | None
    target: Target
    classes: Sequence[int] | Sequence[str]

    @property
    def others(self) -> list[str]:
        """All of them."""
        return self.labels if self.unit is None else [*self.labels, self.unit]

    @property
    def texts(self) -> list[str]:
        """Those that a CSV file has as text, whatever they look like."""
        return self.others if self.target == "class" else self.others[len(self.labels) :]

    def check(self, path: Path, names: Sequence[str]) -> None:
        """Refuse a table without these columns, or without any other."""
        asked = [("--label", name) for name in self.labels]
        if self.unit is not None:
            asked.append(("--unit-column", self.unit))
        for option, name in asked:
            if name not in names:
                more = f", ... ({len(names)} in all)" if names[8:] else ""
                allowed = f"a column of {path}: {', '.join(names[:8])}{more}"
                _validate.fail(option, allowed, repr(name))
        if len(set(names)) != len(names):
            _validate.fail(str(path), "columns with distinct names", "a repeated name")
        if len(set(self.others)) != len(self.others):
            received = ", ".join(self.others)
            _validate.fail("--label, --unit-column", "distinct columns", received)
        if len(names) == len(self.others):
            _validate.fail(str(path), "at least one feature column", "none")

    def of(self, path: Path, table: pa.Table) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Return the labels and the owners in a table."""
        units = None if self.unit is None else _label_column(table.column(self.unit))
        if self.target == "class":
            labels = table.column(self.labels[0])
            refuse_floats(f"{path}: {self.labels[0]}", labels, self.classes)
            return _label_column(labels), units
        return _features_of(path, table.select(self.labels)), units


def label_names(
    label: str | Sequence[str] | None, classes: Sequence[int] | Sequence[str], target: Target
) -> list[str]:
    """Return the label columns: those named, or, for label vectors, those named as the classes."""
    if label is None:
        if target == "class":
            _validate.fail("--label", "the name of the label column", "nothing")
        return [str(name) for name in classes]
    names = [label] if isinstance(label, str) else list(label)
    many = {1} if target == "class" else {1, len(classes)}
    if len(names) not in many:
        counts = " or ".join(map(str, sorted(many)))
        _validate.fail("--label", f"{counts} columns for target {target}", len(names))
    return names


def _open_npy(path: Path, labels: str | Path | None) -> LabelledSource:
    if labels is None:
        _validate.fail("--labels", f"the .npy file with the labels of {path}", "nothing")
    if not (labels := Path(labels)).is_file():
        _validate.fail("--labels", "an existing .npy file", f"{labels}: no such file")
    found = npy_source(labels)
    return LabelledSource(npy_source(path), found.read(0, found.shape[0] if found.shape else 0))


def _open_zarr(
    path: Path, features_key: str | None, label_key: str | None, unit_column: str | None
) -> LabelledSource:
    try:
        import zarr
    except ImportError:
        _validate.fail(str(path), "a format whose library is there", "pip install 'privmix[zarr]'")
    try:
        arrays: dict[str, Any] = dict(zarr.open_group(path, mode="r").arrays())
        _check_keys(path, sorted(arrays), features_key, label_key, unit_column)
        features = arrays[str(features_key)]
        found = np.asarray(arrays[str(label_key)][...])
        units = None if unit_column is None else np.asarray(arrays[unit_column][...])
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
    source = IteratedSource(features.shape, features.dtype, passes, held)
    return LabelledSource(source, found, units)


def _open_parquet(path: Path, columns: _Columns) -> LabelledSource:
    """Open a Parquet file, or a folder of them, whose row groups are read one after another."""
    files = parquet_files(path)
    if not files:
        _validate.fail(str(path), "a folder of Parquet files", "none in it")
    whole, units = _read_parquet_labels(path, files, columns)
    names = [n for n in pq.read_schema(files[0]).names if n not in columns.others]
    width = len(names)
    vector_width: int | None = None  # the width of a column of lists is not known yet

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
                    found = _features_of(file, pa.Table.from_batches([run]), first, vector_width)
                    yield first, found
                    first += run.num_rows

    def guarded(start: int) -> Iterator[tuple[int, NDArray[Any]]]:
        try:
            yield from passes(start)
        except (pa.ArrowException, OSError) as error:
            _validate.fail(str(path), "a .parquet table", str(error).splitlines()[0])

    # A run of nulls alone does not show how wide vectors are.
    sample = next((run for _, run in guarded(0) if run.shape[1]), None)
    if sample is None:
        _validate.fail(f"{path}: {names[0]}", "at least one list of numbers", "none")
    width = vector_width = sample.shape[1]
    shape = (len(whole), width)
    held = 2 * _BUFFER_BYTES + 4 * _BATCH_BYTES
    return LabelledSource(IteratedSource(shape, sample.dtype, guarded, held), whole, units)


def parquet_files(path: Path) -> list[Path]:
    """Return a file, or those below a folder in order; hidden ones, as Arrow has it, are left out."""
    if not path.is_dir():
        return [path]
    return [
        file
        for file in sorted(path.rglob("*.parquet"))
        if not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
    ]


def _read_parquet_labels(
    path: Path, files: Sequence[Path], columns: _Columns
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Check the columns, and read those with the labels and the owners.

    File by file, in the order in which features are read: a record must keep its own label and
    owner, and those of one file must not change the type of another's.
    """
    try:
        names = pq.read_schema(files[0]).names
        columns.check(files[0], names)
        check_parts(files, names, alike=_alike)
        parts = [
            columns.of(file, table)
            for file in files
            if (table := pq.read_table(file, columns=columns.others, partitioning=None)).num_rows
        ]
    except (pa.ArrowException, OSError) as error:
        _validate.fail(str(path), "a parquet table", str(error).splitlines()[0])
    if not parts:
        _validate.fail(str(path), "at least one record", "none")
    labels, units = zip(*parts, strict=True)
    if len(widths := {part.shape[1:] for part in labels}) > 1:
        received = " and ".join(str(width) for (width,) in sorted(widths))
        _validate.fail(f"{path}: {columns.labels[0]}", "lists of one length", received)
    return np.concatenate(labels), None if columns.unit is None else np.concatenate(units)


def check_parts(
    files: Sequence[Path],
    names: Collection[str],
    alike: Callable[[pa.DataType, pa.DataType], bool] = pa.DataType.equals,
) -> None:
    """Refuse files of a folder whose columns are not those of the first, in name and type.

    Args:
        files: Parquet files.
        names: The columns whose types are compared.
        alike: Whether two types may stand for each other.

    """
    first = pq.read_schema(files[0])
    due = dict(zip(first.names, first.types, strict=True))
    for file in files[1:]:
        schema = pq.read_schema(file)
        found = dict(zip(schema.names, schema.types, strict=True))
        for name in [*due, *found]:
            if name not in found or name not in due:
                received = "no such column" if name in due else "one more"
                _validate.fail(f"{file}: {name}", f"the columns of {files[0]}", received)
            if name in names and not alike(due[name], found[name]):
                allowed = f"a column of {due[name]}, as in {files[0]}"
                _validate.fail(f"{file}: {name}", allowed, f"a column of {found[name]}")


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of both types are the same kind of thing, each read as what it is."""
    if pa.types.is_null(one) or pa.types.is_null(other):
        return True
    kinds = [k.value_type if pa.types.is_dictionary(k) else k for k in (one, other)]
    for is_kind in (_is_number, _is_text, _is_list):
        if all(map(is_kind, kinds)):
            return True
    return bool(kinds[0] == kinds[1])


def _check_keys(
    path: Path,
    names: Sequence[str],
    features_key: str | None,
    label_key: str | None,
    unit_column: str | None,
) -> None:
    asked = [("--features-key", features_key), ("--label-key", label_key)]
    if unit_column is not None:
        asked.append(("--unit-column", unit_column))
    for option, key in asked:
        if key not in names:
            allowed = f"an array of {path}: {', '.join(names)}"
            _validate.fail(option, allowed, repr(key) if key else "nothing")


def _open_npz(
    path: Path, features_key: str | None, label_key: str | None, unit_column: str | None
) -> LabelledSource:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            _check_keys(path, list(arrays), features_key, label_key, unit_column)
            mapped = npz_source(path, str(features_key))
            features = ArraySource(arrays[features_key]) if mapped is None else mapped
            if not features.shape:
                _validate.fail(f"{path}: {features_key}", "an array of records", "a single number")
            units = None if unit_column is None else arrays[unit_column]
            return LabelledSource(features, arrays[label_key], units)
    except _validate.InvalidInputError:
        raise
    except ValueError as error:
        _validate.fail(str(path), "an .npz file without pickled objects", error)
    except Exception as error:  # a header of 1e15 numbers, a damaged archive: nearly anything
        _validate.fail(str(path), "an .npz file", error)


def _read_table(path: Path, columns: _Columns) -> pa.Table:
    try:
        options = pa.csv.ConvertOptions(column_types=dict.fromkeys(columns.texts, pa.binary()))
        table = pa.csv.read_csv(path, convert_options=options)
        names = table.column_names
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        _validate.fail(str(path), "a csv table", str(error).splitlines()[0])
    if table.num_rows == 0:
        _validate.fail(str(path), "at least one record", "none")
    columns.check(path, names)
    return _with_numbers(table, columns.texts)


def _with_numbers(table: pa.Table, texts: Collection[str]) -> pa.Table:
    """Read columns other than ``texts`` that became text for some cell's sake, cell by cell.

    What a cell says does not depend on others: where it is no number it is a bad record. A column
    without any number stays text, which is refused with advice.
    """
    for place, field in enumerate(table.schema):
        if field.name in texts or not _is_text(field.type):
            continue
        cells = table.column(place).cast(pa.large_binary())
        numbers = np.array([_csv_number(cell) for cell in cells.to_pylist()])
        if not np.isnan(numbers).all():
            table = table.set_column(place, field.name, pa.array(numbers))
    return table


def _csv_number(cell: bytes | None) -> float:
    """Return the number that Arrow makes of a cell in a column of numbers; NaN for no number."""
    text = cell or b""
    if text in _CSV_WORDS:
        return _CSV_WORDS[text]
    text = text.strip()
    if re.fullmatch(b"0[xX][0-9a-fA-F]{1,16}", text):  # the bits of an integer
        bits = int(text, 16)
        return float(bits - (bits >> 63 << 64))
    try:
        return math.nan if b"_" in text else float(text)
    except ValueError:
        return math.nan


def _as_classes(texts: NDArray[Any], classes: Sequence[int] | Sequence[str]) -> NDArray[Any]:
    """Return labels of a source that knows texts only: the classes that are written so."""
    written = {str(value): value for value in classes}
    return np.array([written.get(text, text) for text in texts], dtype=object)


def _features_of(
    path: Path, table: pa.Table, first: int = 0, width: int | None = None
) -> NDArray[Any]:
    """Turn feature columns into an array; ``first`` is the number of the first record in errors.

    ``width`` is that of vectors in a column of lists, where it is known.
    """
    if table.num_columns == 1 and _is_list(table.schema.field(0).type):
        return _list_column(path, table.column_names[0], table.column(0), first, width)
    columns = zip(table.column_names, table.columns, strict=True)
    return np.column_stack([_number_column(path, name, column) for name, column in columns])


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _is_text(kind: pa.DataType) -> bool:
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
    if pa.types.is_null(kind):  # a column of a CSV file without a single value
        return np.full(len(column), np.nan)
    if not _is_number(kind):
        remedies = "--text-column or --image-column with --extractor turns raw records into numbers"
        _validate.fail(
            f"{path}: {name}", f"a column of numbers ({remedies})", f"a column of {kind}"
        )
    if column.null_count:  # nulls become NaN, which the policy for bad records then meets
        column = column.cast(pa.float64(), safe=False)  # rounds, as NumPy does
    return np.asarray(column.to_numpy())


def _label_column(column: pa.ChunkedArray) -> NDArray[Any]:
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
    if not _is_text(values.type):
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
