import numpy as np
import pandas as pd
import pytest

from privmix.features.number_curves import _shares, bin_noise, number_curves
from privmix.features.tabular import TabularExtractor
from privmix.schema import TableSchema

MIDDLES = np.linspace(-1, 1, 8)


def table(nullable=True, count=1):
    column = {"type": "numeric", "lower": 0, "upper": 7, "num_bins": 8, "nullable": nullable}
    return TableSchema(columns=[{**column, "name": f"c{i}"} for i in range(count)])


def real_means(schema, rng, missing=0.0):
    values = np.minimum(rng.exponential(2.0, (5000, len(schema.columns))), 7)
    values[rng.random(len(values)) < missing, 0] = np.nan  # never all: such a row is blank
    frame = pd.DataFrame(values, columns=[column.name for column in schema.columns])
    return TabularExtractor(schema).transform(frame).astype(np.float64).mean(axis=0)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_rules_of_bins_take_noise_from_shares(missing):
    """Over 200 draws of noise: shares are nearer the truth than clipped ones, and so is the mean number."""
    rng, schema = np.random.default_rng(0), table(nullable=missing > 0, count=2)
    truth = real_means(schema, rng, missing)[: schema.columns[0].width]
    shares = truth[1:9] / truth[1:9].sum()
    errors = []
    for _ in range(200):
        noisy = truth + rng.normal(0, 0.03, len(truth))
        found = _shares(noisy, schema.columns[0], 0.03**2)
        clipped = np.maximum(noisy[1:9], 0)
        clipped /= clipped.sum()
        assert found.min() >= 0 and found.sum() == pytest.approx(1)
        for guess in (found, clipped):
            errors += [np.linalg.norm(guess - shares), abs((guess - shares) @ MIDDLES)]
    apart, off, clipped_apart, clipped_off = np.reshape(errors, (-1, 4)).mean(axis=0)
    assert apart < clipped_apart
    assert off < 0.6 * clipped_off


def test_a_mean_that_no_shares_have_leaves_the_shares_as_they_are():
    column = table(nullable=False).columns[0]
    found = _shares(np.array([40.0, *np.full(8, 1 / 8)]), column, 0.0)
    assert np.isfinite(found).all() and found.sum() == pytest.approx(1)
    assert _shares(np.zeros(9), column, 0.0).sum() == pytest.approx(1)


def test_noise_is_read_from_what_the_rules_miss():
    """Twelve columns have 24 rules for each group: the variance is found to about a quarter."""
    rng, schema = np.random.default_rng(1), table(count=12)
    truth = real_means(schema, rng, missing=0.1)
    noise = np.repeat([[0.01], [0.1]], 100, axis=1)
    found = []
    for stddevs in noise.T:
        means = truth + stddevs[:, None] * rng.standard_normal((2, len(truth)))
        found.append(bin_noise(schema, means, np.arange(2), 2))
    np.testing.assert_allclose(np.mean(found, axis=0), [0.01**2, 0.1**2], rtol=0.1)
    assert bin_noise(TableSchema(columns=[{"name": "b", "type": "boolean"}]), means[:, :2], np.arange(2), 2).tolist() == [0, 0]  # fmt: skip


@pytest.mark.parametrize(("variance", "apart"), [(0.0, True), (1.0, False)])
def test_a_group_has_a_curve_of_its_own_where_bins_tell_more_than_noise(variance, apart):
    """Two groups of one mean: the numbers of one are in the middle, those of the other at both ends."""
    column, groups = table(nullable=False).columns[0], np.arange(2000) % 2
    bins = np.array([[0, 0, 0, 0.5, 0.5, 0, 0, 0], [0.5, 0, 0, 0, 0, 0, 0, 0.5]])
    coordinates = np.random.default_rng(2).normal(0, 0.5, 2000)
    values = np.column_stack([coordinates - coordinates.mean(), bins[groups]])
    weights = np.full(2000, 1 / 2000)
    curves = number_curves(
        column, values, groups, weights, np.ones(2000, dtype=bool), np.full(2, variance)
    )
    middle, ends = (np.interp(coordinates, *curve) for curve in curves)
    assert (np.abs(middle).mean() < 0.2) == apart
    assert (np.abs(ends).mean() > 0.8) == apart
    for coordinates_of, numbers in curves:
        assert (np.diff(coordinates_of) > 0).all() and (np.diff(numbers) >= 0).all()


