"""Roots and minima, bit by bit those of SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from privmix.accounting.search import minimum, root

real = st.floats(-3, 3)
FUNCTIONS = [
    lambda x, a, b: math.expm1(a * x) - b,
    lambda x, a, b: math.atan(x - a) + 0.01 * x - b / 9,
    lambda x, a, b: (x - a) ** 3 - b,
    lambda x, a, b: math.copysign(abs(x - a) ** 0.2, x - a) + b / 50,
    lambda x, a, b: math.floor(4 * x) - a,
]


@pytest.mark.parametrize("function", FUNCTIONS)
@given(a=real, b=real, tolerance=st.sampled_from([(2e-12, 2.0**-50), (1e-14, 1e-7), (1e-3, 1e-15)]))
def test_a_root(function, a, b, tolerance):
    xtol, rtol = tolerance
    low, high = -5.0, 7.0
    ends = function(low, a, b), function(high, a, b)
    if min(ends) > 0 or max(ends) < 0:
        with pytest.raises(ValueError, match="same sign"):
            root(lambda x: function(x, a, b), low, high)
        return
    found, due = [], []
    here = root(lambda x: found.append(x) or function(x, a, b), low, high, xtol=xtol, rtol=rtol)
    theirs = optimize.brentq(
        lambda x: due.append(x) or function(x, a, b), low, high, xtol=xtol, rtol=rtol, maxiter=500
    )
    assert here == theirs
    assert found == due


def test_a_root_at_an_end_and_no_number():
    assert root(lambda x: x, 0.0, 1.0) == 0.0
    assert root(lambda x: x - 1, 0.0, 1.0) == 1.0
    assert root(lambda x: 1 - x, 3.0, -1.0) == 1.0
    with pytest.raises(ValueError, match="not a number"):
        root(lambda x: math.nan, 0.0, 1.0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, a, b: math.cosh(x - a) + b * x,
        lambda x, a, b: abs(x - a) + b,
        lambda x, a, b: math.sin(a * x) + 0.1 * b * x,
        lambda x, a, b: math.inf if x > a + 3 else (x - b) ** 2,
        lambda x, a, b: round(x - a) ** 2 + b,
        lambda x, a, b: a * x,
    ],
)
@given(a=real, b=real, xtol=st.sampled_from([0.02, 1e-5]))
def test_a_minimum(function, a, b, xtol):
    found, due = [], []
    here = minimum(lambda x: found.append(x) or function(x, a, b), -5.0, 7.0, xtol=xtol)
    with np.errstate(all="ignore"):
        theirs = optimize.minimize_scalar(
            lambda x: due.append(x) or function(x, a, b),
            bounds=(-5.0, 7.0),
            method="bounded",
            options={"xatol": xtol},
        )
    assert here == (theirs.x, theirs.fun)
    assert found == due
