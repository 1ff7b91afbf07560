"""Bounded private records: in memory, streamed, or transformed; they carry their sensitivity."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.clipping import FixedPoint
from privmix.inputs.arrays import Source
from privmix.inputs.owners import Owned, Units

if TYPE_CHECKING:
    from privmix.rng import KeyStream

Progress = Callable[[int, int], None]


_SHARD_BYTES = 64 << 20  # as int16


_BATCH_BYTES = 8 << 20  # as doubles


def shard_records(num_features: int) -> int:
    """Number of records that are sampled under one key, and are in memory together: a power of two."""
    return 1 << max(4, min(16, (_SHARD_BYTES // (2 * num_features)).bit_length() - 1))


def batch_records(num_features: int) -> int:
    """Number of records that are read, bounded and hashed together; it divides a shard."""
    return 1 << max(0, min(14, (_BATCH_BYTES // (8 * num_features)).bit_length() - 1))


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
        stretch_records: Stretches of records start at multiples of this.

    """

    @property
    def labels(self) -> NDArray[Any]:
        """(count,) class indices, or (count, num_classes) int16 vectors."""

    @property
    def blank(self) -> NDArray[np.bool_]:
        """(count,) which records add nothing."""

    @property
    def units(self) -> Units | None:
        """Who owns the records of which only a sample may be mixed."""

    @property
    def num_labels_clipped(self) -> int:
        """Labels shortened or clamped."""

    @property
    def feature_grid(self) -> FixedPoint:
        """Grid and sensitivity of the features."""

    @property
    def label_grid(self) -> FixedPoint:
        """Grid and sensitivity of the labels, one-hot or as they are."""

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
    def stretch_records(self) -> int:
        """Stretches of records start at multiples of this."""

    def load(self, start: int, stop: int) -> tuple[NDArray[np.int16], list[Callable[[], None]]]:
        """Return an array for a stretch of records, as :meth:`read`, and the tasks that fill it."""

    def read(self, start: int, stop: int) -> NDArray[np.int16]:
        """Return the features of a stretch of records, (stop - start, num_features)."""

    def digest(self) -> bytes:
        """Return a SHA-256 of the records; it binds the keys and is never published."""

    def check_sampled(self) -> None:
        """Raise ValueError for records of units of which a sample must be taken first."""

    def sampled(self, stream: KeyStream, max_records_per_unit: int) -> Records:
        """Return the same records, but for a sample of each unit's all blank."""


@dataclass(frozen=True, repr=False, kw_only=True)
class _Common(Owned):
    """What records have in common, wherever their features are; see :class:`Records`."""

    labels: NDArray[Any]
    blank: NDArray[np.bool_]
    feature_grid: FixedPoint
    label_grid: FixedPoint
    num_clipped: int
    num_replaced: int
    num_labels_clipped: int = 0
    units: Units | None = None

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

    def _digest(self, shape: tuple[int, ...], digests: Sequence[bytes]) -> bytes:
        hasher = hashlib.sha256(b"privmix records 2" + repr(shape).encode())
        for digest in digests:
            hasher.update(digest)
        hasher.update(np.ascontiguousarray(self.labels).data)
        if self.labels.ndim > 1:
            # A blank record and one of zeros alone differ after preprocessing; a class tells them apart.
            hasher.update(np.packbits(self.blank).data)
        if self.units is not None:
            hasher.update(self.units.digest())
        return hasher.digest()

    def _sample(self, stream: KeyStream, max_records_per_unit: int) -> dict[str, Any]:
        """Draw a sample of each unit's records; return what changes with it.

        The others turn into zeros, which add nothing to any sum. Each record was bounded by itself,
        so that it makes no difference that the sample is taken afterwards.
        """
        if self.units is None:
            raise ValueError("these records have no units")
        blank = np.ones(self.count, dtype=bool)
        blank[self.units.chosen(stream, max_records_per_unit)] = False
        blank |= self.blank
        labels = self.labels.copy()
        labels[blank] = -1 if labels.ndim == 1 else 0
        return {"labels": labels, "blank": blank, "units": None}


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
    def stretch_records(self) -> int:
        """Any stretch will do; shorter ones than these are no use."""
        return batch_records(self.num_features)

    def load(self, start: int, stop: int) -> tuple[NDArray[np.int16], list[Callable[[], None]]]:
        """Return a stretch of records, with nothing to be done."""
        return self.read(start, stop), []

    def read(self, start: int, stop: int) -> NDArray[np.int16]:
        """Return the features of a stretch of records: a view."""
        return self.features[start:stop]

    def digest(self) -> bytes:
        """Return a SHA-256 of the records; it binds the keys and is never published."""
        stretches = _stretches(0, self.count, self.stretch_records)
        digests = [_batch_digest(self.features[a:b]) for a, b in stretches]
        return self._digest(self.features.shape, digests)

    def sampled(self, stream: KeyStream, max_records_per_unit: int) -> BoundedRecords:
        """Return the same records, but for a sample of each unit's all blank."""
        changed = self._sample(stream, max_records_per_unit)
        features = np.where(changed["blank"][:, None], np.int16(0), self.features)
        return replace(self, features=features, **changed)


