"""Integer grids for clipped gradient sums: exact sums, known sensitivity.

Everything that crosses records is exact integer arithmetic, so that removing a record changes an
integer sum by that record's own integers and by nothing else, whatever the order of additions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

# Sensitivity of a published sum in grid points, at most: noise of 1000 times as much can be drawn.
_SENSITIVITY_BITS = 31
# The head's own, finer grid: clip norm times number of augmentations in its points.
_FINE_BITS = 43
_FOLD_BITS = 20
EXACT = 2.0**53  # integers up to here are exact in a double


@dataclass(frozen=True)
class SumGrid:
    """The grid that noise is added on.

    Attributes:
        scale: Grid points per unit of gradient.
        sensitivity: L2 bound on the change of an integer sum by one record, in grid points.

    """

    scale: float
    sensitivity: float

    @property
    def unit_sensitivity(self) -> float:
        """The sensitivity in units of the gradient."""
        return self.sensitivity / self.scale


def network_grid(clip_norm: float, microbatch_size: int = 1) -> SumGrid:
    """Return the grid of gradients that are quantised one by one.

    A microbatch without one of its records may change from one vector of norm ``clip_norm`` to
    another: its sensitivity is twice that.
    """
    exponent = 30 - math.ceil(math.log2(clip_norm))
    units = math.ldexp(1.0, exponent)
    return SumGrid(units, microbatch_size * clip_norm * units)


@dataclass(frozen=True)
class HeadGrid:
    """The two grids of a linear head: a fine one for exact sums, a coarse one for noise.

    A record adds sum_k R_k F_k' with integer factors R_k (residuals) and F_k (features); fine units
    are 2**exponent points for each unit of the *sum* of its gradients over K augmentations.

    Attributes:
        clip_norm: Bound C on the mean gradient.
        num_augmentations: K.
        num_parameters: Entries of a gradient.

    """

    clip_norm: float
    num_augmentations: int
    num_parameters: int

    @property
    def exponent(self) -> int:
        """Fine points per unit, as a power of two."""
        return _FINE_BITS - math.ceil(math.log2(self.clip_norm))

    @property
    def bound(self) -> float:
        """L2 bound C K 2**exponent on what a record adds to the fine sum."""
        return self.clip_norm * self.num_augmentations * math.ldexp(1.0, self.exponent)

    @property
    def shift(self) -> int:
        """Bits that the fine sum loses before noise is added."""
        return max(0, math.ceil(math.log2(self.bound)) - _SENSITIVITY_BITS)

    @property
    def published(self) -> SumGrid:
        """The grid of the shifted sum.

        Rounding down moves each entry by less than one point, so that two shifted sums differ by
        at most the shifted difference and one more point in each entry.
        """
        units = math.ldexp(float(self.num_augmentations), self.exponent - self.shift)
        sensitivity = math.ldexp(self.bound, -self.shift) + math.sqrt(self.num_parameters)
        return SumGrid(units, sensitivity)


class ExactSum:
    """An int64 sum of float64 arrays of integers, which never overflows.

    Products are added up in float64 for as long as that is exact, and then carried over.

    Args:
        like: A matrix of the shape and on the device of the sum.

    """

    def __init__(self, like: Tensor) -> None:
        import torch

        self._high = torch.zeros_like(like, dtype=torch.int64)
        self._low = torch.zeros_like(like, dtype=torch.int64)
        self._products = torch.zeros_like(like, dtype=torch.float64)
        self._bound = self._products_bound = 0.0

    def add(self, integers: Tensor, bound: float) -> None:
        """Add integers of magnitude at most ``bound`` <= 2**62 each."""
        if self._bound + bound > 2.0**62:
            self._high += self._low >> _FOLD_BITS
            self._low &= (1 << _FOLD_BITS) - 1
            self._bound = 2.0**_FOLD_BITS
        self._bound += bound
        self._low += integers.long()

    def add_product(self, left: Tensor, right: Tensor, bounds: NDArray[np.float64]) -> None:
        """Add the sum over records i of left_i right_i, of float64 integers.

        Args:
            left: (rows, records, K).
            right: (records, K, columns).
            bounds: (records,) at most 2**53 each: no entry of |left_i| |right_i| is larger.

        """
        start = 0
        while start < len(bounds):
            reached = self._products_bound + np.cumsum(bounds[start:])
            stop = start + int(np.searchsorted(reached, EXACT, side="right"))
            if stop == start:
                self._carry()
                continue
            run = slice(start, stop)
            self._products.addmm_(left[:, run].flatten(1), right[run].flatten(0, 1))
            # Sums of doubles round: a hair more keeps the bound a bound.
            self._products_bound = float(reached[stop - start - 1]) * (1 + 2.0**-40)
            start = stop

    def merge(self, other: ExactSum) -> None:
        """Add another sum of the same shape."""
        other._carry()
        self._high += other._high
        self.add(other._low, other._bound)

    def _carry(self) -> None:
        self.add(self._products, self._products_bound)
        self._products.zero_()
        self._products_bound = 0.0

    def shifted(self, bits: int) -> NDArray[np.int64]:
        """Return floor(sum / 2**bits) exactly; the result must fit into 63 bits."""
        self._carry()
        high, low = self._high.cpu().numpy(), self._low.cpu().numpy()
        if not high.any():
            return np.asarray(low >> bits)
        if bits < _FOLD_BITS:
            return np.asarray((high << (_FOLD_BITS - bits)) + (low >> bits))
        # high * 2^fold + low: the carry out of low goes to high, the rest is below one point.
        return np.asarray((high + (low >> _FOLD_BITS)) >> (bits - _FOLD_BITS))
