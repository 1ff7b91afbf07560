"""Other units of privacy: groups of records, and replacing a record instead of adding one.

Both follow from a chain of neighbours: data sets that differ by k records are k steps apart, and
replacing a record is removing it and adding another.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq

from privmix import _validate
from privmix.accounting.accountants import account, delta_at
from privmix.accounting.events import (
    ComposedEvent,
    GaussianEvent,
    NeighboringRelation,
    SimpleEvent,
    simple_events,
)

_LARGEST_EPSILON = 5e3


def group_epsilon(event: SimpleEvent | ComposedEvent, delta: float, *, group_size: int) -> float:
    """Certified epsilon for a person with up to ``group_size`` records.

    Under add_or_remove_one: all of them come or go; under replace_one: all change. Plain Gaussian
    mechanisms are exact: the sensitivity is ``group_size`` times one record's. For all others, a
    chain of k neighbours, each (e, d)-close, gives (k e, d (exp(k e) - 1) / (exp(e) - 1))
    (Vadhan, The Complexity of Differential Privacy, 2017, Lemma 2.2), at the best e.

    Args:
        event: Any event.
        delta: In (0, 1).
        group_size: At least 1.

    """
    delta = _validate.delta("delta", delta)
    size = _validate.integer("group_size", group_size)
    parts = simple_events(event)
    if all(isinstance(part, GaussianEvent) for part in parts):
        scaled = [
            part.model_copy(update={"noise_multiplier": part.noise_multiplier / size})
            for part in parts
        ]
        return account(ComposedEvent(events=tuple(scaled)), delta).epsilon
    if size == 1:
        return account(event, delta).epsilon
    return size * _chained_epsilon(event, delta, size)


def _chained_epsilon(event: SimpleEvent | ComposedEvent, delta: float, size: int) -> float:
    """Smallest epsilon of one step whose chain of ``size`` steps is within ``delta``."""

    def log_excess(epsilon: float) -> float:
        step = delta_at(event, epsilon)
        if step <= 0:
            return -math.inf
        # log of (exp(k e) - 1) / (exp(e) - 1), without overflow
        growth = (size - 1) * epsilon + math.log(
            math.expm1(-size * epsilon) / math.expm1(-epsilon) if epsilon > 0 else size
        )
        return math.log(step) + growth - math.log(delta)

    high = 1.0
    while log_excess(high) > 0:
        high *= 2
        if high > _LARGEST_EPSILON:
            _validate.fail(
                "group_size", f"one for which the bound stays below {_LARGEST_EPSILON:g}", size
            )
    if log_excess(0.0) <= 0:
        return 0.0
    clipped = brentq(lambda e: max(log_excess(e), -50.0), 0.0, high, xtol=1e-6, rtol=1e-6)
    # On the safe side of the root, whatever its rounding.
    epsilon = float(clipped)
    while log_excess(epsilon) > 0:
        epsilon = epsilon * (1 + 1e-6) + 1e-9
    return epsilon


def epsilon_under(
    event: SimpleEvent | ComposedEvent, relation: NeighboringRelation, delta: float
) -> float:
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
        names = ", ".join(sorted({part.mechanism for part in simple_events(event)}))
        _validate.fail(
            "relation", f"replace_one: nothing follows for {names} under another", relation
        )
    return group_epsilon(event, delta, group_size=2)
