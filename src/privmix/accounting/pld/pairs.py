"""Dominating pairs of one sampled Gaussian step.

The outcome y is in units of the noise's standard deviation and has density weight * phi(y) under Q.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]


class Pair(Protocol):
    """Two distributions of a real outcome, the loss increasing in it."""

    @property
    def weight(self) -> float:
        """Density of Q over that of a standard normal outcome."""
        ...

    def loss(self, outcome: Array) -> Array:
        """Loss log P/Q of outcomes; it grows with the outcome."""
        ...

    def outcome(self, loss: Array) -> Array:
        """The outcomes of losses: the inverse of :meth:`loss`."""
        ...

    def intervals(self, reach: float) -> list[tuple[float, float]]:
        """Intervals outside which both P and Q have at most four tails beyond ``reach``."""
        ...


@dataclass(frozen=True)
class ShiftedPair:
    """(1 - p) N(0, s^2) + p N(1, s^2) against N(0, s^2)."""

    prob: float
    noise: float
    weight: float = 1.0

    def loss(self, outcome: Array) -> Array:
        """See :class:`Pair`."""
        return _mixture_loss(outcome / self.noise - 0.5 / self.noise**2, self.prob)

    def outcome(self, loss: Array) -> Array:
        """See :class:`Pair`."""
        return self.noise * _unmixed_loss(loss, self.prob) + 0.5 / self.noise

    def intervals(self, reach: float) -> list[tuple[float, float]]:
        """See :class:`Pair`."""
        centre = 1.0 / self.noise
        if centre > 2.0 * reach:
            return [(-reach, reach), (centre - reach, centre + reach)]
        return [(-reach, centre + reach)]


@dataclass(frozen=True)
class SignedPair:
    """(1 - p) N(0, s^2) + p/2 N(1, s^2) + p/2 N(-1, s^2) against N(0, s^2), folded to y >= 0."""

    prob: float
    noise: float
    weight: float = 2.0

    def loss(self, outcome: Array) -> Array:
        """See :class:`Pair`."""
        scaled = outcome / self.noise
        log_cosh = scaled + np.log1p(np.expm1(-2.0 * scaled) / 2.0)
        return _mixture_loss(log_cosh - 0.5 / self.noise**2, self.prob)

    def outcome(self, loss: Array) -> Array:
        """See :class:`Pair`."""
        log_cosh = np.maximum(_unmixed_loss(loss, self.prob) + 0.5 / self.noise**2, 0.0)
        return self.noise * (log_cosh + np.log1p(np.sqrt(-np.expm1(-2.0 * log_cosh))))

    def intervals(self, reach: float) -> list[tuple[float, float]]:
        """See :class:`Pair`."""
        centre = 1.0 / self.noise
        if centre > 2.0 * reach:
            return [(0.0, reach), (centre - reach, centre + reach)]
        return [(0.0, centre + reach)]


def _mixture_loss(loss: Array, prob: float) -> Array:
    """log(1 - p + p exp(loss)), accurate for small p and for large losses."""
    if prob == 1.0:
        return loss
    small: Array = np.log1p(prob * np.expm1(np.minimum(loss, 30.0)))
    if loss.max() < 30.0:
        return small
    large = loss + math.log(prob) + np.log1p((1.0 / prob - 1.0) * np.exp(-np.maximum(loss, 30.0)))
    return np.where(loss < 30.0, small, large)


def _unmixed_loss(loss: Array, prob: float) -> Array:
    """Inverse of :func:`_mixture_loss`; -inf at and below its infimum log(1 - p)."""
    if prob == 1.0:
        return loss
    with np.errstate(divide="ignore"):
        ratio = np.maximum(np.expm1(np.minimum(loss, 30.0)) / prob, -1.0)
        small = np.log1p(ratio)
    large = loss - math.log(prob) + np.log1p((prob - 1.0) * np.exp(-np.maximum(loss, 30.0)))
    return np.where(loss < 30.0, small, large)


def lost_mass(pair: Pair, reach: float) -> float:
    """Bound on the P-mass and on the Q-mass outside the intervals: four Gaussian tails."""
    return 2.0 * pair.weight * float(np.exp(_log_tail(reach)))


def _log_tail(reach: float) -> float:
    return math.log(math.erfc(reach / math.sqrt(2.0)) / 2.0)
