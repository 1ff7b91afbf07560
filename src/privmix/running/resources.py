"""What the machine has: processors and memory."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from privmix import _validate

_UNITS = {"": 1, **{f"{p}B": 1000**i for i, p in enumerate(("", "K", "M", "G", "T"))}}
_UNITS |= {f"{p}IB": 1024**i for i, p in enumerate(("K", "M", "G", "T"), start=1)}
_MMAP_THRESHOLD = (-3, 4 << 20)  # M_MMAP_THRESHOLD of glibc
_CONTROL_GROUP = Path("/sys/fs/cgroup/memory.max")


def default_threads() -> int:
    """Number of threads a release uses: the processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def one_blas_thread() -> AbstractContextManager[Any]:
    """Have linear algebra of NumPy and SciPy run in one thread for a while.

    The libraries are looked for once: that takes longer than a small product of matrices.
    """
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def torch_pool(threads: int | None = None) -> Iterator[ThreadPoolExecutor]:
    """Open a pool of threads, all processors by default, in which torch has one thread for each.

    Threads that share the small products of one record mostly wait for each other; and with one
    thread the order of additions does not depend on how many there are.
    """
    import torch

    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads or default_threads(), "privmix", torch.set_num_threads, (1,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)  # threads to come start from what was set last


def default_memory() -> int:
    """Bytes a release may use: half of what the machine, or this process's control group, has."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CONTROL_GROUP.read_text().strip()
    except OSError:
        limit = "max"
    return min(total, int(limit) if limit.isascii() and limit.isdigit() else total) // 2


def parse_bytes(position: str, text: str | int) -> int:
    """Read a number of bytes: 1500000000, ``1.5GB`` or ``1536MiB``.

    Raises:
        InvalidInputError: Anything else; the error names ``position``.

    """
    if isinstance(text, str):
        match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([A-Za-z]*)\s*", text)
        factor = _UNITS.get(match[2].upper()) if match else None
        if match is None or factor is None:
            _validate.fail(position, "a size such as 800MB, 1.5GB or 2GiB", repr(text))
        text = int(float(match[1]) * factor)
    return _validate.integer(position, text)


def spare_memory() -> None:
    """Have freed arrays go back to the system at once, those of 4 MiB and more, from now on.

    The allocator of glibc otherwise learns to keep them. Elsewhere nothing is changed.
    """
    _of_glibc("mallopt", *_MMAP_THRESHOLD)


def return_memory() -> None:
    """Give back to the system what is no longer used."""
    _of_glibc("malloc_trim", 0)


def _of_glibc(name: str, *arguments: int) -> None:
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return
    function(*arguments)
