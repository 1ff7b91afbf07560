"""A linear classifier on a frozen backbone: clipped sums of gradients in closed form.

The gradient of the cross-entropy at an augmentation k of a record is the outer product of the
residual r_k (predicted minus true label weights) and the features f_k, a constant 1 for the
intercept among them. Hence

    || mean_k r_k f_k' ||^2 = sum_kl (r_k . r_l) (f_k . f_l) / K^2,

and the sum of the clipped mean gradients is a single product of two matrices with one row for each
augmentation. No gradient of a single record needs to be formed. (Where augmentations are many and
parameters not too many, that is quicker all the same: ``formed_gradients``.)

Factors are integers: F_k = rint(2^b f_k) with an exponent b of the record's own, R_k = rint(s r_k)
with a factor s that does the clipping. Gram matrices of features and the final sum are products of
integers whose every partial sum stays below 2^53: exact in doubles on any device, in any order, with
any companions. What is rounded is computed record by record: the scores in calls of a fixed shape,
the softmax and the factor s by one sequential routine. So no record's integers depend on another
record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privmix.compiling import kernel
from privmix.dpsgd.formed_gradients import forming_is_quicker, sum_of_formed
from privmix.dpsgd.grid import ExactSum, HeadGrid
from privmix.running.resources import default_threads, torch_pool

if TYPE_CHECKING:
    from torch import Tensor

_NORM_BITS = 23  # an integer feature vector is no longer than 2 to this
_ROWS = 256  # augmentations handled together: their doubles stay in the processor's cache


def clipped_head_sum(
    features: Tensor,
    targets: Tensor,
    weights: NDArray[np.float64],
    grid: HeadGrid,
    total: ExactSum | None = None,
    class_weight: Sequence[float] | None = None,
) -> ExactSum:
    """Sum the clipped mean gradients of a batch of records, on the fine grid of :class:`HeadGrid`.

    Args:
        features: (records, K, num_features) real numbers, on any device, taken in single
            precision. A record with a number or a score that is not finite in it adds nothing.
        targets: (records, K, num_classes) label weights.
        weights: (num_classes, num_features + 1), the intercepts last.
        grid: The plan's: its clip norm, K and number of parameters, which shapes must agree with.
        total: A sum to add to.
        class_weight: Of each class: what a view's loss counts, by its label weights. It comes before
            clipping, so that the bound on a record's gradient stays what it is.

    Returns:
        ``total``, or a new sum, of shape (num_classes, num_features + 1).

    """
    import torch

    # The bound follows from the plan, never from how many views there happen to be.
    count, views, width = features.shape
    due = (grid.num_augmentations, grid.num_parameters, (count, views, len(weights)))
    found = (views, len(weights) * (width + 1), tuple(targets.shape))
    if due != found:
        raise ValueError(f"K, parameters and targets' shape are {found}, planned were {due}")
    if total is None:
        total = ExactSum(torch.empty(weights.shape, device=features.device))
    counts = np.asarray(() if class_weight is None else class_weight, dtype=np.float64)
    on_processor = features.device.type == "cpu"
    formed = on_processor and forming_is_quicker(views, weights.size)
    way = sum_of_formed if formed else _sum_of_stretches
    add = partial(way, weights=weights, grid=grid, class_weight=counts)
    rows = max(1, _ROWS // features.shape[1])
    starts = range(0, len(features), rows)
    stretches = [
        (features[start : start + rows], targets[start : start + rows]) for start in starts
    ]
    if not stretches:
        return total
    if not on_processor:
        total.merge(add(stretches))
        return total
    threads = min(default_threads(), len(stretches))
    shares = [stretches[i::threads] for i in range(threads)]
    with torch_pool(threads) as pool:
        for summed in pool.map(add, shares):
            total.merge(summed)
    return total


def _sum_of_stretches(
    stretches: Sequence[tuple[Tensor, Tensor]],
    weights: NDArray[np.float64],
    grid: HeadGrid,
    class_weight: NDArray[np.float64],
) -> ExactSum:
    """Sum the clipped gradients of stretches of records, given as features and targets."""
    import torch

    _, num_views, num_features = stretches[0][0].shape
    device = stretches[0][0].device
    total = ExactSum(torch.empty(weights.shape, device=device))
    coef = torch.as_tensor(weights[:, :-1], dtype=torch.float32, device=device)
    intercept = np.ascontiguousarray(weights[:, -1])
    shape = (len(stretches[0][0]), num_views, num_features + 1)
    buffer = torch.empty(shape, dtype=torch.float64, device=device)
    one = torch.empty((num_views, num_features), device=device)  # aligned as others are
    for given, targets in stretches:
        features = given.float()
        factors = buffer[: len(features)]
        exponents = _integer_features(features, factors)
        scores = torch.stack([one.copy_(record) @ coef.T for record in features])
        gram = factors @ factors.transpose(1, 2)
        residuals = np.empty((len(weights), len(features), num_views))
        sizes = np.empty(len(features))
        _integer_residuals(
            scores.cpu().numpy(),
            intercept,
            np.ascontiguousarray(targets.double().cpu().numpy()),
            class_weight,
            gram.cpu().numpy(),
            np.ldexp(1.0, grid.exponent - exponents),
            grid.bound,
            residuals,
            sizes,
        )
        total.add_product(torch.as_tensor(residuals, device=device), factors, sizes)
    return total


def _integer_features(features: Tensor, out: Tensor) -> NDArray[np.int64]:
    """Quantise each record's features, the constant 1 appended; return the records' exponents."""
    import torch

    width = features.shape[2]
    ends = torch.stack([features.amax(dim=(1, 2)), -features.amin(dim=(1, 2))])
    largest = ends.double().cpu().numpy()
    finite = np.isfinite(largest).all(axis=0)
    # Also the constant 1 must be an integer within the bound.
    _, magnitude = np.frexp(np.maximum(np.where(finite, largest.max(axis=0), 1.0), 1.0))
    entry_bits = math.floor(_NORM_BITS - math.log2(width + 1) / 2)
    exponents = (entry_bits - magnitude).astype(np.int64)
    # Powers of two, and results below 2^24: exact in single precision, which is quicker.
    scale = np.ldexp(finite * 1.0, exponents).astype(np.float32)
    if features.device.type == "cpu":
        _scale_and_round(features.numpy(), scale, out.numpy())
    else:
        factor = torch.as_tensor(scale, device=features.device)[:, None]
        out[:, :, :width] = (features * factor[:, None]).round_()
        out[:, :, width] = factor.round()
    if not finite.all():
        out[torch.as_tensor(~finite, device=features.device)] = 0.0
    return exponents


@kernel(nogil=True)
def _scale_and_round(
    features: NDArray[np.float32], scale: NDArray[np.float32], out: NDArray[np.float64]
) -> None:  # pragma: no cover - compiled
    """Set ``out`` to rint(scale times features with a 1 appended), in one pass."""
    for i in range(len(features)):
        for k in range(features.shape[1]):
            vector, integers = features[i, k], out[i, k]
            for j in range(vector.size):
                integers[j] = np.rint(vector[j] * scale[i])
            integers[vector.size] = np.rint(scale[i])


@kernel(nogil=True)
def _integer_residuals(
    scores: NDArray[np.float32],
    intercept: NDArray[np.float64],
    targets: NDArray[np.float64],
    class_weight: NDArray[np.float64],
    gram: NDArray[np.float64],
    full_scale: NDArray[np.float64],
    bound: float,
    out: NDArray[np.float64],
    sizes: NDArray[np.float64],
) -> None:  # pragma: no cover - compiled
    """Turn scores (records, K, classes) into clipped integer residuals, one record after another.

    With N an upper bound on || sum_k r_k F_k' ||, R_k = rint(s r_k) satisfies

        || sum_k R_k F_k' || <= s N + sum_k |R_k - s r_k| |F_k| <= s N + h,

    h = sqrt(classes) / 2 * sum_k |F_k|; s is the largest factor, up to ``full_scale`` (no clipping),
    that keeps this within ``bound``. N^2 is the double sum over Gram matrices plus a bound on its
    rounding errors. ``sizes`` receives bounds on sum_k |R_k| |F_k|, at most 2^52.
    """
    records, num_views, num_classes = scores.shape
    residuals = np.empty((num_classes, num_views))  # augmentations last: loops over them are quick
    for i in range(records):
        top = np.full(num_views, -np.inf)
        finite = True
        for c in range(num_classes):
            for k in range(num_views):
                residuals[c, k] = scores[i, k, c] + intercept[c]
                finite &= math.isfinite(residuals[c, k])
                top[k] = max(top[k], residuals[c, k])
        mass = np.zeros(num_views)
        for c in range(num_classes):
            for k in range(num_views):
                residuals[c, k] = math.exp(residuals[c, k] - top[k]) if finite else 0.0
                mass[k] += residuals[c, k]
        for c in range(num_classes):
            for k in range(num_views):
                share = residuals[c, k] / mass[k] - targets[i, k, c] if finite else 0.0
                residuals[c, k] = share
        if class_weight.size:
            for k in range(num_views):
                count = 0.0
                for c in range(num_classes):
                    count += targets[i, k, c] * class_weight[c]
                for c in range(num_classes):
                    residuals[c, k] *= count
        inner = np.zeros((num_views, num_views))
        for c in range(num_classes):
            row = residuals[c]
            for k in range(num_views):
                for m in range(k + 1):
                    inner[k, m] += row[k] * row[m]
        square, lengths, size = 0.0, 0.0, 0.0
        for k in range(num_views):
            square += inner[k, k] * gram[i, k, k]
            lengths += math.sqrt(gram[i, k, k])
            size += math.sqrt(inner[k, k] * gram[i, k, k])
            for m in range(k):
                square += 2.0 * inner[k, m] * gram[i, k, m]
        size *= 1.0 + 2.0**-40
        error = (num_views * num_views + num_classes + 8) * 2.0**-52 * size * size
        longest = math.sqrt(max(square, 0.0) + error) * (1.0 + 2.0**-40)
        slack = 0.5 * math.sqrt(num_classes) * lengths * (1.0 + 2.0**-40)
        factor = full_scale[i]
        if factor * longest + slack > bound:
            factor = (bound - slack) / longest * (1.0 - 2.0**-40)
        if factor * size + slack > 2.0**52:
            factor = (2.0**52 - slack) / size * (1.0 - 2.0**-40)
        for c in range(num_classes):
            for k in range(num_views):
                out[c, i, k] = np.rint(factor * residuals[c, k])
        sizes[i] = factor * size + slack


def head_gradient_sum(
    features: Tensor, targets: Tensor, weights: NDArray[np.float64], clip_norm: float
) -> NDArray[np.float64]:
    """Return the sum of clipped mean gradients in real units, without noise: not for publication.

    As :func:`clipped_head_sum`; what comparisons with other implementations look at.
    """
    grid = HeadGrid(clip_norm, features.shape[1], weights.size)
    total: Any = clipped_head_sum(features, targets, weights, grid)
    return np.asarray(total.shifted(0) / (math.ldexp(1.0, grid.exponent) * features.shape[1]))
