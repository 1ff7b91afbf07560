"""All accountants side by side, and the epsilon that may be certified."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.accounting import gdp, pld, rdp
from privmix.accounting.events import (
    ComposedEvent,
    Event,
    GroupEvent,
    NeighboringRelation,
    SimpleEvent,
    per_record,
    simple_events,
)
from privmix.accounting.group import chained_delta, chained_epsilon, group_view, presence_view

CERTIFICATE_DELTAS: tuple[float, ...] = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
_KEPT = 512  # answers: what is planned is stated, certified and verified by the same numbers


class Reading(FrozenModel):
    """What one accountant says of an event at one delta.

    Attributes:
        epsilon: Its epsilon; None where it gives none.
        guarantee: Whether the mechanism is certainly (epsilon, delta)-DP.
        lower: Proved lower bound on the epsilon of the dominating pair, if any; none of events of so
            many mechanisms that fewer, which dominate them, were looked at.
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


def account(event: Event, delta: float) -> Accounting:
    """Account for an event at ``delta``: the smallest valid upper bound is certified.

    ``delta`` must lie in (0, 1). An epsilon that would be negative is reported as 0. A
    ``GroupEvent`` is accounted for as :mod:`privmix.accounting.group` says.

    Example:
        >>> from privmix.accounting import PoissonGaussianEvent, account
        >>> event = PoissonGaussianEvent(sampling_prob=0.01, noise_multiplier=1.0, count=1000)
        >>> accounting = account(event, delta=1e-5)
        >>> round(accounting.epsilon, 2)
        1.83
        >>> accounting.accountants["gdp"].guarantee
        False

    """
    found = _accounted(event, _validate.delta("delta", delta))
    return found.model_copy(update={"accountants": dict(found.accountants)})


@lru_cache(maxsize=_KEPT)
def _accounted(event: Event, delta: float) -> Accounting:
    inner, size, is_exact = group_view(event)
    by_gdp, guess = _gdp_reading(event, delta), float(size)
    if size == 1:
        by_rdp: Reading | None = _rdp_reading(inner, delta)
        by_pld = _pld_reading(inner, delta)
    else:
        curves = _rdp_curve(inner), pld.delta_curve(inner)
        by_rdp, by_pld, guess = _chained_readings(curves, by_gdp, delta, size)
    presence = presence_view(event)
    if presence is not None:
        step, chain = presence
        by_pld = _smaller(by_pld, _chained(pld.delta_curve(step), delta, chain, guess))
    readings = {"pld": by_pld, "rdp": by_rdp, "gdp": by_gdp}
    if not is_exact:
        readings = {
            name: reading and reading.model_copy(update={"lower": None})
            for name, reading in readings.items()
        }
    return Accounting(
        epsilon=_certified(readings.values(), size),
        delta=delta,
        neighboring_relation=event.neighboring_relation,
        accountants=readings,
    )


def epsilon_at(event: Event, deltas: Iterable[float] = CERTIFICATE_DELTAS) -> dict[float, float]:
    """Certified epsilons at several deltas, keyed by delta.

    Example:
        >>> from privmix.accounting import GaussianEvent, epsilon_at
        >>> found = epsilon_at(GaussianEvent(noise_multiplier=4.0), [1e-5, 1e-9])
        >>> {delta: round(epsilon, 3) for delta, epsilon in found.items()}
        {1e-05: 0.926, 1e-09: 1.396}

    """
    wanted = tuple(_validate.delta("delta", delta) for delta in deltas)
    return dict(zip(wanted, _epsilons_at(event, wanted), strict=True))


@lru_cache(maxsize=_KEPT)
def _epsilons_at(event: Event, deltas: tuple[float, ...]) -> tuple[float, ...]:
    if presence_view(event) is not None:
        return tuple(account(event, delta).epsilon for delta in deltas)
    event, size, _ = group_view(event)
    if size > 1:
        curves = _rdp_curve(event), pld.delta_curve(event)  # which serve all deltas
        outer = GroupEvent(unit="group", group_size=size, event=event)
        found = []
        for delta in deltas:
            readings = _chained_readings(curves, _gdp_reading(outer, delta), delta, size)[:2]
            found.append(_certified(readings, size))
        return tuple(found)
    by_rdp = [rdp.rdp_epsilon(event, delta) for delta in deltas]
    by_pld = pld.epsilon_upper(event, deltas) or by_rdp
    return tuple(min(p, r) for p, r in zip(by_pld, by_rdp, strict=True))


def delta_at(event: Event, epsilon: float) -> float:
    """Certified delta at ``epsilon`` >= 0.

    Example:
        >>> from privmix.accounting import GaussianEvent, delta_at
        >>> f"{delta_at(GaussianEvent(noise_multiplier=4.0), 1.0):.2e}"
        '2.92e-06'

    """
    epsilon = _validate.real("epsilon", epsilon, at_least=0.0)
    inner, size, _ = group_view(event)
    by_rdp = rdp.rdp_delta(inner, epsilon / size)
    by_pld = pld.delta_bounds(inner, epsilon / size)
    found = by_rdp if by_pld is None else min(by_pld[1], by_rdp)
    found = found if size == 1 else chained_delta(found, epsilon, size)
    presence = presence_view(event)
    if presence is not None:
        step = pld.delta_bounds(presence[0], epsilon / presence[1])
        found = min(found, 1.0 if step is None else chained_delta(step[1], epsilon, presence[1]))
    return found


