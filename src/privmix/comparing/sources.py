"""Records to compare: columns of one table, whatever file they come from."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privmix import _validate
from privmix.features.applying import apply_extractor
from privmix.foreign.files import MOST_JSON_BYTES, read_file
from privmix.inputs.arrays import opened_npz
from privmix.inputs.columns import features_of, is_list, is_number, is_text, text_numbers
from privmix.inputs.delimited import (
    fail_column,
    is_delimited,
    read_header,
    readable,
    scan_text,
    suffix_of,
)
from privmix.inputs.extractor import ExtractorIdentity
from privmix.inputs.raw.cells import Cells, read_cells
from privmix.publishing.release import Release
from privmix.schema import TARGETS, Schema, Target
from privmix.schema.table import TableSchema
from privmix.schema.text_format import PLAIN, TextFormat
from privmix.synthesis.file import sidecar_path
from privmix.synthesis.synthesizer import synthesize

_USUAL_LABEL = "label"
_KEYS = ("features", "labels")  # as synthesize calls them
_LEADING_ZERO = r"^[+-]?0\d"
_SEVERAL = "; of several, write a column for each, and name one by --label"


@dataclass(frozen=True)
class Facts:
    """What is public about the records: from a schema, or from what is beside synthetic ones.

    Attributes:
        text_format: How a file of delimited text is written.
        table: The columns, if the records are rows of a table.
        target: What labels are.
        classes: Labels that there are; None where nothing tells, so that labels are compared as texts.
        label_names: Columns that are labels as well, beside the one that is asked for.

    """

    text_format: TextFormat
    table: TableSchema | None
    target: Target = "class"
    classes: tuple[int, ...] | tuple[str, ...] | None = None
    label_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, schema: Schema) -> Self:
        """Take them from a schema."""
        names = () if schema.target == "class" else tuple(map(str, schema.classes))
        return cls(schema.text_format, schema.table, schema.target, schema.classes, names)


def facts_of(source: Path) -> Facts | None:
    """Return what a release, or what is beside synthetic records, says of a table; None for nothing.

    Raises:
        InvalidInputError: A release, or facts beside a file, that cannot be read.

    """
    if source.is_dir():
        schema = Release(source).schema
        told = schema.table is not None or schema.text_format != PLAIN
        return Facts.of(schema) if told else None
    identity = _extractor_of(source)
    if identity is None or identity.name != "tabular":
        return None
    position = f"{sidecar_path(source)}: extractor.parameters.table"
    table = TableSchema.from_json(str(identity.parameters.get("table")), position)
    beside = _facts_beside(source)
    target, names = beside.get("target"), beside.get("label_columns")
    return Facts(
        table.format,
        table,
        next((known for known in TARGETS if known == target), "class"),
        label_names=tuple(map(str, names)) if isinstance(names, list) else (),
    )


def read_pair(
    real: Path,
    synthetic: Path,
    label: str,
    schema: Schema | None = None,
    *,
    seed: int = 0,
    keys: tuple[str, str] = _KEYS,
) -> tuple[pa.Table, pa.Table]:
    """Read records, and read synthetic ones or draw them from a release, as columns of one kind each.

    Without a schema, what the release or the facts beside the file say of the table counts. Where these
    say nothing either, a column that is text on one side is so in a CSV file on the other, where ``03``
    would be 3. ``keys`` are the arrays of REAL, if it is an ``.npz`` file.

    Raises:
        InvalidInputError: As of :func:`read_columns` and :func:`facts_of`, for either.

    """
    facts = facts_of(synthetic) if schema is None else Facts.of(schema)
    records = read_columns(real, label, facts, keys=keys)
    if synthetic.is_dir():
        made = draw_columns(synthetic, max(records.num_rows, 1000), seed, label, facts)
    else:
        made = read_synthetic(synthetic, label, facts, texts=_texts_of(records))
    if facts is None:  # which would have said so
        return _as_texts(records, real, _texts_of(made)), made
    if facts.target == "soft":  # the other weights add up to what this one leaves of 1
        others = set(facts.label_names) - {label}
        records, made = (_without(table, others) for table in (records, made))
    return records, made


def _without(table: pa.Table, names: set[str]) -> pa.Table:
    return table.drop_columns([name for name in table.column_names if name in names])


def read_columns(
    path: Path, label: str, facts: Facts | None = None, *, keys: tuple[str, str] = _KEYS
) -> pa.Table:
    """Read a Parquet, CSV or NPZ file; vectors become columns ``x0``, ``x1`` and so on.

    With facts, cells mean what these say: their ``table`` gives columns their types and tells what is
    missing, their classes those of the labels, their format how a file of delimited text is written.
    Columns of which they say nothing stay as they are.

    Raises:
        InvalidInputError: Another file, one that cannot be read, or one without the label.

    """
    table = _read(path, label, facts, keys)
    if label not in table.column_names:
        _fail_label(path, table.column_names, label)
    table = _expanded(path, table, label)
    typed = _typed(table, label, _of_columns_there(facts, table.column_names), path)
    for name in table.column_names:
        if name not in typed.column_names:
            typed = typed.append_column(name, table[name])
    return typed


def read_synthetic(
    path: Path, label: str, facts: Facts | None = None, *, texts: Collection[str] = ()
) -> pa.Table:
    """Read a file of synthetic records; its label column gets the name ``label``.

    Without a column of that name it is the one that the facts beside the file name, else
    ``label``, as ``synthesize`` calls it unless told otherwise. ``texts`` are columns that a CSV file
    holds as texts, whatever they look like.

    Raises:
        InvalidInputError: As of :func:`read_columns`.

    """
    table = _read(path, label, None)  # as synthesize writes it, whatever REAL's format is
    names = table.column_names
    own = label if label in names else _label_beside(path)
    if own not in names:
        _fail_label(path, names, label)
    table = _as_texts(table, path, {own if name == label else name for name in texts})
    renamed = table.rename_columns([label if name == own else name for name in names])
    return _typed(_expanded(path, renamed, label), label, _of_columns_there(facts, names), path)


def _of_columns_there(facts: Facts | None, names: list[str]) -> Facts | None:
    """Leave out columns that a file lacks: a comparison says which these are."""
    if facts is None or facts.table is None:
        return facts
    there = tuple(column for column in facts.table.columns if column.name in names)
    if not there:  # vectors
        return facts
    return replace(facts, table=facts.table.model_copy(update={"columns": there}))


def _fail_label(path: Path, names: list[str], label: str) -> NoReturn:
    known = not is_delimited(path)  # else the first line may be a record
    fail_column("--label", str(path), names, label, known)


def protects_nobody(path: Path) -> bool:
    """Tell whether synthetic records are of a release that protects nobody, as facts beside their file say."""
    return _facts_beside(path).get("private") is False


def _facts_beside(path: Path) -> dict[str, Any]:
    """Read what is beside a file of synthetic records; nothing where that is no JSON object."""
    beside = sidecar_path(path)
    try:
        facts = json.loads(read_file(beside, MOST_JSON_BYTES)) if beside.is_file() else {}
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _label_beside(path: Path) -> str:
    names = _facts_beside(path).get("label_columns")
    known = isinstance(names, list) and len(names) == 1 and isinstance(names[0], str)
    return str(names[0]) if known and names is not None else _USUAL_LABEL


def _read(
    path: Path, label: str, schema: Facts | None, keys: tuple[str, str] | None = None
) -> pa.Table:
    """Read a table as it stands, but for arrays, whose labels are called ``label``."""
    _validate.regular_file(path)
    suffix = path.suffix.lower()
    if suffix != ".npz" and keys is not None and keys != _KEYS:
        allowed = "nothing except for an .npz file"
        _validate.fail("--features-key, --label-key", allowed, ", ".join(keys))
    with readable(path, suffix_of(path)):
        if suffix == ".parquet":
            with pq.ParquetFile(path) as file:
                _refuse_twice(path, file.schema_arrow.names)  # which Arrow does not read
                table = file.read()
        elif schema is not None and is_delimited(path):
            form = schema.text_format
            names = read_header(path, form, [label])
            table = pa.concat_tables(scan_text(path, names, form))
        elif suffix == ".csv":
            # One thread knows the number of a row that it cannot read.
            table = pa_csv.read_csv(path, read_options=pa_csv.ReadOptions(use_threads=False))
        elif suffix == ".npz":
            table = _arrays(path, label, keys)
        else:
            _validate.fail(str(path), "a .parquet, .csv or .npz file", suffix or "no ending")
    _refuse_twice(path, table.column_names)
    return table


def _refuse_twice(path: Path, names: list[str]) -> None:
    """Refuse names that two columns have: nothing says which is which. The names are not shown."""
    if len(set(names)) < len(names):  # the first line of text may be a record
        twice = len(names) - len(set(names))
        _validate.fail(str(path), "columns of different names", f"{twice} named as another is")


def draw_columns(
    folder: Path, num_records: int, seed: int, label: str, facts: Facts | None = None
) -> pa.Table:
    """Draw synthetic records from a release, as columns."""
    made = synthesize(folder, num_records, seed=seed, label=label)
    table = made.to_arrow()
    if label not in made.names:  # of several labels, which the release names
        fail_column("--label", f"{folder}'s labels", made.names, label, known=True)
    return _typed(table, label, facts, folder)


def in_one_space(records: pa.Table, synthetic: pa.Table, label: str, source: Path) -> pa.Table:
    """Return records as features where the synthetic ones are features, and not rows of the table.

    A table with hashed columns cannot be drawn as rows. The extractor is the one that is named by
    the release, or by the facts beside the file, ``source``; it is public, and so is what it computes.

    Raises:
        InvalidInputError: Records that the extractor cannot take; or synthetic records of what
            a release's preprocessing left, which cannot be undone.

    """
    if len(set(records.column_names) & set(synthetic.column_names)) > 1:
        return records
    identity = _extractor_of(source)
    if identity is None or identity.name != "tabular":
        return records
    vectors = apply_extractor(records.drop_columns([label]), identity)
    names = [name for name in synthetic.column_names if name != label]
    if vectors.shape[1] != len(names):
        allowed = f"{vectors.shape[1]} features: the release's preprocessing cannot be undone"
        _validate.fail(str(source), allowed, len(names))
    columns = dict(zip(names, vectors.T, strict=True))
    return pa.table(columns).append_column(label, records[label])


def _extractor_of(source: Path) -> ExtractorIdentity | None:
    if source.is_dir():
        return Release(source).certificate.extractor
    found = _facts_beside(source).get("extractor")
    return None if found is None else ExtractorIdentity.from_json(json.dumps(found), str(source))


def _typed(table: pa.Table, label: str, facts: Facts | None, path: Path) -> pa.Table:
    """Give columns the types that are stated, so that those of both sides are the same."""
    if facts is None:
        return table
    if facts.table is not None and not _is_vectors(table, facts.table):
        cells = read_cells(table, facts.table)
        _refuse_unread(path, cells)
        typed = cells.table
    else:
        typed = table.drop_columns([label])
        if typed.num_columns and all(pa.types.is_binary(kind) for kind in typed.schema.types):
            numbers = text_numbers(Path(label), typed, facts.text_format)
            typed = pa.table(list(numbers.T), names=typed.column_names)
    for name in (label, *facts.label_names):
        if name in table.column_names and name not in typed.column_names:
            typed = typed.append_column(name, _typed_labels(table.select([name]), facts))
    return typed


def _refuse_unread(path: Path, cells: Cells) -> None:
    """Refuse columns whose cells are mostly no value of theirs: all would be missing, and alike to nothing."""
    for name, read in cells.columns.items():
        if len(read.wrong) > read.num_values:
            allowed = "cells as the schema says, by type and format"
            total = len(read.wrong) + read.num_values
            _validate.fail(f"{path}: {name}", allowed, f"{len(read.wrong)} of {total} that are not")


def _typed_labels(column: pa.Table, facts: Facts) -> pa.Array | pa.ChunkedArray:
    """Return labels as texts, those of classes as these are written; of other targets as numbers."""
    labels = column[0]
    if facts.target == "class":
        known: dict[object, str] = {value: str(value) for value in facts.classes or ()}
        return pa.array([_label_text(value, known) for value in labels.to_pylist()], pa.string())
    if pa.types.is_binary(labels.type):
        name = column.column_names[0]
        return pa.array(text_numbers(Path(name), column, facts.text_format)[:, 0])
    return labels


def _label_text(value: object, known: dict[object, str]) -> str | None:
    """Return a label as the class is written that it is by value, as a release takes it: 3.0 and 3, True and 1."""
    if value is None or value in known:
        return known.get(value)
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return text.strip()


def _is_vectors(table: pa.Table, columns: TableSchema) -> bool:
    """Whether a table holds synthetic features, none of the schema's columns."""
    return not {column.name for column in columns.columns} & set(table.column_names)


