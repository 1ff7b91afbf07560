"""Clip and quantise private records to fixed point; the result carries its sensitivity.

See ``docs/theory/fixed-point.md``. Everything here is decided record by record from public
constants, so that no record changes what is made of another.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from privmix import _validate
from privmix.schema import Schema

BadRecordPolicy = Literal["error", "zero"]

_LARGEST = 32767  # of int16, the same on both sides of zero
_BLOCK_BYTES = 8 << 20


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

    def quantise(self, vectors: NDArray[np.float64]) -> tuple[NDArray[np.int16], int]:
        """Clip rows to ``clip_norm``, truncate them to the grid, and check the bound exactly.

        Args:
            vectors: (rows, width), finite.

        Returns:
            int16 rows, and how many of them were shortened by more than 0.1 % (unit vectors come
            with rounding errors that are no news). A zero row stays zero.

        """
        integers = np.empty(vectors.shape, dtype=np.int16)
        clipped = _quantise_rows(
            np.ascontiguousarray(vectors),
            self.clip_norm,
            self.scale,
            self.largest_square,
            integers,
        )
        return integers, clipped


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


@dataclass(frozen=True, repr=False)
class BoundedRecords:
    """Private records, every one within the stated sensitivity. Never shown, never written.

    Attributes:
        features: (count, num_features) int16.
        labels: (count,) int32 class indices; -1 for a record replaced by zero.
        feature_grid: Grid and sensitivity of the features.
        label_grid: Grid and sensitivity of one-hot labels.
        num_clipped: How many records were shortened by more than 0.1 %: for the data holder's eyes only.
        num_replaced: How many bad records were replaced by zero: for the data holder's eyes only.

    """

    features: NDArray[np.int16]
    labels: NDArray[np.int32]
    feature_grid: FixedPoint
    label_grid: FixedPoint
    num_clipped: int
    num_replaced: int

    def __repr__(self) -> str:
        return "BoundedRecords(<private>)"

    @property
    def count(self) -> int:
        """The actual number of records: private."""
        return self.labels.size

    @property
    def label_one(self) -> int:
        """The integer that stands for 1 in a one-hot label."""
        return math.floor(self.label_grid.sensitivity)

    def digest(self) -> bytes:
        """Return a SHA-256 of the records; it binds the keys and is never published."""
        hasher = hashlib.sha256(b"privmix records 1")
        hasher.update(repr(self.features.shape).encode())
        hasher.update(np.ascontiguousarray(self.features).data)
        hasher.update(np.ascontiguousarray(self.labels).data)
        return hasher.digest()


def bound_records(
    features: ArrayLike, labels: ArrayLike, schema: Schema, on_bad_record: BadRecordPolicy = "error"
) -> BoundedRecords:
    """Clip, quantise and label-match private records.

    Args:
        features: (count, num_features) real numbers. ``count`` need not be ``num_records``.
        labels: (count,) values out of ``schema.classes``, matched by value.
        schema: The public facts.
        on_bad_record: ``error`` refuses NaN, infinity and labels outside the schema, naming the
            record; ``zero`` replaces such a record by zero, record by record.

    Raises:
        InvalidInputError: A wrong shape, or a bad record under ``error``.

    """
    _validate.one_of("on_bad_record", on_bad_record, ("error", "zero"))
    matrix = _matrix(features, schema.num_features)
    indices = match_labels(labels, schema.classes, strict=on_bad_record == "error")
    if len(matrix) != indices.size:
        _validate.fail("labels", f"one label for each of the {len(matrix)} records", indices.size)
    grid = FixedPoint(schema.feature_clip_norm)
    quantised = np.empty(matrix.shape, dtype=np.int16)
    num_clipped = 0
    rows = max(1, _BLOCK_BYTES // (8 * schema.num_features))
    for start in range(0, len(matrix), rows):
        block = matrix[start : start + rows].astype(np.float64)
        bad = ~np.isfinite(block).all(axis=1)
        if bad.any() and on_bad_record == "error":
            first = int(np.flatnonzero(bad)[0])
            column = int(np.flatnonzero(~np.isfinite(block[first]))[0])
            _validate.fail(
                f"features[{start + first}, {column}]",
                "a finite number (on_bad_record='zero', --on-bad-record zero, blanks such records)",
                block[first, column],
            )
        bad |= indices[start : start + rows] < 0
        indices[start : start + rows][bad] = -1
        block[bad] = 0.0
        quantised[start : start + rows], clipped = grid.quantise(block)
        num_clipped += clipped
    return BoundedRecords(
        features=quantised,
        labels=indices,
        feature_grid=grid,
        label_grid=FixedPoint(schema.label_clip_norm),
        num_clipped=num_clipped,
        num_replaced=int((indices < 0).sum()),
    )


def _matrix(features: ArrayLike, num_features: int) -> NDArray[np.number]:
    matrix = _array("features", features)
    if matrix.dtype.kind not in "fiub":
        _validate.fail("features", "an array of real numbers", f"an array of {matrix.dtype}")
    if matrix.ndim != 2 or matrix.shape[1] != num_features:
        _validate.fail("features", f"shape (records, {num_features})", f"shape {matrix.shape}")
    if len(matrix) == 0:
        _validate.fail("features", "at least one record", "none")
    return matrix


def _array(place: str, values: ArrayLike) -> NDArray[Any]:
    """Convert to an array; what a mask hides is refused rather than used."""
    if np.ma.is_masked(values):
        _validate.fail(place, "an array without masked values", "a masked array")
    try:
        return np.asarray(values)
    except ValueError:  # rows of several lengths
        _validate.fail(place, "a rectangular array", "rows of several lengths")


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
    values = _array("labels", labels)
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
