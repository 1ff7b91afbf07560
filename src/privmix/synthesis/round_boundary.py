"""Records near the boundaries between classes, where the classifier of an ``adaptive`` release decides."""

from __future__ import annotations

import numpy as np

from privmix.learners.base import Matrix
from privmix.synthesis.model import ClassModel
from privmix.synthesis.round_means import Spread

# Weights so many times as long as the classifier's tell the records apart best: the smaller, the nearer
# to the boundary they are. Chosen with the share of such records, on training records set aside.
_SURENESS = 1.6
_TINY_SIZE = 1e-9  # of a singular value beside the largest: zero but for rounding
_LEAST_SIZE = 0.01  # of the average class: means of what hardly any record has would be far away


def boundary_model(typical: ClassModel, weights: Matrix, spread: Spread) -> ClassModel:
    """Return Gaussian classes that the classifier's own weights tell apart best.

    Means of typical records follow the weights, and share the noise of the rounds with them. So the
    classifier finds hardly a record of another class among them, whatever the true classes are: any
    learner finds them easy, and does not learn what the classifier knows. Here classes are as far apart as
    makes f W their best weights. With S the records' covariance, P the prior and W less its mean, let
    P^(1/2) W S^(1/2) = U s V'. Then means P^(-1/2) U h s V' S^(1/2), and within classes
    S^(1/2) (I - V h^2 s^2 V') S^(1/2), have that best rule and covariance S, where h solves
    f s^2 h^2 + h = f.

    The signed rows show S through noise, and the steps of the rounds are longest where that noise made S
    small: so scores, W x, vary by several times as much as S says. A learner with a penalty on its weights
    would not find them. Where S says less than typical records do, as much of its part along the span of W is
    added to it as makes scores vary as theirs; then S is scaled to the variance that it had.

    Args:
        typical: Gaussian classes, whose prior and norm are taken.
        weights: (K, d) the classifier's, in logits.
        spread: How the records vary.

    """
    shares = np.maximum(typical.prior, _LEAST_SIZE / len(typical.prior))
    shares /= shares.sum()
    weights = weights - shares @ weights
    root = _spread_scores(spread, weights, typical)
    scores = np.sqrt(shares)[:, None] * weights @ root
    left, sizes, right = np.linalg.svd(scores, full_matrices=False)
    # The root of the quadratic equation that loses no digits where s is small.
    gains = 2 * _SURENESS / (1 + np.sqrt(1 + (2 * _SURENESS * sizes) ** 2))
    means = (left * (gains * sizes)) @ right @ root.T / np.sqrt(shares)[:, None]
    explained = 1 - np.sqrt(gains / _SURENESS)
    return ClassModel(
        prior=typical.prior,
        means=spread.mean + means,
        stddevs=np.ones(root.shape[1]),
        basis=root - (root @ right.T * explained) @ right,
        norm=typical.norm,
    )


def _spread_scores(spread: Spread, weights: Matrix, typical: ClassModel) -> Matrix:
    """Return a root of the covariance, (d, r), with more along the weights where typical scores vary more.

    All is scaled back to the variance that the records have, so that scores vary somewhat less in the end.
    """
    root = spread.basis * np.sqrt(spread.variances)
    _, sizes, span = np.linalg.svd(weights, full_matrices=False)
    span = span[sizes > _TINY_SIZE * sizes[0]]
    sizes = sizes[: len(span)]
    shown = float((((span @ root).T * sizes) ** 2).sum())
    within = float((((span @ typical.basis * typical.stddevs).T * sizes) ** 2).sum())
    between = (typical.means - typical.prior @ typical.means) @ span.T * sizes
    due = within + float(typical.prior @ (between**2).sum(axis=1))
    if not 0 < shown < due:
        return root
    axes, lengths, _ = np.linalg.svd(span @ root, full_matrices=False)
    more = np.sqrt(due / shown - 1) * span.T @ (axes * lengths)
    scale = np.sqrt(spread.trace / (spread.trace + float((more**2).sum())))
    return np.asarray(scale * np.hstack([root, more]))
