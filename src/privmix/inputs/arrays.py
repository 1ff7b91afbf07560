"""Sources of feature vectors that are read in stretches of records, so that they need not fit in memory.

A source hands out any stretch of consecutive records, the same numbers each time. Files are read with
``pread``: mapped pages would count as this process's memory.
"""

from __future__ import annotations

import math
import os
import struct
import threading
import weakref
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix import _validate


@runtime_checkable
class Source(Protocol):
    """Feature vectors, read in stretches of consecutive records.

    Attributes:
        shape: (number of records, number of features).
        dtype: Type of the numbers.
        in_order: Whether stretches should be asked for one after another, since going back is slow.
        resident_bytes: What the source itself keeps in memory.

    """

    @property
    def shape(self) -> tuple[int, ...]:
        """(number of records, number of features)."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""

    @property
    def in_order(self) -> bool:
        """Whether stretches should be asked for one after another."""

    @property
    def resident_bytes(self) -> int:
        """What the source itself keeps in memory."""

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return records ``start`` to ``stop`` as an array of shape (stop - start, width)."""


class ArraySource:
    """An array in memory."""

    in_order = False

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        self.shape, self.dtype, self.resident_bytes = array.shape, array.dtype, array.nbytes

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return a view of records ``start`` to ``stop``."""
        return self._array[start:stop]


class FileSource:
    """An array in C order that lies in a file as it is, from ``offset`` on.

    Raises:
        InvalidInputError: The file ends before the array does.

    """

    in_order = False
    resident_bytes = 0

    def __init__(
        self, path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.shape, self.dtype = shape, dtype
        self._path, self._offset = path, offset
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            _validate.fail(str(path), "a readable file", error.strerror)
        weakref.finalize(self, os.close, self._file)
        status = os.fstat(self._file)
        self.inode = status.st_ino
        due = offset + dtype.itemsize * math.prod(shape)
        if (size := status.st_size) < due:
            _validate.fail(str(path), f"at least {due} bytes, as its header says", f"{size} bytes")

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Read records ``start`` to ``stop``."""
        out = np.empty((stop - start, *self.shape[1:]), dtype=self.dtype)
        offset = self._offset + start * (out.nbytes // max(1, stop - start))
        view = memoryview(out.reshape(-1).view(np.uint8).data)
        while view:
            try:
                count = os.preadv(self._file, [view], offset)
            except OSError as error:
                _validate.fail(str(self._path), "a file that can be read", error.strerror)
            if count == 0:
                _validate.fail(str(self._path), f"bytes from {offset} on", "the end of the file")
            view, offset = view[count:], offset + count
        return out


class IteratedSource:
    """Records that come in one pass after another: ``passes(start)`` yields stretches from a record on.

    Reading on where the last read stopped is quick.

    Args:
        shape: (number of records, number of features).
        dtype: Type of the numbers.
        passes: Begins a pass at a record, or before it: yields (number of the first record, array).
        resident_bytes: What a pass keeps in memory.
        names: Names of the features, where there are any.

    """

    in_order = True

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: np.dtype[Any],
        passes: Callable[[int], Iterator[tuple[int, NDArray[Any]]]],
        resident_bytes: int,
        names: Sequence[str] = (),
    ) -> None:
        self.shape, self.dtype, self.resident_bytes = shape, dtype, resident_bytes
        self.names = tuple(names)
        self._passes = passes
        self._lock = threading.Lock()
        self._place = 0
        self._pass: Iterator[tuple[int, NDArray[Any]]] | None = None
        self._rest = np.empty((0, shape[1]), dtype=dtype)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Read records ``start`` to ``stop``."""
        with self._lock:
            if self._pass is None or start != self._place:
                self._pass, self._place = self._passes(start), start
                self._rest = np.empty((0, self.shape[1]), dtype=self.dtype)
            chunks, missing = [], stop - start
            while missing:
                if len(self._rest) == 0:
                    first, stretch = self._next(start)
                    self._rest = stretch[max(0, start - first) :]
                    continue
                chunks.append(self._rest[:missing])
                self._rest = self._rest[len(chunks[-1]) :]
                missing -= len(chunks[-1])
            self._place = stop
            return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)

    def _next(self, start: int) -> tuple[int, NDArray[Any]]:
        assert self._pass is not None
        first, stretch = next(self._pass, (start, None))
        if stretch is None:
            _validate.fail("features", f"{self.shape[0]} records, as there were", "fewer")
        if stretch.shape[1] != self.shape[1]:
            _validate.fail(f"features[{first}]", f"{self.shape[1]} numbers", stretch.shape[1])
        return first, stretch


def as_source(position: str, values: ArrayLike | Source) -> Source:
    """Turn an array into a source; a memory-mapped one is read from its file.

    Raises:
        InvalidInputError: Masked values, which are refused rather than used; rows of several lengths.

    """
    if not isinstance(values, np.ndarray) and isinstance(values, Source):
        return values
    mapped = _mapped_file(values)
    return ArraySource(to_array(position, values)) if mapped is None else mapped


def _mapped_file(values: object) -> FileSource | None:
    """Find what lies in a file as it is: a mapped array, or a contiguous part of one.

    None where the name leads to another file by now, or where that cannot be told: what is mapped
    is then read as any array in memory is.
    """
    if not (isinstance(values, np.ndarray) and values.flags.c_contiguous and values.ndim):
        return None
    root = values
    while isinstance(root.base, np.ndarray):
        root = root.base
    # A copy-on-write map may differ from its file.
    if not isinstance(root, np.memmap) or root.filename is None or root.mode == "c":
        return None
    path = Path(root.filename)
    mapped = _mapped_inode(root.ctypes.data)
    try:
        if mapped is None or mapped != path.stat().st_ino:
            return None
    except OSError:
        return None
    offset = root.offset + values.ctypes.data - root.ctypes.data
    source = FileSource(path, offset, values.shape, values.dtype)
    return source if source.inode == mapped else None


def _mapped_inode(address: int) -> int | None:
    """Return the number of the file that is mapped at an address; None where that is not told."""
    try:
        for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
            span, _, _, _, inode, *_ = line.split(maxsplit=5)
            first, last = (int(end, 16) for end in span.split("-"))
            if first <= address < last:
                return int(inode)
    except (OSError, ValueError):
        pass
    return None


def to_array(position: str, values: Any) -> NDArray[Any]:
    """Convert to an array; what a mask hides is refused rather than used."""
    if np.ma.is_masked(values):
        _validate.fail(position, "an array without masked values", "a masked array")
    try:
        return np.asarray(values)
    except ValueError:  # rows of several lengths
        _validate.fail(position, "a rectangular array", "rows of several lengths")
    except Exception as error:  # a library's own: polars' for integers of 128 bits
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        _validate.fail(position, "values of a type that NumPy has", reason)


def from_categories(values: Any) -> Any:
    """Return pandas' categorical values as the categories that they are; all else as it is.

    With a value missing, pandas itself would make floating-point numbers of integers, which do not
    hold them all: objects instead, None for what is missing. Categories that are floating-point
    numbers already stay so.
    """
    held = getattr(values, "array", values)  # of a Series or an Index
    if not hasattr(held, "codes") or not hasattr(held, "categories"):
        return values
    if held.categories.dtype.kind in "fc":
        return np.asarray(held)
    categories = np.array([*held.categories, None], dtype=object)  # the last, at -1, is missing
    return categories[held.codes]


def npy_source(path: Path) -> Source:
    """Open an ``.npy`` file, to be read in stretches; one in Fortran order is read whole.

    Raises:
        InvalidInputError: No ``.npy`` file, one of objects, or a truncated one.

    """
    with path.open("rb") as file:
        found = _array_in_file(path, str(path), file)
    return ArraySource(np.load(path, allow_pickle=False)) if found is None else found


def check_keys(path: Path, names: Sequence[str], asked: Sequence[tuple[str, str | None]]) -> None:
    """Refuse a file of named arrays without one that is asked for: pairs of option and name."""
    for option, key in asked:
        if key not in names:
            allowed = f"an array of {path}: {', '.join(names)}"
            _validate.fail(option, allowed, repr(key) if key else "nothing")


@contextmanager
def opened_npz(path: Path, asked: Sequence[tuple[str, str | None]]) -> Iterator[Any]:
    """Open an ``.npz`` file that has the arrays asked for, pairs of option and name.

    Raises:
        InvalidInputError: No such file, no such array, a damaged array, or one of objects.

    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            check_keys(path, list(arrays), asked)
            yield arrays
    except _validate.InvalidInputError:
        raise
    except ValueError as error:
        _validate.fail(str(path), "an .npz file without pickled objects", error)
    except Exception as error:  # a damaged file may raise nearly anything
        _validate.fail(str(path), "an .npz file", error)


