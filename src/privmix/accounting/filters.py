"""A limit that holds when later events are chosen after seeing the outputs of earlier ones.

The loss distribution of the events that happened is no such filter: the choice between two events
that would each keep a limit of (1, 1e-5) can end at delta 1.755e-5. The rule here is one, and it is
fixed as soon as the limit (epsilon*, delta) and the first charge are:

- The *reference process* is watched for a time that starts at 0. In a stretch of length x it shows a
  Gaussian mechanism of squared parameter x m^2, and with probability 1 - exp(-h x) it gives
  everything away, where m is the largest mu for which mu-GDP implies (epsilon*, delta), and
  h = delta / 20. Stretches are independent of each other.
- The *time* of an event is an x for which a stretch of length x dominates the event: its
  hockey-stick divergence is at least the event's at every epsilon, in both directions. So the event
  is a post-processing of such a stretch (Blackwell; Dong, Roth, Su 2022, Theorem 2.10).
- The first charge is accounted for exactly. All later charges together have the time X of their
  sum. The charges are within the limit if the first charge composed with the reference process up
  to X is (epsilon*, delta)-DP.

Why it holds: let tau be the largest time that, composed with the first charge, keeps the limit. It
follows from the limit and the first event, which no output has influenced. Draw the first output
and the reference process on [0, tau]. Each later event, whatever chose it, is a post-processing of
the stretch that begins where the one before ended: its length follows from what was seen before, and
increments of the process after such a moment are independent of what was before it and distributed
as ever. All stretches end by tau. So the whole transcript is a post-processing of two mechanisms
fixed in advance, which together are (epsilon*, delta)-DP. For Gaussian events alone this is Smith and
Thakurta 2022; filters by Renyi divergence (Feldman and Zrnic 2021; Lecuyer 2021) are looser.

How a ledger uses it: keep the charged events of a data set in the order of their charges and call
:func:`admits` before a charge. Plans fixed before any of them runs may be the first charge together,
as one ``ComposedEvent``: they are accounted for exactly, by their loss distribution. A group of
plans fixed together later is one event too. What was charged past the limit stays in the list and
makes every later charge fail; the limit holds for the charges before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, ndtr

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.accounting import accountants, gdp
from privmix.accounting.events import (
    RECORD,
    ComposedEvent,
    Event,
    GaussianEvent,
    GroupEvent,
    per_record,
)

Array: TypeAlias = NDArray[np.float64]

_REVEALING = 0.05  # share of delta that the process gives away in a unit of time
_SHORTEST, _LONGEST = 1e-4, 1e4  # times that are told apart
_PRECISION = 5e-4  # relative, of a time
_MESH = 400  # epsilons at which event and process are compared
_SMALLEST_MU, _LARGEST_MU = 1e-6, 1e3  # of the process beside the first charge


class AdaptiveReading(FrozenModel):
    """What charges cost when each was chosen after seeing the outputs of those before it.

    Attributes:
        epsilon: Epsilon at ``delta`` of the first charge and of the reference process for as long
            as the later ones need; None where there is no finite bound.
        planned_epsilon: Certified epsilon of all charges composed. It holds only if all of them
            were fixed before the first ran.
        epsilon_limit: The limit.
        delta: The delta of all of these.
        slack: What is left of the limit: ``epsilon_limit - epsilon``, at least 0.
        fits: Whether ``epsilon`` is within the limit.

    """

    epsilon: float | None
    planned_epsilon: float
    epsilon_limit: float
    delta: float
    slack: float
    fits: bool


def admits(
    charged: Sequence[Event], new: Event, *, epsilon_limit: float, delta: float
) -> AdaptiveReading:
    """Whether ``new`` may be charged after ``charged``: its reading's ``fits``.

    Args:
        charged: The events charged so far, in their order. The first was fixed in advance.
        new: The event asked for, chosen in any way.
        epsilon_limit: Most that all charges may cost at ``delta``; above 0. The same at each call.
        delta: In (0, 1). The same at each call.

    Raises:
        InvalidInputError: A limit out of range, or events that do not share a neighbouring
            relation and a unit.

    """
    return adaptive_reading([*charged, new], epsilon_limit=epsilon_limit, delta=delta)


def adaptive_reading(
    charged: Sequence[Event], *, epsilon_limit: float, delta: float
) -> AdaptiveReading:
    """What ``charged``, in the order of the charges, costs; arguments and errors as :func:`admits`.

    Without charges everything is 0 and fits.
    """
    limit = _validate.real("epsilon_limit", epsilon_limit, above=0.0)
    delta = _validate.delta("delta", delta)
    if not charged:
        return AdaptiveReading(
            epsilon=0.0,
            planned_epsilon=0.0,
            epsilon_limit=limit,
            delta=delta,
            slack=limit,
            fits=True,
        )
    together = ComposedEvent(events=tuple(charged))  # one relation, one unit
    planned = accountants.account(together, delta).epsilon
    if len(charged) == 1:
        epsilon: float | None = planned
    else:
        time = sum(event_time(event, epsilon_limit=limit, delta=delta) for event in charged[1:])
        epsilon = _with_process(charged[0], time, limit, delta)
    return AdaptiveReading(
        epsilon=epsilon,
        planned_epsilon=planned,
        epsilon_limit=limit,
        delta=delta,
        slack=0.0 if epsilon is None else max(limit - epsilon, 0.0),
        fits=epsilon is not None and epsilon <= limit,
    )


def event_time(event: Event, *, epsilon_limit: float, delta: float) -> float:
    """Time of the reference process that dominates an event; infinite if it would be above 10^4.

    A unit of time is about what the limit allows. Exact for Gaussian events, within a per cent or
    two of the smallest such time for others, and at least 1e-4.
    """
    return _time(event, epsilon_limit, delta)


@lru_cache(maxsize=4096)
def _time(event: Event, limit: float, delta: float) -> float:
    scale = gdp.gdp_mu_from(limit, delta)
    found = gdp.event_gdp_mu(event)
    if found is not None and found[1]:
        return (found[0] / scale) ** 2
    rate = _REVEALING * delta
    least = -math.expm1(-rate * _SHORTEST)
    end = accountants.epsilon_at(event, [least])[least]
    epsilons = end * np.linspace(0.0, 1.0, _MESH) ** 2  # closer where curves bend most
    deltas = accountants.delta_profile(event, epsilons)

    def dominates(time: float) -> bool:
        revealed = -math.expm1(-rate * time) * (1.0 - 1e-12)
        return _dominates(math.sqrt(time) * scale, revealed, epsilons, deltas)

    low, high = _SHORTEST, _LONGEST
    if dominates(low):
        return low
    if not dominates(high):
        return math.inf
    while high > low * (1.0 + _PRECISION):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if dominates(middle) else (middle, high)
    return high


def _dominates(gdp_mu: float, revealed: float, epsilons: Array, deltas: Array) -> bool:
    """Whether a stretch's divergence is at least ``deltas`` at and between all ``epsilons``, and on.

    Divergences are convex in k = exp(epsilon). Between two points the event's lies below the chord
    of its upper bounds and the stretch's above its tangent in the middle, so both ends decide. Beyond
    the last point the event's has fallen below what is revealed. Negative epsilons follow, as the
    stretch is symmetric: delta_PQ(-epsilon) = 1 - exp(-epsilon) + exp(-epsilon) delta_QP(epsilon).
    """
    if not deltas[-1] <= revealed:
        return False
    middle = np.logaddexp(epsilons[:-1], epsilons[1:]) - math.log(2.0)
    quantile = gdp_mu / 2.0 - middle / gdp_mu
    height = _gdp_deltas(gdp_mu, quantile)
    slope = np.exp(np.minimum(middle + log_ndtr(quantile - gdp_mu), 0.0)) * (1.0 + 1e-11)
    kept = 1.0 - revealed
    left = revealed + kept * (height - slope * np.expm1(epsilons[:-1] - middle) * (1.0 - 1e-9))
    with np.errstate(over="ignore", invalid="ignore"):  # then the time is too short, and fails
        right = revealed + kept * (height - slope * np.expm1(epsilons[1:] - middle))
    return bool((deltas[:-1] <= left).all() and (deltas[1:] <= right).all())


def _gdp_deltas(gdp_mu: float, quantile: Array) -> Array:
    """Lower bounds on delta of mu-GDP at epsilon = mu^2/2 - quantile * mu; see :mod:`gdp`."""
    second = erfcx((gdp_mu - quantile) / math.sqrt(2.0)) / 2.0
    scale = np.exp(-(quantile**2) / 2.0)
    first = np.where(
        quantile <= 0.0,
        scale * erfcx(-np.minimum(quantile, 0.0) / math.sqrt(2.0)) / 2.0,
        ndtr(quantile),
    )
    second = scale * second
    lower: Array = np.maximum(first - second - 1e-13 * (first + second), 0.0)
    return lower


def _with_process(first: Event, time: float, limit: float, delta: float) -> float | None:
    """Epsilon at ``delta`` of the first event composed with the process up to ``time``."""
    gdp_mu = math.sqrt(time) * gdp.gdp_mu_from(limit, delta)
    rest = delta * (1.0 - _REVEALING * time)
    if not (rest > 0.0 and gdp_mu <= _LARGEST_MU):
        return None
    _, size = per_record(first)
    # A Gaussian mechanism that all records of an owner together move by gdp_mu deviations.
    gaussian = GaussianEvent(
        noise_multiplier=size / max(gdp_mu, _SMALLEST_MU),
        neighboring_relation=first.neighboring_relation,
    )
    process: Event = gaussian
    if first.unit != RECORD:
        process = GroupEvent(unit=first.unit, group_size=size, event=gaussian)
    return accountants.account(ComposedEvent(events=(first, process)), rest).epsilon
