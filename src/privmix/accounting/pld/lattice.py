"""One step's losses on a lattice: a pair of distributions that dominates the step, and one below it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from privmix.accounting.pld.pairs import Array, Pair, lost_mass
from privmix.compiling import kernel

MAX_LATTICE = 2**20  # points of one step
LARGEST_EXPONENT = 600.0  # exp(-600) is still a normal float
# Sizes are not quite proportional to one over the spacing: what was so many times too large may yet fit.
_NEARLY = 1.25
_RUN = 1 << 14  # cells that are integrated together: their arrays stay near the processor
_MESH = 1.0 / 16.0  # quadrature cells are at most this wide, in noise standard deviations
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)
COARSEST_LOWER = 50.0  # spacing beyond which the lower bound is zero


class TooManyPointsError(RuntimeError):
    """The lattice is too fine for the memory allowed; a coarser one is needed.

    Attributes:
        factor: Spacings less than this times the tried one are in vain as well.

    """

    def __init__(self, size: float, most: int) -> None:
        super().__init__(size, most)
        self.factor = size / (_NEARLY * most)


class DoesNotFitError(RuntimeError):
    """No lattice holds the losses of this event soundly; other accountants must do."""


class Step(Protocol):
    """One step of a mechanism; ``reach`` says how far out, in noise deviations, nothing is lost."""

    def variance(self, reach: float) -> float:
        """Variance of the loss under P, to a few digits."""
        ...

    def lowest_loss(self, reach: float) -> float:
        """The loss of the lowest outcome within reach."""
        ...

    def upper(self, spacing: float, reach: float) -> Lattice:
        """A pair on a lattice that dominates this one."""
        ...

    def lower(self, spacing: float, reach: float) -> Lattice:
        """A pair on a lattice that this one dominates."""
        ...


@dataclass(frozen=True)
class SampledStep:
    """One step: with probability ``share`` the pair, else nothing; the coin is revealed."""

    pair: Pair
    share: float = 1.0

    def variance(self, reach: float) -> float:
        """Variance of the loss under P, to a few digits."""
        return _variance(self, reach)

    def lowest_loss(self, reach: float) -> float:
        """The loss of the lowest outcome within reach."""
        low = self.pair.intervals(reach)[0][0]
        return float(self.pair.loss(np.array([low]))[0])

    def upper(self, spacing: float, reach: float) -> Lattice:
        """A pair on a lattice that dominates this one."""
        return _upper_lattice(self, spacing, reach)

    def lower(self, spacing: float, reach: float) -> Lattice:
        """A pair on a lattice that this one dominates."""
        return _lower_lattice(self, spacing, reach)


@dataclass(frozen=True)
class SubsetStep:
    """A sample without replacement, of which one record is replaced; ``pair`` as if it came or went.

    Conditionally on everything else, the step is (1 - q) N(a) + q N(b) against (1 - q) N(a) +
    q N(c), where a, b and c are within one sensitivity of each other: a is another record in the
    place of the replaced one. At epsilon >= 0 its divergence is, by advanced joint convexity (Balle,
    Barthe, Gaboardi 2018, Theorem 2), at most that of (1 - q) N(0) + q N(1) against N(0), in both
    directions. The pair that has this divergence at epsilon >= 0 and is its own reverse dominates
    the step (Zhu, Dong, Wang 2022, on sampling without replacement), and dominance survives composition. Composing the
    data sets that are worst for one step would not do (Lebeda et al. 2024, arXiv 2405.20769).

    From below: where all other records are alike and so is one of the two, the pair is attained.
    """

    pair: Pair

    def variance(self, reach: float) -> float:
        """Variance of the loss under P, to a few digits."""
        return _variance(SampledStep(self.pair), reach)

    def lowest_loss(self, reach: float) -> float:
        """The loss of the lowest outcome within reach: the reverse of the highest one."""
        return -float(self.pair.loss(np.array([self.pair.intervals(reach)[-1][1]]))[0])

    def upper(self, spacing: float, reach: float) -> Lattice:
        """A pair on a lattice that dominates this one."""
        found = _upper_lattice(SampledStep(self.pair), spacing, reach, through_zero=True)
        zero = round(-found.first / spacing)
        gains = found.masses[zero + 1 :]
        drops = gains * np.exp(-spacing * np.arange(1.0, gains.size + 1.0))
        still = max(1.0 - float(gains.sum()) - float(drops.sum()), 0.0)
        masses = np.concatenate([drops[::-1], [still], gains])
        return Lattice(-spacing * gains.size, spacing, masses, found.lost, is_symmetric=True)

    def lower(self, spacing: float, reach: float) -> Lattice:
        """A pair on a lattice that this one dominates."""
        return _lower_lattice(SampledStep(self.pair), spacing, reach)


@dataclass(frozen=True)
class Lattice:
    """P-masses at the losses ``first + spacing * i``; Q-masses are masses * exp(-loss).

    ``lost`` bounds the mass outside, the same for P and Q: infinite loss above, nothing below.
    ``slack`` bounds the error of the losses. ``is_symmetric`` where the pair is its own reverse.
    """

    first: float
    spacing: float
    masses: Array
    lost: float
    slack: float = 0.0
    is_symmetric: bool = False
    log_mgfs: dict[float, float] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def losses(self) -> Array:
        """The losses at the points."""
        return self.first + self.spacing * np.arange(self.masses.size, dtype=np.float64)

    @cached_property
    def log_masses(self) -> Array:
        """Logs of the P-masses, -inf for none."""
        with np.errstate(divide="ignore"):
            return np.log(self.masses)

    def log_tilted(self, order: float) -> Array:
        """Logs of the P-masses times exp(order * loss), in a new array."""
        exponent = order * self.losses
        exponent += self.log_masses
        return exponent

    def log_mgf(self, order: float) -> float:
        """Log of the sum of the P-masses times exp(order * loss)."""
        if order not in self.log_mgfs:
            self.log_mgfs[order] = log_sum_exp(self.log_tilted(order), overwrite=True)
        return self.log_mgfs[order]

    def tilted_masses(self, order: float) -> Array:
        """P-masses times exp(order * loss), scaled to a sum of one."""
        exponent = self.log_tilted(order)
        exponent -= self.log_mgf(order)
        return np.exp(exponent, out=exponent)

    def reversed(self) -> Lattice:
        """The pair (Q, P): losses change sign, masses become Q-masses."""
        masses = np.exp(self.log_masses - self.losses)[::-1]
        return Lattice(-float(self.losses[-1]), self.spacing, masses, self.lost, self.slack)


@dataclass(frozen=True)
class _Cells:
    bucket: NDArray[np.int64]  # index of the lattice point below the cell's losses
    mass: Array  # P-mass
    above: Array  # log P/Q of the cell minus the loss of that point, in [0, spacing]


def _cells(pair: Pair, origin: float, spacing: float, reach: float) -> _Cells:
    edges = [_edges(pair, origin, spacing, *interval) for interval in pair.intervals(reach)]
    left = np.concatenate([e[:-1] for e in edges])
    right = np.concatenate([e[1:] for e in edges])
    left, right = left[right > left], right[right > left]
    bucket = np.floor((pair.loss((left + right) / 2.0) - origin) / spacing).astype(np.int64)
    mass, shifted = np.empty_like(left), np.empty_like(left)
    for start in range(0, left.size, _RUN):
        run = slice(start, start + _RUN)
        base: Array = np.asarray(origin + spacing * bucket[run], dtype=np.float64)
        mass[run], shifted[run] = _integrals(pair, left[run], right[run], base)
    scale = pair.weight / math.sqrt(2.0 * math.pi)
    kept = mass > 0.0
    mass, ratio = mass[kept], shifted[kept] / mass[kept]
    above = np.clip(-np.log(np.maximum(ratio, 1e-300)), 0.0, spacing)
    return _Cells(bucket[kept], scale * mass, above)


def _integrals(pair: Pair, left: Array, right: Array, base: Array) -> tuple[Array, Array]:
    """P-mass and exp(base) times Q-mass of cells, in units of the density's scale."""
    # All terms are positive, so both sums are accurate in relative terms.
    mass, shifted = np.zeros_like(left), np.zeros_like(left)
    half = (right - left) / 2.0
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        outcome = left + half * (1.0 + node)
        loss = pair.loss(outcome)
        density = half * weight * np.exp(loss - outcome**2 / 2.0)
        mass += density
        shifted += density * np.exp(base - loss)
    return mass, shifted


