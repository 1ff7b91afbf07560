"""Which design to choose: a formula for the learner's error, from public quantities alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from privmix import _validate
from privmix.accounting import gdp_mu_from
from privmix.mechanism import LARGEST_ROUND_NOISE, Design
from privmix.preprocess import Center, Intercept, Step, UnitNorm
from privmix.schema import ClassBalance

_Vector = NDArray[np.float64]

# At a joint noise multiplier of 1.2 a signed row's cost, s^2 sqrt(cosh(1/s^2) - 1), is within 2 %
# of its least value, 1/sqrt(2), which only endless mixing reaches.
_NOISE_MULTIPLIER = 1.2
_ROWS_PER_FEATURE = 20
_LABEL_BALANCES = (0.7, 1.0, 1.4, 2.0, 2.8)
_FEATURE_BUDGETS = (0.03, 0.06, 0.12, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8)

_LEAST_CENTER_SHARE = 0.005

# More classes than these are seldom so unequal that their counts are worth it, unless somebody says so.
_FEW_CLASSES = 20
# Least and largest share of the budget for class counts: a twentieth makes noise 2.5 % larger.
_COUNTS_SHARES = (0.01, 0.05)
# Signed rows of ``adaptive`` only set the pace of its rounds. Four rows a feature show directions nearly as
# well as any number does: their noise has its edge at sqrt(d) (2 + sqrt(d/T)) at equal cost.
PACE_BUDGET = 0.05
_PACE_ROWS_PER_FEATURE = 4
_LEAST_PACE_ROWS = 2000
# Rounds, in general and where records have few features: then rounds are cheap, and the loss curves along
# every direction, so that more of them bring the model nearer to its goal.
NUM_ROUNDS, _MOST_ROUNDS = 20, 60
_FEW_FEATURES = 256
# That many, and any with more classes than features, only if a row of a round stands this many standard
# deviations out of its noise.
_LEAST_SIGNAL = 3.0
# The noise of a plan is that of the central limit but for a few per cent.
_MARGIN = 1.2
# Early stopping is a ridge, of about the noise: the one that suits the sizes best is taken.
_EARLY_STOPPING = (0.5, 1.0, 2.0)
# Real classes do not scatter alike: on records set aside, rounds that see their own errors left a
# tenth fewer, and more, than moments.
_SEEN_ERRORS = 0.9

# The reference population, in squared clip norms: what unit vectors have left beside their mean.
_WITHIN, _BETWEEN = 0.5, 0.25


@dataclass(frozen=True)
class Alternative:
    """A design with its sizes, as ``privmix.plan_release`` takes them, and its predicted error.

    Attributes:
        design: ``adaptive``, ``hybrid``, ``signed``, ``stratified`` or ``poisson``.
        center_share: Share of the budget for a private mean that records are centred by before
            they are scaled to the clip norm; None for records as they are.
        num_mixtures: Rows (``hybrid``, ``adaptive``: signed rows); None for ``stratified``.
        mix_size: Planned records in such a row; None for ``stratified``.
        feature_budget: ``hybrid``, ``adaptive``: share of the rest for the signed rows, else None.
        num_rounds: ``adaptive``: rounds, else None.
        label_balance: ``signed``, ``poisson``: label over feature noise multiplier, else None.
        predicted_error: Share of records that the design's classifier would get wrong in the
            reference population; it ranks designs and promises nothing about given data.

    """

    design: Design
    center_share: float | None
    num_mixtures: int | None
    mix_size: float | None
    feature_budget: float | None
    label_balance: float | None
    predicted_error: float
    num_rounds: int | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The design's options, by the names of ``privmix.plan_release``."""
        names = ("num_mixtures", "mix_size", "feature_budget", "num_rounds", "label_balance")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def preprocessing(self) -> tuple[Step, ...]:
        """The steps before the mechanism."""
        last = (Intercept(),) if self.design == "adaptive" else ()
        if self.center_share is None:
            return last
        return Center(budget_share=self.center_share), UnitNorm(), *last


