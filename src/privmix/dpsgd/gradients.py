"""What a model is to the trainer: a source of clipped gradient sums.

What is done in floating point is done for one record at a time, in calls of a fixed shape, so that
it is a function of that record alone; what crosses records is exact (see ``grid`` and
``linear_head``). That makes the sensitivity a fact about bits and not about real numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from privmix.dpsgd.grid import SumGrid

if TYPE_CHECKING:
    from torch import Tensor


class GradientSource(Protocol):
    """Private records and a model: yields clipped sums."""

    grid: SumGrid

    def clipped_sum(
        self, indices: NDArray[np.int32], step: int, parameters: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Sum clipped mean gradients exactly, in points of ``grid``; private without noise.

        Args:
            indices: The records of the step (pairs of them, in microbatches of 2).
            step: Number of the step; randomness is keyed by it and by the record.
            parameters: (num_parameters,).

        Sums over disjoint sets of records add up to the sum over their union: bit for bit for a
        network, so that several processes may share a step; for a head, whose sums are rounded once
        more, within a point each.

        """

    def mean_gradients(
        self, indices: NDArray[np.int32], step: int, parameters: NDArray[np.float64]
    ) -> Iterator[Tensor]:
        """Yield each record's mean gradient before clipping: private, for research only."""
