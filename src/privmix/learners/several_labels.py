"""Several labels of a record: from scores to the probability of each label."""

from __future__ import annotations

import numpy as np

from privmix import _validate
from privmix.learners.base import Matrix, ReleaseLike, Vector
from privmix.learners.population import target_moments
from privmix.learners.regression import REGRESSION_DESIGNS, shrunk_least_squares

# Where nothing shows that scores say anything, records keep their order by this much.
_LEAST_ATTENUATION = 1e-3
_MOST_EXPLAINED = 0.99
_LEAST_SHARE = 1e-4


def learn_labels(release: ReleaseLike) -> tuple[Matrix, Vector]:
    """Fit noise-aware least squares to each label, and return the labels' logits.

    Least squares fit part of the noise: the coefficients' shrinkage tells how much.

    Returns:
        (K, d) and (K,): coefficients and intercepts of the logits.

    """
    _validate.one_of("release.design", release.design, REGRESSION_DESIGNS)
    moments = target_moments(release)
    coef, _ = shrunk_least_squares(moments, release.mix_size, release.sampling_prob)
    covariance = moments.covariance - moments.noise * np.eye(coef.shape[1])
    due = np.maximum((coef @ covariance * coef).sum(axis=1), 0.0)
    seen = np.maximum((coef * moments.cross).sum(axis=1), np.finfo(float).tiny)
    return label_logits(release, coef, np.zeros(len(coef)), np.minimum(due / seen, 1.0))


def label_logits(
    release: ReleaseLike, coef: Matrix, intercept: Vector, attenuation: Vector | float = 1.0
) -> tuple[Matrix, Vector]:
    """Turn scores into the logits of each label, by what the release's moments say about them.

    All K scores together are taken to be Gaussian among the records with a label and among those
    without, of one covariance: then the label's logit is linear in them (linear discriminant, label by
    label). The labels' shares of the records, the scores' covariance and how they vary with the
    labels are those of the rows, less their noise; a ridge of the covariance's own error is added.
    Records with more than ``max_labels`` labels were scaled down and count for less.

    Args:
        release: Of the target ``multilabel``.
        coef: (K, d) weights of the scores.
        intercept: (K,) their intercepts.
        attenuation: Factor, from 0 to 1, by which the two means are closer than the rows that the
            scores were fitted to say; one for each label, or for all.

    Returns:
        (K, d) and (K,): coefficients and intercepts of the logits.

    """
    moments = target_moments(release)
    shares = moments.targets_mean
    if release.design == "signed":  # which show no means; but the square of 0 or 1 is itself
        shares = moments.variance - moments.target_noise
    shares = np.clip(shares, _LEAST_SHARE, 1 - _LEAST_SHARE)
    spread = shares * (1 - shares)
    seen = coef @ moments.covariance @ coef.T
    covariance = seen - moments.noise * (coef @ coef.T)
    error = float(np.trace(seen)) / len(seen) * np.sqrt(2 / moments.num_rows)
    values, basis = np.linalg.eigh(covariance)
    values = np.maximum(values, 0.0) + max(error, np.finfo(float).tiny)
    # Column k of the gap: the mean scores of records with label k, less those of the others.
    gap = np.maximum(attenuation, _LEAST_ATTENUATION) * (coef @ moments.cross.T) / spread
    slope = (basis / values) @ (basis.T @ gap)
    explained = spread * (gap * slope).sum(axis=0)
    slope = slope / (1 - np.minimum(explained, _MOST_EXPLAINED))
    middle = (coef @ moments.features_mean)[:, None] + (0.5 - shares) * gap
    logits = np.log(shares / (1 - shares)) - (slope * middle).sum(axis=0)
    return slope.T @ coef, logits
