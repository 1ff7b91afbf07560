"""Class means seen through noise, and the rule for public labels alone (``stratified``)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from privmix.learners.base import LinearRule, Matrix, Vector

_TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class Offsets:
    """Class means less the overall mean: an empirical-Bayes estimate.

    Offsets are taken as N(0, B) plus noise of variance v per coordinate; B is their own second
    moment, linearly shrunk, less v. The posterior of an offset m is N(G m, v G), G = B (B + v)^-1.

    Attributes:
        basis: (r, d) orthonormal rows, r = min(K, d), that span the offsets; B and G are diagonal
            in them.
        prior: (r,) eigenvalues of B.
        gain: (r,) eigenvalues of G.
        posterior: (K, d) posterior means.

    """

    basis: Matrix
    prior: Vector
    gain: Vector
    posterior: Matrix

    @classmethod
    def of(cls, offsets: Matrix, noise: float) -> Self:
        """Estimate from (K, d) noisy offsets with noise variance ``noise`` per coordinate."""
        _, singular, basis = np.linalg.svd(offsets, full_matrices=False)
        spread = singular**2 / len(offsets)
        shrinkage = linear_shrinkage(offsets)
        prior = (1 - shrinkage) * spread + shrinkage * spread.sum() / offsets.shape[1] - noise
        prior = np.maximum(prior, 0)
        gain = prior / np.maximum(prior + noise, _TINY)
        return cls(basis, prior, gain, (offsets @ basis.T * gain) @ basis)


def learn_class_means(
    means: Matrix, noise: float, clip_norm: float, shares: Vector | None = None
) -> LinearRule:
    """Fit the shrunk class-mean rule to (K, d) noisy class means; see ``NoiseAwareClassifier``.

    A row of ``means`` is a class's sum over the planned size n / K. ``shares`` are as
    ``learn_discriminant`` takes them.
    """
    center = means.mean(axis=0)
    sizes = relative_class_sizes(means, noise) if shares is None else len(shares) * shares
    offsets = means - np.outer(sizes, center)
    between = max(float((offsets**2).sum()) / len(offsets) - noise * len(center), 0.0)
    within = clip_norm**2 - float(center @ center) - between
    rule = shrunk_cosine(offsets, noise, max(within, 0.0) / len(center), center, shares)
    return replace(rule, class_sizes=sizes)


def relative_class_sizes(means: Matrix, noise: float) -> Vector:
    """Estimate each class's records over the planned number, up to a common factor; mean 1.

    A row mean is (class size / planned size) times the mean record. Mean records are taken to have
    one common length, so the length of a row mean, less the noise's known share, shows the size.
    """
    squares = (means**2).sum(axis=1) - noise * means.shape[1]
    sizes = np.sqrt(np.maximum(squares, 0))
    average = float(sizes.mean())
    return np.asarray(sizes / average) if average > 0 else np.ones(len(means))


def shrunk_cosine(
    offsets: Matrix, noise: float, within: float, center: Vector, shares: Vector | None = None
) -> LinearRule:
    """Return (K, d) weights of equal length in the predictive metric.

    A record of a class has covariance ``within`` I + v G around the posterior mean of the class's
    offset (see ``Offsets``). The scores' covariance is not shown by class means: along the offsets
    records vary more than isotropy says, less than a scatter shaped like B would, by a factor
    c = d tr(B^2) / tr(B)^2. They are taken to vary c^(2/3) times as much (the power was chosen on
    held-out training records of two data sets; 1/2 is as good on one of them).
    """
    estimate = Offsets.of(offsets, noise)
    # The metric matters up to a factor only; the floor keeps it finite where nothing varies.
    floor = max(1e-12 * float((offsets**2).sum()) / len(offsets), _TINY)
    metric = np.maximum(within + noise * estimate.gain, floor)
    posterior = estimate.posterior @ estimate.basis.T
    middle = np.zeros(posterior.shape[1])
    if shares is not None:
        posterior = posterior / (len(shares) * shares)[:, None]
        middle = posterior.mean(axis=0)
    seen = posterior - middle
    norms = np.sqrt((seen**2 / metric).sum(axis=1))
    unit = seen / metric / np.where(norms > 0, norms, 1.0)[:, None]
    prior = estimate.prior
    concentration = offsets.shape[1] * (prior**2).sum() / max(prior.sum() ** 2, _TINY)
    covariance = max(within, floor) * max(concentration, 1.0) ** (2 / 3) * unit @ unit.T
    return LinearRule(
        unit @ estimate.basis,
        center,
        unit @ posterior.T,
        covariance,
        np.ones(len(unit)),
        shares,
        -unit @ middle,
    )


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
