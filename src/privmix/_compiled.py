"""Compiled functions, cached where there is a folder for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_told: list[str] = []


_Function = TypeVar("_Function", bound=Callable[..., Any])


def njit(*, cache: bool = False, **options: Any) -> Callable[[_Function], _Function]:
    """Compile a function as ``numba.njit`` does; without a cache where none can be written.

    Numba keeps compiled code beside the module or in the user's cache folder, and raises where it can
    write to neither: in a read-only installation without a home.
    """

    def decorate(function: _Function) -> _Function:
        if not cache:
            return cast(_Function, numba.njit(**options)(function))
        try:
            return cast(_Function, numba.njit(cache=True, **options)(function))
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            if not _told:
                _told.append(
                    "compiled code cannot be kept, so that every start compiles anew; set "
                    "NUMBA_CACHE_DIR to a folder that can be written"
                )
                sys.stderr.write(f"privmix: {_told[0]}\n")  # at import, before anybody's settings
            return cast(_Function, numba.njit(**options)(function))

    return decorate