def _edges(pair: Pair, origin: float, spacing: float, low: float, high: float) -> Array:
    lowest, highest = pair.loss(np.array([low, high]))
    first = math.floor((lowest - origin) / spacing)
    last = math.ceil((highest - origin) / spacing)
    if last - first > MAX_LATTICE:
        raise TooManyPointsError(last - first, MAX_LATTICE)
    mesh = np.linspace(low, high, math.ceil((high - low) / _MESH) + 1)
    on_lattice = pair.outcome(origin + spacing * np.arange(first, last + 1))
    # Both are in order already: a stable sort only merges them.
    edges: Array = np.sort(np.concatenate([mesh, np.clip(on_lattice, low, high)]), kind="stable")
    return edges


def _variance(step: SampledStep, reach: float) -> float:
    """Variance of one step's loss under P, by quadrature, to a few digits."""
    left, right = [], []
    for low, high in step.pair.intervals(reach):
        mesh = np.linspace(low, high, math.ceil((high - low) / _MESH) + 1)
        left.append(mesh[:-1])
        right.append(mesh[1:])
    middle = (np.concatenate(left) + np.concatenate(right)) / 2.0
    width = np.concatenate(right) - np.concatenate(left)
    loss = step.pair.loss(middle)
    mass = width * np.exp(loss - middle**2 / 2.0) * step.pair.weight / math.sqrt(2.0 * math.pi)
    mean = step.share * float((mass * loss).sum())
    square = step.share * float((mass * loss**2).sum())
    return max(square - mean**2, 0.0)


