"""Read labelled feature vectors from Parquet, CSV, NumPy and Zarr, whole or in stretches of records."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privmix import _validate
from privmix.inputs.arrays import (
    ArraySource,
    IteratedSource,
    Source,
    check_keys,
    npy_source,
    npz_source,
    opened_npz,
)
from privmix.inputs.columns import (
    features_of,
    is_list,
    is_number,
    is_text,
    label_column,
    text_numbers,
)
from privmix.inputs.delimited import (
    BLOCK_BYTES,
    TEXT_SUFFIXES,
    fail_column,
    read_header,
    readable,
    refuse_nameless,
    scan_text,
    suffix_of,
)
from privmix.inputs.extractor import FeaturesHeader
from privmix.inputs.feature_names import Names
from privmix.inputs.labels import refuse_floats
from privmix.inputs.parquet import check_parts, index_columns, parquet_files, scan_parquet
from privmix.schema import Target
from privmix.schema.text_format import PLAIN, TextFormat

SUFFIXES = (".parquet", ".npz", ".npy", ".zarr", *TEXT_SUFFIXES)
_BATCH_BYTES = 8 << 20
_BUFFER_BYTES = 32 << 20
_SAMPLE_ROWS = 1024  # while nothing is known of how wide vectors are
_TEXT_BLOCK = 1 << 20
_WIDEST_CELL = 64


class LabelledData(NamedTuple):
    """Feature vectors, shape (count, num_features), their labels, shape (count,) for classes and
    (count, num_classes) for other targets, the records' owners, shape (count,), if asked for, and
    the features' names, where each has a column of its own.
    """

    features: NDArray[Any]
    labels: NDArray[Any]
    units: NDArray[Any] | None = None
    feature_names: Names | None = None


class LabelledSource(NamedTuple):
    """Feature vectors that are read in runs, and the rest as ``LabelledData`` has it."""

    features: Source
    labels: NDArray[Any]
    units: NDArray[Any] | None = None
    feature_names: Names | None = None


def read_labelled(path: str | Path, *, bytes_apart: bool = False, **options: Any) -> LabelledData:
    """Read a file of labelled feature vectors into memory; ``options`` of :func:`open_labelled`.

    ``bytes_apart`` refuses a folder of Parquet files whose features are bytes in some and other numbers
    in others, for whom bytes stand for 0 to 1: a record in a file of its own would else decide how those
    of all other files are read.
    """
    opened = open_labelled(path, **options)
    if bytes_apart and Path(path).is_dir():
        known = (options.get("classes", ()), options.get("target", "class"))
        labels = label_names(options.get("label"), *known)
        _refuse_bytes_beside_numbers(Path(path), labels, options.get("unit_column"))
    features = opened.features.read(0, opened.features.shape[0])
    return LabelledData(features, opened.labels, opened.units, opened.feature_names)


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
    form: TextFormat = PLAIN,
) -> LabelledSource:
    """Open a file of labelled feature vectors, to be read in stretches of records.

    Compressed ``.npz`` files are read whole. A cell of a CSV file that is no number is NaN, a bad
    record. The index that pandas stored in a Parquet file is no feature.

    Args:
        path: A ``.parquet``, ``.csv`` or ``.tsv`` file (text also as ``.gz`` or ``.zst``), a folder
            of Parquet files, an ``.npz`` or ``.npy`` file, or a ``.zarr`` folder (extra ``zarr``).
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
        form: How a file of delimited text is written.

    Raises:
        InvalidInputError: A missing file, column or array, an empty or truncated file, another type
            of column.

    """
    path = Path(path)
    if not path.exists():
        _validate.fail(str(path), "an existing file", "no such file")
    suffix = suffix_of(path)
    if path.is_dir() and suffix != ".zarr":
        suffix = ".parquet"
    elif not path.is_dir():
        _validate.regular_file(path)
    if suffix not in SUFFIXES:
        _validate.fail(str(path), f"a file ending in {', '.join(SUFFIXES)}", repr(path.suffix))
    if suffix not in (".npz", ".zarr"):
        for option, value in (("--features-key", features_key), ("--label-key", label_key)):
            if value is not None:
                _validate.fail(option, "nothing except for an .npz or .zarr file", repr(value))
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
        _validate.fail("--labels", "nothing except for an .npy file", str(labels))
    if suffix == ".npz":
        return _open_npz(path, features_key, label_key, unit_column)
    if suffix == ".zarr":
        return _open_zarr(path, features_key, label_key, unit_column)
    columns = _Columns(label_names(label, classes, target), unit_column, target, classes)
    texts = suffix in TEXT_SUFFIXES
    opened = _open_text(path, columns, form) if texts else _open_parquet(path, columns)
    header = FeaturesHeader.of_file(path)
    texts = texts or (header is not None and header.labels_as_text)
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

    def check(self, path: Path, names: Sequence[str], *, known: bool = True) -> None:
        """Refuse a table without these columns, or without any other.

        Names that are not ``known`` to be names are not shown.
        """
        asked = [("--label", name) for name in self.labels]
        if self.unit is not None:
            asked.append(("--unit-column", self.unit))
        for option, name in asked:
            if name not in names:
                fail_column(option, str(path), names, name, known)
        if len(set(names)) != len(names):
            _validate.fail(str(path), "columns with distinct names", "a repeated name")
        if len(set(self.others)) != len(self.others):
            received = ", ".join(self.others)
            _validate.fail("--label, --unit-column", "distinct columns", received)
        if len(names) == len(self.others):
            _validate.fail(str(path), "at least one feature column", "none")

    def of(
        self, path: Path, table: pa.Table, form: TextFormat = PLAIN
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Return the labels and the owners in a table; ``form`` says how texts are written."""
        units = None if self.unit is None else _bare(label_column(table.column(self.unit)), form)
        if self.target == "class":
            labels = table.column(self.labels[0])
            refuse_floats(f"{path}: {self.labels[0]}", labels, self.classes)
            return _bare(label_column(labels), form), units
        vectors = table.select(self.labels)
        if vectors.schema.field(0).type == pa.binary():
            return text_numbers(path, vectors, form), units
        return features_of(path, vectors), units


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
        received = "no regular file" if labels.exists() else "no such file"
        _validate.fail("--labels", "an existing .npy file", f"{labels}: {received}")
    found = npy_source(labels)
    return LabelledSource(npy_source(path), found.read(0, found.shape[0] if found.shape else 0))


