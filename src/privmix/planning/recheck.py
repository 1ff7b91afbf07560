"""Check what a plan states of its guarantee against what its mechanism gives.

A plan comes out of a file, which may have been edited. One that states less epsilon than it costs would
make a false promise; one that states more, or the epsilon of another delta, would be run and charged, and
then stand beside a certificate that disagrees with it. Both are refused before anything is spent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from privmix import _validate
from privmix.accounting import Event, Reading, Risk, account
from privmix.accounting.guarantee import number
from privmix.accounting.stated import stated_epsilon

# Two machines' accountants agree far better than this.
_TOLERANCE = 1e-6


def recheck(
    event: Event,
    epsilon: float,
    delta: float,
    accountants: Mapping[str, Reading | None],
    risk: Risk | None = None,
) -> None:
    """Account for an event anew, and refuse other statements than the accountants' own.

    Args:
        event: What the plan's parameters give.
        epsilon: Stated as certified.
        delta: Stated beside it.
        accountants: Stated as each accountant's reading.
        risk: What the plan says that an attacker gains at most, if it says so.

    Raises:
        InvalidInputError: The first statement that differs by more than rounding.

    """
    if risk is not None and (gained := risk.of(event)) > risk.most:
        _validate.fail("plan.risk", f"at least {gained!r}, which an attacker may gain", risk.most)
    due = account(event, delta)
    # Too little is too little to the last bit that a certificate states.
    if due.epsilon > stated_epsilon(epsilon) or not _same(epsilon, due.epsilon):
        allowed = f"{due.epsilon!r}, what the mechanism costs at delta {number(delta)}"
        _validate.fail("plan.epsilon", allowed, epsilon)
    for name in sorted({*accountants, *due.accountants}):
        stated, reading = accountants.get(name), due.accountants.get(name)
        facts = [{} if one is None else one.model_dump() for one in (stated, reading)]
        for field in sorted(set().union(*facts)):
            found, expected = (each.get(field) for each in facts)
            if not _same(found, expected):
                allowed = f"{expected!r}, what the mechanism gives at delta {number(delta)}"
                _validate.fail(f"plan.accountants.{name}.{field}", allowed, found)


def _same(stated: object, due: object) -> bool:
    numbers = (int, float)
    if isinstance(stated, numbers) and isinstance(due, numbers) and not isinstance(due, bool):
        return math.isclose(stated, due, rel_tol=_TOLERANCE)
    return stated == due