def _texts_of(table: pa.Table) -> set[str]:
    return {field.name for field in table.schema if is_text(field.type)}


def _as_texts(table: pa.Table, path: Path, names: Collection[str]) -> pa.Table:
    """Take columns of a CSV file as the texts that they are there, where a number would not tell these apart."""
    again = [f.name for f in table.schema if f.name in names and not is_text(f.type)]
    if path.suffix.lower() != ".csv" or not again:
        return table
    kinds = dict.fromkeys(again, pa.string())
    options = pa_csv.ConvertOptions(
        include_columns=again, column_types=kinds, strings_can_be_null=True
    )
    written = pa_csv.read_csv(path, convert_options=options)
    for name in again:
        texts = pc.utf8_trim_whitespace(written[name])
        if pc.any(pc.match_substring_regex(texts, _LEADING_ZERO)).as_py():
            table = table.set_column(table.column_names.index(name), name, texts)
    return table


def _arrays(path: Path, label: str, keys: tuple[str, str] | None) -> pa.Table:
    told = (path.name, path.name) if keys is None else ("--features-key", "--label-key")
    features_key, label_key = keys or _KEYS
    with opened_npz(path, list(zip(told, (features_key, label_key), strict=True))) as file:
        features, labels = file[features_key], file[label_key]
    if features.ndim != 2:
        _validate.fail(f"{path}: {features_key}", "two dimensions", f"shape {features.shape}")
    if labels.shape != (len(features),):
        allowed = f"{len(features)} labels, one a record{_SEVERAL}"
        _validate.fail(f"{path}: {label_key}", allowed, f"shape {labels.shape}")
    numbers = _native(f"{path}: {features_key}", features, "biuf")
    columns = {f"x{i}": pa.array(values) for i, values in enumerate(numbers.T)}
    if label in columns:
        allowed = f"a name for labels that no feature has; these are x0 to x{len(columns) - 1}"
        _validate.fail("--label", allowed, label)
    found = _native(f"{path}: {label_key}", labels, "biufUSmM")
    texts = found.dtype.kind in "USmM"
    return pa.table(columns | {label: pa.array(found.tolist() if texts else found)})


