"""Clip and quantise private records to fixed point; the result carries its sensitivity.

See ``docs/theory/fixed-point.md``. Everything here is decided record by record from public
constants, so that no record changes what is made of another.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Literal, Protocol

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from privmix import _validate
from privmix.resources import default_threads
from privmix.schema import Schema
from privmix.sources import Source, as_source, to_array

BadRecordPolicy = Literal["error", "zero"]
Progress = Callable[[int, int], None]

_LARGEST = 32767  # of int16, the same on both sides of zero
_SHARD_BYTES = 64 << 20  # as int16
_PIECE_BYTES = 8 << 20  # as doubles


def shard_records(num_features: int) -> int:
    """Number of records that are sampled under one key, and are in memory together: a power of two."""
    return 1 << max(4, min(16, (_SHARD_BYTES // (2 * num_features)).bit_length() - 1))


def piece_records(num_features: int) -> int:
    """Number of records that are read, bounded and hashed together; it divides a shard."""
    return 1 << max(0, min(14, (_PIECE_BYTES // (8 * num_features)).bit_length() - 1))


@dataclass(frozen=True)
class FixedPoint:
    """The integer grid for vectors of norm at most ``clip_norm``.

    Attributes:
        clip_norm: L2 bound C in the units of the data.
        exponent: Largest k with C * 2**k <= 32767.

    """

    clip_norm: float
    exponent: int = field(init=False)

    def __post_init__(self) -> None:
        bound = Fraction(self.clip_norm)
        exponent = math.floor(math.log2(_LARGEST / self.clip_norm))
        while bound * Fraction(2) ** exponent > _LARGEST:
            exponent -= 1
        while bound * Fraction(2) ** (exponent + 1) <= _LARGEST:
            exponent += 1
        object.__setattr__(self, "exponent", exponent)

    @property
    def scale(self) -> float:
        """Grid points per unit, a power of two."""
        return math.ldexp(1.0, self.exponent)

    @property
    def sensitivity(self) -> float:
        """L2 bound on an integer vector: what one record can add to an integer sum."""
        return self.clip_norm * self.scale

    @property
    def largest_square(self) -> int:
        """Largest squared integer norm allowed: floor((C * 2**k)**2), exactly."""
        return math.floor((Fraction(self.clip_norm) * Fraction(2) ** self.exponent) ** 2)

    def quantise(self, vectors: NDArray[np.float64], out: NDArray[np.int16]) -> int:
        """Clip rows to ``clip_norm``, truncate them to the grid, and check the bound exactly.

        Args:
            vectors: (rows, width), finite, C-contiguous.
            out: The same shape; receives the integers. A zero row stays zero.

        Returns:
            How many rows were shortened by more than 0.1 % (unit vectors come with rounding errors
            that are no news).

        """
        return int(_quantise_rows(vectors, self.clip_norm, self.scale, self.largest_square, out))


@njit(nogil=True, cache=True)
def _quantise_rows(
    vectors: NDArray[np.float64],
    clip_norm: float,
    scale: float,
    largest_square: int,
    out: NDArray[np.int16],
) -> int:  # pragma: no cover - compiled
    """Quantise row by row, so that no row changes the order of another's additions."""
    clipped = 0
    width = vectors.shape[1]
    for row in range(vectors.shape[0]):
        vector = vectors[row]
        largest = 0.0
        for j in range(width):
            largest = max(largest, abs(vector[j]))
        if largest == 0.0:
            out[row] = 0
            continue
        # Dividing by the largest entry first keeps the squares of huge or tiny entries finite.
        square = 0.0
        for j in range(width):
            square += (vector[j] / largest) ** 2
        length = math.sqrt(square)
        too_long = largest > clip_norm / length
        clipped += largest > 1.001 * clip_norm / length
        shrink = 1.0
        while True:
            total = np.int64(0)
            for j in range(width):
                value = vector[j]
                if too_long:
                    value = value / largest * (clip_norm / length)
                integer = np.int64(value * scale * shrink)  # toward zero
                total += integer * integer
                out[row, j] = integer
            if total <= largest_square:
                break
            shrink *= 1 - 2.0**-20  # rounding of the divisions above, a few parts in 2**53
    return clipped


