"""A schema to fill in, made from public facts: an extractor's, or a table's columns and types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from privmix import _validate
from privmix.columns import EXAMPLES
from privmix.raw.opening import SUFFIXES, column_types, readable


def schema_template(path: str | Path, label: str | None = None) -> tuple[str, list[str]]:
    """Return a schema with nulls for the public facts that the data holder must state.

    Nothing is read but the names of the columns and the types that the file states; no value,
    count, range or category, not even those that a dictionary-encoded column lists apart from its
    rows. A CSV file states no types, so that they are left open too: guessing them would take a
    look at the records.

    Args:
        path: A ``.parquet``, ``.csv``, ``.arrow``, ``.feather`` or ``.ipc`` file.
        label: The label column, which is no feature.

    Returns:
        JSON text, and the names of columns left out since no type of a table schema fits them
        (images, lists, times of day).

    Raises:
        InvalidInputError: No such file, another kind of file, or no such label column.

    """
    path = Path(path)
    allowed = f"a table in a file ending in {', '.join(SUFFIXES)}; --extractor for texts and images"
    if not path.is_file():
        _validate.fail(str(path), allowed, "a folder" if path.is_dir() else "no such file")
    if path.suffix.lower() not in SUFFIXES:
        _validate.fail(str(path), allowed, repr(path.suffix))
    with readable(path, path.suffix.lower()):
        types = column_types(path)
    if label is not None and label not in types.names:
        _validate.fail("--label", f"a column of {path}: {', '.join(types.names)}", repr(label))
    typed = path.suffix.lower() != ".csv"
    columns: list[dict[str, Any]] = []
    left_out = []
    for field in types:
        if field.name == label:
            continue
        kind = _column_type(field.type) if typed else None
        if typed and kind is None:
            left_out.append(field.name)
        else:
            columns.append(
                {"name": field.name, "type": kind, **dict.fromkeys(EXAMPLES.get(kind or "", ()))}
            )
    lines = ",\n".join(f"      {json.dumps(column)}" for column in columns)
    text = (
        '{\n  "classes": null,\n  "num_records": null,\n'
        f'  "table": {{\n    "columns": [\n{lines}\n    ]\n  }}\n}}\n'
    )
    return text, left_out


def features_template(num_features: int) -> str:
    """Return a schema with nulls for what an extractor of texts or images does not settle.

    Its clip norm of 1 suits features of any scale: the default plan scales every vector to it.
    """
    return (
        '{\n  "classes": null,\n  "num_records": null,\n'
        f'  "num_features": {num_features},\n  "feature_clip_norm": 1.0\n}}\n'
    )


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
