"""Tensors of strangers: files in the safetensors format, read within a budget.

A file's header says what tensors it has. It is read by itself and compared with the file's size and
the types that privmix writes, before any tensor is.
"""

from __future__ import annotations

import json
import math
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from privmix import _validate
from privmix.foreign.files import MOST_JSON_BYTES

_BYTES = {"F64": 8, "F32": 4, "F16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_METADATA = "__metadata__"
# One value for a name, and nothing between them: no room for what nobody reads.
_COMPACT: dict[str, Any] = {"separators": (",", ":"), "ensure_ascii": False}
_MOST_TENSORS = 100_000
_MOST_DIMENSIONS = 32  # as many as every version of NumPy has


def read_tensors(
    content: bytes, position: str, allowed: str
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return the tensors of a file, by name, and its metadata.

    Args:
        content: The whole file.
        position: What errors name.
        allowed: What errors say is allowed.

    Raises:
        InvalidInputError: No such file, or tensors of a type that NumPy does not have.

    """
    metadata = _check_header(content, position, allowed)
    try:
        tensors: dict[str, NDArray[Any]] = load(content)
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError) as error:
        _validate.fail(position, allowed, _first_line(error))
    return tensors, metadata


def _check_header(content: bytes, position: str, allowed: str) -> dict[str, str]:
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(len(content) - 8, MOST_JSON_BYTES):
        _validate.fail(position, allowed, "another file, or a truncated one")
    text = content[8 : 8 + length]
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        _validate.fail(position, allowed, _first_line(error))
    if not isinstance(header, dict) or len(header) > _MOST_TENSORS:
        _validate.fail(position, allowed, "another header")
    if json.dumps(header, **_COMPACT).encode(errors="replace") != text.rstrip(b" "):
        _validate.fail(position, allowed, "a header that is not written as privmix writes it")
    metadata = header.pop(_METADATA, {})
    texts = isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())
    if not texts:
        _validate.fail(position, allowed, "other metadata than texts")
    for name, facts in header.items():
        kind = facts.get("dtype") if isinstance(facts, dict) else None
        if not isinstance(kind, str) or kind not in _BYTES:
            _validate.fail(f"{position}: {name}", f"a tensor of {', '.join(_BYTES)}", kind)
        if _size(facts.get("shape"), kind) > len(content):
            _validate.fail(
                f"{position}: {name}", "a tensor that the file holds", facts.get("shape")
            )
    return dict(metadata)


def _size(shape: object, kind: str) -> float:
    """Bytes of a tensor; infinite for what is no shape, or one that is too long for NumPy."""
    if not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS:
        return math.inf
    if not all(type(length) is int and 0 <= length < 2**48 for length in shape):
        return math.inf
    return math.prod(shape) * _BYTES[kind]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
