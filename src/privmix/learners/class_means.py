"""The noise-aware rule for public labels (``stratified``)."""

from __future__ import annotations

import numpy as np

from privmix.learners.base import Matrix, ReleaseLike, Vector
from privmix.learners.errors_in_variables import LinearRule
from privmix.learners.moments import class_means

_TINY = np.finfo(float).tiny


def learn_class_means(release: ReleaseLike) -> LinearRule:
    """Fit the shrunk class-mean rule to public labels; see ``NoiseAwareClassifier``."""
    means, noise = class_means(release)
    center = means.mean(axis=0)
    offsets = means - np.outer(relative_class_sizes(means, noise), center)
    between = max(float((offsets**2).sum()) / len(offsets) - noise * len(center), 0.0)
    within = release.feature_clip_norm**2 - float(center @ center) - between
    weights, logit_scale = shrunk_cosine(offsets, noise, max(within, 0.0) / len(center))
    return LinearRule(weights, center, logit_scale)


def relative_class_sizes(means: Matrix, noise: float) -> Vector:
    """Estimate each class's records over the planned number, up to a common factor; mean 1.

    A row mean is (class size / planned size) times the mean record. Mean records are taken to have
    one common length, so the length of a row mean, less the noise's known share, shows the size.
    """
    squares = (means**2).sum(axis=1) - noise * means.shape[1]
    sizes = np.sqrt(np.maximum(squares, 0))
    average = float(sizes.mean())
    return np.asarray(sizes / average) if average > 0 else np.ones(len(means))


def shrunk_cosine(offsets: Matrix, noise: float, within: float) -> tuple[Matrix, float]:
    """Return (K, d) weights of equal length in the predictive metric, and a scale for logits.

    With offsets ~ N(0, B) plus noise of variance v per coordinate, an offset's posterior is
    N(G m, v G) with G = B (B + v)^-1, so a record of the class has covariance ``within`` I + v G.
    Logits are the common length of the offsets in that metric times the scores, for the decision.
    As probabilities they would trust the isotropy; they are divided by how much more a scatter
    shaped like B would vary along the offsets: d tr(B^2) / tr(B)^2.
    """
    _, singular, basis = np.linalg.svd(offsets, full_matrices=False)
    spread = singular**2 / len(offsets)
    shrinkage = linear_shrinkage(offsets)
    prior = (1 - shrinkage) * spread + shrinkage * spread.sum() / offsets.shape[1] - noise
    prior = np.maximum(prior, 0)
    gain = prior / np.maximum(prior + noise, _TINY)
    # The metric matters up to a factor only; the floor keeps it finite where nothing varies.
    metric = np.maximum(within + noise * gain, max(1e-12 * float(spread.sum()), _TINY))
    posterior = offsets @ basis.T * gain
    norms = np.sqrt((posterior**2 / metric).sum(axis=1))
    weights = (posterior / metric / np.where(norms > 0, norms, 1.0)[:, None]) @ basis
    concentration = offsets.shape[1] * (prior**2).sum() / max(prior.sum() ** 2, _TINY)
    return weights, float(np.sqrt(np.mean(norms**2)) / max(concentration, 1.0))


def linear_shrinkage(offsets: Matrix) -> float:
    """Weight of the identity in the estimate of B (Ledoit & Wolf 2004, J. Multivariate Analysis).

    It is the share of the dispersion of the sample eigenvalues that sampling K classes explains.
    """
    num_classes, num_features = offsets.shape
    overlap = offsets @ offsets.T
    squares = np.diag(overlap)
    frobenius = float((overlap**2).sum()) / num_classes**2
    dispersion = frobenius - float(squares.mean()) ** 2 / num_features
    sampling = (float((squares**2).mean()) - frobenius) / num_classes
    return min(max(sampling / dispersion, 0.0), 1.0) if dispersion > 0 else 1.0
