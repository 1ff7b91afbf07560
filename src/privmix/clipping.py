"""The bound on a record: clip to a public norm, as floats or on a grid of integers.

:class:`FixedPoint` is for what a release mixes, :class:`ClippedSum` for gradients; :func:`clipped` and
:func:`rescaled` leave floats, on the way to a release and where a model meets records.

See ``docs/theory/fixed-point.md``. Everything here is decided record by record from public
constants, so that no record changes what is made of another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.compiling import kernel

_LARGEST = 32767  # of int16, the same on both sides of zero


@dataclass(frozen=True)
class FixedPoint:
    """The integer grid for vectors of norm at most ``clip_norm``.

    Attributes:
        clip_norm: L2 bound C in the units of the data.
        exponent: Largest k with C * 2**k <= 32767.

    Example:
        >>> import numpy as np
        >>> from privmix.clipping import FixedPoint
        >>> grid = FixedPoint(1.0)
        >>> out = np.empty((2, 2), dtype=np.int16)
        >>> grid.quantise(np.array([[0.6, 0.8], [30.0, -40.0]]), out)  # how many were shortened
        1
        >>> out / grid.scale
        array([[ 0.59997559,  0.79998779],
               [ 0.59997559, -0.79998779]])

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
            vectors: (rows, width), C-contiguous.
            out: The same shape; receives the integers. A zero row stays zero, and a row with an entry that is
                not finite becomes one.

        Returns:
            How many rows were shortened by more than 0.1 % (unit vectors come with rounding errors
            that are no news).

        """
        return int(_quantise_rows(vectors, self.clip_norm, self.scale, self.largest_square, out))


@kernel(nogil=True)
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
        largest, finite = 0.0, True
        for j in range(width):
            size = abs(vector[j])
            finite &= size < np.inf  # not so for NaN
            largest = max(largest, size)
        if largest == 0.0 or not finite:  # neither length nor squares would hold a bound
            out[row] = 0
            clipped += not finite
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


@kernel(nogil=True)
def _scale_rows(
    rows: NDArray[np.float64], clip_norm: float, always: bool
) -> None:  # pragma: no cover
    for i in range(rows.shape[0]):
        largest = 0.0
        for j in range(rows.shape[1]):
            largest = max(largest, abs(rows[i, j]))
        if largest == 0.0:
            continue
        # Dividing by the largest entry first keeps the squares of huge or tiny entries finite.
        square = 0.0
        for j in range(rows.shape[1]):
            square += (rows[i, j] / largest) ** 2
        length = math.sqrt(square)
        if always or largest > clip_norm / length:
            for j in range(rows.shape[1]):
                rows[i, j] = rows[i, j] / largest * (clip_norm / length)


def clipped(features: NDArray[np.float64], clip_norm: float) -> NDArray[np.float64]:
    """Return rows, those longer than ``clip_norm`` scaled down to it."""
    rows = np.array(features, dtype=np.float64, order="C")
    _scale_rows(rows, clip_norm, False)
    return rows


def rescaled(features: NDArray[np.float64], clip_norm: float) -> NDArray[np.float64]:
    """Return rows scaled to length ``clip_norm``; zero rows stay zero."""
    rows = np.array(features, dtype=np.float64, order="C")
    _scale_rows(rows, clip_norm, True)
    return rows


@kernel(nogil=True, fastmath={"reassoc"})
def _square_norm(vector: NDArray[Any]) -> float:  # pragma: no cover - compiled
    total = 0.0
    for value in vector:
        total += np.float64(value) * np.float64(value)
    return total


@kernel(nogil=True)
def _add_truncated(
    vector: NDArray[Any], scale: float, largest_square: int, total: NDArray[np.int64]
) -> bool:  # pragma: no cover - compiled
    """Add trunc(vector * scale) to ``total``, unless the sum of its squares is too large."""
    square = np.int64(0)
    for value in vector:
        integer = np.int64(np.float64(value) * scale)
        square += integer * integer
    if square > largest_square:
        return False
    for i in range(vector.size):
        total[i] += np.int64(np.float64(vector[i]) * scale)
    return True


class ClippedSum:
    """An exact sum of vectors, each clipped to a norm and truncated to the grid on its own.

    Args:
        num_parameters: Length of the vectors.
        clip_norm: Bound C on each, held in exact arithmetic. Together with ``units`` it makes C at
            most 2**30 points: squares then fit into 63 bits.
        units: Points of the grid per unit.

    Attributes:
        total: (num_parameters,) int64, in points. Private.

    """

    def __init__(self, num_parameters: int, clip_norm: float, units: float) -> None:
        if not 1e-30 <= clip_norm <= 1e30:  # squares of doubles must not vanish
            raise ValueError(f"clip norms are from 1e-30 to 1e30, not {clip_norm:g}")
        self.total = np.zeros(num_parameters, dtype=np.int64)
        self._clip_norm, self._units = clip_norm, units
        self._largest_square = math.floor((Fraction(clip_norm) * Fraction(units)) ** 2)

    def add(self, vector: NDArray[Any]) -> None:
        """Add a vector of floats; one that has no finite norm counts as zero."""
        length = math.sqrt(_square_norm(vector))
        if not math.isfinite(length):
            return
        scale = self._units * min(1.0, self._clip_norm / max(length, 1e-300))
        while not _add_truncated(vector, scale, self._largest_square, self.total):
            scale *= 1 - 2.0**-40
