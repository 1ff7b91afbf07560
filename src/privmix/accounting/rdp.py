"""Renyi differential privacy: a valid bound for every event, and the papers' own accountants.

Orders are searched over a fixed list, fine near one (large epsilon) and long (small epsilon).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, log_ndtr

from privmix import _validate
from privmix.accounting import pld
from privmix.accounting.events import (
    AllocationGaussianEvent,
    ComposedEvent,
    EligibleGaussianEvent,
    GaussianEvent,
    PoissonGaussianEvent,
    SignedAllocationGaussianEvent,
    SignedGaussianEvent,
    SimpleEvent,
    UniformGaussianEvent,
    simple_events,
)

Array: TypeAlias = NDArray[np.float64]

_MOST_TERMS = 1000  # of a series for a fractional order
_TERMS = 64  # that are worked out together
_KEPT = 512  # curves: what is planned is stated, certified and verified by the same events
_LARGEST_QUADRATIC_ORDER = 512  # signed and uniform cost the square of the order

FRACTIONAL_ORDERS: Array = 1.0 + np.geomspace(0.02, 12.0, 24)
INTEGER_ORDERS: Array = np.unique(
    np.concatenate([np.arange(2, 65), np.rint(np.geomspace(65, 2**14, 48))])
).astype(np.float64)
ORDERS: Array = np.union1d(FRACTIONAL_ORDERS, INTEGER_ORDERS)


def rdp_curve(event: SimpleEvent | ComposedEvent) -> Array:
    """Renyi divergence of the event at ``ORDERS``; infinite where no bound is known.

    It bounds both directions of the neighbouring relation. Sources: Mironov, Talwar, Zhang 2019
    (Poisson; its integer orders are Zhu and Wang 2019, Theorem 6); Wang, Balle, Kasiviswanathan
    2019, Theorem 27 (uniform); the binomial expansion of the dominating pair (signed).
    """
    total = np.zeros_like(ORDERS)
    rounding = 1e-15 * (1.0 + ORDERS * np.log(ORDERS)) / (ORDERS - 1.0)  # of sums of log gammas
    for part in simple_events(event):
        total += part.count * (_rdp_one(part) + rounding)
    return total


def rdp_epsilon(event: SimpleEvent | ComposedEvent, delta: float) -> float:
    """Upper bound on epsilon at ``delta`` (Canonne, Kamath, Steinke 2020, Proposition 12)."""
    delta = _validate.delta("delta", delta)
    bound = rdp_curve(event) + np.log1p(-1.0 / ORDERS)
    bound -= (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1.0)
    return max(float(bound.min()), 0.0)


def rdp_delta(event: SimpleEvent | ComposedEvent, epsilon: float) -> float:
    """Upper bound on delta at ``epsilon``; the inverse of :func:`rdp_epsilon`."""
    epsilon = _validate.real("epsilon", epsilon, at_least=0.0)
    return float(rdp_deltas(event, np.array([epsilon]))[0])


def rdp_deltas(event: SimpleEvent | ComposedEvent, epsilons: Array) -> Array:
    """:func:`rdp_delta` at several epsilons, an array of the same shape (num_epsilons,)."""
    slack = rdp_curve(event) + np.log1p(-1.0 / ORDERS) - epsilons[:, None]
    log_deltas = (ORDERS - 1.0) * slack - np.log(ORDERS)
    deltas: Array = np.exp(np.minimum(log_deltas.min(axis=1), 0.0))
    return deltas


def moments_epsilon(event: SimpleEvent | ComposedEvent, delta: float) -> float:
    """Epsilon by the moments accountant's classic conversion, looser than :func:`rdp_epsilon`.

    min over integer orders of rdp + log(1/delta) / (order - 1): Abadi et al. 2016, Theorem 2;
    Mironov 2017, Proposition 3. Kept for the papers' comparison of accountants.
    """
    delta = _validate.delta("delta", delta)
    return _classic_epsilon(rdp_curve(event), ORDERS, delta)


def dpmix_paper_epsilon(
    theorem: int,
    *,
    num_records: int,
    mix_size: int,
    num_mixtures: int,
    num_features: int,
    num_classes: int,
    feature_noise_stddev: float,
    label_noise_stddev: float,
    delta: float,
) -> float:
    """DPMix's guarantee in the paper's own form, for its Figure 3 only.

    Lee et al. 2019, Theorem 1 (rows of a fixed number of records): the squared sensitivities are
    taken as ``num_features`` and ``num_classes`` (coordinates within an interval of length one), the
    noise has the given standard deviations, the conversion is the classic one over orders 2, 3, ...
    The term of order 2 has exp(Delta^2 / mix_size^2), from the paper's Eq. 10, where the theorem
    prints exp(Delta^2 / 2). Theorem 3 (the low-privacy variant): every record picks
    ``num_mixtures * mix_size / num_records`` rows. A release by this library is certified by its
    event instead.
    """
    noise = _dpmix_noise(
        mix_size, num_features, num_classes, feature_noise_stddev, label_noise_stddev
    )
    delta = _validate.delta("delta", delta)
    if theorem == 3:
        rows = (
            _validate.integer("num_mixtures", num_mixtures)
            * _validate.integer("mix_size", mix_size)
            / _validate.integer("num_records", num_records)
        )
        slope = rows / (2.0 * noise**2)  # rdp = slope * order
        return slope + 2.0 * math.sqrt(-slope * math.log(delta))
    if theorem != 1:
        _validate.fail("theorem", "1 or 3", theorem)
    event = UniformGaussianEvent(
        num_records=num_records, mix_size=mix_size, noise_multiplier=noise, count=num_mixtures
    )
    orders = np.arange(2, _LARGEST_QUADRATIC_ORDER + 1).astype(np.float64)
    return _classic_epsilon(num_mixtures * _rdp_uniform(event, orders), orders, delta)


def dpmix_paper_stddev(
    theorem: int,
    *,
    epsilon: float,
    delta: float,
    num_records: int,
    num_features: int,
    num_classes: int,
    num_mixtures: int,
    mix_size: int,
) -> float:
    """Noise of every published number at which :func:`dpmix_paper_epsilon` says ``epsilon``.

    Features and labels get the same noise, as in the paper's Figure 3. With theorem 3 this is the plan
    of DPMix's variant for little noise (Lee et al. 2019, appendix A): every record enters
    ``num_mixtures * mix_size / num_records`` rows, which ``plan_release`` takes as ``rows_per_record``
    of design ``transposed``. That plan is certified by its event, and mostly with less noise.
    """
    from scipy.optimize import brentq  # here, since planning and accounting start without it

    epsilon = _validate.real("epsilon", epsilon, above=0.0)
    numbers = _validate.integer("num_features", num_features) + _validate.integer(
        "num_classes", num_classes
    )
    unit = math.log(math.sqrt(numbers) / _validate.integer("mix_size", mix_size))  # sensitivity

    def excess(log_stddev: float) -> float:
        stddev = math.exp(log_stddev)
        said = dpmix_paper_epsilon(
            theorem,
            feature_noise_stddev=stddev,
            label_noise_stddev=stddev,
            num_classes=num_classes,
            num_features=num_features,
            num_mixtures=num_mixtures,
            mix_size=mix_size,
            num_records=num_records,
            delta=delta,
        )
        return math.log(said / epsilon)

    least, most = unit - 9.0, unit + 14.0
    # Theorem 1 has finitely many orders, and never says less than some epsilon.
    if excess(most) > 0.0:
        _validate.fail("epsilon", f"above {epsilon * math.exp(excess(most)):.3g}", epsilon)
    if excess(least) < 0.0:
        _validate.fail("epsilon", f"below {epsilon * math.exp(excess(least)):.3g}", epsilon)
    return math.exp(brentq(excess, least, most, xtol=1e-6))


def _dpmix_noise(
    mix_size: int,
    num_features: int,
    num_classes: int,
    feature_noise_stddev: float,
    label_noise_stddev: float,
) -> float:
    features = _validate.integer("num_features", num_features)
    classes = _validate.integer("num_classes", num_classes)
    feature_noise = _validate.real("feature_noise_stddev", feature_noise_stddev, above=0.0)
    label_noise = _validate.real("label_noise_stddev", label_noise_stddev, above=0.0)
    squared = features / feature_noise**2 + classes / label_noise**2
    return _validate.integer("mix_size", mix_size) / math.sqrt(squared)


def _classic_epsilon(curve: Array, orders: Array, delta: float) -> float:
    integer = orders == np.rint(orders)
    return float((curve - math.log(delta) / (orders - 1.0))[integer].min())


@lru_cache(maxsize=_KEPT)
def _rdp_one(event: SimpleEvent) -> Array:
    """Renyi divergences of one step at ``ORDERS``."""
    if isinstance(event, GaussianEvent):
        return ORDERS / (2.0 * event.noise_multiplier**2)
    if isinstance(event, PoissonGaussianEvent):
        return _rdp_poisson(event.sampling_prob, event.noise_multiplier)
    if isinstance(event, EligibleGaussianEvent):
        return _rdp_eligible(event)
    if isinstance(event, UniformGaussianEvent):
        # A mixture over samples is no further apart than its worst part (Renyi divergences are
        # jointly quasi-convex), so the mechanism without sampling bounds it as well.
        return np.minimum(_rdp_uniform(event, ORDERS), ORDERS / (2.0 * event.noise_multiplier**2))
    if isinstance(event, AllocationGaussianEvent | SignedAllocationGaussianEvent):
        # As if rows and signs were known; divergences are jointly quasi-convex.
        return ORDERS * (event.rows_per_record / (2.0 * event.noise_multiplier**2))
    return _rdp_signed(event)


@lru_cache(maxsize=_KEPT)
def _rdp_poisson(sampling_prob: float, noise_multiplier: float) -> Array:
    if sampling_prob == 1.0:
        return ORDERS / (2.0 * noise_multiplier**2)
    with np.errstate(all="ignore"):  # orders it cannot do are infinite
        moments = [
            _log_moment_fractional(order, sampling_prob, noise_multiplier)
            for order in FRACTIONAL_ORDERS
        ]
        fractional = np.asarray(moments) / (FRACTIONAL_ORDERS - 1.0)
    fractional[~(fractional >= 0.0)] = np.inf
    integer = [_log_moment_poisson(int(a), sampling_prob, noise_multiplier) for a in INTEGER_ORDERS]
    curve = np.interp(ORDERS, FRACTIONAL_ORDERS, fractional, right=np.inf)
    at = np.searchsorted(ORDERS, INTEGER_ORDERS)
    curve[at] = np.asarray(integer) / (INTEGER_ORDERS - 1.0)
    return curve


def _log_moment_fractional(order: float, sampling_prob: float, noise_multiplier: float) -> float:
    """Bound log E_Q[(P/Q)^order] from above for any order; infinite where the series is too slow.

    Mironov, Talwar, Zhang 2019, section 3.3: the integral is cut where the two parts of P are alike,
    and each side is a binomial series. Terms of either sign are all added.
    """
    variance = noise_multiplier**2
    width = math.sqrt(2) * noise_multiplier
    cut = variance * math.log(1 / sampling_prob - 1) + 0.5
    log_in, log_out = math.log(sampling_prob), math.log1p(-sampling_prob)
    below = above = last_below = last_above = -math.inf
    for start in range(0, _MOST_TERMS, _TERMS):
        i = np.arange(float(start), min(start + _TERMS, _MOST_TERMS))
        j = order - i
        log_choose = gammaln(order + 1) - gammaln(i + 1) - gammaln(order - i + 1)
        term_below = log_choose + i * log_in + j * log_out + (i * i - i) / (2 * variance)
        term_below += _log_half_erfc((i - cut) / width)
        term_above = log_choose + j * log_in + i * log_out + (j * j - j) / (2 * variance)
        term_above += _log_half_erfc((cut - j) / width)
        sum_below = np.logaddexp.accumulate(np.append(below, term_below))[1:]
        sum_above = np.logaddexp.accumulate(np.append(above, term_above))[1:]
        total = np.logaddexp(sum_below, sum_above)
        falling = np.diff(term_below, prepend=last_below) < 0
        falling &= np.diff(term_above, prepend=last_above) < 0
        ends = falling & (np.maximum(term_below, term_above) < total - 30)
        if ends.any():
            return float(total[ends.argmax()])
        below, above = sum_below[-1], sum_above[-1]
        last_below, last_above = term_below[-1], term_above[-1]
    return math.inf


def _log_half_erfc(x: Array) -> Array:
    result: Array = math.log(0.5) + (math.log(2) + log_ndtr(-x * 2**0.5))
    return result


def _log_moment_poisson(order: int, sampling_prob: float, noise_multiplier: float) -> float:
    """Log E_Q[(P/Q)^order], Zhu and Wang 2019, Theorem 6, with the Gaussian's own moments."""
    k = np.arange(order + 1.0)
    moments = k * (k - 1.0) / (2.0 * noise_multiplier**2)
    return pld.log_sum_exp(_log_binomials(order, sampling_prob) + moments)


