"""One record in exactly one of T rows, chosen at random: the loss of random allocation.

With x_i the rows in units of the record's norm, P = (1/T) sum_i N(e_i, s^2 I) and Q = N(0, s^2 I),

    Z = dP/dQ = (1/T) sum_i u_i,    u_i = exp((2 x_i - 1) / (2 s^2)),

under Q a mean of T independent lognormal variables of mean one. Both hockey-stick divergences are
expectations under Q of convex functions of Z, so a law of Z that is larger in the convex order
dominates the pair, and a smaller one is dominated. The convex order survives sums of independent
variables. That gives bounds by discrete laws that are added to each other again and again:

- *upper*: mass between two points of a grid moves to these two, its mean kept. Below the grid it
  moves to 0 and the lowest point; above, to the highest point and to infinity, which takes up mean
  (P-mass) but no Q-mass.
- *lower*: mass within a cell of the grid moves to its mean.

Where a mass is smaller than floating-point numbers hold, the lower law leaves it out, which lowers the
expectation of whatever is not negative; the upper law gives the mean that it may have had to infinity.

Errors of both are of second order in the width of the cells. All terms are positive, so even the far
tails are accurate in relative terms. docs/theory/random-allocation.md has the proofs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from privmix.accounting.pld.lattice import (
    COARSEST_LOWER,
    MAX_LATTICE,
    DoesNotFitError,
    Lattice,
    TooManyPointsError,
    merge,
    summed,
)
from privmix.accounting.pld.pairs import Array
from privmix.compiling import kernel

_FINEST = 1.0 / 64.0  # width of a cell, in standard deviations of log Z, in the middle
_GROWTH = 0.12  # wider cells further out: relative width grows by this share of the distance
_BITS = 14  # binary digits of T that are kept; the bound takes the worse of its neighbours
_TRIMS = 256  # a trim loses at most this share of what may be lost
_MOST_POINTS = 12_000
_LARGEST_LOG = 500.0  # of Z
_ROUNDING = 1e-12  # bound on the relative error of masses that one addition of laws causes
_SMALLEST = float(np.finfo(np.float64).tiny)  # below it a product loses digits, and then is 0
_SMALLEST_SUM = _SMALLEST / float(np.finfo(np.float64).eps)  # whose terms may have lost theirs
_MISPLACED = 1e-12  # bound on the relative error of all values of Z


@dataclass(frozen=True)
class _Law:
    """A law of Z under Q: ``masses`` at increasing positive ``values``.

    ``zero`` is the mass at 0; ``infinite`` the part of the mean at infinity.
    """

    values: Array
    masses: Array
    zero: float = 0.0
    infinite: float = 0.0


@dataclass(frozen=True)
class AllocationStep:
    """A record in one of ``num_rows`` rows, with Gaussian noise in each of them.

    ``signed``: it enters with a random sign, and u_i = exp(-1 / (2 s^2)) cosh(x_i / s^2).
    """

    num_rows: int
    noise: float
    signed: bool = False

    @property
    def _rounding(self) -> float:
        """Bound on the relative error of masses: each addition doubles the errors before it."""
        return math.exp(min(4.0 * self.num_rows * _ROUNDING, 100.0))

    def variance(self, reach: float) -> float:
        """Variance of the loss under P, to a few digits."""
        law = _law(self.num_rows, self.noise, reach, True, self.signed)
        loss = np.log(law.values)
        mass = law.values * law.masses
        mean = float((mass * loss).sum())
        return max(float((mass * (loss - mean) ** 2).sum()), 0.0)

    def lowest_loss(self, reach: float) -> float:
        """The loss of the lowest outcome within reach."""
        return math.log(float(_law(self.num_rows, self.noise, reach, True, self.signed).values[0]))

    def upper(self, spacing: float, reach: float) -> Lattice:
        """A pair on a lattice that dominates this one."""
        law = _law(self.num_rows, self.noise, reach, True, self.signed)
        loss = np.log(law.values)
        first = math.floor(float(loss[0]) / spacing)
        size = math.ceil(float(loss[-1]) / spacing) - first + 2
        if size > MAX_LATTICE:
            raise TooManyPointsError(size, MAX_LATTICE)
        index = np.floor(loss / spacing).astype(np.int64)
        above = np.clip(loss - spacing * index, 0.0, spacing)
        # Q-mass m at z moves to the points around it, its P-mass z m kept.
        up = np.expm1(above) / math.expm1(spacing)
        down = np.exp(above) * np.expm1(spacing - above) / math.expm1(spacing)
        points = spacing * np.arange(first, first + size, dtype=np.float64)
        q_mass = summed(index - first, law.masses * down, size)
        q_mass += summed(index + 1 - first, law.masses * up, size)
        masses = q_mass * np.exp(points) * self._rounding
        infinite = law.infinite + _underflown(2 * loss.size, float(points[-1]))
        lost = min(max(law.zero, infinite) * self._rounding, 1.0)
        return Lattice(spacing * first, spacing, masses, lost, slack=_MISPLACED)

    def lower(self, spacing: float, reach: float) -> Lattice:
        """A pair on a lattice that this one dominates."""
        if spacing > COARSEST_LOWER:
            return Lattice(0.0, spacing, np.zeros(1), 1.0)
        law = _law(self.num_rows, self.noise, reach, False, self.signed)
        points, merged = merge(law.values * law.masses, np.log(law.values), 0.0, spacing)
        first = int(points.min()) if points.size else 0
        size = int(points.max()) - first + 1 if points.size else 1
        masses = summed(points - first, merged, size) / self._rounding
        return Lattice(spacing * first, spacing, masses, 0.0, slack=_MISPLACED)


@lru_cache(maxsize=64)
def _law(num_rows: int, noise: float, reach: float, upper: bool, signed: bool = False) -> _Law:
    """A law that dominates that of Z (``upper``), or that it dominates.

    Of T only the leading binary digits are kept, the others rounded down for the upper law: a mean
    of fewer variables is larger in the convex order.
    """
    spare = max(num_rows.bit_length() - _BITS, 0)
    leading = num_rows >> spare
    if not upper and leading << spare < num_rows:
        leading += 1
    may_lose = float(ndtr(-reach)) / _TRIMS
    one = _one(noise, reach, upper, signed)
    law, count = one, 1
    for bit in bin(leading)[3:] + "0" * spare:
        law, count = _added(law, count, None, count, may_lose, upper), 2 * count
        if bit == "1":
            law, count = _added(law, count, one, 1, may_lose, upper), count + 1
    return law


def _grid(scale: float, low: float, high: float) -> Array:
    """Increasing values, from at most exp(low) to above exp(high), closest at one."""
    fineness = _FINEST
    while True:
        ends = np.arcsinh(_GROWTH / scale * np.array([low, high])) / (_GROWTH * fineness)
        first, last = math.floor(ends[0]) - 1, math.ceil(ends[1]) + 1
        if last - first <= _MOST_POINTS:
            break
        fineness *= 2.0
    logs = scale / _GROWTH * np.sinh(_GROWTH * fineness * np.arange(first, last + 1))
    if max(abs(logs[0]), abs(logs[-1])) > _LARGEST_LOG:
        raise DoesNotFitError
    values: Array = np.exp(logs)
    return values


def _one(noise: float, reach: float, upper: bool, signed: bool) -> _Law:
    """The law of one u: log u is normal with mean -1/(2 s^2) and standard deviation 1/s.

    Signed, it is -1/(2 s^2) + log cosh(y/s) with y standard normal.
    """
    far = reach + 2.0
    half = 0.5 / noise**2
    if signed:
        deviation = math.sqrt(2.0 * half + math.log1p(math.exp(-4.0 * half)) - math.log(2.0))
        grid = _grid(max(deviation, 1e-9), -half, half + far / noise)
        log_cosh = np.maximum(np.log(grid) + half, 0.0)
        quantile = noise * (log_cosh + np.log1p(np.sqrt(-np.expm1(-2.0 * log_cosh))))
        q_mass = 2.0 * _normal_masses(quantile)
        p_mass = _normal_masses(quantile - 1.0 / noise) + _normal_masses(quantile + 1.0 / noise)
        q_mass[0] = p_mass[0] = 0.0  # nothing is below the infimum, where y = 0
    else:
        grid = _grid(1.0 / noise, -half - far / noise, half + far / noise)
        quantile = noise * (np.log(grid) + half)
        q_mass = _normal_masses(quantile)  # of the cells below, between and above the points
        p_mass = _normal_masses(quantile - 1.0 / noise)
    if not upper:
        kept = (q_mass > _SMALLEST_SUM) & (p_mass > _SMALLEST_SUM)
        return _Law(p_mass[kept] / q_mass[kept], q_mass[kept])
    width = np.diff(grid)
    inner_q, inner_p = q_mass[1:-1], p_mass[1:-1]
    up = np.clip((inner_p - grid[:-1] * inner_q) / width, 0.0, inner_q)
    masses = np.zeros_like(grid)
    masses[1:] += up
    masses[:-1] += inner_q - up
    share = min(p_mass[0] / grid[0], q_mass[0])
    masses[0] += share
    masses[-1] += q_mass[-1]
    infinite = p_mass[-1] + inner_p[inner_q < _SMALLEST_SUM].sum()
    return _Law(grid, masses, float(q_mass[0] - share), float(infinite))


def _underflown(count: int, largest_loss: float) -> float:
    """Bound on the mean that is lost where so many products of masses and shares underflow."""
    return count * _SMALLEST * math.exp(largest_loss)


def _normal_masses(points: Array) -> Array:
    """Standard normal mass below, between and above the points, accurate in relative terms."""
    ends = np.concatenate([[-np.inf], points, [np.inf]])
    low, high = ends[:-1], ends[1:]
    masses: Array = np.where(low > 0.0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
    return masses


def _added(
    left: _Law, left_count: int, right: _Law | None, right_count: int, may_lose: float, upper: bool
) -> _Law:
    """The law of the mean of ``left_count + right_count`` variables; None is another ``left``."""
    other = left if right is None else right
    share = left_count / (left_count + right_count)
    log_values = np.log(left.values)
    mean = float((left.masses * log_values).sum())
    deviation = math.sqrt(max(float((left.masses * (log_values - mean) ** 2).sum()), 1e-300))
    low = math.log(min(left.values[0], other.values[0]))
    high = math.log(max(left.values[-1], other.values[-1]))
    grid = _grid(deviation * math.sqrt(share), low, high)
    infinite = share * left.infinite + (1.0 - share) * other.infinite
    masses, means = _convolved(
        np.append(left.zero, left.masses),
        share * np.append(0.0, left.values),
        np.append(other.zero, other.masses),
        (1.0 - share) * np.append(0.0, other.values),
        grid,
        upper,
        right is None,
    )
    if upper:
        infinite += _underflown(2 * left.values.size * other.values.size, math.log(grid[-1]))
        return _trimmed_upper(_Law(grid, masses[1:], float(masses[0]), infinite), may_lose)
    kept = (masses > _SMALLEST_SUM) & (means > _SMALLEST_SUM)
    return _trimmed_lower(_Law(means[kept] / masses[kept], masses[kept]), may_lose)


@kernel()
def _convolved(
    left_masses: Array,
    left: Array,
    right_masses: Array,
    right: Array,
    grid: Array,
    upper: bool,
    same: bool,
) -> tuple[Array, Array]:
    """Masses of all sums of two values, increasing and below the last of the grid, and their means.

    Upper: at 0 and at the points. Lower: in the cells below, between and above the points. Where
    both sides are the ``same``, each pair of two different values is seen once and counts twice.
    """
    masses, means = np.zeros(grid.size + 1), np.zeros(grid.size + 1)
    start = 0
    for i in range(left.size):
        begin = i if same else 0
        # cell k lies between grid[k - 1] and grid[k]; cell 0 below the grid
        while grid[start] <= left[i] + right[begin]:
            start += 1
        k = start
        for j in range(begin, right.size):
            value = left[i] + right[j]
            mass = left_masses[i] * right_masses[j]
            if same and j > i:
                mass *= 2.0
            while grid[k] <= value:
                k += 1
            if upper:
                below = grid[k - 1] if k > 0 else 0.0
                share = min(max((value - below) / (grid[k] - below), 0.0), 1.0)
                masses[k] += (1.0 - share) * mass
                masses[k + 1] += share * mass
            else:
                masses[k] += mass
                means[k] += mass * value
    return masses, means


def _trimmed_upper(law: _Law, may_lose: float) -> _Law:
    """Move what lies far out, within ``may_lose`` on either side, to 0, to infinity and inwards."""
    start, stop = _core(law, may_lose)
    values, masses = law.values, law.masses.copy()
    top, bottom = slice(stop, None), slice(None, start)
    infinite = law.infinite + float((masses[top] * (values[top] - values[stop - 1])).sum())
    masses[stop - 1] += masses[top].sum()
    shares = values[bottom] / values[start]
    zero = law.zero + float((masses[bottom] * (1.0 - shares)).sum())
    masses[start] += (masses[bottom] * shares).sum()
    return _Law(values[start:stop], masses[start:stop], zero, infinite)


def _trimmed_lower(law: _Law, may_lose: float) -> _Law:
    """Merge what lies far out, within ``may_lose`` on either side, into one value each."""
    start, stop = _core(law, may_lose)
    starts = np.unique(np.clip([0, *range(start, stop + 1)], 0, law.values.size - 1))
    masses = np.add.reduceat(law.masses, starts)
    return _Law(np.add.reduceat(law.masses * law.values, starts) / masses, masses)


def _core(law: _Law, may_lose: float) -> tuple[int, int]:
    """Indices from which and up to which the law holds all but ``may_lose`` on either side."""
    low = np.cumsum(law.masses)
    high = np.cumsum((law.masses * law.values)[::-1])
    start = int(np.searchsorted(low, may_lose))
    stop = law.values.size - int(np.searchsorted(high, may_lose))
    return min(start, stop - 1), stop