def npz_source(path: Path, key: str) -> FileSource | None:
    """Open an array of an ``.npz`` file, to be read in stretches; None if it must be read whole.

    Raises:
        InvalidInputError: An array of objects, or a truncated file.

    """
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo(f"{key}.npy")
    if entry.compress_type != zipfile.ZIP_STORED:
        return None
    with path.open("rb") as file:
        # The lengths of the name and of the extra field before the content: not in the directory.
        file.seek(entry.header_offset + 26)
        name, extra = struct.unpack("<HH", file.read(4))
        file.seek(name + extra, os.SEEK_CUR)
        return _array_in_file(path, f"{path}: {key}", file)


def _array_in_file(path: Path, position: str, file: Any) -> FileSource | None:
    """Read the header of an array in ``.npy`` format; None if it is in Fortran order."""
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        version = np.lib.format.read_magic(file)
        if version not in read_header:
            raise ValueError(f"version {version} of the format")
        shape, fortran_order, dtype = read_header[version](file)
    except Exception as error:  # a header is Python's own syntax: nearly anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        _validate.fail(position, "an array in .npy format", reason)
    if dtype.hasobject:
        _validate.fail(position, "an array without pickled objects", "objects")
    if not shape or min(shape) < 0:
        _validate.fail(position, "an array of records", f"shape {shape}")
    found = FileSource(path, file.tell(), shape, dtype)  # which checks that all of it is there
    return None if fortran_order and len(shape) > 1 else found