def _rdp_eligible(event: EligibleGaussianEvent) -> Array:
    """A revealed coin: E[(P/Q)^a] = 1 - p + p E_eligible[(P/Q)^a], exactly."""
    moments = (ORDERS - 1.0) * _rdp_poisson(event.sampling_prob, event.noise_multiplier)
    idle = math.log1p(-event.eligible_prob)
    return np.logaddexp(idle, math.log(event.eligible_prob) + moments) / (ORDERS - 1.0)


@lru_cache(maxsize=_KEPT)
def _rdp_signed(event: SignedGaussianEvent) -> Array:
    """Integer orders up to 512: the binomial expansion one way, the PLD's lattice the other way.

    Elsewhere, and wherever it is smaller, the bound without signs: averaging over the sign is a
    convex combination of two such pairs, and divergences are jointly convex.
    """
    inverse = event.noise_multiplier**-2
    largest = _LARGEST_QUADRATIC_ORDER
    k = np.arange(largest + 1.0)
    # log E[(cosh(y/s) exp(-1/(2 s^2)))^k] = log sum_j C(k, j) 2^-k exp(((k - 2j)^2 - k)/(2 s^2))
    moments = np.array(
        [
            pld.log_sum_exp(
                _log_binomials(int(n), 0.5) + ((n - 2.0 * k[: int(n) + 1]) ** 2 - n) * inverse / 2.0
            )
            for n in k
        ]
    )
    orders = ORDERS[(np.rint(ORDERS) == ORDERS) & (largest >= ORDERS)]
    forward = [
        pld.log_sum_exp(_log_binomials(int(a), event.sampling_prob) + moments[: int(a) + 1])
        for a in orders
    ]
    backward = pld.reverse_log_moments(event, orders)
    unsigned = _rdp_poisson(event.sampling_prob, event.noise_multiplier)
    if backward is None:
        return unsigned
    curve = np.full_like(ORDERS, np.inf)
    curve[np.searchsorted(ORDERS, orders)] = np.maximum(forward, backward) / (orders - 1.0)
    return np.minimum(curve, unsigned)


