"""Names of features: those of a frame or a file against those that were stated.

Columns in another order make other vectors, of the right width and without any error, so names are
compared wherever both sides have them. Where one side has none, as an array, nothing is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from privmix import _validate

Names = tuple[str, ...]


def names_of(features: Any) -> Names | None:
    """Return the column names of a pandas, polars or Arrow table; None where they are no texts."""
    schema = getattr(features, "schema", None)
    found = schema.names if isinstance(schema, pa.Schema) else getattr(features, "columns", None)
    if found is None or not hasattr(found, "__iter__"):
        return None
    names = tuple(found)
    return names if names and all(isinstance(name, str) for name in names) else None


def check_names(position: str, found: Names | None, due: Names | None, whose: str) -> None:
    """Refuse columns with other names than those that are due, or in another order.

    Args:
        position: Where they were found.
        found: Their names; None where there are none.
        due: The names that are stated; None where none are.
        whose: Who states them, for the error.

    Raises:
        InvalidInputError: Both have names, and not the same ones in the same order.

    """
    if found is None or due is None or found == due:
        return
    allowed = f"the columns {shown(due)}, in the order of {whose}"
    if set(found) == set(due) and len(found) == len(due):
        _validate.fail(position, allowed, f"the same in another order: {shown(found)}")
    missing = [name for name in due if name not in found]
    others = [name for name in found if name not in due]
    told = [f"no {shown(missing)}"] if missing else []
    told += [f"also {shown(others)}"] if others else []
    _validate.fail(position, allowed, "; ".join(told) or shown(found))


def shown(names: Sequence[str]) -> str:
    """Return the first names, and how many there are."""
    more = f", ... ({len(names)} in all)" if len(names) > 8 else ""
    return ", ".join(map(repr, names[:8])) + more