def _open_zarr(
    path: Path, features_key: str | None, label_key: str | None, unit_column: str | None
) -> LabelledSource:
    try:
        import zarr
    except ImportError:
        _validate.fail(str(path), "an installed zarr: pip install 'privmix[zarr]'", "none")
    try:
        arrays: dict[str, Any] = dict(zarr.open_group(path, mode="r").arrays())
        check_keys(path, sorted(arrays), _asked(features_key, label_key, unit_column))
        wanted = [
            str(features_key),
            str(label_key),
            *([] if unit_column is None else [unit_column]),
        ]
        for key in wanted:
            _refuse_missing_chunks(path, key, arrays[key])
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
                _refuse_missing_chunks(path, str(features_key), features, first)
                yield first, np.asarray(features[first : first + rows])
            except _validate.InvalidInputError:
                raise
            except (OSError, ValueError, RuntimeError) as error:
                position = f"{path}: {features_key}[{first}]"
                _validate.fail(position, "a chunk that can be read", str(error).splitlines()[0])

    held = 2 * rows * features.shape[1] * features.dtype.itemsize
    source = IteratedSource(features.shape, features.dtype, passes, held)
    return LabelledSource(source, found, units)


def _refuse_missing_chunks(path: Path, key: str, array: Any, first: int | None = None) -> None:
    """Refuse an array with a chunk that is no file, of all of it or at record ``first``.

    Zarr fills such a chunk with zeros, whether it was lost or was never written since it holds
    zeros alone.
    """
    sizes = array.shards or array.chunks
    counts = [-(-length // size) for length, size in zip(array.shape, sizes, strict=True)]
    rows = range(counts[0] if counts else 1) if first is None else [first // sizes[0]]
    for chunk in itertools.product(rows, *map(range, counts[1:])):
        name = array.metadata.encode_chunk_key(chunk if counts else ())
        file = path / array.path / name
        if not file.is_file():
            allowed = (
                "all chunks as files (write zeros too: zarr.config.set({'array.write_empty_chunks': "
                "True}))"
            )
            received = "no regular file" if file.exists() else "none"
            _validate.fail(f"{path}: {key}, chunk {name}", allowed, received)


def _open_parquet(path: Path, columns: _Columns) -> LabelledSource:
    """Open a Parquet file, or a folder of them, whose row groups are read one after another."""
    files = parquet_files(path)
    if not files:
        _validate.fail(str(path), "a folder of Parquet files", "none in it")
    whole, units = _read_parquet_labels(path, files, columns)
    schema = pq.read_schema(files[0])
    aside = {*columns.others, *index_columns(schema)}
    names = [name for name in schema.names if name not in aside]
    if not names:
        _validate.fail(str(path), "at least one feature column", "none")
    width = len(names)
    feature_names = _names_of(pa.schema([schema.field(name) for name in names]))
    vector_width: int | None = None  # the width of a column of lists is not known yet
    lists = any(is_list(schema.field(name).type) for name in names)

    def passes(start: int) -> Iterator[tuple[int, NDArray[Any]]]:
        buffer = max(1 << 12, min(1 << 20, _BUFFER_BYTES // len(names)))
        rows = max(1, _BATCH_BYTES // (8 * width))
        if lists and vector_width is None:
            rows = _SAMPLE_ROWS
        for file, first, run in scan_parquet(
            files, names, start, batch_rows=rows, buffer_bytes=buffer
        ):
            yield first, features_of(file, run, first, vector_width)

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
    shown = names if len(names) == width else ()
    source = IteratedSource(shape, sample.dtype, guarded, held, shown)
    return LabelledSource(source, whole, units, feature_names)


def _refuse_bytes_beside_numbers(path: Path, labels: Sequence[str], unit: str | None) -> None:
    """Refuse files of a folder, some of whose features NumPy reads as bytes and some as other numbers."""
    kinds: dict[bool, Path] = {}
    for file in parquet_files(path):
        try:
            schema = pq.read_schema(file)
        except (pa.ArrowException, OSError):  # whoever reads it says so
            continue
        aside = {*labels, *index_columns(schema)} | ({unit} - {None})
        types = [field.type for field in schema if field.name not in aside]
        numbers = [kind.value_type if is_list(kind) else kind for kind in types]
        as_bytes = pa.uint8() in numbers and set(numbers) <= {pa.uint8(), pa.bool_()}
        kinds.setdefault(as_bytes, file)
    if len(kinds) > 1:
        allowed = f"features that are bytes (uint8) in all files or in none, as in {kinds[False]}"
        _validate.fail(str(kinds[True]), allowed, "bytes")


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


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of both types are the same kind of thing, each read as what it is."""
    if pa.types.is_null(one) or pa.types.is_null(other):
        return True
    kinds = [k.value_type if pa.types.is_dictionary(k) else k for k in (one, other)]
    for is_kind in (is_number, is_text, is_list):
        if all(map(is_kind, kinds)):
            return True
    return bool(kinds[0] == kinds[1])


def _open_npz(
    path: Path, features_key: str | None, label_key: str | None, unit_column: str | None
) -> LabelledSource:
    with opened_npz(path, _asked(features_key, label_key, unit_column)) as arrays:
        mapped = npz_source(path, str(features_key))
        features = ArraySource(arrays[features_key]) if mapped is None else mapped
        if not features.shape:
            _validate.fail(f"{path}: {features_key}", "an array of records", "shape ()")
        units = None if unit_column is None else arrays[unit_column]
        return LabelledSource(features, arrays[label_key], units)


def _asked(
    features_key: str | None, label_key: str | None, unit_column: str | None
) -> list[tuple[str, str | None]]:
    """Return the arrays that are asked for, by option."""
    owners = [] if unit_column is None else [("--unit-column", unit_column)]
    return [("--features-key", features_key), ("--label-key", label_key), *owners]


def _open_text(path: Path, columns: _Columns, form: TextFormat) -> LabelledSource:
    """Open a file of delimited text, whose rows are read one after another."""
    names = read_header(path, form, columns.others)
    columns.check(path, names, known=any(name in names for name in columns.others))
    refuse_nameless(path, names)
    features = [name for name in names if name not in columns.others]
    # A row is in memory at once, and a block holds the longest.
    block = max(_TEXT_BLOCK, min(BLOCK_BYTES, _WIDEST_CELL * len(names)))
    labels, units, count = [], [], 0
    with readable(path, suffix_of(path)):
        for read in scan_text(path, columns.others, form, block):
            cells = [column.fill_null(b"") for column in read.columns]
            table = pa.table(cells, names=read.column_names)
            found, owners = columns.of(path, table, form)
            labels.append(found)
            units += [] if owners is None else [owners]
            count += table.num_rows
    if not count:
        _validate.fail(str(path), "at least one record", "none")

    def passes(start: int) -> Iterator[tuple[int, NDArray[Any]]]:
        first = 0
        with readable(path, suffix_of(path)):
            for table in scan_text(path, features, form, block):
                if first + table.num_rows > start:
                    yield first, text_numbers(path, table, form)
                first += table.num_rows

    sample = next(run for _, run in passes(0))
    held = len(features) * 8 * len(sample) * 2 + 3 * block
    source = IteratedSource((count, len(features)), sample.dtype, passes, held, features)
    owners = np.concatenate(units) if units else None
    return LabelledSource(source, np.concatenate(labels), owners, tuple(features))


def _bare(values: NDArray[Any], form: TextFormat) -> NDArray[Any]:
    """Return labels or owners without the blanks that a format says are no part of them."""
    if not form.strip:
        return values
    return np.array([v.strip() if isinstance(v, str) else v for v in values], dtype=object)


def _as_classes(texts: NDArray[Any], classes: Sequence[int] | Sequence[str]) -> NDArray[Any]:
    """Return labels of a source that knows texts only: the classes that are written so."""
    written = {str(value): value for value in classes}
    return np.array([written.get(text, text) for text in texts], dtype=object)


def _names_of(schema: pa.Schema) -> Names | None:
    """Return the names of feature columns; a column of vectors names none of their numbers."""
    vectors = len(schema) == 1 and is_list(schema.field(0).type)
    return None if vectors else tuple(schema.names)
