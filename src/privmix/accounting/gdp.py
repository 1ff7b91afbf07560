"""Gaussian differential privacy: exact for Gaussian mechanisms, an approximation when sampled.

The central limit approximations under-report (their epsilon can be a fifth of the true one), so a
reading from here certifies only what is Gaussian without sampling.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from privmix import _validate
from privmix.accounting.events import (
    AllocationGaussianEvent,
    EligibleGaussianEvent,
    Event,
    GaussianEvent,
    PoissonGaussianEvent,
    SignedAllocationGaussianEvent,
    SignedGaussianEvent,
    SimpleEvent,
    simple_events,
)
from privmix.accounting.group import group_view
from privmix.accounting.search import root


def gdp_delta(gdp_mu: float, epsilon: float) -> float:
    """Exact delta of a mu-GDP mechanism at ``epsilon``.

    Source: Dong, Roth, Su 2022, Corollary 2.13. Accurate in relative terms far into the tail.
    """
    gdp_mu = _validate.real("gdp_mu", gdp_mu, at_least=0.0)
    epsilon = _validate.real("epsilon", epsilon, at_least=0.0)
    return 0.0 if gdp_mu == 0.0 else math.exp(_log_delta(gdp_mu, gdp_mu / 2.0 - epsilon / gdp_mu))


def gdp_epsilon(gdp_mu: float, delta: float) -> float:
    """Exact epsilon of a mu-GDP mechanism at ``delta``, rounded up in its twelfth digit."""
    gdp_mu = _validate.real("gdp_mu", gdp_mu, at_least=0.0)
    delta = _validate.delta("delta", delta)
    log_delta = math.log(delta)
    if gdp_mu == 0.0 or _log_delta(gdp_mu, gdp_mu / 2.0) <= log_delta:
        return 0.0
    # Solved in the quantile a = mu/2 - epsilon/mu; delta <= exp(-a^2/2) for a < 0.
    quantile = root(
        lambda a: _log_delta(gdp_mu, a) - log_delta,
        -math.sqrt(-2.0 * log_delta) - 1e-9,
        min(gdp_mu / 2.0, 40.0),
        xtol=1e-15,
        rtol=1e-14,
    )
    return gdp_mu * (gdp_mu / 2.0 - quantile) * (1.0 + 1e-12)


def gdp_mu_from(epsilon: float, delta: float) -> float:
    """The largest mu for which mu-GDP implies (epsilon, delta)-DP, to twelve digits.

    For delta = 1e-5, epsilon 1, 2, 8 give 0.268051, 0.501552, 1.666031.

    Example:
        >>> from privmix.accounting import gdp_epsilon, gdp_mu_from
        >>> round(gdp_mu_from(1.0, 1e-5), 6)
        0.268051
        >>> round(gdp_epsilon(gdp_mu_from(2.0, 1e-6), 1e-6), 9)
        2.0

    """
    epsilon = _validate.real("epsilon", epsilon, at_least=0.0)
    log_delta = math.log(_validate.delta("delta", delta))

    def excess(log_mu: float) -> float:
        gdp_mu = math.exp(log_mu)
        return _log_delta(gdp_mu, gdp_mu / 2.0 - epsilon / gdp_mu) - log_delta

    lower, upper = math.log(1e-3), 0.0
    while excess(upper) < 0.0:
        upper += 1.0
    while excess(lower) > 0.0:
        lower -= 7.0
    return math.exp(root(excess, lower, upper, xtol=1e-14, rtol=1e-14)) * (1.0 - 1e-12)


def bounded_range_from(gdp_mu: float) -> float:
    """The largest range of a privacy loss that implies ``gdp_mu``-GDP, to twelve digits.

    A mechanism whose privacy loss lies in an interval of length r for any two neighbours, as the
    exponential mechanism's does, has a trade-off function above two lines, of slopes -exp(t) from (0, 1) and
    -exp(t - r) to (1, 0) for some t. A Gaussian mechanism's is convex with the same ends, and so is
    below both where it is below their meeting point. Over t that asks most of mu at t = r / 2, where
    the point is (a, a) with a = 1 / (1 + exp(r / 2)) = Phi(-mu / 2).

    Source: bounded range (Durfee & Rogers 2019; Dong, Durfee & Rogers 2020) read as a trade-off.

    Example:
        >>> from privmix.accounting import bounded_range_from
        >>> round(bounded_range_from(1.0), 6)
        1.613931

    """
    gdp_mu = _validate.real("gdp_mu", gdp_mu, above=0.0)
    if gdp_mu < 1.0:
        # Phi(t) / Phi(-t) = 1 + erf(t / sqrt 2) / Phi(-t), without a difference of near numbers.
        log_odds = math.log1p(math.erf(gdp_mu / math.sqrt(8.0)) / float(ndtr(-gdp_mu / 2.0)))
    else:
        logs = log_ndtr(np.array([gdp_mu / 2.0, -gdp_mu / 2.0]))
        log_odds = float(logs[0] - logs[1])
    return 2.0 * log_odds * (1.0 - 1e-12)


def event_gdp_mu(event: Event) -> tuple[float, bool] | None:
    """GDP parameter of an event, and whether it is exact (else a central limit approximation).

    Per step and squared: 1/s^2 for the Gaussian; p^2 (exp(1/s^2) - 1) for Poisson sampling (Bu et
    al. 2020); p^2 (cosh(1/s^2) - 1) for signed mixing; the eligible share times that of the
    eligible step; R^2/T (exp(1/s^2) - 1) for R of T rows, and 4 R^2/T sinh(1/s^2), s of one vector,
    under replace_one, and R^2/T (cosh(1/s^2) - 1) with signs; None for sampling without replacement. Groups of k records: k times one record's.
    """
    total, exact = 0.0, True
    inner, size, _ = group_view(event)
    for part in simple_events(inner):
        rate = _squared_rate(part)
        if rate is None:
            return None
        total += part.count * rate
        exact = exact and isinstance(part, GaussianEvent)
    return size * math.sqrt(total), exact


def _squared_rate(event: SimpleEvent) -> float | None:
    inverse = event.noise_multiplier**-2
    if isinstance(event, GaussianEvent):
        return inverse
    with np.errstate(over="ignore"):
        if isinstance(event, AllocationGaussianEvent):
            share = event.rows_per_record * (event.rows_per_record / event.num_rows)
            if event.presence_noise_multiplier is not None:
                return share * 4.0 * float(np.sinh(event.presence_noise_multiplier**-2))
            return share * float(np.expm1(inverse))
        if isinstance(event, SignedAllocationGaussianEvent):
            share = event.rows_per_record * (event.rows_per_record / event.num_rows)
            return share * float(np.cosh(inverse) - 1.0)
        growth, signed_growth = float(np.expm1(inverse)), float(np.cosh(inverse) - 1.0)
    if isinstance(event, PoissonGaussianEvent):
        return event.sampling_prob**2 * growth
    if isinstance(event, SignedGaussianEvent):
        return event.sampling_prob**2 * signed_growth
    if isinstance(event, EligibleGaussianEvent):
        return event.eligible_prob * event.sampling_prob**2 * growth
    return None


def _log_delta(gdp_mu: float, a: float) -> float:
    """Log of Phi(a) - exp(epsilon) Phi(a - mu), epsilon = mu^2/2 - a mu, without cancellation.

    By Phi(a) = exp(-a^2/2) erfcx(-a/sqrt 2) / 2 and (a - mu)^2 = a^2 + 2 epsilon.
    """
    second = float(erfcx((gdp_mu - a) / math.sqrt(2.0))) / 2.0
    if a <= 0.0:
        gap = float(erfcx(-a / math.sqrt(2.0))) / 2.0 - second
        return math.log(gap) - a**2 / 2.0 if gap > 0.0 else -math.inf
    gap = float(ndtr(a)) - second * math.exp(-(a**2) / 2.0)
    return math.log(gap) if gap > 0.0 else -math.inf