@dataclass(frozen=True)
class _Noise:
    """What a learner faces, in clip norms.

    ``offset`` is the noise variance of a coordinate of a class's offset, ``covariance`` that on
    the diagonal of the covariance (None without one), and ``ratio`` is features per row.
    """

    offset: float
    covariance: float | None = None
    ratio: float = 0.0

    def relative_to(self, gain: float) -> _Noise:
        """Return the noise beside records that vary by ``gain`` times as much."""
        covariance = None if self.covariance is None else self.covariance / gain
        return _Noise(self.offset / gain, covariance, self.ratio)


def recommend_design(
    *,
    num_records: int,
    num_classes: int,
    num_features: int,
    epsilon: float,
    delta: float,
    budget_share: float = 1.0,
    num_mixtures: int | None = None,
) -> tuple[Alternative, ...]:
    """Rank designs by the error predicted for the classifiers of privmix. Sees no data.

    Let mu be the GDP parameter of the budget. A class sum shows a class's offset from the mean
    with variance (K / (n mu))^2 per coordinate. Signed rows of joint noise multiplier s, T of
    them with q = mu / sqrt(T (cosh(1/s^2) - 1)), show the covariance with noise variance
    N = s_x^2 / (q n) on its diagonal, and labels show offsets with variance
    K^2 (1/K + N_y) (1/d + N) / T. ``poisson`` rows cost exp(1/s^2) - 1 in place of
    cosh(1/s^2) - 1. ``hybrid`` divides mu^2 between class sums and rows without labels. At an
    equal division its offsets have 2 (K / (n mu))^2 against 2.3 of ``signed``, and its covariance
    0.94 times the noise, so that ``hybrid`` is never far behind.

    The reference population has K equal classes with orthogonal offsets, and in every class the
    same Gaussian scatter with eigenvalues w_i proportional to 1 / i, i = 1..d; the squares of
    offsets are proportional to w_i^2 (classes differ where records vary); their sums are 1/2 and
    1/4 squared clip norms, and the common mean has the last 1/4. A direction is seen through noise
    N on the covariance from T rows, g = d/T, with squared cosine (1 - g N^2/w^2) / (1 + g N/w), or
    not at all for w^2 < g N^2 (Baik, Ben Arous & Peche 2005; Paul 2007); where it is not seen, the
    mean of the unseen variances stands in. With m_i the resulting metric plus the learner's
    ridge, b_i the offsets' squares and v their noise, the score of the right class exceeds that of
    another by D = sum(b/m) / sqrt(sum((b + v) w / m^2)) standard deviations, and
    1 - error = E[Phi(Z + D)^(K-1)].

    The rounds of ``adaptive`` know no covariance and need none: gradients of all records bring
    the exact one in. Together they show offsets with the variance of class sums of what the signed
    rows leave, (K / (n mu))^2 / 0.95, and stop early, which acts like a ridge on W of about the noise
    K / (2 n mu). A tenth is taken off their error, which depends on no model of the records. There are
    J = 20 of them, or 60 for fewer than 256 features, if row k of a round then stands
    n mu / (K sqrt(J)) = 3 standard deviations out of its noise. Below that, and with more classes than
    features, rounds are not among the alternatives: class sums were better. Nor are they where their noise would be
    beyond what the sampler draws, as for owners of thousands of records.

    Centring spends a share c of mu^2 on the mean, which leaves a mean of squared length a / c,
    a = d / (n mu)^2, in place of 1/4. Scaled to the clip norm, records vary by 1 / (3/4 + a/c) times
    as much. The share is the one that makes (3/4 + a/c) / (1 - c), to which the noise over what
    varies is proportional, least.

    Args:
        num_records: Planning constant n.
        num_classes: K, at least 2.
        num_features: d.
        epsilon: Budget, above 0.
        delta: Its delta, in (0, 1).
        budget_share: What other steps leave of the budget's squared GDP parameter.
        num_mixtures: Rows, where that is settled; by default as many as records, and 20 a feature
            at least.

    Returns:
        The alternatives, the best first: ``stratified`` class sums, ``signed`` and ``poisson`` with
        their best label balance, ``hybrid`` with its best feature budget, and ``adaptive`` where it is
        one; each with centring and without.

    Raises:
        InvalidInputError: An argument out of range.

    """
    n = _validate.size("num_records", num_records)
    k = _validate.size("num_classes", num_classes, at_least=2)
    d = _validate.size("num_features", num_features)
    budget = _validate.real("epsilon", epsilon, above=0.0)
    gdp_mu = gdp_mu_from(budget, _validate.delta("delta", delta))
    gdp_mu *= math.sqrt(_validate.probability("budget_share", budget_share))
    rows = max(n, _ROWS_PER_FEATURE * d)
    pace_rows = min(rows, max(_PACE_ROWS_PER_FEATURE * d, _LEAST_PACE_ROWS))
    if num_mixtures is not None:
        rows = pace_rows = _validate.size("num_mixtures", num_mixtures)
    found = []
    for share in (_center_share(n, d, gdp_mu), None):
        size = _Sizes(n, k, d, gdp_mu, share, rows, pace_rows)
        for design, values in _CHOICES.items():
            if design == "adaptive" and not (size.suits_rounds and size.draws_rounds):
                continue
            tried = [_ALTERNATIVES[design](size, design, value) for value in values]
            found.append(min(tried, key=lambda alternative: alternative.predicted_error))
    return tuple(sorted(found, key=lambda alternative: alternative.predicted_error))