def delta_profile(event: Event, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
    """Certified deltas at increasing ``epsilons`` >= 0, faster than one by one."""
    return _profile(event, tuple(epsilons.tolist())).copy()


@lru_cache(maxsize=_KEPT // 2)
def _profile(event: Event, at: tuple[float, ...]) -> NDArray[np.float64]:
    epsilons = np.array(at)
    inner, size, _ = group_view(event)
    deltas = _chained_profile(inner, epsilons, size)
    presence = presence_view(event)
    return (
        deltas
        if presence is None
        else np.minimum(deltas, _chained_profile(presence[0], epsilons, presence[1]))
    )


def group_epsilon(event: Event, delta: float, *, group_size: int) -> float:
    """Certified epsilon for a person with up to ``group_size`` records.

    Under add_or_remove_one: all of them come or go; under replace_one: all change. Exact for plain
    Gaussian mechanisms, a chain of neighbours for all others; see :mod:`privmix.accounting.group`.

    Args:
        event: Any event; of a ``GroupEvent``, ``group_size`` owners are taken together.
        delta: In (0, 1).
        group_size: At least 1.

    Example:
        >>> from privmix.accounting import GaussianEvent, group_epsilon
        >>> round(group_epsilon(GaussianEvent(noise_multiplier=4.0), 1e-5, group_size=2), 3)
        1.993

    """
    size = _validate.integer("group_size", group_size)
    inner, own = per_record(event)
    outer = GroupEvent(unit="group", group_size=size * own, event=inner)
    return account(outer, _validate.delta("delta", delta)).epsilon


def epsilon_under(event: Event, relation: NeighboringRelation, delta: float) -> float:
    """Certified epsilon under another neighbouring relation, where a valid bound exists.

    From add_or_remove_one to replace_one: replacing is removing and adding, a chain of two; for
    plain Gaussian mechanisms the sensitivity doubles, as two vectors within the clip norm differ by
    at most twice its length. From replace_one to add_or_remove_one there is no bound: such
    mechanisms may depend on the number of records as they like.

    Raises:
        InvalidInputError: No valid bound exists.

    """
    _validate.one_of("relation", relation, ("add_or_remove_one", "replace_one"))
    if relation == event.neighboring_relation:
        return account(event, delta).epsilon
    if relation == "add_or_remove_one":
        inner, _ = per_record(event)
        names = ", ".join(sorted({part.mechanism for part in simple_events(inner)}))
        _validate.fail(
            "relation", f"replace_one: nothing follows for {names} under another", relation
        )
    return group_epsilon(event, delta, group_size=2)


def _chained_profile(
    event: SimpleEvent | ComposedEvent, epsilons: NDArray[np.float64], size: int
) -> NDArray[np.float64]:
    deltas = pld.delta_profile(event, epsilons / size)
    if deltas is None:
        deltas = rdp.rdp_deltas(event, epsilons / size)
    if size > 1:
        pairs = zip(deltas, epsilons, strict=True)
        deltas = np.array([chained_delta(float(d), float(e), size) for d, e in pairs])
    return deltas


def _smaller(first: Reading | None, second: Reading | None) -> Reading | None:
    """The smaller of two upper bounds of one event; what bounds one from below is not kept."""
    uppers = [r.upper for r in (first, second) if r is not None and r.upper is not None]
    return Reading(epsilon=min(uppers), guarantee=True, upper=min(uppers)) if uppers else None


def _rdp_curve(event: SimpleEvent | ComposedEvent) -> Callable[[float], float]:
    return lambda epsilon: rdp.rdp_delta(event, epsilon)


def _certified(readings: Iterable[Reading | None], size: int) -> float:
    """The smallest upper bound of all."""
    uppers = [r.upper for r in readings if r is not None and r.upper is not None]
    if not uppers:
        allowed = "one for which the bound stays below 5000 for each record"
        _validate.fail("group_size", allowed, size)
    return min(uppers)


def _chained_readings(
    curves: tuple[Callable[[float], float], Callable[[float], float]],
    by_gdp: Reading | None,
    delta: float,
    size: int,
) -> tuple[Reading | None, Reading | None, float]:
    """What RDP and PLD say of a chain, by one step's curves of delta; and where the latter was looked for."""
    by_rdp = _chained(curves[0], delta, size, float(size))
    guess = _guess(by_gdp, by_rdp, float(size))
    return by_rdp, _chained(curves[1], delta, size, guess), guess


def _guess(by_gdp: Reading | None, by_rdp: Reading | None, default: float) -> float:
    """Where to look for a chain's epsilon: at the central limit's, which is seldom above."""
    readings = [one.epsilon for one in (by_gdp, by_rdp) if one is not None]
    return min([epsilon for epsilon in readings if epsilon is not None], default=default)


def _chained(
    curve: Callable[[float], float], delta: float, size: int, guess: float
) -> Reading | None:
    epsilon = chained_epsilon(curve, delta, size, guess)
    return None if epsilon is None else Reading(epsilon=epsilon, guarantee=True, upper=epsilon)


def _pld_reading(event: SimpleEvent | ComposedEvent, delta: float) -> Reading | None:
    bounds = pld.epsilon_bounds(event, delta)
    if bounds is None:
        return None
    lower, upper = bounds
    return Reading(epsilon=upper, guarantee=True, lower=lower, upper=upper)


def _rdp_reading(event: SimpleEvent | ComposedEvent, delta: float) -> Reading:
    epsilon = rdp.rdp_epsilon(event, delta)
    return Reading(epsilon=epsilon, guarantee=True, upper=epsilon)


def _gdp_reading(event: Event, delta: float) -> Reading | None:
    found = gdp.event_gdp_mu(event)
    if found is None:
        return None
    gdp_mu, exact = found
    if not math.isfinite(gdp_mu):
        return Reading(epsilon=None, guarantee=False)
    epsilon = gdp.gdp_epsilon(gdp_mu, delta)
    bound = epsilon if exact else None
    return Reading(epsilon=epsilon, guarantee=exact, lower=bound, upper=bound)
