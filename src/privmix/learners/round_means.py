"""Class means with which records would have left the rows that the rounds of a release have published."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from privmix.learners.base import Matrix, Vector
from privmix.learners.record_norm import intercept_of
from privmix.publishing.release import Release

_LEAST_DRAWS = 2048
_DRAWS_PER_CLASS = 32
# On training records set aside, the fifth step changed nothing that the fourth had left.
_STEPS = 4
# Time and memory grow with their square; means of more classes are those of weights and sums alone.
_MOST_CLASSES = 256
_TINY = np.finfo(float).tiny


class Spread(NamedTuple):
    """How records vary: mean, (d,), variances, (r,), along a basis, (d, r), and that between classes."""

    mean: Vector
    variances: Vector
    basis: Matrix
    between: float

    @property
    def trace(self) -> float:
        """Variance of the records, over all directions."""
        return float(self.variances.sum())


def matched_offsets(release: Release, prior: Vector, spread: Spread) -> Matrix:
    """Find the likeliest class means less the mean record, (K, d), from all rounds.

    Row k of a round is the mean of r_ik x_i, r_i the clipped residual of the round's weights. Residuals are
    computed of a draw of records as the spread has them, always the same one, with its classes' means moved
    until every round's rows are as published, but for their noise. A mean that moves takes its class's
    records with it, each by r_ik, so that rounds count by how large residuals still are in them. Before
    anything is seen, means are N(0, B) with B as the records vary, since classes lie where records do. Zeros
    for more than 256 classes, and where classes do not differ or nothing else varies.

    Args:
        release: A release of design ``adaptive``.
        prior: (K,) shares of the classes.
        spread: How its records vary.

    """
    offsets = np.zeros((len(prior), len(spread.mean)))
    if len(prior) > _MOST_CLASSES or not 0 < spread.between < spread.trace:
        return offsets
    random = np.random.Generator(np.random.PCG64(0))
    count = max(_LEAST_DRAWS, _DRAWS_PER_CLASS * len(prior))
    labels = np.searchsorted(np.cumsum(prior)[:-1], (np.arange(count) + 0.5) / count, side="right")
    share = spread.between / spread.trace
    along = random.standard_normal((count, len(spread.variances)))
    within = (along * np.sqrt((1 - share) * spread.variances)) @ spread.basis.T + spread.mean
    noise = max(release.tables[1].feature_noise_stddev ** 2, _TINY)
    for _ in range(_STEPS):
        records = within + offsets[labels]
        pull, known = np.zeros_like(offsets), np.zeros((len(prior), 1))
        for residuals, rows in _rounds(release, records, labels):
            own = np.bincount(labels, residuals[np.arange(count), labels], len(prior)) / count
            pull += own[:, None] * (rows - residuals.T @ records / count) / noise
            known += own[:, None] ** 2 / noise
        expected = share * spread.variances
        step = (pull @ spread.basis) * expected - offsets @ spread.basis
        offsets = offsets + (step / (1 + known * expected)) @ spread.basis.T
        offsets -= prior @ offsets
    return offsets


def _rounds(
    release: Release, records: Matrix, labels: NDArray[np.int64]
) -> Iterator[tuple[Matrix, Matrix]]:
    """Yield, of every round, the records' clipped residuals, (records, K), and the rows published, (K, d)."""
    width, constant = records.shape[1], intercept_of(release)
    mechanism: Any = release.certificate.mechanism
    clip_norm = mechanism.components[1].residual_clip_norm
    every = np.arange(len(labels))
    for rows in release.iter_rounds():
        assert rows.weights is not None
        weights = rows.weights.astype(np.float64) / release.feature_clip_norm
        scores = records @ weights[:, :width].T
        if constant is not None:
            scores += constant * weights[:, width]
        residuals = -softmax(scores, axis=1)
        residuals[every, labels] += 1
        lengths = np.linalg.norm(residuals, axis=1, keepdims=True)
        residuals *= np.minimum(1.0, clip_norm / np.maximum(lengths, _TINY))
        yield residuals, rows.features[:, :width].astype(np.float64)
