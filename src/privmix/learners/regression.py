"""Linear regression that accounts for the release's noise."""

from __future__ import annotations

from typing import Self

import numpy as np

from privmix import _validate
from privmix.learners.adaptive import learn_numbers
from privmix.learners.base import (
    LinearRegressor,
    Matrix,
    ReleaseOrFolder,
    Vector,
    as_release,
    target_bounds,
)
from privmix.learners.population import TargetMoments, target_moments
from privmix.theory.spectrum import signal_variances

# Designs whose rows carry mixed targets.
REGRESSION_DESIGNS = ("poisson", "signed", "uniform", "transposed")
_TINY = 1e-200  # below what data of any clip norm give, and nothing overflows when divided by it


class NoiseAwareRegressor(LinearRegressor):
    """Errors-in-variables least squares with coefficient errors; no parameters.

    The papers' linear model (DPMix, Theorem 2; DPFMix, section 3.2): targets are linear in the
    features. Least squares on the rows is biased towards 0, since the rows' features carry noise.
    Here the known noise is taken out of the rows' second moments first: the closed form of the bias
    correction in DPMix's Theorem 5. With A the covariance of the features and S that of targets
    and features, both seen through noise, coefficients along an eigenvector of A with eigenvalue l
    are l s / (l^2 + v / t): s has error variance v, and t is the coefficients' mean square, an
    empirical-Bayes estimate. The shrinkage is of order 1 / rows, less than the standard error, and
    needs no tuning. Eigenvalues are corrected as random-matrix theory says
    (``privmix.theory.spectrum``). One pass over the rows; d x d matrices are held.

    ``signed`` rows show no means: their model has no intercept on targets scaled to [-1, 1]. Add a
    constant feature where one is needed (``TableSchema.constant`` for tables). ``num_records`` is
    taken as the number of records.

    ``adaptive`` releases have trained a model of numbers in their rounds, whose last step is taken. Residuals
    were clipped: it is Huber's regression, stopped early. ``coef_stderr_`` is then what the noise of
    the rounds does to coefficients, and no more.

    Attributes:
        coef_stderr_: (J, d) standard errors of the coefficients, in the targets' units, for the
            population that the records were drawn from. They cover the noise, the mixing, the
            sampling of records, and what the shrinkage is expected to take away. Products of rows
            are taken as Gaussian, with a correction for small mixtures.

    And those of ``LinearRegressor``.

    Example:
        >>> import numpy as np
        >>> from privmix import NoiseAwareRegressor, Schema, plan_release, release
        >>> schema = Schema(
        ...     classes=["weight"],
        ...     num_features=2,
        ...     num_records=900,
        ...     feature_clip_norm=1.0,
        ...     target="regression",
        ...     target_bounds=[(0.0, 10.0)],
        ... )
        >>> plan = plan_release(
        ...     schema, target_epsilon=20.0, target_delta=1e-5, design="poisson", mix_size=32
        ... )
        >>> x = np.eye(2)[np.arange(900) % 2]
        >>> model = NoiseAwareRegressor().fit(release(x, 3.0 + 4.0 * x[:, 0], plan, out="numbers"))
        >>> model.coef_.shape, model.predict(np.eye(2)).shape
        ((1, 2), (2,))

    """

    coef_stderr_: Matrix

    def fit(self, release: ReleaseOrFolder) -> Self:
        """Learn from a release of regression targets.

        Args:
            release: A release, or its folder, of design ``poisson``, ``signed``, ``uniform``,
                ``transposed`` or ``adaptive``.

        Returns:
            self

        Raises:
            InvalidInputError: Another design or target, or rows that hold every record.

        """
        release = as_release(release)
        _validate.one_of("release.design", release.design, (*REGRESSION_DESIGNS, "adaptive"))
        bounds = target_bounds(release)
        half = (bounds @ [-0.5, 0.5])[:, None]
        if release.design == "adaptive":
            coef, noise = learn_numbers(release)
            self._keep(release, coef, np.zeros(len(coef)))
            self.coef_stderr_ = half * noise
            return self
        moments = target_moments(release)
        coef, variances = shrunk_least_squares(moments, release.mix_size, release.sampling_prob)
        self._keep(release, coef, moments.targets_mean - coef @ moments.features_mean)
        self.coef_stderr_ = half * np.sqrt(variances)
        return self


def shrunk_least_squares(
    moments: TargetMoments, mix_size: float, sampling_prob: float
) -> tuple[Matrix, Matrix]:
    """Return (J, d) coefficients of the scaled targets, and their error variances.

    With e = y - B x of a row and noise of variance v in x, the corrected score e x + v B has mean 0
    and, for Gaussian rows, covariance Var(e) Cov(x) + v^2 B B' (Isserlis). Few records in a row add
    E[e^2 x x'] of the records for each of the m T drawn; sampling n records adds it once for each.
    Where the rows' sizes vary, second moments of e and x are those about the origin, with the
    intercept and the mean record in them. The shrinkage leaves that part of the errors out: a
    single direction, for which it would shrink all of them.
    """
    eigenvalues, basis = np.linalg.eigh(moments.covariance)
    seen = np.maximum(eigenvalues, _TINY)
    signal = signal_variances(eigenvalues, moments.noise, moments.num_rows)
    # ``cross`` is that of the rows at hand: where they show more signal than noise, so is what it is
    # divided by, and not what the spectrum tells of other rows.
    direct = eigenvalues - moments.noise
    signal = np.where(direct > moments.noise, direct, signal)
    cross = moments.cross @ basis
    coef = np.zeros_like(cross)
    for _ in range(3):  # the error depends on the coefficients, a little
        residual = _residual_variance(moments, coef, cross, eigenvalues)
        error = residual[:, None] * seen / moments.num_rows
        excess = np.maximum((cross**2 - error).sum(axis=1), 0)
        prior = excess / max(float((signal**2).sum()), _TINY)
        # Without any excess the prior is 0, and so are the coefficients.
        weight = prior[:, None] * signal
        gain = weight / np.maximum(weight * signal + error, _TINY)
        coef = gain * cross
    draws = mix_size / sampling_prob, mix_size * moments.num_rows
    own = np.maximum(residual - moments.target_noise - moments.noise * (coef**2).sum(axis=1), 0)
    common = moments.features_mean @ basis * moments.sizes_vary
    offset = (moments.targets_mean * moments.sizes_vary - coef @ common)[:, None]
    about_origin = residual[:, None] * common**2 + offset**2 * (seen + 2 * common**2)
    scatter = (
        error
        + about_origin / moments.num_rows
        + own[:, None] * signal * sum(1 / count for count in draws)
    )
    # What the shrinkage takes away, with the prior as large as its own error allows.
    widest = prior + np.sqrt(2 * (error**2).sum(axis=1)) / max(float((signal**2).sum()), _TINY)
    lost = widest[:, None] * (1 - gain * signal) ** 2
    variances = (gain**2 * scatter + lost) @ (basis**2).T
    along = (gain * coef) @ basis.T
    return coef @ basis.T, variances + moments.noise**2 * along**2 / moments.num_rows


def _residual_variance(
    moments: TargetMoments, coef: Matrix, cross: Matrix, eigenvalues: Vector
) -> Vector:
    """Variance of y - B x of a row, noise included; not below the noise's own share."""
    residual = moments.variance - 2 * (coef * cross).sum(axis=1) + coef**2 @ eigenvalues
    least = moments.target_noise + moments.noise * (coef**2).sum(axis=1)
    return np.asarray(np.maximum(residual, np.maximum(least, _TINY)))
