"""The optimal mix size, and bounds and simulations of a regression learnt from rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from pydantic import model_validator
from scipy.linalg import toeplitz

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.theory.noise import GROWTH, Array, central_limit_noise_multiplier

_OPTIMAL_RATIO = 1.0 / math.sqrt(GROWTH - 1.0)


def optimal_rate(gdp_mu: float) -> float:
    """The papers' nu*: the best ``sampling_prob * sqrt(num_mixtures)`` for a regression.

    nu* = argmax over nu of nu ln(1 + gdp_mu^2 / nu^2), which is 0.50498 gdp_mu. At it the joint
    noise multiplier is :data:`OPTIMAL_NOISE_MULTIPLIER`, always.

    Source: NeuroMixGDP, Section 3.2. Its Remark 3.3 prints argmin; the function vanishes at 0 and
    at infinity, so only the maximum makes sense, and the bias bound of Theorem 3.2 has it in the
    denominator. Limits: those of :func:`optimal_mix_size`.
    """
    return _OPTIMAL_RATIO * _validate.real("gdp_mu", gdp_mu, above=0.0)


def optimal_mix_size(num_records: int, num_mixtures: int, gdp_mu: float) -> float:
    """The papers' optimal mixup degree m* = nu* n / sqrt(T), in records, at most ``num_records``.

    For (epsilon, delta) take ``gdp_mu = gdp_mu_from(epsilon, delta)``.

    Source: NeuroMixGDP, Theorem 3.2 and Section 3.2, which once prints n sqrt(T) for n / sqrt(T);
    the rate is DPFMix's Corollary 3.2. What is maximised is the signal of the rows against their
    noise, m ln(1 + gdp_mu^2 n^2 / (m^2 T)).

    Limits: ``poisson`` rows, a linear regression, T of at least n, m far below n, and noise
    accounted for by the central limit. A sound accountant moves the optimum a little upwards,
    since small sampling probabilities are where that limit is worst. Nothing is said about
    classification with many classes, where other things than noise decide.

    Example:
        >>> from privmix.theory import optimal_mix_size
        >>> round(optimal_mix_size(50_000, 50_000, 0.268), 1)
        30.3

    """
    num_records = _validate.integer("num_records", num_records)
    num_mixtures = _validate.integer("num_mixtures", num_mixtures)
    return min(float(num_records), optimal_rate(gdp_mu) * num_records / math.sqrt(num_mixtures))


class RegressionSetting(FrozenModel):
    """Linear regression y = X beta + noise, learnt by least squares from ``poisson`` rows.

    Attributes:
        num_records: n.
        num_mixtures: T, above n: the bounds need n / T < 1.
        num_features: p.
        gdp_mu: Privacy of the rows by the central limit.
        coefficient_norm: L2 norm of beta.
        residual_stddev: Standard deviation of the noise of y.
        smallest_eigenvalue, largest_eigenvalue: Bounds on the eigenvalues of X'X / n.
        feature_clip_norm, label_clip_norm: Bounds on a record's features and on its y.
        label_balance: Label over feature noise multiplier.

    """

    num_records: int
    num_mixtures: int
    num_features: int
    gdp_mu: float
    coefficient_norm: float
    residual_stddev: float
    smallest_eigenvalue: float
    largest_eigenvalue: float
    feature_clip_norm: float
    label_clip_norm: float
    label_balance: float = 1.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        records = _validate.integer("num_records", self.num_records)
        _validate.integer("num_mixtures", self.num_mixtures, at_least=records + 1)
        _validate.integer("num_features", self.num_features)
        for name in ("coefficient_norm", "residual_stddev"):
            _validate.real(name, getattr(self, name), at_least=0.0)
        for name in ("gdp_mu", "smallest_eigenvalue", "feature_clip_norm", "label_clip_norm"):
            _validate.real(name, getattr(self, name), above=0.0)
        _validate.real("label_balance", self.label_balance, above=0.0)
        _validate.real(
            "largest_eigenvalue", self.largest_eigenvalue, at_least=self.smallest_eigenvalue
        )
        return self

    @property
    def _aspect(self) -> float:
        """sqrt(alpha), with alpha = n / T."""
        return math.sqrt(self.num_records / self.num_mixtures)

    @property
    def _noise_per_signal(self) -> float:
        """2 (C_X ||beta|| + C_Y) / (sqrt(lambda_min) (1 - sqrt(alpha)))."""
        both = math.sqrt(self.label_balance**2 + 1.0)
        feature = self.feature_clip_norm * both / self.label_balance
        label = self.label_clip_norm * both
        noise = 2.0 * (feature * self.coefficient_norm + label)
        return noise / (math.sqrt(self.smallest_eigenvalue) * (1.0 - self._aspect))

    @property
    def _variance(self) -> float:
        condition = math.sqrt(self.largest_eigenvalue / self.smallest_eigenvalue)
        share = math.sqrt(self.num_features / self.num_records) * math.log(self.num_records)
        spread = (1.0 + self._aspect) / (1.0 - self._aspect)
        return 2.0 * self.residual_stddev * spread * condition * share


class ErrorBound(NamedTuple):
    """Bound on the L2 error of the coefficients, in two parts that add up.

    ``bias`` comes from the privacy noise, ``variance`` from the noise of the targets.
    """

    bias: float
    variance: float

    @property
    def total(self) -> float:
        """The bound."""
        return self.bias + self.variance


def regression_error_bound(setting: RegressionSetting, mix_size: float) -> ErrorBound:
    """Bound on the L2 error of least squares on the rows, at a finite mix size.

    Source: DPFMix, Theorem 3.1, Eq. (3). ``mix_size`` lies between 0 and ``num_records``.

    Limits: it holds with probability tending to one as n -> infinity with m T / n^2 -> 0 and
    n / T -> a constant below 1. At the sizes of the papers' own simulation it exceeds the error of
    answering zero by far (see docs/theory/optimal-mixing.md): read its shape, not its value.
    """
    records = setting.num_records
    mix_size = _validate.real("mix_size", mix_size, above=0.0, below=records)
    growth = (setting.gdp_mu * records / mix_size) ** 2 / setting.num_mixtures
    signal = mix_size * (records - mix_size) / records * math.log1p(growth)
    return ErrorBound(setting._noise_per_signal / math.sqrt(signal), setting._variance)


def limiting_regression_error_bound(setting: RegressionSetting, rate: float) -> ErrorBound:
    """The same bound in the limit, as a function of ``rate`` = sampling_prob sqrt(num_mixtures).

    The bias is K T^(1/4) / sqrt(n rate ln(1 + gdp_mu^2 / rate^2)). Smallest at
    :func:`optimal_rate`.

    Source: NeuroMixGDP, Theorem 3.2, Eq. (1), with two corrections that its proof (Eq. 23 and 27)
    and DPFMix's Eq. (3) give: K has sqrt(lambda_min) (1 - sqrt(alpha)) below the line, where Eq.
    (1) draws the root over both factors; and ln n stands outside of the root. Both were printed
    smaller than what was proved. Limits: as for :func:`regression_error_bound`.
    """
    rate = _validate.real("rate", rate, above=0.0)
    signal = rate * math.log1p((setting.gdp_mu / rate) ** 2)
    scale = setting.num_mixtures**0.25 / math.sqrt(setting.num_records)
    return ErrorBound(setting._noise_per_signal * scale / math.sqrt(signal), setting._variance)


class RegressionSimulation(NamedTuple):
    """Errors of regressions learnt from simulated rows; a row of an array is a repetition.

    ``mix_sizes`` has shape (M,). ``errors`` and ``bounds`` have shape (repetitions, M): the L2
    error of the coefficients, and Theorem 3.1's bound on it for the data drawn.
    ``coefficient_norms``, of shape (repetitions,), is the error of the answer zero.
    """

    mix_sizes: Array
    errors: Array
    bounds: Array
    coefficient_norms: Array

    @property
    def best_mix_size(self) -> float:
        """The mix size of the smallest median error."""
        return float(self.mix_sizes[np.median(self.errors, axis=0).argmin()])


def simulate_regression(
    mix_sizes: Sequence[float],
    *,
    num_records: int = 300,
    num_mixtures: int = 900,
    num_features: int = 5,
    gdp_mu: float = 1.0,
    noise_multipliers: Sequence[float] | None = None,
    noise_aware: bool = False,
    num_repetitions: int = 20,
    seed: int = 0,
) -> RegressionSimulation:
    """Least squares on ``poisson`` rows of simulated records, for several mix sizes.

    Records: x ~ N(0, 0.3^|i-j|), beta ~ N(0, I), y = x'beta + N(0, 1), columns centred, clip norms
    the largest that occur, equal noise multipliers for x and y. (Centring and such clip norms would
    cost privacy on real records; here they follow the paper.) The defaults, and the advice to
    take medians over the repetitions, are those of NeuroMixGDP, Appendix J.1.

    Args:
        mix_sizes: M values between 0 and ``num_records``.
        num_records: n.
        num_mixtures: T, above n, for the bounds.
        num_features: p.
        gdp_mu: Privacy of the rows by the central limit; it sets the noise, and the bounds.
        noise_multipliers: M joint noise multipliers to use in place of the central limit's.
        noise_aware: Subtract the known noise from the second moments of the features before
            solving (the closed form of the bias correction of DPMix, Theorem 5).
        num_repetitions: Independent data sets.
        seed: Equal seeds give equal results. One repetition uses the same records, coins and noise
            for all mix sizes, so that they can be compared.

    Errors: InvalidInputError for a value out of range. Memory: n T doubles.

    """
    num_records = _validate.integer("num_records", num_records, at_least=2)
    num_mixtures = _validate.integer("num_mixtures", num_mixtures, at_least=num_records + 1)
    num_features = _validate.integer("num_features", num_features, at_most=num_records - 1)
    num_repetitions = _validate.integer("num_repetitions", num_repetitions)
    sizes = [_validate.real("mix_sizes", m, above=0.0, below=num_records) for m in mix_sizes]
    if noise_multipliers is None:
        noises = [
            central_limit_noise_multiplier(m / num_records, num_mixtures, gdp_mu) for m in sizes
        ]
    else:
        noises = [_validate.real("noise_multipliers", s, above=0.0) for s in noise_multipliers]
    if len(noises) != len(sizes) or not sizes:
        _validate.fail("noise_multipliers", f"{max(len(sizes), 1)}, one a mix size", len(noises))
    rng = np.random.default_rng(_validate.integer("seed", seed, at_least=0))
    errors, bounds, norms = [], [], []
    for _ in range(num_repetitions):
        data = _draw_regression(rng, num_records, num_features)
        learnt = _learn_from_rows(rng, data, num_mixtures, sizes, noises, noise_aware)
        setting = data.setting(num_mixtures, gdp_mu)
        errors.append(np.linalg.norm(learnt - data.coefficients, axis=1))
        bounds.append([regression_error_bound(setting, m).total for m in sizes])
        norms.append(setting.coefficient_norm)
    return RegressionSimulation(*(np.asarray(part) for part in (sizes, errors, bounds, norms)))


class _Regression(NamedTuple):
    """Simulated records: (n, p + 1) centred columns, y last; and what they were made with."""

    records: Array
    coefficients: Array

    @property
    def clip_norms(self) -> Array:
        """Largest norm of the features (p times) and of y, as a vector of length p + 1."""
        features, targets = self.records[:, :-1], self.records[:, -1]
        largest = np.full(self.records.shape[1], np.linalg.norm(features, axis=1).max())
        largest[-1] = np.abs(targets).max()
        return largest

    def setting(self, num_mixtures: int, gdp_mu: float) -> RegressionSetting:
        features = self.records[:, :-1]
        eigenvalues = np.linalg.eigvalsh(features.T @ features / len(features))
        norms = self.clip_norms
        return RegressionSetting(
            num_records=len(features),
            num_mixtures=num_mixtures,
            num_features=features.shape[1],
            gdp_mu=gdp_mu,
            coefficient_norm=float(np.linalg.norm(self.coefficients)),
            residual_stddev=1.0,
            smallest_eigenvalue=float(eigenvalues[0]),
            largest_eigenvalue=float(eigenvalues[-1]),
            feature_clip_norm=float(norms[0]),
            label_clip_norm=float(norms[-1]),
        )


def _draw_regression(rng: np.random.Generator, num_records: int, num_features: int) -> _Regression:
    root = np.linalg.cholesky(toeplitz(0.3 ** np.arange(num_features)))
    features = rng.standard_normal((num_records, num_features)) @ root.T
    coefficients = rng.standard_normal(num_features)
    targets = features @ coefficients + rng.standard_normal(num_records)
    records = np.column_stack([features, targets])
    return _Regression(records - records.mean(axis=0), coefficients)


def _learn_from_rows(
    rng: np.random.Generator,
    data: _Regression,
    num_mixtures: int,
    mix_sizes: list[float],
    noise_multipliers: list[float],
    noise_aware: bool,
) -> Array:
    """Coefficients learnt at each mix size, shape (M, p), all from the same coins and noise."""
    num_records, num_columns = data.records.shape
    coins = rng.random((num_mixtures, num_records))
    noise = rng.standard_normal((num_mixtures, num_columns))
    learnt = []
    for mix_size, multiplier in zip(mix_sizes, noise_multipliers, strict=True):
        # Equal multipliers for x and y are sqrt(2) times the joint one each. Rows are sums, not
        # means: the public divisor cancels in least squares.
        stddevs = math.sqrt(2.0) * multiplier * data.clip_norms
        rows = (coins < mix_size / num_records) @ data.records + stddevs * noise
        learnt.append(_least_squares(rows, stddevs[0] if noise_aware else 0.0))
    return np.asarray(learnt)


def _least_squares(rows: Array, known_stddev: float) -> Array:
    """Regress the last column on the others, whose noise of ``known_stddev`` is subtracted."""
    moments = rows.T @ rows / len(rows)
    design = moments[:-1, :-1] - known_stddev**2 * np.eye(rows.shape[1] - 1)
    return np.asarray(np.linalg.solve(design, moments[:-1, -1]), dtype=np.float64)
