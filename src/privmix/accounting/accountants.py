"""All accountants side by side, and the epsilon that may be certified."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.accounting import gdp, pld, rdp
from privmix.accounting.events import ComposedEvent, SimpleEvent

CERTIFICATE_DELTAS: tuple[float, ...] = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)


class Reading(FrozenModel):
    """What one accountant says of an event at one delta.

    Attributes:
        epsilon: Its epsilon; None where it gives none.
        guarantee: Whether the mechanism is certainly (epsilon, delta)-DP.
        lower: Proved lower bound on the epsilon of the dominating pair, if any.
        upper: Proved upper bound, if any.

    """

    epsilon: float | None
    guarantee: bool
    lower: float | None = None
    upper: float | None = None


class Accounting(FrozenModel):
    """The certified epsilon of an event at a delta, with every accountant's reading.

    ``accountants`` has the keys pld, rdp and gdp; None for one that does not cover the event.
    """

    epsilon: float
    delta: float
    neighboring_relation: str
    accountants: dict[str, Reading | None]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return self.model_dump(mode="json")


def account(event: SimpleEvent | ComposedEvent, delta: float) -> Accounting:
    """Account for an event at ``delta``: the smallest valid upper bound is certified.

    ``delta`` must lie in (0, 1). An epsilon that would be negative is reported as 0.
    """
    delta = _validate.delta("delta", delta)
    readings = {
        "pld": _pld_reading(event, delta),
        "rdp": _rdp_reading(event, delta),
        "gdp": _gdp_reading(event, delta),
    }
    certified = [r.upper for r in readings.values() if r is not None and r.upper is not None]
    return Accounting(
        epsilon=min(certified),
        delta=delta,
        neighboring_relation=event.neighboring_relation,
        accountants=readings,
    )


def epsilon_at(
    event: SimpleEvent | ComposedEvent, deltas: Iterable[float] = CERTIFICATE_DELTAS
) -> dict[float, float]:
    """Certified epsilons at several deltas, keyed by delta."""
    deltas = [_validate.delta("delta", delta) for delta in deltas]
    by_rdp = [rdp.rdp_epsilon(event, delta) for delta in deltas]
    by_pld = pld.epsilon_upper(event, deltas) or by_rdp
    return {d: min(p, r) for d, p, r in zip(deltas, by_pld, by_rdp, strict=True)}


def delta_at(event: SimpleEvent | ComposedEvent, epsilon: float) -> float:
    """Certified delta at ``epsilon`` >= 0."""
    epsilon = _validate.real("epsilon", epsilon, at_least=0.0)
    by_rdp = rdp.rdp_delta(event, epsilon)
    by_pld = pld.delta_bounds(event, epsilon)
    return by_rdp if by_pld is None else min(by_pld[1], by_rdp)


def _pld_reading(event: SimpleEvent | ComposedEvent, delta: float) -> Reading | None:
    bounds = pld.epsilon_bounds(event, delta)
    if bounds is None:
        return None
    lower, upper = bounds
    return Reading(epsilon=upper, guarantee=True, lower=lower, upper=upper)


def _rdp_reading(event: SimpleEvent | ComposedEvent, delta: float) -> Reading:
    epsilon = rdp.rdp_epsilon(event, delta)
    return Reading(epsilon=epsilon, guarantee=True, upper=epsilon)


def _gdp_reading(event: SimpleEvent | ComposedEvent, delta: float) -> Reading | None:
    found = gdp.event_gdp_mu(event)
    if found is None:
        return None
    gdp_mu, exact = found
    if not math.isfinite(gdp_mu):
        return Reading(epsilon=None, guarantee=False)
    epsilon = gdp.gdp_epsilon(gdp_mu, delta)
    bound = epsilon if exact else None
    return Reading(epsilon=epsilon, guarantee=exact, lower=bound, upper=bound)
