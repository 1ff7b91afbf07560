"""How coordinates of synthetic vectors lead to numbers between the bounds of their column."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from privmix.features.density import Density
from privmix.schema.table import Column, OrdinalColumn, ScaledColumn, TableSchema

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Indices = NDArray[np.int64]
# Coordinates, rising, and the numbers between -1 and 1 that they lead to: a line between any two, and beyond the last
# no further.
Curve = tuple[Vector, Vector]
# A curve, and how the numbers lie that it leads to.
Law = tuple[Curve, Density]

# Coordinates are 0 where no value is: their mean is divided by the share that has one, but not by less.
_LEAST_PRESENT = 0.05
# Means of numbers, and their spreads as shares of the largest there can be, stay within this.
_INNER = 0.999
_MOST_STRETCHED = 32.0
# Nor is the spread less than this share of that of coordinates, which vectors of no row may make it.
_LEAST_SPREAD = 0.5
# Bins and the place of a missing value add up to 1, but for rows without any value. Where they do not, nothing shows means.
_LEAST_SUM = 0.5
_QUANTILES = 401
_MOST_TILT = 60.0
_LEAST_BIN = 1e-5
# What is known of a group, or of all, errs as well as its noise says, and so does the guess that it is drawn to.
_DOUBT = 2.0
# A learner that has hardly seen a bin may think anything of it. So none has less than this of the noise's standard
# deviation, but for the second share at most, which is some of a few thousand records.
_HIDDEN = 0.3
_MOST_HIDDEN = 0.002
_TINY = 1e-12


def number_curves(
    column: Column,
    values: Matrix,
    groups: Indices,
    weights: Vector,
    there: NDArray[np.bool_],
    noise: Vector,
) -> tuple[Curve, ...]:
    """Return curves for the numbers of a column: one for all groups, or one for each.

    Without bins a line does, the same for all, so that what is larger in one group stays so. With bins,
    numbers lie as these say, as near to what the line gives as they can (``Density``), and those of a group as
    near to those of all; ranks of as many categories have their shares. Bins' shares are drawn towards those
    that the line gives all, and that the curve for all gives a group, as far as noise may be what sets them
    apart (James & Stein, 1961).

    Args:
        column: The column, of numbers, times or ranks.
        values: (count, width) its coordinates.
        groups: (count,) group of each vector.
        weights: (count,) what each vector counts among all, adding up to 1.
        there: (count,) whether it is to have a value.
        noise: (groups,) what ``bin_noise`` found.

    """
    means = weights @ values
    line = _straight(*_line(values[:, 0], weights, weights * there))
    binned = isinstance(column, ScaledColumn) and column.num_bins
    if not (binned and means[1:].sum() > _LEAST_SUM and (weights * there).any()):
        return (line,)
    assert isinstance(column, ScaledColumn) and column.num_bins
    share = weights * there / (weights * there).sum()
    together = float(np.bincount(groups, weights, len(noise)) ** 2 @ noise)
    guess = _guessed(line, values[:, 0], share, together, column)
    # That shares of categories follow a bell curve is no guess.
    doubt = 0.0 if _is_whole(column) else _DOUBT
    common = _drawn(guess, values, share, means, together, column, doubt)
    if len(noise) == 1:
        return (common[0],)
    curves = []
    for group, variance in enumerate(noise):
        mine = (groups == group) & (weights > 0)
        law = common
        if (mine & there).any():
            own, share = values[mine], weights[mine] * there[mine]
            share /= share.sum()
            law = _drawn(common, own, share, own.mean(axis=0), variance, column, _DOUBT)
        curves.append(law[0])
    return tuple(curves)


def _guessed(
    line: Curve, values: Vector, share: Vector, variance: float, column: ScaledColumn
) -> Law:
    """Return what a line says, but for a little in each bin that leaves the mean."""
    assert column.num_bins
    numbers = np.interp(values, *line)
    bins = np.maximum(share @ _tents(numbers, column), _least_share(variance))
    bins = _tilted(bins, float(share @ numbers), column)
    density = Density.of_numbers(numbers, share, column.num_bins)
    curve, _ = _bent(values, share, bins, column, density)
    return curve, density


def _drawn(
    guess: Law,
    values: Matrix,
    share: Vector,
    means: Vector,
    variance: float,
    column: ScaledColumn,
    doubt: float,
) -> Law:
    """Return what bins say of vectors with a value, each with its share, drawn to a guess as far as noise may part them."""
    expected = share @ _tents(np.interp(values[:, 0], *guess[0]), column)
    apart = _shares(means, column, variance) - expected
    present = max(float(means[1 : column.value_width].sum()), _LEAST_PRESENT)
    noise = doubt * len(apart) * variance / present**2
    kept = 1 - noise / max(float(apart @ apart), _TINY)
    if kept <= 0:
        return guess
    return _bent(values[:, 0], share, expected + kept * apart, column, guess[1])


def bin_noise(schema: TableSchema, vectors: Matrix, groups: Indices, num_groups: int) -> Vector:
    """Return the variance that noise gives to a coordinate's mean in each group, as far as bins tell it.

    What the means of a group miss the rules of bins by (``_rules``) is noise.
    """
    off, weight, start = np.zeros(num_groups), 0.0, 0
    sizes = np.maximum(np.bincount(groups, minlength=num_groups), 1)
    for column in schema.columns:
        if isinstance(column, ScaledColumn) and column.num_bins:
            rules, due = _rules(column)
            missed = vectors[:, start : start + column.width] @ rules.T - due
            for amount in missed.T:
                off += (np.bincount(groups, amount, num_groups) / sizes) ** 2
            weight += float((rules**2).sum())
        start += column.width
    return off / weight if weight else off


def _rules(column: ScaledColumn) -> tuple[Matrix, Vector]:
    """Return what holds for the coordinates of any row, and so for their means: (2, width) factors, and the sums.

    Bins and the coordinate of a missing value add up to 1, and the number is the mean of the bins' middles.
    """
    middles = _middles(column)
    rules = np.ones((2, column.width))
    rules[:, 0] = 0.0, -1.0
    rules[1, 1:] = 0.0
    rules[1, 1 : 1 + len(middles)] = middles
    return rules, np.array([1.0, 0.0])


def _shares(means: Vector, column: ScaledColumn, variance: float) -> Vector:
    """Return shares of the bins, all above 0, that add up to 1, from means of all coordinates with noise of a variance.

    Means are moved to where the rules hold, as little as need be. No share is less than what noise may hide. Then
    they are tilted so that the mean number stays.
    """
    rules, due = _rules(column)
    held = means - rules.T @ np.linalg.solve(rules @ rules.T, rules @ means - due)
    bins = held[1 : column.value_width]
    mean = float(np.clip(held[0] / max(float(bins.sum()), _LEAST_PRESENT), -_INNER, _INNER))
    return _tilted(np.maximum(bins, _least_share(variance)), mean, column)


def _tilted(bins: Vector, mean: float, column: ScaledColumn) -> Vector:
    """Return shares that add up to 1 and whose mean number is the given one, as far as there are such."""
    middles = _middles(column)

    def tilted(slope: float) -> Vector:
        found = bins * np.exp(slope * middles - abs(slope))
        return np.asarray(found / found.sum())

    def excess(slope: float) -> float:
        return float((tilted(slope) * middles).sum()) - mean

    if excess(-_MOST_TILT) > 0 or excess(_MOST_TILT) < 0:
        return tilted(0.0)
    return tilted(cast(float, brentq(excess, -_MOST_TILT, _MOST_TILT)))


def _least_share(variance: float) -> float:
    return float(np.clip(_HIDDEN * np.sqrt(variance), _LEAST_BIN, _MOST_HIDDEN))


def _middles(column: ScaledColumn) -> Vector:
    assert column.num_bins
    return np.linspace(-1.0, 1.0, column.num_bins)


def _tents(numbers: Vector, column: ScaledColumn) -> Matrix:
    """Return what each bin has of each number."""
    middles = _middles(column)
    apart = np.abs(numbers[:, None] - middles) / (middles[1] - middles[0])
    return np.asarray(np.maximum(1 - apart, 0.0))


def _is_whole(column: ScaledColumn) -> bool:
    """Tell whether each bin is a category."""
    return isinstance(column, OrdinalColumn) and len(column.categories) == column.num_bins


def _bent(
    values: Vector, share: Vector, bins: Vector, column: ScaledColumn, expected: Density
) -> Law:
    """Return a curve that takes coordinates, each with its share, to numbers that lie as their bins say."""
    places = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    found = np.quantile(values, places, weights=share, method="inverted_cdf")
    if _is_whole(column):
        numbers = _middles(column)[np.searchsorted(np.cumsum(bins)[:-1], places)]
    else:
        expected = Density.of_bins(bins, expected)
        numbers = expected.quantiles(places)
    coordinates, tied = np.unique(found, return_inverse=True)
    return (coordinates, np.bincount(tied, numbers) / np.bincount(tied)), expected


def _straight(offset: float, slope: float) -> Curve:
    """Return a line, not falling, as a curve between the bounds."""
    if slope == 0:
        return np.zeros(1), np.array([offset])
    bounds = np.array([-1.0, 1.0])
    return (bounds - offset) / slope, bounds


def _line(
    values: NDArray[np.float64], weights: NDArray[np.float64], share: NDArray[np.float64]
) -> tuple[float, float]:
    """Return offset and slope for coordinates of a column, which are 0 where no value is.

    Coordinates are as normal ones, but numbers are between bounds: clamping alone would move the mean of
    a column whose values are mostly at a bound, and take from its spread. ``share`` is the weights of
    vectors that are to have a value, and 0 for others.
    """
    present = max(float(share.sum()), _LEAST_PRESENT)
    mean = float(np.clip(weights @ values / present, -_INNER, _INNER))
    if not share.any():
        return mean, 0.0
    share = share / share.sum()
    middle = float(share @ values)
    own = float(np.sqrt(share @ (values - middle) ** 2))
    if own < _TINY:
        return mean, 0.0
    variance = max(float(weights @ values**2) / present - mean**2, (_LEAST_SPREAD * own) ** 2)
    stddev = float(min(np.sqrt(variance), _INNER * np.sqrt(1 - mean**2)))
    places = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    shape = np.quantile(values, places, weights=share, method="inverted_cdf")
    if shape.std() < _LEAST_SPREAD * own:  # a few far from all others: a line does nothing for them
        return mean - middle, 1.0
    shape = (shape - shape.mean()) / shape.std()

    def placed(stretch: float) -> float:
        """Return the middle at which clamped values have the mean."""
        reach = 2.0 + stretch * float(np.abs(shape).max())
        found = brentq(lambda at: _clamped(at + stretch * shape).mean() - mean, -reach, reach)
        return float(cast(float, found))

    def excess(stretch: float) -> float:
        return float(_clamped(placed(stretch) + stretch * shape).std()) - stddev

    stretch = stddev
    if excess(stretch) < 0:
        most = _MOST_STRETCHED * stddev
        stretch = most if excess(most) < 0 else float(brentq(excess, stddev, most, rtol=1e-3))
    slope = stretch / own
    return placed(stretch) - slope * middle, slope


def _clamped(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.clip(values, -1.0, 1.0))
