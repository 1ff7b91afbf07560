"""The noise-aware rule: discriminant analysis with every known noise taken into account."""

from __future__ import annotations

import numpy as np

from privmix.learners.base import LinearRule, Matrix, Vector
from privmix.learners.class_means import Offsets
from privmix.learners.population import PopulationMoments
from privmix.theory.spectrum import signal_variances

# Eigenvectors found through noise miss some of the classes' scatter, so that subtracting all of it
# would take more than is there. The share was chosen on held-out training records of three data
# sets; from 0.5 to 1, accuracy varies by about half a point.
_SCATTER_SHARE = 0.8
# Share of the noise below which no rows, however many, show a variance.
_LEAST_SIGNAL = 1e-6


def learn_discriminant(moments: PopulationMoments, shares: Vector | None = None) -> LinearRule:
    """Fit the whitened-cosine rule; see ``NoiseAwareClassifier``.

    Args:
        moments: Those of the records; with ``shares``, offsets are about them.
        shares: (K,) the classes' shares of the records, each above 0, which add up to 1. Cosines
            are then those to the class means, seen from the unweighted mean of these, and not to
            class sums, seen from the mean record, which is near the large classes.

    """
    sums = Offsets.of(moments.offsets, moments.offset_noise).posterior
    means, weight = sums, np.full(len(sums), 1 / len(sums))
    if shares is not None:
        means, weight = sums / (len(shares) * shares)[:, None], shares
    variances, basis = _spectrum_without(moments, _SCATTER_SHARE * (means.T * weight) @ means)
    metric = _metric(variances, moments)
    middle = np.zeros_like(moments.mean) if shares is None else means.mean(axis=0)
    rotated = (means - middle) @ basis
    norms = np.sqrt((rotated**2 / metric).sum(axis=1))
    unit = rotated / metric / np.where(norms > 0, norms, 1.0)[:, None]
    weights = unit @ basis.T
    return LinearRule(
        weights,
        moments.mean,
        weights @ means.T,
        (unit * metric) @ unit.T,
        moments.class_sizes,
        shares,
        -weights @ middle,
    )


def residual_spectrum(moments: PopulationMoments, offsets: Matrix) -> tuple[Vector, Matrix]:
    """Decompose a record's covariance around the posterior mean of its class."""
    return _spectrum_without(moments, _SCATTER_SHARE / len(offsets) * offsets.T @ offsets)


def learn_gaussian(moments: PopulationMoments, shares: Vector) -> LinearRule:
    """Fit Bayes's rule for classes that are Gaussian with one covariance (linear discriminant).

    Class k scores w_k (x - mean) - w_k m_k / 2 with w_k = W^-1 m_k, m_k the posterior mean of the
    class less the overall mean, and W the records' covariance around their class's mean, plus the
    ridge. So it cuts between the class means, wherever the overall mean is, and is consistent: as
    noise goes to 0 nothing is left of ridge and shrinkage.

    Args:
        moments: Those of the records, with offsets about the ``shares``.
        shares: (K,) shares of the records, each above 0, which add up to 1.

    """
    sums = Offsets.of(moments.offsets, moments.offset_noise).posterior
    means = sums / (len(shares) * shares)[:, None]
    variances, basis = _spectrum_without(moments, (means.T * shares) @ means)
    metric = _metric(variances, moments)
    half = means @ basis / metric
    weights = half @ basis.T
    scores = weights @ means.T
    return LinearRule(
        weights,
        moments.mean,
        scores,
        (half * metric) @ half.T,
        moments.class_sizes,
        shares,
        -0.5 * scores.diagonal(),
        largest_scale=1.0,
    )


def _metric(variances: Vector, moments: PopulationMoments) -> Vector:
    """Add the ridge, as if records varied a little also where no row shows that they do.

    A fold of few rows can show no variance at all; with a metric of 0 weights would overflow.
    """
    variance = max(float(variances.mean()), _LEAST_SIGNAL * moments.noise)
    metric = variances + ridge(variance, moments)
    return np.maximum(metric, 1e-12 * metric.max()) if metric.any() else np.ones_like(metric)


def _spectrum_without(moments: PopulationMoments, scatter: Matrix) -> tuple[Vector, Matrix]:
    """Decompose the records' covariance less a scatter: theirs around the mean of their class.

    The covariance is shrunk first, since theory knows its noise and its sampling.
    """
    eigenvalues, basis = np.linalg.eigh(moments.covariance)
    variances = signal_variances(eigenvalues, moments.noise, moments.num_rows)
    covariance = (basis * variances) @ basis.T
    residual, basis = np.linalg.eigh(covariance - scatter)
    return np.maximum(residual, 0), basis


def ridge(variance: float, moments: PopulationMoments) -> float:
    """Balance bias against error: sqrt(E w), w the mean ``variance``.

    E = v (2 sqrt(g) + g), with v the variance of a row's coordinates and g = d/T, is the
    Marchenko-Pastur edge: the operator norm of the error of the covariance. Where a linear system
    is known up to E, a ridge r costs a bias of order r / w and lets through an error of E / r.
    """
    ratio = len(moments.mean) / moments.num_rows
    edge = (moments.noise + variance) * (2 * np.sqrt(ratio) + ratio)
    return float(np.sqrt(edge * variance))
