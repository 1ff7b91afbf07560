"""How well features suit mixing, measured on **public** data.

A number from here is a fact about the records it was computed on: on private records it is not
covered by any guarantee. NeuroMixGDP (Li, Cao, Yao 2023), section 2 and appendix I.5, uses these
measures to explain why features close to neural collapse survive being mixed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix import _validate

_BLOCK = 1024


class LabelHistogram(NamedTuple):
    """Counts of mixed label weights: (bins,) counts between (bins + 1,) edges."""

    counts: NDArray[np.int64]
    edges: NDArray[np.float64]


def neural_collapse(features: ArrayLike, labels: ArrayLike) -> float:
    """Return Tr(S_W pinv(S_B)) / K; 0 where every record is its class's mean.

    NeuroMixGDP, equations (29) and (30), after Papyan, Han, Donoho 2020: S_W is the mean outer
    product of records less their class's mean, S_B that of the K class means less the mean of all
    records. Multiplying the features by a constant changes nothing. It measures directions in which
    the class means differ; scatter across them does not count.

    Args:
        features: (n, d) finite numbers.
        labels: (n,) classes; at least two distinct ones.

    Raises:
        InvalidInputError: Other shapes, values that are not finite, fewer than two classes.

    """
    x, y, num_classes = _checked(features, labels)
    counts = np.bincount(y, minlength=num_classes)
    means = np.zeros((num_classes, x.shape[1]))
    x = x - x.mean(
        axis=0
    )  # first: what all records have in common would drown the rest in rounding
    np.add.at(means, y, x)
    means /= counts[:, None]
    # S_B has rank below K: all happens in the row space of the means.
    offsets = means / np.sqrt(num_classes)
    _, singular, basis = np.linalg.svd(offsets, full_matrices=False)
    keep = singular > 1e-10 * max(float(singular.max()), np.finfo(float).tiny)
    keep[num_classes - 1 :] = False  # weighted by the classes' sizes, the offsets add up to nothing
    if not keep.any():
        return float("inf")
    within = ((x - means[y]) @ basis[keep].T) ** 2
    return float((within.mean(axis=0) / singular[keep] ** 2).sum() / num_classes)


def mixed_distances(
    features: ArrayLike,
    labels: ArrayLike,
    *,
    mix_size: int = 2,
    num_mixtures: int = 1000,
    clip_norm: float | None = None,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Return each mixture's distance to the nearest record of a class that is not in it.

    NeuroMixGDP, appendix I.5: records are clipped, ``mix_size`` of them averaged without noise, and
    the minimum over all mixtures (the minimum Euclidean distance, MED) says how close mixtures come
    to records of other classes. The paper takes mix size 2, as many mixtures as records, clip norm
    1. A mixture that holds every class has no such record: its distance is infinite.

    Args:
        features: (n, d) finite numbers.
        labels: (n,) classes; at least two distinct ones.
        mix_size: Records in a mixture, drawn without replacement, at most n.
        num_mixtures: Number of mixtures.
        clip_norm: L2 bound that records are scaled down to; None leaves them.
        seed: Of the draws.

    Returns:
        (num_mixtures,) distances.

    Raises:
        InvalidInputError: As ``neural_collapse``, or a number out of range.

    """
    x, y, num_classes = _checked(features, labels)
    _validate.integer("mix_size", mix_size, at_most=len(x))
    _validate.integer("num_mixtures", num_mixtures)
    if clip_norm is not None:
        bound = _validate.real("clip_norm", clip_norm, above=0.0)
        norms = np.linalg.norm(x, axis=1, keepdims=True)
        x = x * np.minimum(1.0, bound / np.maximum(norms, np.finfo(float).tiny))
    x = x - x.mean(axis=0)  # moves no distance, and keeps their rounding small
    rng = np.random.default_rng(_validate.integer("seed", seed, at_least=0))
    chosen = np.array([rng.choice(len(x), mix_size, replace=False) for _ in range(num_mixtures)])
    squares, nearest = (x**2).sum(axis=1), np.empty(num_mixtures)
    for start in range(0, num_mixtures, _BLOCK):
        part = chosen[start : start + _BLOCK]
        mixed = x[part].mean(axis=1)
        present = np.zeros((len(part), num_classes), dtype=bool)
        np.put_along_axis(present, y[part], True, axis=1)
        distances = (mixed**2).sum(axis=1)[:, None] - 2 * mixed @ x.T + squares
        distances[present[:, y]] = np.inf
        nearest[start : start + len(part)] = np.sqrt(np.maximum(distances.min(axis=1), 0))
    return nearest


def label_histogram(label_weights: ArrayLike, bins: int = 50) -> LabelHistogram:
    """Count the values of mixed label weights, of all rows and classes together.

    NeuroMixGDP, Figure 2: where the weights of all classes pile up at 1/K, labels have collapsed.
    A release's own label weights may be counted: they are published.

    Args:
        label_weights: (T, K) label weights.
        bins: Number of bins of equal width.

    Raises:
        InvalidInputError: Another shape, no values or values that are not finite.

    """
    weights = np.asarray(label_weights, dtype=np.float64)
    if weights.ndim != 2 or not weights.size or not np.isfinite(weights).all():
        _validate.fail("label_weights", "finite numbers of shape (rows, classes)", weights.shape)
    counts, edges = np.histogram(weights, bins=_validate.integer("bins", bins))
    return LabelHistogram(counts.astype(np.int64), edges)


def _checked(
    features: ArrayLike, labels: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.intp], int]:
    x, y = np.asarray(features), np.asarray(labels)
    if x.ndim != 2 or x.dtype.kind not in "fiub" or y.shape != x.shape[:1]:
        allowed = "numbers of shape (records, width), and a label for each"
        _validate.fail("features", allowed, f"shapes {x.shape} and {y.shape}")
    x = x.astype(np.float64)
    if not np.isfinite(x).all():
        _validate.fail("features", "finite numbers", "others")
    classes, indices = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        _validate.fail("labels", "at least two distinct classes", len(classes))
    return x, indices.astype(np.intp), len(classes)
