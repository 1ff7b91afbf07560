"""Log likelihood ratios of published rows, one canary there against not there, design by design.

Everything else about the data and the mechanism is known; who entered which row is not. Rows are in
clip norms of the sums: published numbers times the public divisor over the clip norm, so that a canary
on the clip norm adds 1 where it enters and noise has the noise multiplier as its standard deviation.
These are the log likelihoods of the pairs that dominate the designs (``privmix.accounting.pld.pairs``),
so that no other statistic of the same rows tells more.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from privmix.accounting.tradeoff import Array


def shift_log_ratio(rows: Array, noise: float, shift: float = 1.0) -> Array:
    """Log density of N(shift, noise^2) over N(0, noise^2), element by element."""
    return np.asarray((rows - shift / 2) * (shift / noise**2))


def sampled(log_ratios: Array, sampling_prob: float) -> Array:
    """Log likelihood ratio of rows that a record enters independently with ``sampling_prob``.

    Args:
        log_ratios: (rows, ...) of each row, entered against not entered.
        sampling_prob: In (0, 1].

    Returns:
        Sums over the rows.

    """
    if sampling_prob == 1.0:
        return np.asarray(log_ratios.sum(axis=0))
    stay, enter = math.log1p(-sampling_prob), math.log(sampling_prob)
    return np.asarray(np.logaddexp(stay, enter + log_ratios).sum(axis=0))


def signed_log_ratio(inner: Array, inverse_square: float) -> Array:
    """Log density of a record that enters with a fair sign over that of none, row by row.

    Args:
        inner: Inner product of a row with the record's vector, each divided by its noise.
        inverse_square: 1 / s^2, the squared norm of that vector.

    """
    folded = np.abs(inner)
    return np.asarray(folded + np.log1p(np.exp(-2 * folded)) - math.log(2.0) - inverse_square / 2)


def allocated(log_ratios: Array, rows_per_record: int) -> Array:
    """Log likelihood ratio of T rows of which a record enters a uniformly random set of R.

    The mean over all sets of the product of the rows' ratios: the elementary symmetric polynomial of
    degree R, of which each row adds to all degrees, over the number of sets.

    Args:
        log_ratios: (rows, ...), entered against not entered.
        rows_per_record: R.

    """
    total, degree = len(log_ratios), rows_per_record
    if degree == total:
        return np.asarray(log_ratios.sum(axis=0))
    sums = np.full((degree + 1, *log_ratios.shape[1:]), -np.inf)
    sums[0] = 0.0
    for row in log_ratios:
        sums[1:] = np.logaddexp(sums[1:], sums[:-1] + row)
    sets = gammaln(total + 1) - gammaln(degree + 1) - gammaln(total - degree + 1)
    return np.asarray(sums[degree] - sets)


class CrowdedLabels:
    """Label weights of rows of a class that a known crowd of its records enters as well.

    A row is open to the class by a hidden coin; the crowd's number in it shows how the coin fell.

    Args:
        crowd: Number of records of the class besides the canary, none of which has features.
        sampling_prob: Probability that each enters a row that is open.
        noise: Noise standard deviation of a label weight.

    """

    def __init__(self, crowd: int, sampling_prob: float, noise: float) -> None:
        mean = crowd * sampling_prob
        reach = 12.0 * (math.sqrt(mean * (1 - sampling_prob)) + noise) + 12.0
        self._grid = np.linspace(min(0.0, mean) - reach, mean + reach, 8192)
        numbers = np.arange(
            max(0, math.floor(mean - reach)), min(crowd, math.ceil(mean + reach)) + 1, dtype=float
        )
        if sampling_prob < 1.0:
            log_masses = (
                gammaln(crowd + 1)
                - gammaln(numbers + 1)
                - gammaln(crowd - numbers + 1)
                + numbers * math.log(sampling_prob)
                + (crowd - numbers) * math.log1p(-sampling_prob)
            )
        else:
            numbers, log_masses = np.array([float(crowd)]), np.zeros(1)
        self._noise = noise
        self._open = np.full(self._grid.shape, -np.inf)
        for number, log_mass in zip(numbers, log_masses, strict=True):
            np.logaddexp(self._open, log_mass + self._normal(self._grid - number), out=self._open)

    def _normal(self, away: Array) -> Array:
        return np.asarray(-0.5 * (away / self._noise) ** 2)

    def log_ratio(
        self, labels: Array, features: Array, open_prob: float, sampling_prob: float
    ) -> Array:
        """Log likelihood ratio of rows, the canary there against not.

        Args:
            labels: (rows, ...) weights of the class.
            features: (rows, ...) log density ratios of the features, entered against not.
            open_prob: Probability that a row is open to the class.
            sampling_prob: Probability that the canary enters a row that is open.

        Returns:
            Sums over the rows.

        """
        here = np.interp(labels, self._grid, self._open)
        above = np.interp(labels - 1.0, self._grid, self._open)
        entered = math.log(sampling_prob) + above + features
        there = entered
        if sampling_prob < 1.0:
            there = np.logaddexp(math.log1p(-sampling_prob) + here, entered)
        there, here = math.log(open_prob) + there, math.log(open_prob) + here
        if open_prob < 1.0:
            shut = math.log1p(-open_prob) + self._normal(labels)
            there, here = np.logaddexp(shut, there), np.logaddexp(shut, here)
        return np.asarray((there - here).sum(axis=0))


def crowd_size(sampling_prob: float, noise: float) -> int:
    """Number of records of a class that make it plain which rows are open to the class.

    Their number in an open row, less six of its standard deviations, lies above six of the noise's.
    """
    spread = 6.0 * math.sqrt(1 - sampling_prob)
    root = (spread + math.sqrt(spread**2 + 24.0 * noise)) / 2
    return math.ceil(root**2 / sampling_prob)


def spread(rows: Array) -> NDArray[np.float64]:
    """Log of the sum of squared deviations of each column from its mean, 0 for a single row.

    Without randomness of its own in each row, whether a record entered some of them shows here.
    """
    if len(rows) < 2:
        return np.zeros(rows.shape[1:])
    return np.asarray(np.log(np.maximum(((rows - rows.mean(axis=0)) ** 2).sum(axis=0), 1e-30)))
