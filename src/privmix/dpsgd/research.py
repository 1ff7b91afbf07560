"""Looks at private records that nothing is charged for: for research, never beside a private model.

Everything here is an uncharged function of private records. A training that keeps any of it is
stamped ``private: false``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix import _validate
from privmix.dpsgd.training_plan import TrainingConfig

if TYPE_CHECKING:
    from privmix.dpsgd.gradients import GradientSource

# Magnitudes of gradient entries, in decades.
_EDGES = np.concatenate([[0.0], np.logspace(-9, 3, 121), [np.inf]])


class GradientHistograms:
    """Histograms of per-parameter gradient magnitudes before clipping, one for each epoch.

    The magnitude of an entry is the mean over the epoch's records of the absolute value of their
    mean gradients (DP-Mix, Figure 2). Gradients that are not finite add nothing to a step, and are
    only counted here.
    """

    def __init__(self, config: TrainingConfig) -> None:
        self._steps_per_epoch = max(1, round(1 / config.sampling_prob))
        self._num_steps = config.num_steps
        self._sum: NDArray[np.float64] | None = None
        self._count = self._num_not_finite = 0
        self._epochs: list[dict[str, Any]] = []

    def add(
        self,
        source: GradientSource,
        units: NDArray[np.int32],
        step: int,
        parameters: NDArray[np.float64],
    ) -> None:
        """Look at the gradients of a step."""
        for gradient in source.mean_gradients(units, step, parameters):
            magnitudes = gradient.abs().double().cpu().numpy()
            if not np.isfinite(magnitudes).all():
                self._num_not_finite += 1
                continue
            self._sum = magnitudes if self._sum is None else self._sum + magnitudes
            self._count += 1
        last = step + 1 == self._num_steps
        if ((step + 1) % self._steps_per_epoch == 0 or last) and self._sum is not None:
            means = self._sum / self._count
            counts, _ = np.histogram(means, bins=_EDGES)
            self._epochs.append(
                {
                    "epoch": len(self._epochs),
                    "counts": counts.tolist(),
                    "mean": float(means.mean()),
                    "stddev": float(means.std()),
                    "num_not_finite": self._num_not_finite,
                }
            )
            self._sum, self._count, self._num_not_finite = None, 0, 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: edges of the bins (the last is open), and counts by epoch."""
        return {"private": False, "edges": _EDGES[:-1].tolist(), "epochs": self._epochs}


def frechet_distance(first: ArrayLike, second: ArrayLike) -> float:
    """Return the Frechet distance of two sets of features, as if both were Gaussian (FID).

    Args:
        first: (count, width) features of one set under any extractor.
        second: (count, width) features of another.

    Returns:
        |m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2)) of the means and covariances, at least 0.

    Raises:
        InvalidInputError: Other shapes, fewer than two records, or numbers that are not finite.

    Source: Heusel et al., NeurIPS 2017, equation 6.

    """
    a, b = (_features(name, v) for name, v in (("first", first), ("second", second)))
    if a.shape[1] != b.shape[1]:
        _validate.fail("second", f"features of width {a.shape[1]}", b.shape[1])
    gap = a.mean(axis=0) - b.mean(axis=0)
    one, two = np.atleast_2d(np.cov(a.T)), np.atleast_2d(np.cov(b.T))
    # The trace of (S1 S2)^(1/2) is that of (R S2 R)^(1/2), R the symmetric root of S1.
    values, vectors = np.linalg.eigh(one)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    inner = np.linalg.eigvalsh(root @ two @ root)
    cross = np.sqrt(np.maximum(inner, 0)).sum()
    return max(0.0, float(gap @ gap + np.trace(one) + np.trace(two) - 2 * cross))


def _features(position: str, values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or len(array) < 2 or not np.isfinite(array).all():
        allowed = "finite numbers of shape (count, width), count at least 2"
        _validate.fail(position, allowed, f"shape {array.shape}")
    return array
