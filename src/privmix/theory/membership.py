"""What a test of one record's membership can do, by the central limit."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from privmix import _validate
from privmix.accounting import (
    ComposedEvent,
    event_gdp_mu,
    gdp_tradeoff,
    tradeoff_curve,
)
from privmix.accounting.events import SimpleEvent
from privmix.theory.noise import Array, step_chi_square


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
