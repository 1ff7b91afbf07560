"""Softmax regression on the rows as they are: the papers' learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.learners.base import (
    LinearClassifier,
    ReleaseLike,
    ReleaseOrFolder,
    as_release,
    target_of,
)
from privmix.learners.several_labels import label_logits

Rows = NDArray[np.float32]
Progress = Callable[[int, int, float], None]

_EPOCHS = 200
_DECAY_EPOCHS = (80, 120, 160)

# Designs whose rows carry a label that is a distribution but for noise: with random signs half of
# the weights are negative, and hybrid's feature rows have none.
DISTRIBUTIONS = ("poisson", "stratified", "hierarchical", "uniform", "transposed")


class KLSoftmaxClassifier(LinearClassifier):
    """Linear softmax classifier trained by the generalised KL divergence on noisy labels.

    Negative label weights are clipped to 0 and the divergence sum(p log(p/q) - p + q) to the
    softmax q is minimised with Adam (NeuroMixGDP, Appendix C, Definition C.1, and I.2; defaults
    are its schedule). The noise level is not used, so the weights are biased towards zero and
    carry the mixtures' class shares. All rows are held in memory in float32.

    Args:
        epochs: Passes over the rows.
        batch_size: Rows of a step.
        learning_rate: Adam's initial step size, in units of the features as published.
        decay_epochs: Epochs after which the step size falls by ten.
        seed: Of the order of the rows. Training is post-processing: the seed protects nothing.
        progress: Called with (epoch, epochs, mean loss) after each epoch.

    Attributes: those of ``LinearClassifier``.

    Example:
        >>> import numpy as np
        >>> from privmix import KLSoftmaxClassifier, Schema, plan_release, release
        >>> schema = Schema(classes=["a", "b"], num_features=2, num_records=900, feature_clip_norm=1.0)
        >>> plan = plan_release(
        ...     schema, target_epsilon=20.0, target_delta=1e-5, design="poisson", mix_size=32
        ... )
        >>> x, y = np.eye(2)[np.arange(900) % 2], np.array(["a", "b"])[np.arange(900) % 2]
        >>> model = KLSoftmaxClassifier(epochs=20).fit(release(x, y, plan, out="mixtures"))
        >>> model.predict_proba(np.eye(2)).shape
        (2, 2)

    """

    def __init__(
        self,
        *,
        epochs: int = _EPOCHS,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        decay_epochs: Sequence[int] = _DECAY_EPOCHS,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> None:
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.decay_epochs = decay_epochs
        self.seed = seed
        self.progress = progress

    def fit(self, release: ReleaseOrFolder) -> Self:
        """Learn from a release.

        Args:
            release: A release, or its folder, of any design but ``signed`` (half of its label
                weights are negative) and ``hybrid`` (its signed rows have no labels).

        Returns:
            self

        Raises:
            InvalidInputError: Another design, or a parameter out of range.

        """
        release = as_release(release)
        _validate.one_of("release.design", release.design, DISTRIBUTIONS)
        epochs = _validate.integer("epochs", self.epochs)
        batch_size = _validate.integer("batch_size", self.batch_size)
        rate = _validate.real("learning_rate", self.learning_rate, above=0.0)
        rng = np.random.default_rng(_validate.integer("seed", self.seed, at_least=0))
        features, targets = training_rows(release)
        model = Adam(np.zeros((release.num_classes, release.num_features + 1), dtype=np.float32))
        for epoch in range(epochs):
            step = rate * 0.1 ** sum(epoch >= decay for decay in self.decay_epochs)
            loss, order = 0.0, rng.permutation(len(features))
            for start in range(0, len(order), batch_size):
                batch = order[start : start + batch_size]
                value, gradient = kl_gradient(model.weights, features[batch], targets[batch])
                model.update(gradient, step)
                loss += value * len(batch)
            if self.progress is not None:
                self.progress(epoch + 1, epochs, loss / len(order))
        weights = model.weights.astype(np.float64)
        coef, intercept = weights[:, :-1].copy(), weights[:, -1].copy()
        if target_of(release) == "multilabel":
            coef, intercept = label_logits(release, coef, intercept)
        self._keep(release, coef, intercept)
        return self


def training_rows(release: ReleaseLike, *, clip: bool = True) -> tuple[Rows, Rows]:
    """Return all features (T, d) and targets (T, K), one-hot for public labels.

    Noisy label weights below 0 become 0, unless ``clip`` is False.
    """
    features = np.empty((release.num_mixtures, release.num_features), dtype=np.float32)
    targets = np.zeros((release.num_mixtures, release.num_classes), dtype=np.float32)
    start = 0
    for block, labels in release.iter_blocks():
        rows = slice(start, start + len(block))
        features[rows] = block
        if labels.ndim == 1:
            targets[np.arange(start, rows.stop), labels.astype(np.intp)] = 1.0
        else:
            targets[rows] = np.maximum(labels, 0) if clip else labels
        start = rows.stop
    return features, targets


def kl_gradient(weights: Rows, features: Rows, targets: Rows) -> tuple[float, Rows]:
    """Return the mean generalised KL divergence of a batch and its gradient.

    Args:
        weights: (K, d + 1); the last column holds the intercepts.
        features: (rows, d).
        targets: (rows, K), non-negative, of any sum.

    Returns:
        The divergence, and its (K, d + 1) gradient.

    """
    logits = features @ weights[:, :-1].T + weights[:, -1]
    logits -= logits.max(axis=1, keepdims=True)
    log_q = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    mass = targets.sum(axis=1, keepdims=True)
    log_p = np.log(np.where(targets > 0, targets, 1))
    loss = float((targets * (log_p - log_q)).sum() - mass.sum()) / len(features) + 1.0
    residual = (mass * np.exp(log_q) - targets) / np.float32(len(features))
    return loss, np.hstack([residual.T @ features, residual.sum(axis=0)[:, None]])


class Adam:
    """Adam (Kingma & Ba 2015, algorithm 1) with its default constants."""

    def __init__(self, weights: Rows) -> None:
        self.weights = weights
        self._mean, self._square, self._steps = np.zeros_like(weights), np.zeros_like(weights), 0

    def update(self, gradient: Rows, learning_rate: float) -> None:
        """Take one step against ``gradient``."""
        self._steps += 1
        self._mean += np.float32(0.1) * (gradient - self._mean)
        self._square += np.float32(1e-3) * (gradient**2 - self._square)
        mean = self._mean / np.float32(1 - 0.9**self._steps)
        square = self._square / np.float32(1 - 0.999**self._steps)
        self.weights -= np.float32(learning_rate) * mean / (np.sqrt(square) + np.float32(1e-8))
