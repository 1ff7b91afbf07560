"""Parquet files, and folders of them: their columns, and their rows from any record on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from privmix import _validate


def parquet_files(path: Path) -> list[Path]:
    """Return a file, or those below a folder in order; hidden ones, as Arrow has it, are left out.

    Raises:
        InvalidInputError: Something named so that is no regular file, such as a pipe.

    """
    if not path.is_dir():
        return [path]
    files = [
        file
        for file in sorted(path.rglob("*.parquet"))
        if not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
    ]
    for file in files:
        _validate.regular_file(file)
    return files


def index_columns(schema: pa.Schema) -> list[str]:
    """Return the columns in which pandas stored its index, which says nothing of a record."""
    found = {name for name in schema.names if re.fullmatch(r"__index_level_\d+__", name)}
    try:
        stated = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
        found |= {name for name in stated.get("index_columns", ()) if isinstance(name, str)}
    except (ValueError, AttributeError, TypeError):
        pass
    return [name for name in schema.names if name in found]


def scan_parquet(
    files: Sequence[Path],
    columns: Sequence[str],
    start: int = 0,
    *,
    batch_rows: int,
    buffer_bytes: int = 0,
) -> Iterator[tuple[Path, int, pa.Table]]:
    """Yield rows from record ``start`` on, with their file and the number of the first.

    Row groups before ``start`` are not read.

    Args:
        files: Parquet files in order.
        columns: The columns, in the order in which they come: a later file may have another.
        start: The first record.
        batch_rows: Rows at a time, at most.
        buffer_bytes: Buffer of a column; 0 for none.

    """
    first = 0
    for path in files:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=buffer_bytes) as file:
            meta = file.metadata
            sizes = [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]
            groups = list(range(len(sizes)))
            while groups and first + sizes[groups[0]] <= start:
                first += sizes[groups.pop(0)]
            if not groups:
                continue
            runs = file.iter_batches(
                batch_rows, row_groups=groups, columns=list(columns), use_threads=False
            )
            for run in runs:
                table = pa.Table.from_batches([run]).select(columns)
                skipped = min(max(0, start - first), run.num_rows)
                if skipped < run.num_rows:
                    yield path, first + skipped, table.slice(skipped)
                first += run.num_rows


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
                received = _validate.MISSING_COLUMN if name in due else "one more"
                _validate.fail(f"{file}: {name}", f"the columns of {files[0]}", received)
            if name in names and not alike(due[name], found[name]):
                allowed = f"a column of {due[name]}, as in {files[0]}"
                _validate.fail(f"{file}: {name}", allowed, f"a column of {found[name]}")
