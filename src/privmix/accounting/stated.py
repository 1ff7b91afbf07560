"""Numbers of the accountants as a certificate states them: on a coarse grid, always the safe way.

A recheck on another machine sees the same algorithm with other last bits (another FFT, another
libm). So a stated bound is the computed one with a margin larger than such differences, rounded to
few digits the safe way: a recheck can then demand that the statement bounds what it computes
itself, without any tolerance, and that it is a number that a machine within half the margin would
have stated. A smaller epsilon is no such number, by however little it is smaller.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.accounting.accountants import CERTIFICATE_DELTAS, Reading, account, epsilon_at
from privmix.accounting.events import Event
from privmix.accounting.rounding import rounded_down, rounded_up
from privmix.accounting.tradeoff import tradeoff_curve

# Relative; the accountants of two machines differ by less than half of it. Rates of the trade-off
# curve near its ends are differences of deltas, which carry fewer digits.
_MARGIN, _DIGITS = 1e-6, 6
_RATE_MARGIN, _RATE_DIGITS = 1e-5, 5
_CURVE_POINTS = 33
_MOST_POINTS = 1000
# Differences of other machines, in parts of the margin.
_SHIFTS = (0.0, -0.5, 0.5)


class TradeoffCurve(FrozenModel):
    """Certified lower bound of the trade-off function (f-DP), point by point."""

    false_positive_rate: tuple[float, ...]
    false_negative_rate: tuple[float, ...]

    @model_validator(mode="after")
    def _check(self) -> Self:
        alarms, misses = self.false_positive_rate, self.false_negative_rate
        if not 2 <= len(alarms) == len(misses) <= _MOST_POINTS:
            allowed = f"2 to {_MOST_POINTS} rates, as many of both kinds"
            _validate.fail("tradeoff_curve", allowed, f"{len(alarms)} and {len(misses)}")
        if not all(0.0 <= rate <= 1.0 for rate in (*alarms, *misses)):
            _validate.fail("tradeoff_curve", "rates in [0, 1]", "others")
        if list(alarms) != sorted(alarms):
            _validate.fail("false_positive_rate", "rates that do not fall", "others")
        return self

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Return a bound on what any attacker reaches at a rate of false alarms."""
        return 1.0 - float(
            np.interp(false_positive_rate, self.false_positive_rate, self.false_negative_rate)
        )


class Statement(NamedTuple):
    """What a certificate states of its event; every number bounds the computed one the safe way.

    Attributes:
        epsilon: At the certificate's delta.
        accountants: What each accountant says.
        epsilon_by_delta: Epsilons by delta, which is written with all its digits.
        tradeoff_curve: The trade-off curve.

    """

    epsilon: float
    accountants: dict[str, Reading | None]
    epsilon_by_delta: dict[str, float]
    tradeoff_curve: TradeoffCurve


def statements(event: Event, delta: float) -> tuple[Statement, ...]:
    """Account for an event, and state it: first as this machine does, then as others may.

    All of them bound what this machine computes.
    """
    found = account(event, delta)
    by_delta = epsilon_at(event, CERTIFICATE_DELTAS) | {delta: found.epsilon}
    curve = tradeoff_curve(event, num_points=_CURVE_POINTS)

    def state(shift: float) -> Statement:
        return Statement(
            epsilon=stated_epsilon(found.epsilon, shift),
            accountants={
                name: None if reading is None else _reading(reading, shift)
                for name, reading in found.accountants.items()
            },
            epsilon_by_delta={repr(d): stated_epsilon(e, shift) for d, e in by_delta.items()},
            tradeoff_curve=_curve(*curve, shift),
        )

    return tuple(map(state, _SHIFTS))


def stated_epsilon(epsilon: float, shift: float = 0.0) -> float:
    """Return an upper bound as it is stated: with a margin, rounded up to six digits."""
    return rounded_up(epsilon * (1 + shift * _MARGIN) * (1 + _MARGIN), _DIGITS)


def _reading(reading: Reading, shift: float) -> Reading:
    epsilon, lower, upper = reading.epsilon, reading.lower, reading.upper
    below = None
    if lower is not None:
        below = rounded_down(lower * (1 - shift * _MARGIN) * (1 - _MARGIN), _DIGITS)
    return Reading(
        epsilon=None if epsilon is None else stated_epsilon(epsilon, shift),
        guarantee=reading.guarantee,
        lower=below,
        upper=None if upper is None else stated_epsilon(upper, shift),
    )


def _curve(
    false_positive: NDArray[np.float64], false_negative: NDArray[np.float64], shift: float
) -> TradeoffCurve:
    """State a curve by its corners, both of whose rates are rounded down.

    The line between two corners so moved is below the line that was there, whose slope is negative,
    and that line is below the whole curve, which is convex.
    """
    return TradeoffCurve(
        false_positive_rate=tuple(_lower_rate(float(rate), shift) for rate in false_positive),
        false_negative_rate=tuple(_lower_rate(float(rate), shift) for rate in false_negative),
    )


def _lower_rate(rate: float, shift: float) -> float:
    """Round a rate down, in digits of what it is away from 0 or from 1, whichever is less."""
    if rate <= 0.5:
        return rounded_down(rate * (1 - shift * _RATE_MARGIN) * (1 - _RATE_MARGIN), _RATE_DIGITS)
    missing = (1.0 - rate) * (1 + shift * _RATE_MARGIN) * (1 + _RATE_MARGIN)
    return 1.0 - rounded_up(missing, _RATE_DIGITS)