def _native(position: str, values: NDArray[Any], kinds: str) -> NDArray[Any]:
    """Return an array as Arrow takes it: in this machine's byte order, numbers in 64 bits at most."""
    kind = values.dtype
    if kind.kind not in kinds:
        allowed = "numbers or texts" if "U" in kinds else "numbers"
        _validate.fail(position, allowed, f"an array of {kind}")
    if kind.kind == "f" and kind.itemsize > 8:
        with np.errstate(over="ignore"):  # to infinity, which counts as missing
            return values.astype(np.float64)
    return values.astype(kind.newbyteorder("="), copy=False)


def _expanded(path: Path, table: pa.Table, label: str) -> pa.Table:
    """Turn a column of vectors of one width into one column a coordinate."""
    if is_list(table[label].type):
        _validate.fail(f"{path}: {label}", f"one label a record{_SEVERAL}", "a column of lists")
    names: list[str] = []
    columns: list[pa.Array] = []
    for name in table.column_names:
        column = table[name].combine_chunks()
        if is_list(column.type):
            rows = _vectors(path, name, table[name])
            names += [f"x{i}" for i in range(rows.shape[1])]
            columns += [pa.array(values) for values in rows.T]
            continue
        if pa.types.is_dictionary(column.type):
            column = pc.cast(column, column.type.value_type)
        names.append(name)
        columns.append(column)
    _refuse_twice(path, names)
    return pa.table(columns, names=names)


def _vectors(path: Path, name: str, column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column of vectors as rows of floating-point numbers, whatever numbers they are."""
    kind = column.type.value_type
    if pa.types.is_decimal(kind):
        column = column.cast(pa.list_(pa.float64()))
    elif not (is_number(kind) or pa.types.is_null(kind)):
        allowed = "a column of numbers, times or texts, or of vectors: lists of numbers"
        _validate.fail(f"{path}: {name}", allowed, f"a column of lists of {kind}")
    rows = features_of(path, pa.table({name: column}))
    return rows if rows.dtype.kind == "f" else rows.astype(np.float64)