def predicted_errors(
    *,
    num_records: int,
    num_classes: int,
    num_features: int,
    epsilons: Sequence[float],
    delta: float,
) -> dict[str, list[float]]:
    """Return each design's predicted error at several epsilons, with its better centring. Sees no data.

    As :func:`recommend_design`; NaN where a design is no alternative.
    """
    found: dict[str, list[float]] = {design: [] for design in _CHOICES}
    for epsilon in epsilons:
        ranked = recommend_design(
            num_records=num_records,
            num_classes=num_classes,
            num_features=num_features,
            epsilon=epsilon,
            delta=delta,
        )
        for design, errors in found.items():
            tried = [one.predicted_error for one in ranked if one.design == design]
            errors.append(min(tried, default=math.nan))
    return found


def counts_share(
    num_records: int, num_classes: int, gdp_mu: float, class_balance: ClassBalance
) -> float | None:
    """Return the share of the budget for class counts beside class sums or rounds; None for no counts.

    Class sums do not show how large classes are, and without that a rule cannot cut between unequal
    ones. Rounds do, but roughly: of a class of 8 % among 6,000 records at epsilon 1, 7 to 12. Counts have a standard error of 1 / (mu sqrt(share)): the share is that for a tenth of an
    average class, within bounds. They are not needed where the schema states the shares or says that
    classes are equal; and of many classes they are taken only where it says that these are unequal.
    """
    if class_balance == "equal" or isinstance(class_balance, tuple):
        return None
    if num_classes > _FEW_CLASSES and class_balance is None:
        return None
    least, most = _COUNTS_SHARES
    return min(max((10 * num_classes / (num_records * gdp_mu)) ** 2, least), most)


def _center_share(n: int, d: int, gdp_mu: float) -> float:
    """Return the c at which (w + a/c) / (1 - c) is least: the root of w c^2 + 2 a c = a."""
    left, noise = _WITHIN + _BETWEEN, d / (n * gdp_mu) ** 2
    share = noise / (noise + math.sqrt(noise**2 + noise * left))
    # Far below this nothing is saved any more, and the mean should not be the noisiest number.
    return max(share, _LEAST_CENTER_SHARE)


