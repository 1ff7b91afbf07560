"""Check texts, one at a time."""

from __future__ import annotations

from typing import Any

from privmix.inputs.raw.blocks import BadRecord, Limits, decoded


def to_text(item: Any, limits: Limits) -> str:
    """Return a str of at most ``limits.max_text_chars`` characters; bytes are read as UTF-8.

    Raises:
        BadRecord: No text, bytes that are not UTF-8, or a text over the limit.

    """
    item = decoded(item)
    if item is None or (isinstance(item, float) and item != item):  # pandas' missing text
        raise BadRecord("a text", "nothing")
    if not isinstance(item, str):
        raise BadRecord("a text", f"a value of type {type(item).__name__}")
    if len(item) > limits.max_text_chars:
        raise BadRecord(f"at most {limits.max_text_chars} characters", f"{len(item)}")
    try:
        item.encode()
    except UnicodeEncodeError:
        raise BadRecord("text in UTF-8", "a lone surrogate") from None
    return str(item)