@dataclass(frozen=True, repr=False)
class StreamedRecords(_Common):
    """Private records that are read and bounded anew each time, and checked to be the same.

    Nothing of them is kept but their labels and a SHA-256 of every stretch of ``batch_records``.
    """

    source: Source
    digests: tuple[bytes, ...]

    in_memory = False

    @property
    def num_features(self) -> int:
        """Width of the features."""
        return self.source.shape[1]

    @property
    def stretch_records(self) -> int:
        """Number of records that are hashed together."""
        return batch_records(self.num_features)

    def read(self, start: int, stop: int) -> NDArray[np.int16]:
        """Read the features of a stretch of records; ``start`` is a multiple of ``stretch_records``.

        Raises:
            InvalidInputError: The records are not those that were there at first.

        """
        out, tasks = self.load(start, stop)
        for task in tasks:
            task()
        return out

    def load(self, start: int, stop: int) -> tuple[NDArray[np.int16], list[Callable[[], None]]]:
        """Return an array for a stretch of records, as :meth:`read`, and the tasks that fill it."""
        size = self.stretch_records
        if start % size or (stop % size and stop != self.count):
            raise ValueError(f"records {start} to {stop} are no whole batches of {size}")
        out = np.empty((stop - start, self.num_features), dtype=np.int16)

        def fill(first: int, last: int) -> None:
            for a, b in _stretches(first, last, size):
                here = out[a - start : b - start]
                blank = self.blank[a:b].copy()  # which was settled when they were first read
                _bound(self.source, a, b, blank, self.feature_grid, here)
                if _batch_digest(here) != self.digests[a // size]:
                    _validate.fail("records", "the same as when they were first read", "others")

        if self.source.in_order:
            return out, [partial(fill, start, stop)]
        return out, [partial(fill, a, b) for a, b in _stretches(start, stop, size)]

    def digest(self) -> bytes:
        """Return a SHA-256 of the records; it binds the keys and is never published."""
        return self._digest(self.source.shape, self.digests)

    def sampled(self, stream: KeyStream, max_records_per_unit: int) -> TransformedRecords:
        """Return the same records, but for a sample of each unit's all blank."""
        facts = {name: getattr(self, name) for name in _Common.__dataclass_fields__}
        facts |= self._sample(stream, max_records_per_unit)
        return TransformedRecords(
            original=self, transform=_without_blanks, num_features=self.num_features, **facts
        )


def _without_blanks(
    features: NDArray[np.int16], blank: NDArray[np.bool_], out: NDArray[np.int16]
) -> None:
    out[:] = features
    out[blank] = 0


@dataclass(frozen=True, repr=False)
class TransformedRecords(_Common):
    """Records that are read again each time, transformed one by one, and bounded again.

    Attributes:
        original: The records before.
        transform: Fills its last argument, (count, num_features) int16, from features and from
            which of the records are blank.
        num_features: Width after the transform.

    """

    original: Records
    transform: Callable[[NDArray[np.int16], NDArray[np.bool_], NDArray[np.int16]], None]
    num_features: int

    in_memory = False

    @property
    def stretch_records(self) -> int:
        """Number of records that are hashed together."""
        return self.original.stretch_records

    def read(self, start: int, stop: int) -> NDArray[np.int16]:
        """Read and transform a stretch of records."""
        out, tasks = self.load(start, stop)
        for task in tasks:
            task()
        return out

    def load(self, start: int, stop: int) -> tuple[NDArray[np.int16], list[Callable[[], None]]]:
        """Return an array for a stretch of records, and the tasks that fill it."""
        out = np.empty((stop - start, self.num_features), dtype=np.int16)
        size = self.stretch_records

        def fill(stretch: int) -> None:
            # Wider vectors count in smaller shards: only whole stretches of the original can be read.
            first, last = stretch * size, min((stretch + 1) * size, self.count)
            a, b = max(start, first), min(stop, last)
            features = self.original.read(first, last)[a - first : b - first]
            self.transform(features, self.blank[a:b], out[a - start : b - start])

        return out, [partial(fill, stretch) for stretch in range(start // size, -(-stop // size))]

    def digest(self) -> bytes:
        """Return the digest of the records before."""
        return self.original.digest()

    def sampled(self, stream: KeyStream, max_records_per_unit: int) -> Records:
        """Refuse: a sample is taken before anything else is done with records."""
        raise ValueError("these records have no units")


def _stretches(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    for first in range(start, stop, size):
        yield first, min(first + size, stop)


def _batch_digest(features: NDArray[np.int16]) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(features).data).digest()


class _BadCells(NamedTuple):
    """Cells of a stretch that are no finite numbers: for each column how many, and the first."""

    column: int
    num_cells: int
    row: int
    value: float


def _bound(
    source: Source,
    start: int,
    stop: int,
    blank: NDArray[np.bool_],
    grid: FixedPoint,
    out: NDArray[np.int16],
) -> tuple[int, list[_BadCells]]:
    """Read a stretch of records and bound it; return how many were clipped, and what is wrong with it.

    Those that ``blank`` says become zero, and those with a NaN or an infinity do and are added to
    ``blank``.
    """
    block = np.array(source.read(start, stop), dtype=np.float64, order="C")
    finite = np.isfinite(block)
    bad = ~finite.all(axis=1)
    found = []
    if bad.any():
        for column in np.flatnonzero(~finite[bad].all(axis=0)):
            rows = np.flatnonzero(~finite[:, column])
            first = int(rows[0])
            value = float(block[first, column])
            found.append(_BadCells(int(column), len(rows), start + first, value))
    blank |= bad
    block[blank] = 0.0
    return grid.quantise(block, out), found
