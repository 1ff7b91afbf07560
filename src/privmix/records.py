"""Clip and quantise private records to fixed point; the result carries its sensitivity.

See ``docs/theory/fixed-point.md``. Everything here is decided record by record from public
constants, so that no record changes what is made of another.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from privmix import _validate
from privmix.resources import default_threads
from privmix.rng import KeyStream
from privmix.schema import Schema, Target
from privmix.sources import Source, as_source, from_categories, to_array
from privmix.units import Units, match_units

BadRecordPolicy = Literal["error", "zero"]
Progress = Callable[[int, int], None]

FIRST_ROUNDED = 2**53  # from here on doubles skip integers
EXACT_TYPES = "integers or texts (pandas: dtype 'Int64' or 'string')"
_LARGEST = 32767  # of int16, the same on both sides of zero
_SHARD_BYTES = 64 << 20  # as int16
_PIECE_BYTES = 8 << 20  # as doubles
_REMEDY = " (on_bad_record='zero', --on-bad-record zero, blanks such records)"


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
    def run_records(self) -> int:
        """Runs of records start at multiples of this."""

    def load(self, start: int, stop: int) -> tuple[NDArray[np.int16], list[Callable[[], None]]]:
        """Return an array for a run of records, as :meth:`part`, and the tasks that fill it."""

    def part(self, start: int, stop: int) -> NDArray[np.int16]:
        """Return the features of a run of records, (stop - start, num_features)."""

    def digest(self) -> bytes:
        """Return a SHA-256 of the records; it binds the keys and is never published."""

    def check_sampled(self) -> None:
        """Raise ValueError for records of units of which a sample must be taken first."""

    def sampled(self, stream: KeyStream, max_records_per_unit: int) -> Records:
        """Return the same records, but for a sample of each unit's all blank."""