def _rdp_uniform(event: UniformGaussianEvent, orders: Array) -> Array:
    """Wang, Balle, Kasiviswanathan 2019, Theorem 27, at integer orders up to 512.

    Its alternating sums B(j), only needed for even j, are E_Q[(P/Q - 1)^j] of the Gaussian pair,
    here integrated as such: all terms are positive, where the sums would cancel.
    """
    log_share = math.log(event.mix_size / event.num_records)
    # Large orders never serve small noise, and would cost most there.
    largest = int(_LARGEST_QUADRATIC_ORDER * min(1.0, 2.0 * event.noise_multiplier)) + 3
    central = _log_central_moments(event.noise_multiplier, largest + 2)
    j = np.arange(3, largest + 1)
    terms = math.log(4.0) + (central[j // 2] + central[(j + 1) // 2]) / 2.0 + j * log_share
    rdp_two = event.noise_multiplier**-2  # of the Gaussian at order 2
    log_growth = rdp_two + math.log(-math.expm1(-rdp_two))
    second = 2.0 * log_share + min(math.log(4.0) + log_growth, math.log(2.0) + rdp_two)
    curve = np.full_like(orders, np.inf)
    for i in np.flatnonzero((orders == np.rint(orders)) & (orders <= largest)):
        order = float(orders[i])
        tail = terms[: int(order) - 2] + _log_choose(int(order))[3:]
        moment = np.concatenate([[0.0, second + math.log(order * (order - 1.0) / 2.0)], tail])
        curve[i] = pld.log_sum_exp(moment) / (order - 1.0)
    return curve


def _log_central_moments(noise_multiplier: float, largest: int) -> Array:
    """Log E_Q[(P/Q - 1)^(2i)] for i = 0 ... largest / 2, by the trapezoidal rule.

    Multiplied out, the integrand is a sum of Gaussians of width one, for which the rule with
    spacing 1/16 is exact to far more digits than a float has.
    """
    end = largest / noise_multiplier + 15.0
    outcome = np.linspace(-15.0, end, math.ceil(16.0 * (end + 15.0)))
    shift = outcome / noise_multiplier - 0.5 / noise_multiplier**2
    with np.errstate(divide="ignore"):
        log_gap = np.where(shift > 30.0, shift, np.log(np.abs(np.expm1(np.minimum(shift, 30.0)))))
    log_density = -(outcome**2) / 2.0 + math.log((outcome[1] - outcome[0]) / math.sqrt(2 * math.pi))
    moments = [0.0]
    for i in range(1, largest // 2 + 1):
        moments.append(pld.log_sum_exp(2 * i * log_gap + log_density))
    return np.asarray(moments)


def _log_binomials(n: int, prob: float) -> Array:
    """Logs of the n + 1 binomial probabilities."""
    k = np.arange(n + 1.0)
    if prob == 1.0:
        return np.where(k == n, 0.0, -np.inf)
    result: Array = _log_choose(n) + (n - k) * math.log1p(-prob) + k * math.log(prob)
    return result


def _log_choose(n: int) -> Array:
    """Logs of the n + 1 binomial coefficients."""
    factorials = _log_factorials()
    result: Array = factorials[n] - factorials[: n + 1] - factorials[n::-1]
    return result


@lru_cache(maxsize=1)
def _log_factorials() -> Array:
    table: Array = gammaln(np.arange(1.0, INTEGER_ORDERS[-1] + 2.0))
    return table
