import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privmix.features.density import Density


def shares_of(density, bins):
    """What bins around evenly spaced middles have of it."""
    middles = np.linspace(-1, 1, bins)
    return np.array(
        [density.masses @ np.interp(density.points, middles, np.eye(bins)[j]) for j in range(bins)]
    )


@given(st.lists(st.floats(0.001, 1), min_size=2, max_size=16))
def test_it_has_the_shares_that_it_was_made_of(given_shares):
    shares = np.array(given_shares) / sum(given_shares)
    density = Density.of_bins(shares)
    assert density.masses.min() >= 0 and density.masses.sum() == pytest.approx(1)
    np.testing.assert_allclose(shares_of(density, len(shares)), shares, atol=1e-4)


def test_even_shares_are_nearly_flat():
    """The bins at the bounds are half as wide."""
    shares = np.array([0.5, 1, 1, 1, 0.5]) / 4
    density = Density.of_bins(shares)
    assert np.ptp(density.masses[1:-1]) < 0.5 * density.masses[1:-1].mean()
    np.testing.assert_allclose(
        density.quantiles(np.array([0.25, 0.5, 0.75])), [-0.5, 0, 0.5], atol=0.03
    )


def test_a_heap_at_a_bound_stays_there():
    density = Density.of_bins(np.array([0.95, 0.0, 0.0, 0.02, 0.03]))
    assert density.masses[0] > 0.9
    assert (density.quantiles(np.linspace(0, 0.9, 10)) == -1).all()


@pytest.mark.parametrize("shares", [[0.0, 0.0, 0.0], [-0.1, -0.2, -0.3]])
def test_bins_that_noise_has_emptied_say_nothing(shares):
    density = Density.of_bins(np.array(shares))
    np.testing.assert_allclose(shares_of(density, 3), 1 / 3, atol=1e-3)


def test_shares_below_nothing_are_nothing():
    noisy, clean = (Density.of_bins(np.array([s, 0.4, 0.6])) for s in (-0.05, 0.0))
    np.testing.assert_allclose(noisy.masses, clean.masses)
    places = np.linspace(0, 1, 50)
    assert (np.diff(clean.quantiles(places)) >= 0).all()
    assert clean.quantiles(np.array([1.0]))[0] <= 1


def test_numbers_lie_between_points_too():
    """So that synthetic numbers are on no lattice."""
    places = (np.arange(5000) + 0.5) / 5000
    found = Density.of_bins(np.full(4, 0.25)).quantiles(places)
    inner = found[np.abs(found) < 1]
    assert len(np.unique(inner)) == len(inner) > 4500
    assert np.diff(found).max() < 0.1


def test_many_bins_take_seconds():
    shares = np.random.default_rng(0).dirichlet(np.ones(1024))
    density = Density.of_bins(shares)
    assert len(density.points) == 2 * 1023 + 1
    np.testing.assert_allclose(shares_of(density, 1024), shares, atol=1e-3)


@pytest.mark.parametrize("bins", [4, 8, 16])
def test_bins_that_say_nothing_new_leave_what_is_expected(bins):
    numbers = np.clip(np.random.default_rng(0).normal(0.1, 0.2, 5000), -1, 1)
    expected = Density.of_numbers(numbers, np.full(5000, 1 / 5000), bins)
    assert expected.masses.sum() == pytest.approx(1)
    assert expected.masses @ expected.points == pytest.approx(numbers.mean(), abs=0.01)
    shares = shares_of(expected, bins)
    found, alone = Density.of_bins(np.array(shares), expected), Density.of_bins(np.array(shares))
    assert shares_of(found, bins) == pytest.approx(shares, abs=1e-3)
    off, off_alone = (np.abs(one.masses - expected.masses).sum() for one in (found, alone))
    assert off < 0.7 * off_alone
