"""A schema to fill in, made from public facts: an extractor's, or a table's columns and types."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from privmix import _validate
from privmix.inputs.delimited import (
    TEXT_SUFFIXES,
    fail_column,
    propose_format,
    readable,
    suffix_of,
)
from privmix.inputs.parquet import index_columns
from privmix.inputs.raw.opening import SUFFIXES, column_types
from privmix.schema import Target
from privmix.schema.table import EXAMPLES
from privmix.schema.text_format import PLAIN


def schema_template(
    path: str | Path,
    label: str | Sequence[str] = (),
    *,
    unit_column: str | None = None,
    target: Target | None = None,
) -> tuple[str, list[str]]:
    """Return a schema with nulls for the public facts that the data holder must state.

    Nothing is read but the names of the columns and the types that the file states; no value,
    count, range or category, not even those that a dictionary-encoded column lists apart from its
    rows. A CSV file states no types, so that they are left open too: guessing them would take a
    look at the records. Its encoding and delimiter are proposed as its first line shows them.

    Args:
        path: A ``.parquet``, ``.arrow``, ``.feather`` or ``.ipc`` file, or one of delimited text.
        label: The label columns, which are no features.
        unit_column: The column of the records' owners, which is none either.
        target: What a label is; see ``Schema``. None: a class where there is at most one label
            column, else left open.

    Returns:
        JSON text, and the names of columns left out since no type of a table schema fits them
        (images, lists, times of day), or since they are the index that pandas stored.

    Raises:
        InvalidInputError: No such file, another kind of file, or no such column.

    """
    path = Path(path)
    labels = [label] if isinstance(label, str) else list(label)
    facts = _label_facts(labels, target)
    allowed = f"a table in a file ending in {', '.join(SUFFIXES)}; --extractor for texts and images"
    if not path.exists() or path.is_dir():
        _validate.fail(str(path), allowed, "a folder" if path.is_dir() else "no such file")
    _validate.regular_file(path)
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        _validate.fail(str(path), allowed, repr(path.suffix))
    typed, form = suffix not in TEXT_SUFFIXES, PLAIN
    with readable(path, suffix):
        if not typed:
            form = propose_format(path)
        types = column_types(path, form, labels)
    known = typed or any(name in types.names for name in labels)
    asked = [("--label", name) for name in labels]
    asked += [] if unit_column is None else [("--unit-column", unit_column)]
    aside = [name for _, name in asked]
    for option, name in asked:
        if name not in types.names:
            fail_column(option, str(path), types.names, name, known)
        if aside.count(name) > 1:
            _validate.fail(option, "a column that is named once", repr(name))
    columns: list[dict[str, Any]] = []
    left_out = []
    index = index_columns(types)
    for number, field in enumerate(types, 1):
        if field.name in aside:
            continue
        if field.name in index or not field.name.strip():
            left_out.append(field.name if field.name.strip() else f"column {number}, nameless")
            continue
        kind = _column_type(field.type) if typed else None
        if typed and kind is None:
            left_out.append(field.name)
        else:
            columns.append(
                {"name": field.name, "type": kind, **dict.fromkeys(EXAMPLES.get(kind or "", ()))}
            )
    lines = ",\n".join(f"      {json.dumps(column)}" for column in columns)
    written = form.model_dump()
    more = f',\n    "format": {json.dumps(written)}' if written else ""
    return _template(facts, f'"table": {{\n    "columns": [\n{lines}\n    ]{more}\n  }}'), left_out


def features_template(
    num_features: int,
    norm_bound: float | None,
    label: Sequence[str] = (),
    *,
    target: Target | None = None,
) -> str:
    """Return a schema with nulls for what an extractor of texts or images does not settle.

    Args:
        num_features: Width of its vectors.
        norm_bound: The largest norm that they can have; without one the clip norm is left open.
        label: The label columns; see :func:`schema_template`.
        target: What a label is.

    """
    sizes = {"num_features": num_features, "feature_clip_norm": norm_bound}
    return _template(_label_facts(list(label), target), _lines(sizes))


def _label_facts(labels: list[str], target: Target | None) -> dict[str, Any]:
    """Return what a schema says of labels; named columns name the entries of a label vector."""
    for name in labels:
        _validate.name("--label", name)
    if target == "class" and len(labels) > 1:
        _validate.fail("--label", "1 column for target class", len(labels))
    if target == "class" or (target is None and len(labels) < 2):
        return {"classes": None}
    named = len(labels) > 1 or (target == "regression" and bool(labels))
    facts: dict[str, Any] = {"classes": labels if named else None, "target": target}
    if target == "multilabel":
        facts["max_labels"] = None
    if target == "regression":
        facts["target_bounds"] = [[None, None]] * len(labels) if named else None
    return facts


def _template(facts: dict[str, Any], rest: str) -> str:
    return "{\n  " + _lines({**facts, "num_records": None}) + ",\n  " + rest + "\n}\n"


def _lines(facts: dict[str, Any]) -> str:
    return ",\n  ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in facts.items())


def _column_type(kind: pa.DataType) -> str | None:
    """Return the column type that fits most often; the data holder may choose another.

    A column of nulls alone counts as text, as pandas would store it with a value in it: which of
    the two it is would be a fact about the records.
    """
    types = pa.types
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "numeric"
    if types.is_timestamp(kind) or types.is_date(kind):
        return "datetime"
    texts = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    if types.is_dictionary(kind) or any(is_text(kind) for is_text in texts):
        return "categorical"
    return None