class Records(Protocol):
    """Private records, every one within the stated sensitivity, in memory or read when needed.

    Attributes:
        labels: (count,) int32 class indices; -1 for a record replaced by zero.
        feature_grid: Grid and sensitivity of the features.
        label_grid: Grid and sensitivity of one-hot labels.
        num_clipped: How many records were shortened by more than 0.1 %: for the data holder's eyes only.
        num_replaced: How many bad records were replaced by zero: for the data holder's eyes only.
        count: The actual number of records: private.
        label_one: The integer that stands for 1 in a one-hot label.
        num_features: Width of the features.
        in_memory: Whether all features are there at once.
        run_records: Runs of records start at multiples of this.

    """

    @property
    def labels(self) -> NDArray[np.int32]:
        """(count,) class indices."""

    @property
    def feature_grid(self) -> FixedPoint:
        """Grid and sensitivity of the features."""

    @property
    def label_grid(self) -> FixedPoint:
        """Grid and sensitivity of one-hot labels."""

    @property
    def num_clipped(self) -> int:
        """Records shortened."""

    @property
    def num_replaced(self) -> int:
        """Records replaced by zero."""

    @property
    def count(self) -> int:
        """The actual number of records: private."""

    @property
    def label_one(self) -> int:
        """The integer that stands for 1 in a one-hot label."""

    @property
    def num_features(self) -> int:
        """Width of the features."""

    @property
    def in_memory(self) -> bool:
        """Whether all features are there at once."""

    @property
    def run_records(self) -> int:
        """Runs of records start at multiples of this."""

    def load(self, start: int, stop: int) -> tuple[NDArray[np.int16], list[Callable[[], None]]]:
        """Return an array for a run of records, as :meth:`part`, and the tasks that fill it."""

    def part(self, start: int, stop: int) -> NDArray[np.int16]:
        """Return the features of a run of records, (stop - start, num_features)."""

    def digest(self) -> bytes:
        """Return a SHA-256 of the records; it binds the keys and is never published."""


@dataclass(frozen=True, repr=False)
class _Common:
    """What records have in common, wherever their features are; see :class:`Records`."""

    labels: NDArray[np.int32]
    feature_grid: FixedPoint
    label_grid: FixedPoint
    num_clipped: int
    num_replaced: int

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<private>)"

    @property
    def count(self) -> int:
        """The actual number of records: private."""
        return len(self.labels)

    @property
    def label_one(self) -> int:
        """The integer that stands for 1 in a one-hot label."""
        return math.floor(self.label_grid.sensitivity)

    def _digest(self, shape: tuple[int, ...], pieces: Sequence[bytes]) -> bytes:
        hasher = hashlib.sha256(b"privmix records 2" + repr(shape).encode())
        for piece in pieces:
            hasher.update(piece)
        hasher.update(np.ascontiguousarray(self.labels).data)
        return hasher.digest()


@dataclass(frozen=True, repr=False)
class BoundedRecords(_Common):
    """Private records in memory, every one within the stated sensitivity. Never shown or written.

    Attributes:
        features: (count, num_features) int16.

    The others are those of :class:`Records`.

    """

    features: NDArray[np.int16]

    in_memory = True

    @property
    def num_features(self) -> int:
        """Width of the features."""
        return int(self.features.shape[1])

    @property
    def run_records(self) -> int:
        """Any run will do; shorter ones than these are no use."""
        return piece_records(self.num_features)

    def load(self, start: int, stop: int) -> tuple[NDArray[np.int16], list[Callable[[], None]]]:
        """Return a run of records, with nothing to be done."""
        return self.part(start, stop), []

    def part(self, start: int, stop: int) -> NDArray[np.int16]:
        """Return the features of a run of records: a view."""
        return self.features[start:stop]

    def digest(self) -> bytes:
        """Return a SHA-256 of the records; it binds the keys and is never published."""
        runs = _runs(0, self.count, self.run_records)
        pieces = [_piece_digest(self.features[a:b]) for a, b in runs]
        return self._digest(self.features.shape, pieces)


