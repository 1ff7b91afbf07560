"""A linear classifier on a frozen backbone: clipped sums of gradients in closed form.

The gradient of the cross-entropy at an augmentation k of a record is the outer product of the
residual r_k (predicted minus true label weights) and the features f_k, a constant 1 for the
intercept among them. Hence

    || mean_k r_k f_k' ||^2 = sum_kl (r_k . r_l) (f_k . f_l) / K^2,

and the sum of the clipped mean gradients is a single product of two matrices with one row for each
augmentation. No gradient of a single record is ever formed.

Factors are integers: F_k = rint(2^b f_k) with an exponent b of the record's own, R_k = rint(s r_k)
with a factor s that does the clipping. Scores, Gram matrices of features and the final sum are
products of integers whose every partial sum stays below 2^53: exact in doubles on any device, in
any order, with any companions. What is rounded (the softmax, the factor s) is computed record by
record by one sequential routine. So no record's integers depend on another record.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from privmix.dpsgd.grid import ExactSum, HeadGrid

if TYPE_CHECKING:
    from torch import Tensor

_NORM_BITS = 24  # an integer feature vector is no longer than 2 to this
_EXACT = 2.0**53
_ROWS = 512  # augmentations handled together: their doubles stay in the processor's cache


def clipped_head_sum(
    features: Tensor,
    targets: Tensor,
    weights: NDArray[np.float64],
    clip_norm: float,
    total: ExactSum | None = None,
) -> ExactSum:
    """Sum the clipped mean gradients of a batch of records, on the fine grid of :class:`HeadGrid`.

    Args:
        features: (records, K, num_features) real numbers, on any device. A record with a number
            that is not finite adds nothing.
        targets: (records, K, num_classes) label weights.
        weights: (num_classes, num_features + 1), the intercepts last.
        clip_norm: L2 bound on a record's mean gradient.
        total: A sum to add to.

    Returns:
        ``total``, or a new sum, of shape (num_classes, num_features + 1).

    """
    import torch

    records, num_views, num_features = features.shape
    grid = HeadGrid(clip_norm, num_views, weights.size)
    device = features.device
    # |W_c| 2^w <= 2^(53 - 24): every score is below 2^53.
    largest = max(float(np.abs(weights).max()), 1e-300) * math.sqrt(num_features + 1)
    weight_exponent = 53 - _NORM_BITS - 1 - math.frexp(largest)[1]
    integers = np.rint(np.ldexp(weights, weight_exponent))
    weight_columns = torch.as_tensor(integers, device=device).T.contiguous()
    if total is None:
        total = ExactSum(torch.empty(weights.shape, device=device))
    rows = max(1, _ROWS // num_views)
    shape = (min(rows, records), num_views, num_features + 1)
    buffer = torch.empty(shape, dtype=torch.float64, device=device)
    for start in range(0, records, rows):
        part = features[start : start + rows]
        factors = buffer[: len(part)]
        exponents = _integer_features(part, factors)
        flat = factors.reshape(-1, num_features + 1)
        scores = (flat @ weight_columns).reshape(len(part), num_views, -1)
        gram = factors @ factors.transpose(1, 2)
        residuals = np.empty(scores.shape)
        sizes = np.empty(len(part))
        _integer_residuals(
            scores.cpu().numpy(),
            np.ldexp(1.0, -(exponents + weight_exponent)),
            np.ascontiguousarray(targets[start : start + rows].double().cpu().numpy()),
            gram.cpu().numpy(),
            np.ldexp(1.0, grid.exponent - exponents),
            grid.bound,
            residuals,
            sizes,
        )
        _add_products(total, torch.as_tensor(residuals, device=device), factors, sizes)
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
    scale = torch.as_tensor(np.ldexp(finite * 1.0, exponents), device=features.device)
    torch.mul(features, scale[:, None, None], out=out[:, :, :width])
    out[:, :, width] = scale[:, None]
    if not finite.all():
        out[torch.as_tensor(~finite, device=features.device)] = 0.0
    out.round_()
    return exponents


def _add_products(
    total: ExactSum, residuals: Tensor, factors: Tensor, sizes: NDArray[np.float64]
) -> None:
    """Add sum_ik R_ik F_ik', in runs of records whose products are certainly exact."""
    start = 0
    while start < len(sizes):
        stop = start + 1
        bound = sizes[start]
        while stop < len(sizes) and bound + sizes[stop] <= _EXACT:
            bound += sizes[stop]
            stop += 1
        left = residuals[start:stop].flatten(0, 1)
        total.add(left.T @ factors[start:stop].flatten(0, 1), bound)
        start = stop


@njit(nogil=True, cache=True)
def _integer_residuals(
    scores: NDArray[np.float64],
    score_scale: NDArray[np.float64],
    targets: NDArray[np.float64],
    gram: NDArray[np.float64],
    full_scale: NDArray[np.float64],
    bound: float,
    out: NDArray[np.float64],
    sizes: NDArray[np.float64],
) -> None:  # pragma: no cover - compiled
    """Turn scores into clipped integer residuals, one record after another.

    With N an upper bound on || sum_k r_k F_k' ||, R_k = rint(s r_k) satisfies

        || sum_k R_k F_k' || <= s N + sum_k |R_k - s r_k| |F_k| <= s N + h,

    h = sqrt(classes) / 2 * sum_k |F_k|; s is the largest factor, up to ``full_scale`` (no clipping),
    that keeps this within ``bound``. N^2 is the double sum over Gram matrices plus a bound on its
    rounding errors. ``sizes`` receives bounds on sum_k |R_k| |F_k|, at most 2^52.
    """
    records, num_views, num_classes = scores.shape
    for i in range(records):
        residuals = out[i]
        for k in range(num_views):
            top = scores[i, k].max()
            mass = 0.0
            for c in range(num_classes):
                residuals[k, c] = math.exp((scores[i, k, c] - top) * score_scale[i])
                mass += residuals[k, c]
            for c in range(num_classes):
                residuals[k, c] = residuals[k, c] / mass - targets[i, k, c]
        inner = np.zeros((num_views, num_views))
        for c in range(num_classes):
            for k in range(num_views):
                value = residuals[k, c]
                for m in range(k + 1):
                    inner[k, m] += value * residuals[m, c]
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
        for k in range(num_views):
            for c in range(num_classes):
                residuals[k, c] = np.rint(factor * residuals[k, c])
        sizes[i] = factor * size + slack


def head_gradient_sum(
    features: Tensor, targets: Tensor, weights: NDArray[np.float64], clip_norm: float
) -> NDArray[np.float64]:
    """Return the sum of clipped mean gradients in real units, without noise: not for publication.

    As :func:`clipped_head_sum`; what comparisons with other implementations look at.
    """
    total: Any = clipped_head_sum(features, targets, weights, clip_norm)
    grid = HeadGrid(clip_norm, features.shape[1], weights.size)
    return np.asarray(total.shifted(0) / (math.ldexp(1.0, grid.exponent) * features.shape[1]))
