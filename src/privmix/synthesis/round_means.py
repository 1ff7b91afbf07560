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
# On training records set aside, correlations with true means changed by .002 in the sixth step, where classes are many.
_STEPS = 5
# Fewer classes beside the features say too little of where classes lie.
_LEAST_CLASSES = 0.05
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
    records with it, each by r_ik, so that rounds count by how large residuals still are in them. The records
    of a class are drawn with exactly its mean: with 32 draws a class, their own would be taken for the rounds'.

    Before anything is seen, means are N(0, B) with B as the records vary, since classes lie where records do.
    Where classes are many they show B too, and its directions are what the signed rows tell worst: each step
    takes for B the likeliest one under an inverse Wishart prior around the first, worth as many classes as
    there are features, and the posterior of the means (the expectation-maximisation of Dempster, Laird and
    Rubin, 1977), scaled to what classes vary in all.

    Zeros for more than 256 classes, and where classes do not differ or nothing else varies.

    Args:
        release: A release of design ``adaptive``.
        prior: (K,) shares of the classes.
        spread: How its records vary.

    """
    offsets = np.zeros((len(prior), len(spread.mean)))
    if len(prior) > _MOST_CLASSES or not 0 < spread.between < spread.trace:
        return offsets
    labels, within = _centred_draws(prior, spread)
    count = len(labels)
    noise = max(release.tables[1].feature_noise_stddev ** 2, _TINY)
    variances, basis = spread.between / spread.trace * spread.variances, spread.basis
    many = len(prior) >= _LEAST_CLASSES * len(spread.mean)
    for step in range(_STEPS):
        records = within + offsets[labels]
        pull, known = np.zeros_like(offsets), np.zeros((len(prior), 1))
        for residuals, rows in _rounds(release, records, labels):
            own = np.bincount(labels, residuals[np.arange(count), labels], len(prior)) / count
            pull += own[:, None] * (rows - residuals.T @ records / count) / noise
            known += own[:, None] ** 2 / noise
        left = 1 / (1 + known * variances)
        offsets = ((pull + known * offsets) @ basis * variances * left) @ basis.T
        offsets -= prior @ offsets
        if many and step < _STEPS - 1:
            unknown = len(prior) * (prior @ left) * variances
            variances, basis = _between(spread, prior, offsets, (basis, unknown))
    return offsets


def _centred_draws(prior: Vector, spread: Spread) -> tuple[NDArray[np.int64], Matrix]:
    """Draw records, (n, d), and their classes, (n,), always the same, all classes with one mean."""
    random = np.random.Generator(np.random.PCG64(0))
    count = max(_LEAST_DRAWS, _DRAWS_PER_CLASS * len(prior))
    labels = np.searchsorted(np.cumsum(prior)[:-1], (np.arange(count) + 0.5) / count, side="right")
    along = random.standard_normal((count, len(spread.variances)))
    for label in np.unique(labels):
        along[labels == label] -= along[labels == label].mean(axis=0)
    stddevs = np.sqrt((1 - spread.between / spread.trace) * spread.variances)
    return labels.astype(np.int64), (along * stddevs) @ spread.basis.T + spread.mean


def _between(
    spread: Spread, prior: Vector, offsets: Matrix, unknown: tuple[Matrix, Vector]
) -> tuple[Vector, Matrix]:
    """Return how class means vary, variances, (r,), along a basis, (d, r), from a posterior of all of them.

    Classes count by their shares, as in the records' variance. ``unknown`` is the sum of their posterior
    covariances, so weighed: a basis and variances along it.
    """
    worth = len(spread.mean) * spread.between / spread.trace
    scatter = (spread.basis * (worth * spread.variances)) @ spread.basis.T
    scatter += len(prior) * (offsets.T * prior) @ offsets + (unknown[0] * unknown[1]) @ unknown[0].T
    variances, basis = np.linalg.eigh(scatter)
    variances = np.maximum(variances, 0.0)
    return np.asarray(variances * (spread.between / variances.sum())), basis


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