@dataclass(frozen=True, repr=False)
class StreamedRecords(_Common):
    """Private records that are read and bounded anew each time, and checked to be the same.

    Nothing of them is kept but their labels and a SHA-256 of every run of ``piece_records``.
    """

    source: Source
    pieces: tuple[bytes, ...]

    in_memory = False

    @property
    def num_features(self) -> int:
        """Width of the features."""
        return self.source.shape[1]

    @property
    def run_records(self) -> int:
        """Number of records that are hashed together."""
        return piece_records(self.num_features)

    def part(self, start: int, stop: int) -> NDArray[np.int16]:
        """Read the features of a run of records; ``start`` is a multiple of ``run_records``.

        Raises:
            InvalidInputError: The records are not those that were there at first.

        """
        out, tasks = self.load(start, stop)
        for task in tasks:
            task()
        return out

    def load(self, start: int, stop: int) -> tuple[NDArray[np.int16], list[Callable[[], None]]]:
        """Return an array for a run of records, as :meth:`part`, and the tasks that fill it."""
        size = self.run_records
        if start % size or (stop % size and stop != self.count):
            raise ValueError(f"records {start} to {stop} are no whole pieces of {size}")
        out = np.empty((stop - start, self.num_features), dtype=np.int16)

        def fill(first: int, last: int) -> None:
            for a, b in _runs(first, last, size):
                here = out[a - start : b - start]
                _bound(self.source, a, b, self.labels[a:b], self.feature_grid, here)
                if _piece_digest(here) != self.pieces[a // size]:
                    _validate.fail("records", "the same as when they were first read", "others")

        if self.source.in_order:
            return out, [partial(fill, start, stop)]
        return out, [partial(fill, a, b) for a, b in _runs(start, stop, size)]

    def digest(self) -> bytes:
        """Return a SHA-256 of the records; it binds the keys and is never published."""
        return self._digest(self.source.shape, self.pieces)


@dataclass(frozen=True, repr=False)
class TransformedRecords(_Common):
    """Records that are read again each time, transformed one by one, and bounded again.

    Attributes:
        original: The records before.
        transform: Fills its last argument, (count, num_features) int16, from features and labels.
        num_features: Width after the transform.

    """

    original: Records
    transform: Callable[[NDArray[np.int16], NDArray[np.int32], NDArray[np.int16]], None]
    num_features: int

    in_memory = False

    @property
    def run_records(self) -> int:
        """Number of records that are hashed together."""
        return self.original.run_records

    def part(self, start: int, stop: int) -> NDArray[np.int16]:
        """Read and transform a run of records."""
        out, tasks = self.load(start, stop)
        for task in tasks:
            task()
        return out

    def load(self, start: int, stop: int) -> tuple[NDArray[np.int16], list[Callable[[], None]]]:
        """Return an array for a run of records, and the tasks that fill it."""
        out = np.empty((stop - start, self.num_features), dtype=np.int16)

        def fill(a: int, b: int) -> None:
            self.transform(self.original.part(a, b), self.labels[a:b], out[a - start : b - start])

        return out, [partial(fill, a, b) for a, b in _runs(start, stop, self.run_records)]

    def digest(self) -> bytes:
        """Return the digest of the records before."""
        return self.original.digest()


def _runs(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    for first in range(start, stop, size):
        yield first, min(first + size, stop)


def _piece_digest(features: NDArray[np.int16]) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(features).data).digest()


def _bound(
    source: Source,
    start: int,
    stop: int,
    labels: NDArray[np.int32],
    grid: FixedPoint,
    out: NDArray[np.int16],
    *,
    strict: bool = False,
) -> int:
    """Read a run of records and bound it; return how many were clipped.

    A record whose label is -1 is blanked, and one with a NaN or an infinity is too and gets that
    label, or is refused if ``strict``.
    """
    block = np.array(source.read(start, stop), dtype=np.float64, order="C")
    bad = ~np.isfinite(block).all(axis=1)
    if strict and bad.any():
        first = int(np.flatnonzero(bad)[0])
        column = int(np.flatnonzero(~np.isfinite(block[first]))[0])
        _validate.fail(
            f"features[{start + first}, {column}]",
            "a finite number (on_bad_record='zero', --on-bad-record zero, blanks such records)",
            block[first, column],
        )
    bad |= labels < 0
    labels[bad] = -1
    block[bad] = 0.0
    return grid.quantise(block, out)


def bound_records(
    features: ArrayLike | Source,
    labels: ArrayLike,
    schema: Schema,
    on_bad_record: BadRecordPolicy = "error",
    *,
    in_memory: bool = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> BoundedRecords | StreamedRecords:
    """Clip, quantise and label-match private records.

    Args:
        features: (count, num_features) real numbers, or a source of them. ``count`` need not be
            ``num_records``.
        labels: (count,) values out of ``schema.classes``, matched by value.
        schema: The public facts.
        on_bad_record: ``error`` refuses NaN, infinity and labels outside the schema, naming the
            record; ``zero`` replaces such a record by zero, record by record.
        in_memory: Whether to keep the bounded features, or to read them again whenever needed.
        threads: Number of threads; all processors by default.
        progress: Called with (records read, records in all).

    Raises:
        InvalidInputError: A wrong shape, or a bad record under ``error``.

    """
    _validate.one_of("on_bad_record", on_bad_record, ("error", "zero"))
    source = feature_source(features, schema.num_features)
    strict = on_bad_record == "error"
    indices = match_labels(labels, schema.classes, strict=strict)
    count, width = source.shape[0], schema.num_features
    if count != indices.size:
        _validate.fail("labels", f"one label for each of the {count} records", indices.size)
    grid = FixedPoint(schema.feature_clip_norm)
    kept = np.empty((count, width) if in_memory else (0, width), dtype=np.int16)

    def bound(run: tuple[int, int]) -> tuple[int, bytes]:
        start, stop = run
        own = kept[start:stop] if in_memory else np.empty((stop - start, width), dtype=np.int16)
        clipped = _bound(source, start, stop, indices[start:stop], grid, own, strict=strict)
        return clipped, b"" if in_memory else _piece_digest(own)

    num_clipped, pieces = 0, []
    workers = 1 if source.in_order else threads or default_threads()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for clipped, digest in pool.map(bound, _runs(0, count, piece_records(width))):
                num_clipped += clipped
                pieces.append(digest)
                if progress is not None:
                    progress(min(len(pieces) * piece_records(width), count), count)
        finally:
            pool.shutdown(cancel_futures=True)
    facts = {
        "labels": indices,
        "feature_grid": grid,
        "label_grid": FixedPoint(schema.label_clip_norm),
        "num_clipped": num_clipped,
        "num_replaced": int((indices < 0).sum()),
    }
    if in_memory:
        return BoundedRecords(features=kept, **facts)  # type: ignore[arg-type]
    return StreamedRecords(source=source, pieces=tuple(pieces), **facts)  # type: ignore[arg-type]


def feature_source(features: ArrayLike | Source, num_features: int) -> Source:
    """Turn features into a source, and check its shape and type."""
    source = as_source("features", features)
    if source.dtype.kind not in "fiub":
        _validate.fail("features", "an array of real numbers", f"an array of {source.dtype}")
    if len(source.shape) != 2 or source.shape[1] != num_features:
        _validate.fail("features", f"shape (records, {num_features})", f"shape {source.shape}")
    if source.shape[0] == 0:
        _validate.fail("features", "at least one record", "none")
    return source


def match_labels(
    labels: ArrayLike, classes: Sequence[int] | Sequence[str], *, strict: bool = True
) -> NDArray[np.int32]:
    """Match labels to the classes by value: 3, 3.0 and NumPy's 3 are the class 3, "3" is not.

    Args:
        labels: (count,) array or sequence.
        classes: The schema's classes.
        strict: Refuse a label that is no class, naming its position; otherwise it becomes -1.

    Returns:
        (count,) int32 indices into ``classes``.

    """
    values = to_array("labels", labels)
    if values.ndim != 1:
        _validate.fail("labels", "shape (records,)", f"shape {values.shape}")
    if values.dtype.kind not in "iufbUO":
        _validate.fail("labels", "integers or strings", f"an array of {values.dtype}")
    index: dict[object, int] = {value: i for i, value in enumerate(classes)}
    if values.dtype == object:
        found = np.array([_lookup(value, index) for value in values], dtype=np.int32)
    else:
        distinct, inverse = np.unique(values, return_inverse=True)
        codes = np.array([_lookup(value, index) for value in distinct.tolist()], dtype=np.int32)
        found = codes[inverse] if codes.size else np.empty(0, dtype=np.int32)
    if strict and (found < 0).any():
        first = int(np.flatnonzero(found < 0)[0])
        kind = "integer" if isinstance(classes[0], int) else "string"
        shown = ", ".join(map(repr, classes[:5])) + (", ..." if len(classes) > 5 else "")
        received = values[first].item() if isinstance(values[first], np.generic) else values[first]
        _validate.fail(
            f"labels[{first}]",
            f"one of the schema's {len(classes)} {kind} classes ({shown})",
            repr(received),
        )
    return found


def _lookup(value: object, index: dict[object, int]) -> int:
    try:
        return index.get(value, -1)
    except TypeError:  # unhashable
        return -1
