"""The noise-aware rule for mixed labels (``poisson``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privmix import _validate
from privmix.learners.base import Matrix, ReleaseLike, Vector
from privmix.learners.moments import RowMoments, split_moments
from privmix.learners.spectrum import shrink_eigenvalues

_HELD_OUT = 5
_RIDGE_STEPS = 48


@dataclass(frozen=True)
class LinearRule:
    """Scores are ``(x - center) @ weights.T``; ``logit_scale`` turns them into logits."""

    weights: Matrix
    center: Vector
    logit_scale: float


@dataclass(frozen=True)
class PopulationMoments:
    """Unbiased estimates about the records, from moments of rows.

    With b the inclusion probability and Cov the covariance over rows, both sampling and noise are
    independent between records and rows, so Cov(features) m / (1-b) = sum(x x')/n + noise and
    Cov(labels, features) m / (1-b) = sum(y x')/n, with m = b n the mix size. The means of the rows
    are sum(x)/n and sum(y)/n; they centre both at no cost.

    Attributes:
        mean: (d,) mean of the records.
        covariance: (d, d) centred second moment of the records **plus** ``noise`` on its diagonal.
        cross: (K, d) centred sum of label times features, per planned record.
        class_shares: (K,) records of each class, per planned record.
        noise: Variance that the noise adds to every diagonal entry.
        num_rows: Number of rows behind the estimates.

    """

    mean: Vector
    covariance: Matrix
    cross: Matrix
    class_shares: Vector
    noise: float
    num_rows: int

    @classmethod
    def from_rows(cls, rows: RowMoments, release: ReleaseLike) -> PopulationMoments:
        """Undo the sampling and the scale of the rows."""
        scale = release.mix_size / (1 - release.sampling_prob)
        x, y = rows.features / rows.count, rows.labels / rows.count
        freedom = max(rows.count - 1, 1)
        covariance = scale * (rows.gram - rows.count * np.outer(x, x)) / freedom
        cross = scale * (rows.cross - rows.count * np.outer(y, x)) / freedom
        share = _total_share(y, rows.count, release)
        mean = x / share
        return cls(
            mean=mean,
            covariance=covariance - share * np.outer(mean, mean),
            cross=cross - np.outer(y, mean),
            class_shares=y,
            noise=scale * release.feature_noise_stddev**2,
            num_rows=rows.count,
        )


def _total_share(class_shares: Vector, count: int, release: ReleaseLike) -> float:
    """Estimate actual over planned number of records; 1 where the noise hides it."""
    share = float(class_shares.sum())
    stddev = (release.label_noise_stddev or 0.0) * np.sqrt(len(class_shares) / count)
    return share if share > 4 * stddev else 1.0


def learn_errors_in_variables(release: ReleaseLike) -> LinearRule:
    """Fit the whitened-cosine rule to a release with mixed labels; see ``NoiseAwareClassifier``."""
    if release.sampling_prob >= 1:
        _validate.fail(
            "release.sampling_prob",
            "below 1 for mixed labels (otherwise every row holds every record)",
            release.sampling_prob,
        )
    kept, held = split_moments(release, _HELD_OUT)
    ridge, slope, explained = np.inf, 0.0, 0.0
    if held.count > 1:
        ridge, slope, explained = _choose_ridge(
            PopulationMoments.from_rows(kept, release), PopulationMoments.from_rows(held, release)
        )
        # What the ridge stands up to is noise, whose variance falls as one over the rows.
        ridge *= kept.count / (kept.count + held.count)
    moments = PopulationMoments.from_rows(kept + held, release)
    weights, cross = Spectrum.of(moments).solve(ridge)
    norms = np.sqrt(np.maximum((weights * cross).sum(axis=1), 0))
    unit = weights / np.where(norms > 0, norms, 1.0)[:, None]
    return LinearRule(unit, moments.mean, _logit_scale(norms, slope, explained))


def _logit_scale(norms: Vector, slope: float, explained: float) -> float:
    """Turn one-against-rest regression scores into logits, as in linear discriminant analysis.

    A label's regression on the features with slope a explains the share e of its variance; the
    log-odds then have slope a / (pi (1 - e)) with pi the class's prior. One common scale, with
    ``norms`` proportional to pi, keeps the decision.
    """
    return max(slope, 0.0) * float(norms.sum()) / (1 - min(max(explained, 0.0), 0.99))


@dataclass(frozen=True)
class Spectrum:
    """Population moments in the eigenbasis of the noisy covariance, shrunk.

    Attributes:
        basis: (d, r) eigenvectors that carry variance.
        signal: (r,) shrunk eigenvalues less the noise, at least 0.
        cross: (K, r) shrunk cross moments.

    """

    basis: Matrix
    signal: Vector
    cross: Matrix

    @classmethod
    def of(cls, moments: PopulationMoments) -> Spectrum:
        """Decompose and shrink."""
        eigenvalues, basis = np.linalg.eigh(moments.covariance)
        # Below d rows the covariance is singular, and centring can leave a value below zero:
        # along those directions the rows say nothing.
        keep = eigenvalues > 1e-3 * moments.noise
        eigenvalues, basis = eigenvalues[keep], basis[:, keep]
        shrunk = shrink_eigenvalues(eigenvalues, moments.num_rows)
        # The cross moments are covariance @ (regression of labels on noisy features). The
        # regression carries over; the sample covariance is replaced by its better estimate.
        cross = moments.cross @ basis * (shrunk / eigenvalues)
        return cls(basis, np.maximum(shrunk - moments.noise, 0), cross)

    def solve(self, ridge: float) -> tuple[Matrix, Matrix]:
        """Return (K, d) ridge weights and the (K, d) cross moments that they came from."""
        cross = self.cross @ self.basis.T
        if np.isinf(ridge):  # no whitening; the scale is free
            return cross, cross
        return (self.cross / (self.signal + ridge)) @ self.basis.T, cross


def _choose_ridge(kept: PopulationMoments, held: PopulationMoments) -> tuple[float, float, float]:
    """Choose the ridge by what it explains on held-out rows, which are public like all rows.

    For fixed weights w, w.S and w'Aw over held-out moments are unbiased; the best multiple of w
    explains (w.S)^2 / w'Aw. The denominator is raised by its own standard error (a quadratic form
    in T rows of noise variance v has |w|^2 v sqrt(2/T)), so noise cannot pass for explained
    variance; that error is also the smallest ridge tried, since finer differences are not there.

    Returns:
        The ridge, the best multiple of its weights, and the share of label variance explained.

    """
    spectrum = Spectrum.of(kept)
    error = held.noise * np.sqrt(2 / held.num_rows)
    signal = held.covariance - held.noise * np.eye(len(held.covariance))
    largest = max(float(spectrum.signal.max(initial=0.0)), error)
    label_variance = float((held.class_shares * (1 - held.class_shares)).sum())
    best, found = -np.inf, (np.inf, 0.0, 0.0)
    for ridge in np.geomspace(error, 100 * largest, _RIDGE_STEPS):
        weights, _ = spectrum.solve(ridge)
        fit = float((weights * held.cross).sum())
        size = max(float((weights @ signal * weights).sum()), 0.0)
        size += error * float((weights**2).sum())
        explained = np.sign(fit) * fit**2 / size if size > 0 else 0.0
        if explained > best:
            best, found = explained, (ridge, fit / size if size > 0 else 0.0, explained)
    share = found[2] / label_variance if label_variance > 0 else 0.0
    return found[0], found[1], share
