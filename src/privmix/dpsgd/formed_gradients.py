"""Clipped gradients of a linear head, formed record by record: quick where augmentations are many.

Scores, softmax and the sum over K augmentations of residual times features are computed in single
precision, in calls of a fixed shape with one thread, from that record alone. The norm N of the gradient
that came out, whatever its rounding, is found in doubles; its entries g are scaled and truncated toward
zero to integers, which are added up exactly. The scale s, in single precision, is at most
(1 - 2^-22) (1 + 2^-24) B / N for a bound B on the integers' norm; since in each entry

    |trunc(fl(s g))| <= (1 + 2^-24) s |g|,

that norm is below B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privmix.compiling import kernel
from privmix.dpsgd.grid import ExactSum, HeadGrid

if TYPE_CHECKING:
    from torch import Tensor

_MANY_VIEWS = 8
_MOST_PARAMETERS = 1 << 18  # a gradient and a sum stay in the processor's cache
_POINT_BITS = 30  # a record's integers are no longer than 2 to this
_SUM_BITS = 61  # nor are sums, in fine points
_LARGEST_SCALE = 2.0**100  # finite in single precision
_LINE = 64  # bytes: an alignment on which the bits of a product do not depend any further


def forming_is_quicker(views: int, num_parameters: int) -> bool:
    """Whether to form gradients: by public sizes alone, so that all records are treated alike."""
    return views >= _MANY_VIEWS and num_parameters <= _MOST_PARAMETERS


def sum_of_formed(
    stretches: Sequence[tuple[Tensor, Tensor]],
    weights: NDArray[np.float64],
    grid: HeadGrid,
    class_weight: NDArray[np.float64],
) -> ExactSum:
    """Sum the clipped gradients of stretches of records, given as features and targets.

    The integers are multiples of a power of two of fine points. A view's residuals are multiplied by
    the weight of its classes, of which there may be none, before the gradient is formed and clipped.
    """
    import torch

    num_classes, width = weights.shape
    num_views = stretches[0][0].shape[1]
    total, points = ExactSum(torch.empty(weights.shape)), np.zeros(weights.shape, dtype=np.int64)
    coarse = max(0, math.ceil(math.log2(grid.bound)) - _POINT_BITS)
    bound, full_scale = math.ldexp(grid.bound, -coarse), math.ldexp(1.0, grid.exponent - coarse)
    # Rows that start at multiples of a line make products quicker; no weight falls on the rest.
    coef = torch.zeros((width - 1, -(-num_classes * 4 // _LINE) * _LINE // 4))
    coef[:, :num_classes] = torch.as_tensor(weights[:, :-1].T)
    intercept = torch.full((coef.shape[1],), -math.inf)
    intercept[:num_classes] = torch.as_tensor(weights[:, -1])
    room, scores = torch.empty((num_views, width - 1)), torch.empty((num_views, coef.shape[1]))
    gradient = torch.empty((num_classes, width - 1))
    weigh = torch.from_numpy(class_weight)
    held, most = 0, 1 << max(0, _SUM_BITS - _POINT_BITS - coarse)
    for given, targets in stretches:
        for record, target in zip(given.float(), targets, strict=True):
            features = record if _aligned(record) else room.copy_(record)
            torch.addmm(intercept, features, coef, out=scores)
            residuals = torch.softmax(scores, 1)[:, :num_classes].sub_(target)
            if class_weight.size:
                residuals.mul_((target * weigh).sum(dim=1, keepdim=True))
            torch.mm(residuals.T, features, out=gradient)
            if held == most:
                _hand_over(points, coarse, held * bound, total)
                held = 0
            _add_clipped(gradient.numpy(), residuals.numpy(), full_scale, bound, points)
            held += 1
    _hand_over(points, coarse, held * bound, total)
    return total


def _aligned(record: Tensor) -> bool:
    return record.data_ptr() % _LINE == 0 and record.is_contiguous()


def _hand_over(points: NDArray[np.int64], coarse: int, bound: float, total: ExactSum) -> None:
    """Add to ``total`` what is held, in its finer points, and hold nothing."""
    import torch

    total.add(torch.from_numpy(points << coarse), math.ldexp(bound, coarse))
    points[:] = 0


@kernel(nogil=True, fastmath={"reassoc"})
def _add_clipped(
    gradient: NDArray[np.float32],
    residuals: NDArray[np.float32],
    full_scale: float,
    bound: float,
    out: NDArray[np.int64],
) -> None:  # pragma: no cover - compiled
    """Add a record's integers: its gradient (classes, features), intercepts from residuals (K, classes).

    A gradient that is not finite adds nothing. Sums of fewer than 2^20 squares, each of them exact, are
    right to a share of 2^-32.
    """
    num_classes, width = gradient.shape
    intercepts = np.zeros(num_classes, dtype=np.float32)
    for k in range(len(residuals)):
        for c in range(num_classes):
            intercepts[c] += residuals[k, c]
    square = 0.0
    for c in range(num_classes):
        row, part = gradient[c], 0.0
        for j in range(width):
            part += np.float64(row[j]) * np.float64(row[j])
        square += part + np.float64(intercepts[c]) * np.float64(intercepts[c])
    if not math.isfinite(square):
        return
    length, factor = math.sqrt(square), min(full_scale, _LARGEST_SCALE)
    if factor * length > bound:
        factor = bound / length
    scale = np.float32(factor * (1.0 - 2.0**-22))
    for c in range(num_classes):
        row, sums = gradient[c], out[c]
        for j in range(width):
            sums[j] += np.int64(np.int32(row[j] * scale))
        sums[width] += np.int64(np.int32(intercepts[c] * scale))