def test_a_curve_is_drawn_to_that_of_all_by_what_may_be_noise():
    """Shares apart by D of J bins stay apart by 1 - 2 J v / D of that, v the variance of the shares of those there."""
    column, groups = table(nullable=True).columns[0], np.arange(4000) % 2
    present, apart = 0.5, 0.08
    shift = apart * np.array([1, -1, 1, -1, 1, -1, 1, -1]) * np.array([[1], [-1]])
    bins = present * (1 / 8 + shift)[groups]
    # The rules hold: shifts neither move the mean number far nor add up.
    values = np.column_stack([np.random.default_rng(3).normal(0, 0.5, 4000), bins, 1 - bins.sum(1)])
    values[:, 0] -= values[:, 0].mean() - (bins @ MIDDLES).mean()
    weights, there = np.full(4000, 1 / 4000), np.random.default_rng(4).random(4000) < present

    def spread(variance):
        curves = number_curves(column, values, groups, weights, there, np.full(2, variance))
        first, second = (np.interp(np.linspace(-1.5, 1.5, 500), *curve) for curve in curves)
        return np.abs(first - second).mean()

    most = spread(0.0)
    half = spread(8 * apart**2 / (2 * 2 * 8) * present**2)
    assert most > 0.02
    assert 0.2 * most < half < 0.8 * most
    assert spread(2 * 8 * apart**2 / (2 * 8) * present**2) < 1e-9


def drawn_numbers(column, numbers, variance, seed=6, *, noise_is_drawn=True):
    """Decode vectors with the mean and the covariance of those of some numbers, and nothing of their shape."""
    (name,) = (column.name,)
    extractor = TabularExtractor(TableSchema(columns=[column]))
    known = extractor.transform(pd.DataFrame({name: numbers})).astype(np.float64)
    rng = np.random.default_rng(seed)
    mean = known.mean(axis=0)
    if noise_is_drawn:
        mean += rng.normal(0, np.sqrt(variance), known.shape[1])
    values = mean + rng.multivariate_normal(np.zeros(len(mean)), np.cov(known.T), 4000)
    groups, noise = np.zeros(4000, dtype=np.int64), np.array([variance])
    (curve,) = number_curves(
        column, values, groups, np.full(4000, 1 / 4000), np.ones(4000, dtype=bool), noise
    )
    return known[:, 0], np.interp(values[:, 0], *curve)


@pytest.mark.parametrize("bins", [4, 8, 16])
@pytest.mark.parametrize("stddev", [0.01, 0.03])
def test_numbers_that_are_all_in_one_part_of_wide_bounds_keep_their_spread(bins, stddev):
    """Bins alone would spread them over all that is between two middles."""
    column = {"type": "numeric", "name": "x", "lower": 0, "upper": 1, "nullable": False}
    column = TableSchema(columns=[{**column, "num_bins": bins}]).columns[0]
    known, found = drawn_numbers(column, np.random.default_rng(0).normal(0.42, stddev, 3000), 0.0)
    assert found.mean() == pytest.approx(known.mean(), abs=0.02)
    assert found.std() < 1.6 * known.std() + 0.04
    assert found.std() > 0.6 * known.std()