class _Sizes(NamedTuple):
    """The task: sizes, budget, the share of it that centring gets, or None, and rows.

    ``pace_rows`` are the signed rows of ``adaptive``.
    """

    n: int
    k: int
    d: int
    gdp_mu: float
    center_share: float | None
    rows: int
    pace_rows: int

    @property
    def mechanism_mu(self) -> float:
        """What centring leaves for the mechanism."""
        return self.gdp_mu * math.sqrt(1 - (self.center_share or 0.0))

    @property
    def draws_rounds(self) -> bool:
        """Whether the noise of a round is within what the sampler draws."""
        noise = math.sqrt(self.num_rounds / (1 - PACE_BUDGET)) / self.mechanism_mu
        return noise * _MARGIN <= LARGEST_ROUND_NOISE

    @property
    def suits_rounds(self) -> bool:
        """Whether rounds are no worse than class sums.

        With more classes than features offsets fill the space, the population below is none, and class
        sums, which take the whole of every record, were better where noise is large.
        """
        signal = self.n * self.mechanism_mu / self.k
        if self.d >= _validate.LARGEST["num_features"]:  # no room for an intercept
            return False
        return self.k <= self.d or signal >= _LEAST_SIGNAL * math.sqrt(NUM_ROUNDS)

    @property
    def num_rounds(self) -> int:
        """Rounds of ``adaptive``: more where records have few features and rows stand out."""
        signal = self.n * self.mechanism_mu / self.k
        many = self.d < _FEW_FEATURES and signal >= _LEAST_SIGNAL * math.sqrt(_MOST_ROUNDS)
        return _MOST_ROUNDS if many else NUM_ROUNDS

    @property
    def gain(self) -> float:
        """How much more records vary once centred: there is room in place of the mean."""
        if self.center_share is None:
            return 1.0
        rest = self.d / (self.n * self.gdp_mu) ** 2 / self.center_share
        return 1 / (_WITHIN + _BETWEEN + rest)

    def error(self, noise: _Noise) -> float:
        """Predict the error."""
        return predicted_error(self.k, self.d, noise.relative_to(self.gain))


def _hybrid(size: _Sizes, design: Design, share: float) -> Alternative:
    n, k, d, gdp_mu = size.n, size.k, size.d, size.mechanism_mu
    rows, prob = size.rows, _sampling_prob("signed", size, math.sqrt(share) * gdp_mu)
    noise = _Noise(
        offset=(k / (n * gdp_mu)) ** 2 / (1 - share),
        covariance=_NOISE_MULTIPLIER**2 / (prob * n),
        ratio=d / rows,
    )
    sizes = rows, prob * n
    return Alternative(design, size.center_share, *sizes, share, None, size.error(noise))


def _rounds(size: _Sizes, design: Design, share: float) -> Alternative:
    paced, gdp_mu = size._replace(rows=size.pace_rows), math.sqrt(share) * size.mechanism_mu
    prob = _sampling_prob("signed", paced, gdp_mu)
    level = size.k / (size.n * size.mechanism_mu * math.sqrt(1 - share))
    noise = _Noise(level**2).relative_to(size.gain)
    within, between = _reference(size.d)
    ridges = [factor * level / 2 / size.gain for factor in _EARLY_STOPPING]
    error = _SEEN_ERRORS * min(
        _linear_error(size.k, within, between, within + ridge, noise.offset) for ridge in ridges
    )
    sizes = size.pace_rows, prob * size.n
    return Alternative(
        design, size.center_share, *sizes, share, None, error, num_rounds=size.num_rounds
    )


def _mixtures(size: _Sizes, design: Design, balance: float) -> Alternative:
    n, k, d = size.n, size.k, size.d
    rows, prob = size.rows, _sampling_prob(design, size, size.mechanism_mu)
    feature = _NOISE_MULTIPLIER**2 * (1 + 1 / balance**2) / (prob * n)
    label = balance**2 * feature
    offset = k**2 * (1 / k + label) * (1 / d + feature) / rows
    error = size.error(_Noise(offset, feature, d / rows))
    return Alternative(design, size.center_share, rows, prob * n, None, balance, error)


