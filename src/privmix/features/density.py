"""How the numbers of a column lie between its bounds, from the shares of its bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

_POINTS = 1536  # in all, but at least 2 and at most 24 between the middles of two bins
# Numbers heap at bounds, where they are cut off or where most are none: how much is there by default, in bins.
_HEAP = 0.05
# No bin is taken to be emptier than this: a noisy share of 0 says less than that nobody is there.
_LEAST_SHARE = 1e-5
_LOOSE = (
    0.35  # of what weighs by default, beside what is expected: bins may say that it is otherwise
)
_PENALTY = 1e-9


@dataclass(frozen=True)
class Density:
    """Numbers from -1 to 1 and how often each of them is.

    Attributes:
        points: (G,) numbers, rising, from -1 to 1. The first and the last are heaps, the others stand for the numbers
            that are nearer to them than to others.
        masses: (G,) shares, adding up to 1.

    """

    points: Vector
    masses: Vector

    @classmethod
    def of_numbers(cls, numbers: Vector, weights: Vector, num_bins: int) -> Self:
        """Return how numbers from -1 to 1 lie, each with its weight (1 in all), on the points that bins have."""
        _, base = _tents(num_bins)
        at = np.rint((numbers + 1) / 2 * (len(base) - 1)).astype(np.int64)
        masses = np.bincount(at, weights, len(base)).astype(np.float64)
        return cls(np.linspace(-1.0, 1.0, len(base)), masses)

    @classmethod
    def of_bins(cls, shares: Vector, expected: Density | None = None) -> Self:
        """Return the density whose bins have the given shares and that is nearest to what is expected.

        A number is shared by the two bins around it (``ScaledColumn.num_bins``), so that shares are means of
        tents. Of all densities with these means the one of least relative entropy (Csiszar, 1975) is the
        expected one times the exponential of a line between the middles of any two bins. Where nothing is
        expected, that is the one of greatest entropy (Jaynes, 1957).

        Args:
            shares: (J,) shares through noise; those below 0 are empty.
            expected: How numbers lie as far as bins do not say otherwise, on the points of as many bins.

        """
        held = np.maximum(shares, 0.0)
        if held.sum() <= 0:
            held = np.ones_like(held)
        held = np.maximum(held / held.sum(), _LEAST_SHARE)
        held /= held.sum()
        tents, base = _tents(len(held))
        if expected is not None:
            base = (1 - _LOOSE) * expected.masses + _LOOSE * base
        log_base = np.log(base)

        def loss(heights: Vector) -> tuple[float, Vector]:
            logits = tents @ heights + log_base
            slope = softmax(logits) @ tents - held + _PENALTY * heights
            penalty = 0.5 * _PENALTY * float(heights @ heights)
            return float(logsumexp(logits)) - float(held @ heights) + penalty, slope

        def curvature(heights: Vector) -> Matrix:
            masses = softmax(tents @ heights + log_base)
            mean = masses @ tents
            found = (tents.T * masses) @ tents - np.outer(mean, mean)
            return np.asarray(found + _PENALTY * np.eye(len(heights)))

        found = minimize(loss, np.log(held), jac=True, hess=curvature, method="trust-exact")
        return cls(np.linspace(-1.0, 1.0, len(base)), softmax(tents @ found.x + log_base))

    def quantiles(self, places: Vector) -> Vector:
        """Return the least numbers at or below which shares ``places`` lie."""
        below, half = np.cumsum(self.masses), (self.points[1] - self.points[0]) / 2
        edges = np.append(self.points[1:-1] - half, 1.0 - half)
        inner = np.interp(places, below[:-1], edges)
        inner = np.where(places > below[-2], 1.0, inner)
        return np.asarray(np.where(places <= below[0], -1.0, inner))


def _tents(bins: int) -> tuple[Matrix, Vector]:
    """Return (G, J) what each bin has of each point, and (G,) what each point weighs by default."""
    points = min(max(_POINTS // bins, 2), 24)
    place = np.linspace(0.0, bins - 1.0, (bins - 1) * points + 1)
    tents = np.maximum(1 - np.abs(place[:, None] - np.arange(bins)), 0.0)
    base = np.full(len(place), 1 / points)
    base[[0, -1]] = _HEAP
    return tents, base / base.sum()
