"""What is printed is never less than what holds."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privmix import InvalidInputError
from privmix.accounting import format_epsilon, rounded_up
from privmix.accounting.rounding import rounded_down


def test_rounding_is_up_where_the_nearest_is_below():
    assert f"{1.0000001:.3g}" == "1"
    assert format_epsilon(1.0000001, 3) == "1.01"
    assert format_epsilon(0.99999949) == "1"
    assert format_epsilon(1.2345601e-5, 6) == "1.23457e-05"
    assert rounded_up(123456.4, 3) == 124000.0


def test_what_has_few_digits_stays():
    for value, text in [(1.0, "1"), (0.5, "0.5"), (8.0, "8"), (1234.0, "1234"), (0.0, "0")]:
        assert format_epsilon(value) == text
    assert format_epsilon(float("inf")) == "inf"


@pytest.mark.parametrize("digits", [1, 3, 6, 12, 15])
def test_the_text_is_at_least_the_value_and_within_one_unit(digits):
    rng = np.random.default_rng(5)
    for value in 10.0 ** rng.uniform(-300, 300, 300):
        text = format_epsilon(float(value), digits)
        assert Decimal(text) >= Decimal(float(value))
        assert float(text) == rounded_up(float(value), digits) >= value
        assert Decimal(text) <= Decimal(float(value)) * (1 + Decimal(10) ** (1 - digits))


@pytest.mark.parametrize("digits", [0, 16, 2.0, True])
def test_digits_out_of_range(digits):
    with pytest.raises(InvalidInputError, match="digits"):
        rounded_up(1.0, digits)


def test_nan_is_refused():
    with pytest.raises(InvalidInputError, match="value"):
        rounded_up(float("nan"), 3)


@given(st.floats(1e-300, 1e300), st.integers(1, 15))
def test_rounded_down_is_never_above_and_next_to_rounded_up(value, digits):
    low, high = rounded_down(value, digits), rounded_up(value, digits)
    assert low <= value <= high
    assert high - low <= 11 * value * 10.0**-digits
