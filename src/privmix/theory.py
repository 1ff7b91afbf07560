"""What the papers prove about random mixup, in numbers; nothing here certifies anything.

The optimal number of records in a row, the noise of a planned row, bounds and simulations of a
regression learnt from rows, what a membership test can do, and what hierarchical sampling costs
against what it was said to cost. Sources: DPFMix (Li, Cao, Yao 2022), NeuroMixGDP (Li, Cao, Yao
2023). Where a printed formula is wrong, the docstring says what was printed.

These results rest on the central limit approximation of the privacy loss, which under-reports.
Plan with them, and account with :func:`privmix.accounting.account`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import model_validator
from scipy.linalg import toeplitz
from scipy.special import lambertw

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.accounting import (
    ComposedEvent,
    EligibleGaussianEvent,
    PoissonGaussianEvent,
    account,
    event_gdp_mu,
    gdp_epsilon,
    gdp_tradeoff,
    tradeoff_curve,
)
from privmix.accounting.events import SimpleEvent

Array: TypeAlias = NDArray[np.float64]
MixedDesign: TypeAlias = Literal["poisson", "signed"]

# ln(1 + u) = 2 u / (1 + u), the condition for a maximum of ln(1 + u) / sqrt(u), solved for 1 + u
# by Lambert's function; the other branch gives the root u = 0.
_GROWTH = -2.0 / float(lambertw(-2.0 * math.exp(-2.0), 0).real)
_OPTIMAL_RATIO = 1.0 / math.sqrt(_GROWTH - 1.0)

OPTIMAL_NOISE_MULTIPLIER: float = 1.0 / math.sqrt(math.log(_GROWTH))
"""Joint noise multiplier at the optimal mix size, 0.7921, whatever the sizes and the budget."""


# ---------------------------------------------------------------------------------------------
# The noise of a row and the number of records in it


def step_chi_square(
    sampling_prob: float, noise_multiplier: float, *, design: MixedDesign = "poisson"
) -> float:
    """Chi-square divergence of one step, with the record against without it.

    q^2 (exp(1/s^2) - 1) for ``poisson`` (DPFMix, Appendix C.1.3) and q^2 (cosh(1/s^2) - 1) for
    ``signed``. The square root of its sum over the steps is the GDP parameter of the central
    limit, see :func:`privmix.accounting.event_gdp_mu`. Infinite where it exceeds a double.
    """
    sampling_prob = _validate.probability("sampling_prob", sampling_prob)
    inverse = _validate.real("noise_multiplier", noise_multiplier, above=0.0) ** -2
    with np.errstate(over="ignore"):
        if _validate.one_of("design", design, ("poisson", "signed")) == "poisson":
            return float(sampling_prob**2 * np.expm1(inverse))
        return float(sampling_prob**2 * 2.0 * np.sinh(inverse / 2.0) ** 2)


def central_limit_noise_multiplier(
    sampling_prob: float, num_mixtures: int, gdp_mu: float, *, design: MixedDesign = "poisson"
) -> float:
    """Joint noise multiplier at which the central limit of ``num_mixtures`` steps is ``gdp_mu``.

    The inverse of ``gdp_mu^2 = num_mixtures * step_chi_square(...)``: 1/s^2 is
    ln(1 + r) for ``poisson`` (DPFMix, Lemma C.3; NeuroMixGDP, Theorem 3.1) and arcosh(1 + r) for
    ``signed``, with r = gdp_mu^2 / (q^2 T).

    Limit: T -> infinity with q sqrt(T) -> a constant. For finite T a release with this noise costs
    more than ``gdp_mu``; for a guarantee use ``calibrate_noise_multiplier``.
    """
    sampling_prob = _validate.probability("sampling_prob", sampling_prob)
    num_mixtures = _validate.integer("num_mixtures", num_mixtures)
    gdp_mu = _validate.real("gdp_mu", gdp_mu, above=0.0)
    growth = (gdp_mu / sampling_prob) ** 2 / num_mixtures
    if _validate.one_of("design", design, ("poisson", "signed")) == "signed":
        growth += math.sqrt(growth * (growth + 2.0))  # arcosh(1 + r), accurate for small r
    return 1.0 / math.sqrt(math.log1p(growth))


class PublishedNoise(NamedTuple):
    """Noise standard deviations of one published number, in the units of the data."""

    feature_noise_stddev: float
    label_noise_stddev: float


def published_noise(
    *,
    num_records: int,
    num_mixtures: int,
    mix_size: float,
    gdp_mu: float,
    label_balance: float = 1.0,
    feature_clip_norm: float = 1.0,
    label_clip_norm: float = 1.0,
) -> PublishedNoise:
    """Noise of features and labels for ``poisson`` rows at ``gdp_mu`` by the central limit.

    C_x s_x / m and C_y s_y / m with s_x = s sqrt(1 + 1/b^2) and s_y = b s_x, s from
    :func:`central_limit_noise_multiplier` and b = ``label_balance``, the papers' lambda.

    Source: DPFMix, Lemma C.3, whose feature line is printed with m^2 where n^2 belongs (its label
    line, and NeuroMixGDP's Theorem 3.1, have n^2). Limit: that of the central limit.
    """
    num_records = _validate.integer("num_records", num_records)
    mix_size = _validate.real("mix_size", mix_size, above=0.0, at_most=num_records)
    balance = _validate.real("label_balance", label_balance, above=0.0)
    joint = central_limit_noise_multiplier(mix_size / num_records, num_mixtures, gdp_mu)
    feature = joint * math.sqrt(1.0 + balance**-2)
    norms = [
        _validate.real(name, norm, above=0.0)
        for name, norm in (
            ("feature_clip_norm", feature_clip_norm),
            ("label_clip_norm", label_clip_norm),
        )
    ]
    return PublishedNoise(
        norms[0] * feature / mix_size,
        norms[1] * balance * feature / mix_size,
    )


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
    """
    num_records = _validate.integer("num_records", num_records)
    num_mixtures = _validate.integer("num_mixtures", num_mixtures)
    return min(float(num_records), optimal_rate(gdp_mu) * num_records / math.sqrt(num_mixtures))


# ---------------------------------------------------------------------------------------------
# A regression learnt from rows


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


# ---------------------------------------------------------------------------------------------
# Membership tests


def membership_separation(
    sampling_prob: float, num_mixtures: int, noise_multiplier: float
) -> float:
    """Distance of the two normal laws that a test of one record's membership has to tell apart.

    Rows are z_t = a record of norm 1, included with probability q, plus noise s, and everything
    else is known. The maximum-likelihood estimate of q, normalised, is N(0, 1) without the record
    and N(A, 1) with it: A = q sqrt(T (exp(1/s^2) - 1)).

    Source: NeuroMixGDP, Prop. E.4, whose A has the exponent -1/2 on exp(1/s^2) - 1, and its
    statistic likewise. The Fisher information of a row at q = 0 is exp(1/s^2) - 1 (its Eq. 13), so
    the estimate has that to the power -1 as variance, and normalising multiplies by its root. With
    the sign put right A is the GDP parameter of the central limit.

    Limit: q -> 0, T -> infinity with q sqrt(T) constant. It under-reports what an attacker can do
    for finite T.
    """
    chi_square = step_chi_square(sampling_prob, noise_multiplier)
    return math.sqrt(_validate.integer("num_mixtures", num_mixtures) * chi_square)


class MembershipErrors(NamedTuple):
    """What a test that decides whether a record was used must get wrong.

    ``certified_fnr``: no attacker has a false-negative rate below it at ``false_positive_rate``.
    ``gdp_fnr``: the same by the central limit, which is NOT a bound unless nothing is sampled;
    None where there is no such limit. All of one shape.
    """

    false_positive_rate: Array
    certified_fnr: Array
    gdp_fnr: Array | None


def membership_errors(
    event: SimpleEvent | ComposedEvent, false_positive_rate: ArrayLike
) -> MembershipErrors:
    """Type II error against type I error, certified and by the central limit.

    ``false_positive_rate``: any shape, values in [0, 1]. The certified one interpolates the
    corners of :func:`privmix.accounting.tradeoff_curve`, which bounds the mechanism from below.

    Source: Dong, Roth, Su 2022 (trade-off functions); NeuroMixGDP, Appendix E.3, for the reading.
    """
    rates = np.asarray(false_positive_rate, dtype=np.float64)
    if not ((rates >= 0.0) & (rates <= 1.0)).all():
        _validate.fail("false_positive_rate", "numbers in [0, 1]", "others")
    fpr, fnr = tradeoff_curve(event, num_points=201)
    found = event_gdp_mu(event)
    has_limit = found is not None and math.isfinite(found[0])
    return MembershipErrors(
        rates,
        np.asarray(np.interp(rates, fpr, fnr)),
        gdp_tradeoff(found[0], rates) if found is not None and has_limit else None,
    )


# ---------------------------------------------------------------------------------------------
# Hierarchical sampling


class HierarchicalCost(NamedTuple):
    """Epsilon of hierarchical sampling: two sound values and two that are no guarantee.

    Attributes:
        balanced: Certified, every class eligible for the same number of rows.
        random: Certified, eligibility by independent coins.
        claimed: What Prop. E.3 of NeuroMixGDP implies, by privacy-loss distributions: NOT sound.
        claimed_central_limit: The same by the papers' own accountant: NOT sound.

    """

    balanced: float
    random: float
    claimed: float
    claimed_central_limit: float


def hierarchical_cost(
    *,
    num_records: int,
    num_mixtures: int,
    mix_size: float,
    class_prob: float,
    noise_multiplier: float,
    delta: float,
) -> HierarchicalCost:
    """Epsilon of hierarchical sampling as the paper claims it and as it is.

    Args:
        num_records: n.
        num_mixtures: T.
        mix_size: m, planned number of records in a row; q = m / n.
        class_prob: p, share of the rows that a class is eligible for, from q to 1.
        noise_multiplier: s, the joint one.
        delta: In (0, 1).

    The claim is T-fold composition at sampling probability q. Sound is what holds when the
    eligible classes of each row are known: records of an eligible class enter with probability
    q / p (``balanced``: T q / R in R rows, R = T p rounded). See
    docs/theory/hierarchical-sampling.md; source of the claim: NeuroMixGDP, Prop. E.3.

    """
    num_records = _validate.integer("num_records", num_records)
    num_mixtures = _validate.integer("num_mixtures", num_mixtures)
    mix_size = _validate.real("mix_size", mix_size, above=0.0, at_most=num_records)
    share = mix_size / num_records
    class_prob = _validate.real("class_prob", class_prob, at_least=share, at_most=1.0)
    eligible_rows = max(1, round(class_prob * num_mixtures))
    claimed = PoissonGaussianEvent(
        sampling_prob=share, noise_multiplier=noise_multiplier, count=num_mixtures
    )
    balanced = PoissonGaussianEvent(
        sampling_prob=min(1.0, share * num_mixtures / eligible_rows),
        noise_multiplier=noise_multiplier,
        count=eligible_rows,
    )
    random = EligibleGaussianEvent(
        eligible_prob=class_prob,
        sampling_prob=share / class_prob,
        noise_multiplier=noise_multiplier,
        count=num_mixtures,
    )
    gdp_mu = math.sqrt(num_mixtures * step_chi_square(share, noise_multiplier))
    return HierarchicalCost(
        balanced=account(balanced, delta).epsilon,
        random=account(random, delta).epsilon,
        claimed=account(claimed, delta).epsilon,
        claimed_central_limit=gdp_epsilon(gdp_mu, delta),
    )
