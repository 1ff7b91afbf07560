"""Numbers of many bits: mpmath, each thread with contexts of its own."""

from __future__ import annotations

import threading
from typing import Any


class _Contexts(threading.local):
    """Contexts by their precision; those of the module are shared by all threads."""

    def __init__(self) -> None:
        self.made: dict[int, Any] = {}


_contexts = _Contexts()


def precise(bits: int) -> Any:
    """Return mpmath's functions at a binary precision, which nobody changes.

    A thread makes them once: that takes longer than most of what they are asked.
    """
    if bits not in _contexts.made:
        import mpmath

        context = mpmath.MPContext()
        context.prec = bits
        _contexts.made[bits] = context
    return _contexts.made[bits]
