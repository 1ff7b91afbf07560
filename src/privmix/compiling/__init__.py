"""Loops that are compiled: numba is loaded when the first of them is called, and not before.

Numba's compiler takes longer to load than all else that planning needs. A module that holds loops
costs nothing to import this way; a command that runs none of them never pays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, update_wrapper
from threading import Lock
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_LOCK = Lock()


class Kernel(Generic[P, R]):
    """A function that numba compiles at its first call; compiled code is kept beside its module."""

    def __init__(self, function: Callable[P, R], options: dict[str, Any], patience: int) -> None:
        self.interpreted = function
        self._options, self._patience = options, patience
        self._compiled: Callable[..., R] | None = None
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the compiled function; compile it first where that has not happened yet."""
        if self._compiled is None:
            if self._patience > 0:
                return self._interpret(*args, **kwargs)
            self.compile()
            assert self._compiled is not None
        return self._compiled(*args, **kwargs)

    def compile(self) -> None:
        """Load numba and compile, once for all threads."""
        with _LOCK:
            if self._compiled is None:
                self._compiled = _compiled(self.interpreted, self._options)

    def _interpret(self, *args: Any, **kwargs: Any) -> R:
        """Run the Python code, on views whose items are Python's own numbers, which are quicker."""
        self._patience -= len(args[0])
        views = (memoryview(value) if hasattr(value, "dtype") else value for value in args)
        return self.interpreted(*views, **kwargs)  # type: ignore[arg-type]


def _compiled(function: Callable[P, R], options: dict[str, Any]) -> Callable[P, R]:
    from numba import njit

    try:
        compiled: Callable[P, R] = njit(cache=True, **options)(function)
    except RuntimeError:  # numba finds no folder that it may write to
        _warn_uncached()
        compiled = njit(**options)(function)
    return compiled


@cache
def _warn_uncached() -> None:
    """Say once what makes every start slow; not an error: hardened machines are like that."""
    logging.getLogger("privmix").warning(
        "compiled code is not kept: neither the package's folder nor the home can be written to; "
        "NUMBA_CACHE_DIR names another"
    )


def kernel(*, patience: int = 0, **options: Any) -> Callable[[Callable[P, R]], Kernel[P, R]]:
    """Mark a function of loops over arrays as one to compile.

    Args:
        patience: Items of the first array, all calls together, that the interpreter works on before
            the compiler is loaded: for loops that most programs run for a few milliseconds. The
            results are the same; the function must be content with memoryviews in place of arrays.
        options: Numba's: ``nogil``, ``fastmath``.

    """

    def mark(function: Callable[P, R]) -> Kernel[P, R]:
        return Kernel(function, options, patience)

    return mark
