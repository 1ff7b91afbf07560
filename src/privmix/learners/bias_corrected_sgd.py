"""Stochastic gradient descent with the noise's share taken out: DPMix's Theorem 5."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import numpy as np

from privmix import _validate
from privmix.learners.base import (
    LinearClassifier,
    LinearRegressor,
    Matrix,
    ReleaseLike,
    ReleaseModel,
    ReleaseOrFolder,
    Vector,
    as_release,
    target_bounds,
    target_of,
)
from privmix.learners.population import check_varies
from privmix.learners.regression import REGRESSION_DESIGNS
from privmix.learners.several_labels import label_logits

_EPOCHS = 20
_WARM_UP = 2.0  # epochs before the step size falls


class _BiasCorrectedSGD(ReleaseModel):
    """The descent that classifier and regressor share."""

    def __init__(
        self, *, epochs: int = _EPOCHS, batch_size: int = 256, ridge: float = 0.0, seed: int = 0
    ) -> None:
        self.epochs = epochs
        self.batch_size = batch_size
        self.ridge = ridge
        self.seed = seed

    def _fitted(self, release: ReleaseLike) -> tuple[Matrix, Vector, Vector]:
        with np.errstate(over="ignore", invalid="ignore"):
            found = self._descend(release)
        if not np.isfinite(found[0]).all():
            allowed = "a value that keeps the corrected loss convex (try 0.1)"
            _validate.fail("ridge", allowed, f"{self.ridge}, with which the steps diverge")
        return found

    def _descend(self, release: ReleaseLike) -> tuple[Matrix, Vector, Vector]:
        """Return weights, and the means of features and targets that they are relative to."""
        _validate.one_of("release.design", release.design, REGRESSION_DESIGNS)
        check_varies(release)
        epochs = _validate.integer("epochs", self.epochs)
        batch_size = _validate.integer("batch_size", self.batch_size)
        ridge = _validate.real("ridge", self.ridge, at_least=0.0)
        rng = np.random.default_rng(_validate.integer("seed", self.seed, at_least=0))
        x_mean, y_mean, length = _means(release)
        noise = release.feature_noise_stddev**2
        # The number of records in a row varies, and with it what their means add to the row.
        drawn = 0.0
        if release.design in ("poisson", "transposed"):
            drawn = (1 - release.sampling_prob) / release.mix_size
        # Unit steps: the largest curvature of a batch's loss is about this; ridge is in its units.
        curvature = length / release.num_features + _top_variance(release, x_mean, rng)
        weights = np.zeros((len(y_mean), len(x_mean)))
        average, steps = np.zeros_like(weights), 0
        per_epoch = max(1, -(-release.num_mixtures // batch_size))
        for epoch in range(epochs):
            for x, y in _batches(release, batch_size, rng):
                x, y = x - x_mean, y - y_mean
                gradient = (weights @ x.T - y.T) @ x / len(x)
                gradient -= (noise - ridge * curvature) * weights  # V(g, W), but for its factor l
                gradient -= drawn * np.outer(weights @ x_mean - y_mean, x_mean)
                progress = (epoch * per_epoch + steps % per_epoch) / per_epoch
                # Batches of few rows are curved more than the whole is.
                crowd = 1 + length / (curvature * len(x))
                rate = min(1.0, _WARM_UP / max(progress, _WARM_UP)) / (curvature * crowd)
                weights = weights - rate * gradient
                steps += 1
                # Averaging over the second half takes out most of the steps' noise.
                if epoch >= epochs // 2:
                    average += (weights - average) / (steps - per_epoch * (epochs // 2))
        return average, x_mean, y_mean


class BiasCorrectedSGDRegressor(_BiasCorrectedSGD, LinearRegressor):
    """Least squares by stochastic gradients whose noise bias is subtracted.

    DPMix (Lee et al. 2019), Theorem 5 and equation (16): over a row (x', y') the gradient
    (W x' - y') x'' of the squared loss has the mean of the records' gradient, over the mix size,
    plus sigma^2 W, where sigma^2 is the known noise variance. Each step subtracts sigma^2 W; with
    an intercept and a varying number of records in a row, the means' share as well. The steps are constant for two epochs and fall like 1/t then (the theorem's step size n/(s_min t)
    asks for the records' smallest eigenvalue); the weights of the second half are averaged. The
    minimiser is that of ``NoiseAwareRegressor`` without its shrinkage, which is the better choice
    unless a d x d matrix is too large: this one holds J x d numbers and a batch of rows.

    Where the noise exceeds the signal along some direction, the corrected loss of a batch, and even
    of all rows, is not convex there: ``ridge`` must then outweigh it.

    Args:
        epochs: Passes over the rows.
        batch_size: Rows of a step.
        ridge: Penalty on the weights, as a multiple of the rows' largest variance, at least 0.
        seed: Of the order of rows within a block. Training is post-processing: it protects nothing.

    Attributes: those of ``LinearRegressor``.

    """

    def fit(self, release: ReleaseOrFolder) -> Self:
        """Learn from a release of regression targets.

        Args:
            release: A release, or its folder, of design ``poisson``, ``signed`` (no intercept),
                ``uniform`` or ``transposed``.

        Returns:
            self

        Raises:
            InvalidInputError: Another design or target, rows that hold every record, a parameter
                out of range, or steps that diverge (the error names ``ridge``).

        """
        release = as_release(release)
        target_bounds(release)
        weights, x_mean, y_mean = self._fitted(release)
        self._keep(release, weights, y_mean - weights @ x_mean)
        return self


class BiasCorrectedSGDClassifier(_BiasCorrectedSGD, LinearClassifier):
    """Least squares on label weights by the gradients of ``BiasCorrectedSGDRegressor``.

    The class of the largest predicted weight wins. For ``signed`` rows the model has no intercept.
    Probabilities are the softmax of the scores, which nothing calibrates. ``NoiseAwareClassifier`` is more
    accurate; this is the papers' method, in memory of order K d (of several labels d x d).

    Args: those of ``BiasCorrectedSGDRegressor``.

    Attributes: those of ``LinearClassifier``.

    """

    def fit(self, release: ReleaseOrFolder) -> Self:
        """Learn from a release; arguments and errors as ``BiasCorrectedSGDRegressor.fit``."""
        release = as_release(release)
        weights, x_mean, y_mean = self._fitted(release)
        intercept = y_mean - weights @ x_mean
        if target_of(release) == "multilabel":
            weights, intercept = label_logits(release, weights, intercept)
        self._keep(release, weights, intercept)
        return self


def _batches(
    release: ReleaseLike, batch_size: int, rng: np.random.Generator
) -> Iterator[tuple[Matrix, Matrix]]:
    for features, labels in release.iter_blocks():
        order = rng.permutation(len(features))
        for start in range(0, len(order), batch_size):
            part = order[start : start + batch_size]
            yield features[part].astype(np.float64), labels[part].astype(np.float64)


def _means(release: ReleaseLike) -> tuple[Vector, Vector, float]:
    """Return mean features and labels (0 for signs) and the mean squared length of a row."""
    count, length = 0, 0.0
    x, y = np.zeros(release.num_features), np.zeros(release.num_classes)
    for features, labels in release.iter_blocks():
        x += features.sum(axis=0, dtype=np.float64)
        y += labels.sum(axis=0, dtype=np.float64)
        length += float((features.astype(np.float64) ** 2).sum())
        count += len(features)
    if release.design == "signed":
        x, y = np.zeros_like(x), np.zeros_like(y)
    return x / count, y / count, max(length / count - float(x @ x) / count**2, np.finfo(float).tiny)


def _top_variance(release: ReleaseLike, mean: Vector, rng: np.random.Generator) -> float:
    """Largest variance of the rows, by five power iterations."""
    direction, value = rng.standard_normal(len(mean)), 0.0
    for _ in range(5):
        direction /= max(float(np.linalg.norm(direction)), np.finfo(float).tiny)
        image, count = np.zeros_like(direction), 0
        for features, _labels in release.iter_blocks():
            centred = features.astype(np.float64) - mean
            image += centred.T @ (centred @ direction)
            count += len(features)
        direction = image / count
        value = float(np.linalg.norm(direction))
    return value
