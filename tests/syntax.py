"""Syntax trees of source files."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def syntax_tree(path: Path) -> ast.Module:
    """Parse a file, without collecting garbage meanwhile.

    A finalizer that fails is reported with a traceback, which parses the line that failed; within
    another parse, Python 3.11 then raises "AST constructor recursion depth mismatch".
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        if collects:
            gc.enable()
