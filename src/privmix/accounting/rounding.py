"""Numbers of a guarantee as text: rounded up, so that what is printed is never less than what holds."""

from __future__ import annotations

import decimal
import math

from privmix import _validate

_MOST_DIGITS = 15  # decimal digits that every double keeps


def rounded_up(value: float, digits: int) -> float:
    """Return ``value`` rounded up to ``digits`` significant decimal digits.

    The result is at least ``value``, and formatting it by ``f"{...:.{digits}g}"`` gives exactly the
    decimal number that was rounded to. Zero and infinity stay.

    Args:
        value: An upper bound: an epsilon, a delta, a rate of an attacker. Not NaN.
        digits: 1 to 15.

    """
    return _rounded(value, digits, decimal.ROUND_CEILING)


def rounded_down(value: float, digits: int) -> float:
    """Return ``value`` rounded down, a lower bound; otherwise as :func:`rounded_up`."""
    return _rounded(value, digits, decimal.ROUND_FLOOR)


def _rounded(value: float, digits: int, rounding: str) -> float:
    digits = _validate.integer("digits", digits, at_most=_MOST_DIGITS)
    if math.isnan(value):
        _validate.fail("value", "a number", value)
    if math.isinf(value) or value == 0.0:
        return value
    # The traps are this context's own: a thread's settings do not matter.
    context = decimal.Context(prec=digits, rounding=rounding)
    return float(context.create_decimal(decimal.Decimal(value)))


def format_epsilon(value: float, digits: int = 6) -> str:
    """Return an epsilon (a delta, any upper bound) as text that states no less than ``value``.

    As ``f"{value:.{digits}g}"``, rounded up instead of to the nearest.
    """
    return f"{rounded_up(value, digits):.{digits}g}"
