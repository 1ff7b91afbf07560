"""Groups of records: what an owner of several of them loses.

Data sets that differ by k records are a chain of k steps, each of one record. If every step is
(e, d)-close, the ends are (k e, d (exp(k e) - 1) / (exp(e) - 1))-close (Vadhan, The Complexity of
Differential Privacy, 2017, Lemma 2.2). For plain Gaussian mechanisms the sensitivity of k records is
k times one record's, which is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from privmix.accounting.events import (
    AllocationGaussianEvent,
    ComposedEvent,
    Event,
    GaussianEvent,
    SimpleEvent,
    few_events,
    per_record,
    simple_events,
)
from privmix.accounting.search import root

_SMALLEST_EPSILON, _LARGEST_EPSILON = 1e-9, 5e3
_SHORT_STRIDE = 1.1


class GroupView(NamedTuple):
    """A mechanism, and how long a chain of its neighbours is to be taken.

    Attributes:
        event: The mechanism.
        chain: Length of the chain.
        is_exact: False where the mechanism only dominates the event, few as the accountants can take
            at a time: what bounds it from below says nothing of the event.

    """

    event: SimpleEvent | ComposedEvent
    chain: int
    is_exact: bool


def group_view(event: Event) -> GroupView:
    """Return what accountants look at in place of an event.

    The chain is 1 for events of records, and for groups in plain Gaussian mechanisms, whose noise
    multipliers are divided by the group's size instead.
    """
    inner, size = per_record(event)
    parts = simple_events(inner)
    if size > 1 and all(isinstance(part, GaussianEvent) for part in parts):
        scaled = [
            part.model_copy(update={"noise_multiplier": part.noise_multiplier / size})
            for part in parts
        ]
        return GroupView(ComposedEvent(events=tuple(scaled)), 1, is_exact=True)
    few = few_events(parts)
    if few == parts:
        return GroupView(inner, size, is_exact=True)
    return GroupView(ComposedEvent(events=tuple(few)), size, is_exact=False)


def presence_view(event: Event) -> tuple[ComposedEvent, int] | None:
    """Random allocation under replace_one, as removing a record and adding another.

    Returns the mechanism under add_or_remove_one and the length of the chain of its neighbours; None
    unless all parts are such. A second valid bound beside the one of :func:`group_view`, which takes
    the chosen rows for known.
    """
    inner, size = per_record(event)
    changed = []
    for part in simple_events(inner):
        if not isinstance(part, AllocationGaussianEvent) or part.presence_noise_multiplier is None:
            return None
        changed.append(
            AllocationGaussianEvent(
                num_rows=part.num_rows,
                rows_per_record=part.rows_per_record,
                noise_multiplier=part.presence_noise_multiplier,
                count=part.count,
            )
        )
    return ComposedEvent(events=tuple(changed)), 2 * size


def chained_delta(step_delta: float, epsilon: float, size: int) -> float:
    """Delta of a chain at ``epsilon``, from one step's delta at ``epsilon / size``."""
    if step_delta <= 0:
        return 0.0
    log_delta = math.log(step_delta) + _log_growth(epsilon / size, size)
    return math.exp(min(log_delta, 0.0)) * (1 + 1e-12)


def chained_epsilon(
    step_delta: Callable[[float], float], delta: float, size: int, guess: float
) -> float | None:
    """Smallest epsilon of a chain within ``delta``, given one step's delta at any epsilon.

    None if none is found below 5000 a step. ``guess`` is where the search begins: a step's delta is
    known to be small, not to be zero, so that far above the answer no chain seems to be within ``delta``.
    """
    remembered = cache(step_delta)  # the ends of the search are asked for again and again

    def log_excess(epsilon: float, growth_at: float | None = None) -> float:
        step = remembered(epsilon)
        if step <= 0:
            return -math.inf
        growth = _log_growth(epsilon if growth_at is None else growth_at, size)
        return math.log(step) + growth - math.log(delta)

    start = min(max(guess / size, _SMALLEST_EPSILON), _LARGEST_EPSILON)
    found = _within(log_excess, start)
    if found is None:  # long strides may pass a narrow window
        found = _by_short_strides(log_excess, lambda epsilon: log_excess(epsilon, 0.0))
    if found is None:
        return None
    low, high = found
    if low == 0.0:
        return 0.0 if log_excess(0.0) <= 0 else size * high
    epsilon = root(lambda e: max(log_excess(e), -50.0), low, high, xtol=1e-12, rtol=1e-7)
    # On the safe side of the root, whatever its rounding.
    while log_excess(epsilon) > 0:
        epsilon *= 1 + 1e-7
    return size * epsilon


def _within(log_excess: Callable[[float], float], start: float) -> tuple[float, float] | None:
    """An epsilon beyond the limit and a larger one within it, by ever longer strides from ``start``.

    The former is 0 where even the smallest epsilon that is told apart is within the limit.
    """
    at, above, factor = start, start, 1.01
    while log_excess(at) > 0:
        above, at, factor = at, at * factor, min(factor**1.5, 4.0)
        if at > _LARGEST_EPSILON:
            break
    else:
        if at > start:
            return above, at
        return _down(log_excess, start)
    # Nothing above: then below, unless ``start`` is too small already.
    at, factor = start, 1.01
    while log_excess(at) > 0:
        at, factor = at / factor, min(factor**1.5, 2.0)
        if at < _SMALLEST_EPSILON:
            return None
    return _down(log_excess, at)


def _by_short_strides(
    log_excess: Callable[[float], float], least_below: Callable[[float], float]
) -> tuple[float, float] | None:
    """The same, upwards from where the first epsilon within the limit can lie.

    ``least_below`` bounds the excess of all smaller epsilons from below: there a step's delta is not
    smaller, and a chain of k steps multiplies it by k at least.
    """
    low, high = _SMALLEST_EPSILON, _LARGEST_EPSILON
    if least_below(high) > 0:
        return None
    while high > _SHORT_STRIDE * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if least_below(middle) > 0 else (low, middle)
    while log_excess(low) > 0:
        low *= _SHORT_STRIDE
        if low > _LARGEST_EPSILON:
            return None
    return _down(log_excess, low)


def _down(log_excess: Callable[[float], float], high: float) -> tuple[float, float]:
    """The same, from an epsilon that is within the limit."""
    low, factor = high, 1.01
    while low > _SMALLEST_EPSILON:
        low, factor = low / factor, min(factor**1.5, 4.0)
        if log_excess(low) > 0:
            return low, high
        high = low
    return 0.0, high


def _log_growth(epsilon: float, size: int) -> float:
    """Log of (exp(k e) - 1) / (exp(e) - 1), without overflow."""
    if epsilon <= 0:
        return math.log(size)
    ratio = math.expm1(-size * epsilon) / math.expm1(-epsilon)
    return (size - 1) * epsilon + math.log(ratio)