def test_shares_that_noise_hides_leave_the_spread_that_the_number_itself_shows():
    """Of 20 draws of noise; bins alone would put as much into each that is empty as noise may hide there."""
    column = table(nullable=False).columns[0]
    numbers = np.random.default_rng(1).normal(2.5, 0.5, 3000)
    spreads = []
    for seed in range(20):
        known, found = drawn_numbers(column, numbers, 0.05**2, seed)
        spreads.append(found.std() / known.std())
    assert np.mean(spreads) < 1.7


def test_a_heap_at_a_bound_keeps_its_mean_whatever_noise_may_hide():
    """A little in each bin alone would add .014, half the width of bounds being 1."""
    column = table(nullable=False).columns[0]
    rng = np.random.default_rng(3)
    numbers = np.where(rng.random(3000) < 0.95, 0.0, np.minimum(rng.exponential(0.3, 3000), 7))
    known, found = drawn_numbers(column, numbers, 1.0, noise_is_drawn=False)
    assert found.mean() == pytest.approx(known.mean(), abs=0.004)


def test_no_bin_is_without_numbers_where_noise_hides_them():
    column = table(nullable=False).columns[0]
    numbers = np.random.default_rng(4).normal(3.5, 0.3, 3000)
    _, found = drawn_numbers(column, numbers, 1.0, noise_is_drawn=False)
    apart = np.abs(found[:, None] - MIDDLES) / (MIDDLES[1] - MIDDLES[0])
    assert np.maximum(1 - apart, 0).mean(axis=0).min() > 0.0005


def test_ranks_are_not_drawn_to_a_bell_curve_by_noise():
    categories, shares = list("abcdefg"), [0.02, 0.42, 0.02, 0.02, 0.02, 0.48, 0.02]
    column = {"type": "ordinal", "name": "r", "categories": categories, "nullable": False}
    column = TableSchema(columns=[{**column, "num_bins": 7}]).columns[0]
    texts = np.random.default_rng(2).choice(categories, 3000, p=shares)
    found = np.zeros(7)
    for seed in range(20):
        ranks = np.rint((drawn_numbers(column, texts, 0.1**2, seed)[1] + 1) * 3).astype(int)
        found += np.bincount(ranks, minlength=7) / (20 * 4000)
    assert found[[1, 5]] == pytest.approx([0.42, 0.48], abs=0.12)


def test_numbers_of_tied_coordinates_are_in_the_middle():
    """A group of one vector, or of many alike, is not at the lower bound."""
    column = table(nullable=False).columns[0]
    values = np.column_stack([np.zeros(50), np.full((50, 8), 1 / 8)])
    whole = np.full(50, 1 / 50), np.ones(50, dtype=bool), np.zeros(1)
    (curve,) = number_curves(column, values, np.zeros(50, dtype=np.int64), *whole)
    assert np.interp(0.0, *curve) == pytest.approx(0, abs=0.02)


def test_bins_that_show_no_mean_are_left_alone():
    """Signed rows without anything that is the same in all records show none."""
    column = table(nullable=False).columns[0]
    values = np.random.default_rng(5).normal(0, 0.3, (500, 9))
    values -= values.mean(axis=0)
    whole = np.full(500, 1 / 500), np.ones(500, dtype=bool), np.zeros(1)
    (curve,) = number_curves(column, values, np.zeros(500, dtype=np.int64), *whole)
    numbers = np.interp(values[:, 0], *curve)
    assert numbers.std() == pytest.approx(values[:, 0].std(), rel=0.1)


def test_no_bin_is_emptier_than_noise_may_leave_it():
    column = table(nullable=False).columns[0]
    shares = np.array([0.5, 0.5, 0, 0, 0, 0, 0, -0.0])
    means = np.array([shares @ MIDDLES, *shares])
    assert _shares(means, column, 0.0)[2:].max() < 1e-4
    found, most = (_shares(means, column, stddev**2)[2:] for stddev in (0.002, 0.2))
    assert found.min() > 0.0004
    assert most.min() > 0.0009 and most.max() < 0.002
