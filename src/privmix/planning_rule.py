"""Which design to choose: a formula for the learner's error, from public quantities alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from privmix import _validate
from privmix.accounting import gdp_mu_from
from privmix.mechanism import Design

_Vector = NDArray[np.float64]

# At a joint noise multiplier of 1.2 a signed row's cost, s^2 sqrt(cosh(1/s^2) - 1), is within 2 %
# of its least value, 1/sqrt(2), which only endless mixing reaches.
_NOISE_MULTIPLIER = 1.2
_ROWS_PER_FEATURE = 20
_LABEL_BALANCE = math.sqrt(2)
_FEATURE_BUDGETS = (0.03, 0.06, 0.12, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8)

# The reference population, in squared clip norms: what unit vectors have left beside their mean.
_WITHIN, _BETWEEN = 0.5, 0.25


@dataclass(frozen=True)
class Alternative:
    """A design with its sizes, as ``privmix.plan_release`` takes them, and its predicted error.

    Attributes:
        design: ``hybrid``, ``signed``, ``stratified`` or ``poisson``.
        num_mixtures: Rows (``hybrid``: signed rows); None for ``stratified``.
        mix_size: Planned records in such a row; None for ``stratified``.
        feature_budget: ``hybrid``: share of the budget for the signed rows, else None.
        predicted_error: Share of records that the noise-aware classifier would get wrong in the
            reference population; it ranks designs and promises nothing about given data.

    """

    design: Design
    num_mixtures: int | None
    mix_size: float | None
    feature_budget: float | None
    predicted_error: float


@dataclass(frozen=True)
class _Noise:
    """What a learner faces, in clip norms.

    ``offset`` is the noise variance of a coordinate of a class's offset, ``covariance`` that on
    the diagonal of the covariance (None without one), and ``ratio`` is features per row.
    """

    offset: float
    covariance: float | None = None
    ratio: float = 0.0


def recommend_design(
    *, num_records: int, num_classes: int, num_features: int, epsilon: float, delta: float
) -> tuple[Alternative, ...]:
    """Rank designs by the error predicted for the noise-aware classifier. Sees no data.

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
    1/4 squared clip norms. A direction is seen through noise
    N on the covariance from T rows, g = d/T, with squared cosine (1 - g N^2/w^2) / (1 + g N/w), or
    not at all for w^2 < g N^2 (Baik, Ben Arous & Peche 2005; Paul 2007); where it is not seen, the
    mean of the unseen variances stands in. With m_i the resulting metric plus the learner's
    ridge, b_i the offsets' squares and v their noise, the score of the right class exceeds that of
    another by D = sum(b/m) / sqrt(sum((b + v) w / m^2)) standard deviations, and
    1 - error = E[Phi(Z + D)^(K-1)].

    Args:
        num_records: Planning constant n.
        num_classes: K, at least 2.
        num_features: d.
        epsilon: Budget, above 0.
        delta: Its delta, in (0, 1).

    Returns:
        The alternatives, the best first: ``stratified`` class sums, ``signed``, ``poisson``, and
        ``hybrid`` with its best feature budget.

    Raises:
        InvalidInputError: An argument out of range.

    """
    n = _validate.integer("num_records", num_records)
    k = _validate.integer("num_classes", num_classes, at_least=2)
    d = _validate.integer("num_features", num_features)
    budget = _validate.real("epsilon", epsilon, above=0.0)
    gdp_mu = gdp_mu_from(budget, _validate.delta("delta", delta))
    hybrids = [_hybrid(n, k, d, gdp_mu, share) for share in _FEATURE_BUDGETS]
    found = [
        min(hybrids, key=lambda alternative: alternative.predicted_error),
        _mixtures("signed", n, k, d, gdp_mu),
        _mixtures("poisson", n, k, d, gdp_mu),
        Alternative(
            "stratified", None, None, None, predicted_error(k, d, _Noise((k / (n * gdp_mu)) ** 2))
        ),
    ]
    return tuple(sorted(found, key=lambda alternative: alternative.predicted_error))


def _hybrid(n: int, k: int, d: int, gdp_mu: float, share: float) -> Alternative:
    rows, prob = _row_sizes("signed", n, d, math.sqrt(share) * gdp_mu)
    noise = _Noise(
        offset=(k / (n * gdp_mu)) ** 2 / (1 - share),
        covariance=_NOISE_MULTIPLIER**2 / (prob * n),
        ratio=d / rows,
    )
    return Alternative("hybrid", rows, prob * n, share, predicted_error(k, d, noise))


def _mixtures(design: Design, n: int, k: int, d: int, gdp_mu: float) -> Alternative:
    rows, prob = _row_sizes(design, n, d, gdp_mu)
    feature = _NOISE_MULTIPLIER**2 * (1 + 1 / _LABEL_BALANCE**2) / (prob * n)
    label = _LABEL_BALANCE**2 * feature
    offset = k**2 * (1 / k + label) * (1 / d + feature) / rows
    noise = _Noise(offset, feature, d / rows)
    return Alternative(design, rows, prob * n, None, predicted_error(k, d, noise))


def _row_sizes(design: Design, n: int, d: int, gdp_mu: float) -> tuple[int, float]:
    """Return the number of rows, and the inclusion probability whose noise multiplier is 1.2."""
    rate = 1 / _NOISE_MULTIPLIER**2
    cost = math.cosh(rate) - 1 if design == "signed" else math.expm1(rate)
    rows = max(n, _ROWS_PER_FEATURE * d)
    largest = 1.0 if design == "signed" else 0.5
    # A row of less than one planned record wastes rows.
    prob = max(gdp_mu / math.sqrt(rows * cost), 1 / n)
    return rows, min(largest, prob)


def predicted_error(num_classes: int, num_features: int, noise: _Noise) -> float:
    """Return the error in the reference population; see :func:`recommend_design`."""
    shape = 1 / np.arange(1, num_features + 1)
    shape /= shape.sum()
    within, between = _WITHIN * shape, _BETWEEN * shape**2 / (shape**2).sum()
    metric = _seen_metric(within, noise)
    fit = float((between / metric).sum())
    size = float(((between + noise.offset) * within / metric**2).sum())
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


def _multiclass_error(separation: float, num_classes: int) -> float:
    """Return 1 - E[Phi(Z + separation)^(K - 1)] for standard normal Z."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    missed = -np.expm1((num_classes - 1) * log_ndtr(nodes + separation))
    return float((weights * missed).sum() / weights.sum())