def _class_sums(size: _Sizes, design: Design, _: None) -> Alternative:
    error = size.error(_Noise((size.k / (size.n * size.mechanism_mu)) ** 2))
    return Alternative(design, size.center_share, None, None, None, None, error)


# Each design's values of the one choice that the rule makes for it.
_CHOICES: dict[Design, tuple[Any, ...]] = {
    "adaptive": (PACE_BUDGET,),
    "hybrid": _FEATURE_BUDGETS,
    "signed": _LABEL_BALANCES,
    "poisson": _LABEL_BALANCES,
    "stratified": (None,),
}
_ALTERNATIVES: dict[Design, Callable[[_Sizes, Design, Any], Alternative]] = {
    "adaptive": _rounds,
    "hybrid": _hybrid,
    "signed": _mixtures,
    "poisson": _mixtures,
    "stratified": _class_sums,
}


TUNED_DESIGNS = frozenset(_ALTERNATIVES)


def _sampling_prob(design: Design, size: _Sizes, gdp_mu: float) -> float:
    """Return the inclusion probability whose noise multiplier is 1.2."""
    rate = 1 / _NOISE_MULTIPLIER**2
    cost = math.cosh(rate) - 1 if design == "signed" else math.expm1(rate)
    largest = 1.0 if design == "signed" else 0.5
    # A row of less than one planned record wastes rows.
    return min(largest, max(gdp_mu / math.sqrt(size.rows * cost), 1 / size.n))


def predicted_error(num_classes: int, num_features: int, noise: _Noise) -> float:
    """Return the error in the reference population; see :func:`recommend_design`."""
    within, between = _reference(num_features)
    metric = _seen_metric(within, noise)
    return _linear_error(num_classes, within, between, metric, noise.offset)


@lru_cache(maxsize=1)  # all alternatives are of one width
def _reference(num_features: int) -> tuple[_Vector, _Vector]:
    """Return the variances of the reference population within and between its classes."""
    shape = 1 / np.arange(1, num_features + 1)
    shape /= shape.sum()
    return _WITHIN * shape, _BETWEEN * shape**2 / (shape**2).sum()


def _linear_error(
    num_classes: int, within: _Vector, between: _Vector, metric: _Vector, noise: float
) -> float:
    """Return the error of the rule that takes ``metric`` for the variances; see ``recommend_design``."""
    fit = float((between / metric).sum())
    size = float(((between + noise) * within / metric**2).sum())
    return _multiclass_error(fit / math.sqrt(size), num_classes)


def _seen_metric(within: _Vector, noise: _Noise) -> _Vector:
    """Return what the learner takes for the variances, ridge included."""
    mean = float(within.mean())
    if noise.covariance is None:
        return np.full_like(within, mean)
    level = noise.covariance / within
    cosine = np.maximum(1 - noise.ratio * level**2, 0) / (1 + noise.ratio * level)
    unseen = 1 - cosine
    rest = float((unseen * within).sum() / max(unseen.sum(), np.finfo(float).tiny))
    # The learner's ridge: privmix.learners.discriminant.ridge.
    edge = (noise.covariance + mean) * (2 * math.sqrt(noise.ratio) + noise.ratio)
    return np.asarray(cosine * within + unseen * rest + math.sqrt(edge * mean))


@cache
def _normal_quadrature() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    return nodes, weights


def _multiclass_error(separation: float, num_classes: int) -> float:
    """Return 1 - E[Phi(Z + separation)^(K - 1)] for standard normal Z."""
    nodes, weights = _normal_quadrature()
    missed = -np.expm1((num_classes - 1) * log_ndtr(nodes + separation))
    return float((weights * missed).sum() / weights.sum())
