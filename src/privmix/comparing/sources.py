"""Records to compare: columns of one table, whatever file they come from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from privmix import _validate
from privmix.foreign.files import MOST_JSON_BYTES, read_file
from privmix.learners.synthesis import synthesize
from privmix.learners.synthetic_file import sidecar_path

_USUAL_LABEL = "label"


def read_columns(path: Path, label: str) -> pa.Table:
    """Read a Parquet, CSV or NPZ file; vectors become columns ``x0``, ``x1`` and so on.

    Raises:
        InvalidInputError: Another file, one that cannot be read, or one without the label.

    """
    table = _read(path, label)
    if label not in table.column_names:
        _validate.fail(f"{path}: label", f"a column, given by --label, named {label}", "none")
    return _expanded(table)


def read_synthetic(path: Path, label: str) -> pa.Table:
    """Read a file of synthetic records; its label column gets the name ``label``.

    Without a column of that name it is the one that the facts beside the file name, else
    ``label``, as ``synthesize`` calls it unless told otherwise.

    Raises:
        InvalidInputError: As of :func:`read_columns`.

    """
    table = _read(path, label)
    names = table.column_names
    if label in names:
        return _expanded(table)
    own = _label_beside(path)
    if own not in names:
        _validate.fail(f"{path}: label", f"a column, given by --label, named {label}", "none")
    return _expanded(table.rename_columns([label if name == own else name for name in names]))


def _label_beside(path: Path) -> str:
    beside = sidecar_path(path)
    if not beside.is_file():
        return _USUAL_LABEL
    try:
        facts = json.loads(read_file(beside, MOST_JSON_BYTES))
    except ValueError:
        return _USUAL_LABEL
    names = facts.get("label_columns") if isinstance(facts, dict) else None
    known = isinstance(names, list) and len(names) == 1 and isinstance(names[0], str)
    return str(names[0]) if known and names is not None else _USUAL_LABEL


def _read(path: Path, label: str) -> pa.Table:
    """Read a table as it stands, but for arrays, whose labels are called ``label``."""
    _validate.regular_file(path)
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            table = pq.read_table(path)
        elif suffix == ".csv":
            table = pa_csv.read_csv(path)
        elif suffix == ".npz":
            table = _arrays(path, label)
        else:
            _validate.fail(str(path), "a .parquet, .csv or .npz file", suffix or "no ending")
    except (pa.ArrowException, OSError, KeyError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        _validate.fail(str(path), "a readable table", reason)
    return table


def draw_columns(folder: Path, num_records: int, seed: int, label: str) -> pa.Table:
    """Draw synthetic records from a release, as columns."""
    return synthesize(folder, num_records, seed=seed, label=label).to_arrow()


def _arrays(path: Path, label: str) -> pa.Table:
    with np.load(path, allow_pickle=False) as file:
        if len(file["features"]) != len(file["labels"]):
            allowed = f"{len(file['features'])} labels, one a record"
            _validate.fail(f"{path}: labels", allowed, len(file["labels"]))
        labels = file["labels"]
        columns = {f"x{i}": pa.array(values) for i, values in enumerate(file["features"].T)}
        columns[label] = pa.array(labels.tolist())
    return pa.table(columns)


def _expanded(table: pa.Table) -> pa.Table:
    """Turn a column of vectors of one width into one column a coordinate."""
    columns: dict[str, pa.Array] = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = pc.cast(column, kind.value_type)
        elif pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
            rows = np.array(column.to_pylist(), dtype=np.float64)
            columns |= {f"x{i}": pa.array(values) for i, values in enumerate(rows.T)}
            continue
        columns[name] = column
    return pa.table(columns)