def _upper_lattice(
    step: SampledStep, spacing: float, reach: float, through_zero: bool = False
) -> Lattice:
    pair = step.pair
    infimum = step.lowest_loss(reach)
    # A lattice through zero holds the idle step of a revealed coin exactly; otherwise one that
    # starts at the infimum of the loss, where most of the mass of a sampled step is.
    origin = 0.0 if through_zero or step.share < 1.0 else infimum
    cells = _cells(pair, origin, spacing, reach)
    # Shares of the mass that go up and down; each is accurate in relative terms.
    up = np.expm1(-cells.above) / math.expm1(-spacing)
    down = np.exp(-cells.above) * np.expm1(cells.above - spacing) / math.expm1(-spacing)
    first = min(int(cells.bucket.min()), 0)
    size = max(int(cells.bucket.max()) + 2, 1) - first
    if size > 2 * MAX_LATTICE:  # two narrow intervals far apart
        raise TooManyPointsError(size, 2 * MAX_LATTICE)
    index = cells.bucket - first
    masses = summed(index, step.share * cells.mass * down, size)
    masses += summed(index + 1, step.share * cells.mass * up, size)
    if step.share < 1.0:
        masses[-first] += 1.0 - step.share
    return Lattice(origin + spacing * first, spacing, masses, step.share * lost_mass(pair, reach))


def summed(index: NDArray[np.int64], values: Array, size: int) -> Array:
    """Sums of the values by index, of length ``size``."""
    return np.bincount(index, values, size).astype(np.float64, copy=False)


def _lower_lattice(step: SampledStep, spacing: float, reach: float) -> Lattice:
    if spacing > COARSEST_LOWER:  # no bound worth having
        return Lattice(0.0, spacing, np.zeros(1), 1.0)
    cells = _cells(step.pair, -spacing / 2.0, spacing, reach)
    masses = np.append(step.share * cells.mass, 1.0 - step.share)
    losses = np.append(spacing * (cells.bucket - 0.5) + cells.above, 0.0)
    index = np.append(cells.bucket, 0) - min(int(cells.bucket.min()), 0)
    # The heaviest bucket becomes one outcome, and the lattice goes through its loss exactly.
    inside = (index == np.bincount(index, masses).argmax()) & (masses > 0.0)
    heavy_mass = float(masses[inside].sum())
    origin = math.log(heavy_mass) - log_sum_exp(np.log(masses[inside]) - losses[inside])
    losses = np.append(losses[~inside], origin)
    masses = np.append(masses[~inside], heavy_mass)
    order = np.argsort(losses, kind="stable")
    points, merged = merge(masses[order], losses[order], origin, spacing)
    first = int(points.min()) if points.size else 0
    size = int(points.max()) - first + 1 if points.size else 1
    if size > 2 * MAX_LATTICE:
        raise TooManyPointsError(size, 2 * MAX_LATTICE)
    dense = summed(points - first, merged, size)
    return Lattice(
        origin + spacing * first, spacing, dense, step.share * lost_mass(step.pair, reach)
    )


# A few events are merged sooner than numba is loaded.
@kernel(patience=1 << 16)
def merge(
    masses: Array, losses: Array, origin: float, spacing: float
) -> tuple[NDArray[np.int64], Array]:
    """Merge outcomes, sorted by loss, into groups whose log P/Q lies on the lattice.

    A group starts with an outcome and takes in higher ones until its log P/Q has risen to the
    next lattice point; of the last one it takes the share that makes it exact. What is left at
    the top, where no lattice point is reached any more, is left out.
    """
    points = np.empty(len(masses), np.int64)
    merged = np.empty(len(masses), np.float64)
    groups = 0
    i, rest = 0, masses[0]
    while i < len(masses):
        point = math.ceil((losses[i] - origin) / spacing)
        target = origin + spacing * point
        mass = rest
        missing = rest * math.expm1(target - losses[i])  # exp(target) Q - P
        i += 1
        rest = masses[i] if i < len(masses) else 0.0
        while missing > 0.0 and i < len(masses):
            gain = -masses[i] * math.expm1(target - losses[i])
            if gain < missing:
                missing -= gain
                mass += masses[i]
                i += 1
                rest = masses[i] if i < len(masses) else 0.0
            else:
                share = missing / gain
                mass += share * masses[i]
                rest = (1.0 - share) * masses[i]
                missing = 0.0
        if missing > 0.0:
            break
        points[groups] = point
        merged[groups] = mass
        groups += 1
    return points[:groups], merged[:groups]


def log_sum_exp(exponent: Array, *, overwrite: bool = False) -> float:
    """Log of the sum of exponentials, of which one at least must be finite.

    With ``overwrite`` the array is lost: large ones take longer to make than to fill.
    """
    top = float(exponent.max())
    terms = np.subtract(exponent, top, out=exponent if overwrite else None)
    return top + math.log(float(np.exp(terms, out=terms).sum()))
