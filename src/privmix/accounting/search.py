"""Roots and minima of functions of one variable, by Brent's methods.

SciPy has the same methods, in a package that takes longer to load than most of what is asked here
takes to answer. The steps are taken in the same arithmetic, so that not a bit differs from it.

Source: R. P. Brent, Algorithms for Minimization without Derivatives, 1973, chapters 4 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_MOST_STEPS = 500
_GOLDEN = (3.0 - math.sqrt(5.0)) / 2.0
_SQRT_EPSILON = math.sqrt(2.2e-16)
_FEW_BITS = 2.0**-50  # four units in the last place of one


def root(
    function: Callable[[float], float],
    low: float,
    high: float,
    *,
    xtol: float = 2e-12,
    rtol: float = _FEW_BITS,
) -> float:
    """Find where a continuous function changes its sign.

    Args:
        function: Of opposite signs, or zero, at both ends.
        low: One end.
        high: The other.
        xtol: Absolute tolerance of the root.
        rtol: Relative tolerance, added to it.

    Raises:
        ValueError: The ends have the same sign, or a value is not a number.

    """
    old, new = low, high
    f_old, f_new = _number(function, old), _number(function, new)
    if f_old == 0.0:
        return old
    if f_new == 0.0:
        return new
    if (f_old < 0.0) == (f_new < 0.0):
        raise ValueError("the function has the same sign at both ends")
    far, f_far, before, step = old, f_old, new - old, new - old
    for _ in range(_MOST_STEPS):
        if f_old != 0.0 and (f_old < 0.0) != (f_new < 0.0):
            far, f_far = old, f_old
            before = step = new - old
        if abs(f_far) < abs(f_new):  # the better end is the new one
            old, new, far = new, far, new
            f_old, f_new, f_far = f_new, f_far, f_new
        least = (xtol + rtol * abs(new)) / 2.0
        half = (far - new) / 2.0
        if f_new == 0.0 or abs(half) < least:
            return new
        tried = math.inf
        if abs(before) > least and abs(f_new) < abs(f_old):
            if old == far:  # secant
                above, below = -f_new * (new - old), f_new - f_old
            else:  # inverse quadratic
                to_old = (f_old - f_new) / (old - new)
                to_far = (f_far - f_new) / (far - new)
                above = -f_new * (f_far * to_far - f_old * to_old)
                below = to_far * to_old * (f_far - f_old)
            tried = above / below if below != 0.0 else math.inf
        if 2.0 * abs(tried) < min(abs(before), 3.0 * abs(half) - least):
            before, step = step, tried
        else:
            before = step = half
        old, f_old = new, f_new
        new += step if abs(step) > least else math.copysign(least, half)
        f_new = _number(function, new)
    return new


def minimum(
    function: Callable[[float], float], low: float, high: float, *, xtol: float
) -> tuple[float, float]:
    """Find a local minimum between two ends: where it is, and its value.

    Args:
        function: Of one minimum, if the global one is wanted.
        low: The lower end.
        high: The upper end.
        xtol: Absolute tolerance of the place.

    """
    best = second = third = low + _GOLDEN * (high - low)
    f_best = f_second = f_third = function(best)
    step = before = 0.0
    for _ in range(_MOST_STEPS):
        middle = 0.5 * (low + high)
        least = _SQRT_EPSILON * abs(best) + xtol / 3.0
        if abs(best - middle) <= 2.0 * least - 0.5 * (high - low):
            break
        parabola = False
        if abs(before) > least:
            r = (best - second) * (f_best - f_third)
            q = (best - third) * (f_best - f_second)
            p = (best - third) * q - (best - second) * r
            q = 2.0 * (q - r)
            p, q = (-p if q > 0.0 else p), abs(q)
            before, last = step, before
            parabola = abs(p) < abs(0.5 * q * last) and q * (low - best) < p < q * (high - best)
            if parabola:
                step = p / q
                x = best + step
                if x - low < 2.0 * least or high - x < 2.0 * least:
                    step = least if middle >= best else -least
        if not parabola:  # a golden section of the larger side
            before = low - best if best >= middle else high - best
            step = _GOLDEN * before
        x = best + (max(abs(step), least) if step >= 0.0 else -max(abs(step), least))
        value = function(x)
        if value <= f_best:
            low, high = (best, high) if x >= best else (low, best)
            third, f_third, second, f_second = second, f_second, best, f_best
            best, f_best = x, value
            continue
        low, high = (x, high) if x < best else (low, x)
        if value <= f_second or second == best:
            third, f_third, second, f_second = second, f_second, x, value
        elif value <= f_third or third in (best, second):
            third, f_third = x, value
    return best, f_best


def _number(function: Callable[[float], float], x: float) -> float:
    value = function(x)
    if math.isnan(value):
        raise ValueError(f"the function is not a number at {x}")
    return value