@dataclass(frozen=True, repr=False, kw_only=True)
class _Common:
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

    def _digest(self, shape: tuple[int, ...], pieces: Sequence[bytes]) -> bytes:
        hasher = hashlib.sha256(b"privmix records 2" + repr(shape).encode())
        for piece in pieces:
            hasher.update(piece)
        hasher.update(np.ascontiguousarray(self.labels).data)
        if self.labels.ndim > 1:
            # A blank record and one of zeros alone differ after preprocessing; a class tells them apart.
            hasher.update(np.packbits(self.blank).data)
        if self.units is not None:
            hasher.update(self.units.digest())
        return hasher.digest()

    def check_sampled(self) -> None:
        """Raise ValueError for records of units of which a sample must be taken first."""
        if self.units is not None:
            raise ValueError("of records with units a sample must be taken before they are used")

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

    def sampled(self, stream: KeyStream, max_records_per_unit: int) -> BoundedRecords:
        """Return the same records, but for a sample of each unit's all blank."""
        changed = self._sample(stream, max_records_per_unit)
        features = np.where(changed["blank"][:, None], np.int16(0), self.features)
        return replace(self, features=features, **changed)


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
                blank = self.blank[a:b].copy()  # which was settled when they were first read
                _bound(self.source, a, b, blank, self.feature_grid, here)
                if _piece_digest(here) != self.pieces[a // size]:
                    _validate.fail("records", "the same as when they were first read", "others")

        if self.source.in_order:
            return out, [partial(fill, start, stop)]
        return out, [partial(fill, a, b) for a, b in _runs(start, stop, size)]

    def digest(self) -> bytes:
        """Return a SHA-256 of the records; it binds the keys and is never published."""
        return self._digest(self.source.shape, self.pieces)

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
        size = self.run_records

        def fill(run: int) -> None:
            # Wider vectors count in smaller shards: only whole runs of the original can be read.
            first, last = run * size, min((run + 1) * size, self.count)
            a, b = max(start, first), min(stop, last)
            features = self.original.part(first, last)[a - first : b - first]
            self.transform(features, self.blank[a:b], out[a - start : b - start])

        return out, [partial(fill, run) for run in range(start // size, -(-stop // size))]

    def digest(self) -> bytes:
        """Return the digest of the records before."""
        return self.original.digest()

    def sampled(self, stream: KeyStream, max_records_per_unit: int) -> Records:
        """Refuse: a sample is taken before anything else is done with records."""
        raise ValueError("these records have no units")


def _runs(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    for first in range(start, stop, size):
        yield first, min(first + size, stop)


def _piece_digest(features: NDArray[np.int16]) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(features).data).digest()


def _bound(
    source: Source,
    start: int,
    stop: int,
    blank: NDArray[np.bool_],
    grid: FixedPoint,
    out: NDArray[np.int16],
    *,
    strict: bool = False,
) -> int:
    """Read a run of records and bound it; return how many were clipped.

    Those that ``blank`` says become zero, and those with a NaN or an infinity do and are added to
    ``blank``, or are refused if ``strict``.
    """
    block = np.array(source.read(start, stop), dtype=np.float64, order="C")
    bad = ~np.isfinite(block).all(axis=1)
    if strict and bad.any():
        first = int(np.flatnonzero(bad)[0])
        column = int(np.flatnonzero(~np.isfinite(block[first]))[0])
        _validate.fail(
            f"features[{start + first}, {column}]",
            "a finite number" + _REMEDY,
            block[first, column],
        )
    blank |= bad
    block[blank] = 0.0
    return grid.quantise(block, out)


def bound_records(
    features: ArrayLike | Source,
    labels: ArrayLike,
    schema: Schema,
    on_bad_record: BadRecordPolicy = "error",
    *,
    units: ArrayLike | None = None,
    in_memory: bool = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> BoundedRecords | StreamedRecords:
    """Clip, quantise and label-match private records.

    Args:
        features: (count, num_features) real numbers, or a source of them. ``count`` need not be
            ``num_records``.
        labels: (count,) values out of ``schema.classes``, matched by value; or (count, num_classes)
            numbers for other targets, and (count,) for a single output.
        schema: The public facts.
        on_bad_record: ``error`` refuses NaN, infinity, labels outside the schema and missing units,
            naming the record; ``zero`` replaces such a record by zero, record by record.
        units: (count,) identifiers of the records' owners, for a plan that protects units.
        in_memory: Whether to keep the bounded features, or to read them again whenever needed.
        threads: Number of threads; all processors by default.
        progress: Called with (records read, records in all).

    Raises:
        InvalidInputError: A wrong shape, or a bad record under ``error``.

    """
    _validate.one_of("on_bad_record", on_bad_record, ("error", "zero"))
    source = feature_source(features, schema.num_features)
    strict = on_bad_record == "error"
    label_grid = FixedPoint(schema.label_clip_norm)
    bounded = _bound_labels(labels, schema, label_grid, strict)
    count, width = source.shape[0], schema.num_features
    if count != (found := len(bounded.values)):
        _validate.fail("labels", f"one label for each of the {count} records", found)
    owners = None if units is None else match_units(units, strict=strict)
    blank = bounded.bad
    if owners is not None:
        if (found := owners.codes.size) != count:
            _validate.fail("units", f"one identifier for each of the {count} records", found)
        blank = blank | owners.missing
    grid = FixedPoint(schema.feature_clip_norm)
    kept = np.empty((count, width) if in_memory else (0, width), dtype=np.int16)

    def bound(run: tuple[int, int]) -> tuple[int, bytes]:
        start, stop = run
        own = kept[start:stop] if in_memory else np.empty((stop - start, width), dtype=np.int16)
        clipped = _bound(source, start, stop, blank[start:stop], grid, own, strict=strict)
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
    bounded.values[blank] = -1 if schema.target == "class" else 0
    facts: dict[str, Any] = {
        "labels": bounded.values,
        "blank": blank,
        "feature_grid": grid,
        "label_grid": label_grid,
        "num_clipped": num_clipped,
        "num_replaced": int(blank.sum()),
        "num_labels_clipped": bounded.num_clipped,
        "units": owners,
    }
    if in_memory:
        return BoundedRecords(features=kept, **facts)
    return StreamedRecords(source=source, pieces=tuple(pieces), **facts)


class _Labels(NamedTuple):
    """Bounded labels, as ``Records`` have them, and which of them are bad."""

    values: NDArray[Any]
    bad: NDArray[np.bool_]
    num_clipped: int


def _bound_labels(labels: ArrayLike, schema: Schema, grid: FixedPoint, strict: bool) -> _Labels:
    if schema.target == "class":
        indices = match_labels(labels, schema.classes, strict=strict, remedy=_REMEDY)
        return _Labels(indices, indices < 0, 0)
    vectors = _label_matrix(labels, schema)
    rule = LABEL_RULES[schema.target]
    wrong = ~rule.holds(vectors)
    bad = np.asarray(wrong.any(axis=1))
    if strict and bad.any():
        first = int(np.flatnonzero(bad)[0])
        column = int(np.flatnonzero(wrong[first])[0])
        allowed = rule.allowed + _REMEDY
        _validate.fail(f"labels[{first}, {column}]", allowed, vectors[first, column])
    vectors[bad] = 0.0
    clamped = np.zeros(len(vectors), dtype=bool)
    if schema.target_bounds is not None:
        low, high = np.array(schema.target_bounds).T
        with np.errstate(over="ignore"):
            vectors = (vectors - (low / 2 + high / 2)) / (high / 2 - low / 2)
        clamped = (np.abs(vectors) > 1.001).any(axis=1) & ~bad
        vectors = np.clip(vectors, -1.0, 1.0)
    integers = np.empty(vectors.shape, dtype=np.int16)
    shortened = grid.quantise(vectors, integers)
    return _Labels(integers, bad, shortened + int(clamped.sum()))


def _label_matrix(labels: ArrayLike, schema: Schema) -> NDArray[np.float64]:
    values = to_array("labels", labels)
    if values.dtype == object:  # a table's rows, with None for what is missing
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            _validate.fail("labels", "an array of real numbers", "other objects")
    if values.dtype.kind not in "fiub":
        _validate.fail("labels", "an array of real numbers", f"an array of {values.dtype}")
    if values.ndim == 1 and schema.num_classes == 1:
        values = values[:, None]
    if values.ndim != 2 or values.shape[1] != schema.num_classes:
        allowed = f"shape (records, {schema.num_classes})"
        _validate.fail("labels", allowed, f"shape {values.shape}")
    return np.array(values, dtype=np.float64, order="C")


def _is_soft(vectors: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Weights that were rounded to single precision may add up to a little more than 1."""
    with np.errstate(invalid="ignore"):
        fits = _row_totals(vectors) <= 1 + 1e-5
        return np.isfinite(vectors) & (vectors >= 0) & fits[:, None]


class LabelRule(NamedTuple):
    """What a label vector's numbers must be, in words, and (count, K) whether they are."""

    allowed: str
    holds: Callable[[NDArray[np.float64]], NDArray[np.bool_]]


LABEL_RULES: dict[Target, LabelRule] = {
    "soft": LabelRule("weights of at least 0 that add up to at most 1", _is_soft),
    "multilabel": LabelRule("0 or 1", lambda vectors: (vectors == 0) | (vectors == 1)),
    "regression": LabelRule("a finite number", np.isfinite),
}


@njit(nogil=True, cache=True)
def _row_totals(vectors: NDArray[np.float64]) -> NDArray[np.float64]:  # pragma: no cover - compiled
    """Add each row up from left to right, so that no row changes the order of another's additions."""
    totals = np.zeros(vectors.shape[0])
    for row in range(vectors.shape[0]):
        for j in range(vectors.shape[1]):
            totals[row] += vectors[row, j]
    return totals


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
    labels: ArrayLike,
    classes: Sequence[int] | Sequence[str],
    *,
    strict: bool = True,
    remedy: str = "",
) -> NDArray[np.int32]:
    """Match labels to the classes by value: 3, 3.0 and NumPy's 3 are the class 3, "3" is not.

    Args:
        labels: (count,) array or sequence; of a sequence each is read as what it is.
        classes: The schema's classes.
        strict: Refuse a label that is no class, naming its position; otherwise it becomes -1.
        remedy: What the refusal advises.

    Returns:
        (count,) int32 indices into ``classes``.

    Raises:
        InvalidInputError: Another shape or kind, a label that is no class under ``strict``, or
            floating-point labels where a class is an integer of magnitude 2^53 or more.

    """
    labels = from_categories(labels)
    refuse_floats("labels", labels, classes)
    values = to_array("labels", _one_by_one(labels))
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
            f"one of the schema's {len(classes)} {kind} classes ({shown}){remedy}",
            repr(received),
        )
    return found


def refuse_floats(place: str, labels: Any, classes: Iterable[object]) -> None:
    """Refuse labels of a floating-point type where they cannot tell the classes apart.

    From 2^53 on doubles skip integers (single precision: from 2^24 on), and one missing label makes
    pandas turn the integers of all other records into them. The type and the public classes decide
    here; pandas may have found that type in the values.
    """
    kind = str(getattr(labels, "dtype", getattr(labels, "type", ""))).lower()
    if "float" not in kind and "double" not in kind:
        return
    single = "32" in kind or kind == "float"  # as Arrow calls it
    bits = 11 if "16" in kind or "half" in kind else 24 if single else 53
    if any(isinstance(c, int) and abs(c) >= 1 << bits for c in classes):
        allowed = f"{EXACT_TYPES} where integers of 2^{bits} or more are classes, or could be"
        _validate.fail(place, allowed, f"a column of {kind}")


def is_rounded(value: object) -> bool:
    """Whether a number is a floating-point one so large that it may stand for several integers."""
    return isinstance(value, float) and abs(value) >= FIRST_ROUNDED


def _one_by_one(labels: ArrayLike) -> Any:
    """Return labels without a NumPy type as objects.

    NumPy would find one type for all of them: a single text would make texts of every label, so
    that one bad record made all others bad, and numbers beside it those classes of that name.
    """
    if isinstance(getattr(labels, "dtype", None), np.dtype):
        return labels
    for to_list in ("to_pylist", "to_list"):  # Arrow's; and pandas' and polars', with their nulls
        if hasattr(labels, to_list):
            labels = getattr(labels, to_list)()
    if not isinstance(labels, list | tuple):
        return labels
    return np.fromiter(labels, dtype=object, count=len(labels))


def _lookup(value: Any, index: dict[object, int]) -> int:
    try:
        value = value.item() if hasattr(value, "item") else value
        return -1 if is_rounded(value) else index.get(value, -1)
    except (TypeError, ValueError, RuntimeError):  # unhashable, or an array or tensor of several
        return -1
