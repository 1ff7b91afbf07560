"""Privacy loss distributions: certified upper and lower bounds on delta and epsilon.

A mechanism is a dominating pair (P, Q) of distributions; its privacy loss is L = log dP/dQ and

    delta(epsilon) = E_P[(1 - exp(epsilon - L))_+].

One step is put on a lattice of losses in two ways, each a pair of distributions again:

- *upper*: the mass between two neighbouring lattice points moves to these two points so that its
  P-mass and its Q-mass are kept ("connect the dots", Doroshenko et al. 2022). exp(-L) is spread
  out in the convex order, so every hockey-stick divergence grows. Outcomes in the far tails are
  taken to give everything away.
- *lower*: outcomes are merged into groups whose log P/Q lies on the lattice, at random where an
  outcome must be shared out between two groups. That is a post-processing, so every divergence
  shrinks. Outcomes in the far tails are left out.

Both survive composition and reversal of (P, Q): one lattice serves both directions.

T steps are composed by a fast Fourier transform of the *tilted* distribution, p(l) exp(order * l),
whose bulk lies where the tail of interest was, so that the round-off of the transform, absolute by
nature, is small against the answer. Round-off, wrap-around and truncation are bounded, and each
bound is added to the upper value of delta and taken from the lower one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import ParamSpec, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.optimize import brentq, minimize_scalar
from scipy.special import ndtri

from privmix import _validate
from privmix._compiled import njit
from privmix._validate import InvalidInputError
from privmix.accounting.events import (
    ComposedEvent,
    EligibleGaussianEvent,
    GaussianEvent,
    PoissonGaussianEvent,
    SignedGaussianEvent,
    SimpleEvent,
    UniformGaussianEvent,
    simple_events,
)
from privmix.accounting.gdp import gdp_delta, gdp_epsilon

Array: TypeAlias = NDArray[np.float64]
_P = ParamSpec("_P")
_T = TypeVar("_T")

_ACCURACY = 2e-4  # relative error of epsilon that the lattice may cause, roughly
_MAX_LATTICE = 2**20  # of one step
_MAX_WINDOW = 2**22  # of the composed loss
_MESH = 1.0 / 16.0  # quadrature cells are at most this wide, in noise standard deviations
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)
_NEGLIGIBLE_DELTA = 1e-15  # where delta is asked for: the smallest that is resolved
_WANTED_GAP = 2e-3  # relative distance of two bounds at which they are refined no further
_TRIES = 3
_LARGEST_EXPONENT = 600.0  # exp(-600) is still a normal float
_COARSEST_LOWER = 50.0  # spacing beyond which the lower bound is zero
_LOST_SHARE = 1e-4  # share of delta spent on outcomes beyond the lattice
_ALIASED = 1e-9  # tilted mass allowed outside the window of the transform
_LOG_ORDERS = math.log(1e-9), math.log(1e7)  # where the tilt is searched
_TILTS = 8  # transforms for one curve of delta
_MACHINE = float(np.finfo(np.float64).eps)


class _TooManyPointsError(RuntimeError):
    """The lattice is too fine for the memory allowed; a coarser one is needed."""


class _DoesNotFitError(RuntimeError):
    """No lattice holds the losses of this event soundly; other accountants must do."""


def _none_if_unfit(function: Callable[_P, _T | None]) -> Callable[_P, _T | None]:
    """Let a public function return None for an event that fits no lattice."""

    @wraps(function)
    def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _T | None:
        try:
            return function(*args, **kwargs)
        except _DoesNotFitError:
            return None

    return guarded


# ---------------------------------------------------------------------------------------------
# Dominating pairs of one step. The outcome y is in units of the noise's standard deviation and
# has density weight * phi(y) under Q.


class _Pair(Protocol):
    @property
    def weight(self) -> float: ...

    def loss(self, outcome: Array) -> Array: ...
    def outcome(self, loss: Array) -> Array: ...
    def intervals(self, reach: float) -> list[tuple[float, float]]: ...


@dataclass(frozen=True)
class _ShiftedPair:
    """(1 - p) N(0, s^2) + p N(1, s^2) against N(0, s^2)."""

    prob: float
    noise: float
    weight: float = 1.0

    def loss(self, outcome: Array) -> Array:
        return _mixture_loss(outcome / self.noise - 0.5 / self.noise**2, self.prob)

    def outcome(self, loss: Array) -> Array:
        return self.noise * _unmixed_loss(loss, self.prob) + 0.5 / self.noise

    def intervals(self, reach: float) -> list[tuple[float, float]]:
        centre = 1.0 / self.noise
        if centre > 2.0 * reach:
            return [(-reach, reach), (centre - reach, centre + reach)]
        return [(-reach, centre + reach)]


@dataclass(frozen=True)
class _SignedPair:
    """(1 - p) N(0, s^2) + p/2 N(1, s^2) + p/2 N(-1, s^2) against N(0, s^2), folded to y >= 0."""

    prob: float
    noise: float
    weight: float = 2.0

    def loss(self, outcome: Array) -> Array:
        scaled = outcome / self.noise
        log_cosh = scaled + np.log1p(np.expm1(-2.0 * scaled) / 2.0)
        return _mixture_loss(log_cosh - 0.5 / self.noise**2, self.prob)

    def outcome(self, loss: Array) -> Array:
        log_cosh = np.maximum(_unmixed_loss(loss, self.prob) + 0.5 / self.noise**2, 0.0)
        return self.noise * (log_cosh + np.log1p(np.sqrt(-np.expm1(-2.0 * log_cosh))))

    def intervals(self, reach: float) -> list[tuple[float, float]]:
        centre = 1.0 / self.noise
        if centre > 2.0 * reach:
            return [(0.0, reach), (centre - reach, centre + reach)]
        return [(0.0, centre + reach)]


def _mixture_loss(loss: Array, prob: float) -> Array:
    """log(1 - p + p exp(loss)), accurate for small p and for large losses."""
    if prob == 1.0:
        return loss
    small: Array = np.log1p(prob * np.expm1(np.minimum(loss, 30.0)))
    if loss.max() < 30.0:
        return small
    large = loss + math.log(prob) + np.log1p((1.0 / prob - 1.0) * np.exp(-np.maximum(loss, 30.0)))
    return np.where(loss < 30.0, small, large)


def _unmixed_loss(loss: Array, prob: float) -> Array:
    """Inverse of :func:`_mixture_loss`; -inf at and below its infimum log(1 - p)."""
    if prob == 1.0:
        return loss
    with np.errstate(divide="ignore"):
        ratio = np.maximum(np.expm1(np.minimum(loss, 30.0)) / prob, -1.0)
        small = np.log1p(ratio)
    large = loss - math.log(prob) + np.log1p((prob - 1.0) * np.exp(-np.maximum(loss, 30.0)))
    return np.where(loss < 30.0, small, large)


@dataclass(frozen=True)
class _Step:
    """One step: with probability ``share`` the pair, else nothing; the coin is revealed."""

    pair: _Pair
    share: float = 1.0


def _step_of(event: SimpleEvent) -> _Step:
    if isinstance(event, PoissonGaussianEvent):
        return _Step(_ShiftedPair(event.sampling_prob, event.noise_multiplier))
    if isinstance(event, SignedGaussianEvent):
        return _Step(_SignedPair(event.sampling_prob, event.noise_multiplier))
    if isinstance(event, EligibleGaussianEvent):
        pair = _ShiftedPair(event.sampling_prob, event.noise_multiplier)
        return _Step(pair, event.eligible_prob)
    raise InvalidInputError("event", "a mechanism with a loss distribution", event.mechanism)


# ---------------------------------------------------------------------------------------------
# Cells: narrow pieces of the outcome line, none of which straddles a lattice point.


@dataclass(frozen=True)
class _Cells:
    bucket: NDArray[np.int64]  # index of the lattice point below the cell's losses
    mass: Array  # P-mass
    above: Array  # log P/Q of the cell minus the loss of that point, in [0, spacing]


def _cells(pair: _Pair, origin: float, spacing: float, reach: float) -> _Cells:
    edges = [_edges(pair, origin, spacing, *interval) for interval in pair.intervals(reach)]
    left = np.concatenate([e[:-1] for e in edges])
    right = np.concatenate([e[1:] for e in edges])
    left, right = left[right > left], right[right > left]
    bucket = np.floor((pair.loss((left + right) / 2.0) - origin) / spacing).astype(np.int64)
    base = origin + spacing * bucket
    # All terms are positive, so both sums are accurate in relative terms.
    mass, shifted = np.zeros_like(left), np.zeros_like(left)  # P and exp(base) Q
    half = (right - left) / 2.0
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        outcome = left + half * (1.0 + node)
        loss = pair.loss(outcome)
        density = half * weight * np.exp(loss - outcome**2 / 2.0)
        mass += density
        shifted += density * np.exp(base - loss)
    scale = pair.weight / math.sqrt(2.0 * math.pi)
    kept = mass > 0.0
    mass, ratio = mass[kept], shifted[kept] / mass[kept]
    above = np.clip(-np.log(np.maximum(ratio, 1e-300)), 0.0, spacing)
    return _Cells(bucket[kept], scale * mass, above)


def _edges(pair: _Pair, origin: float, spacing: float, low: float, high: float) -> Array:
    lowest, highest = pair.loss(np.array([low, high]))
    first = math.floor((lowest - origin) / spacing)
    last = math.ceil((highest - origin) / spacing)
    if last - first > _MAX_LATTICE:
        raise _TooManyPointsError
    mesh = np.linspace(low, high, math.ceil((high - low) / _MESH) + 1)
    on_lattice = pair.outcome(origin + spacing * np.arange(first, last + 1))
    edges: Array = np.sort(np.concatenate([mesh, np.clip(on_lattice, low, high)]))
    return edges


def _variance(step: _Step, reach: float) -> float:
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


# ---------------------------------------------------------------------------------------------
# One step on the lattice.


@dataclass(frozen=True)
class _Lattice:
    """P-masses at the losses ``first + spacing * i``; Q-masses are masses * exp(-loss).

    ``lost`` bounds the mass outside, the same for P and Q: infinite loss above, nothing below.
    """

    first: float
    spacing: float
    masses: Array
    lost: float

    @cached_property
    def losses(self) -> Array:
        return self.first + self.spacing * np.arange(self.masses.size, dtype=np.float64)

    @cached_property
    def log_masses(self) -> Array:
        with np.errstate(divide="ignore"):
            return np.log(self.masses)

    def reversed(self) -> _Lattice:
        """The pair (Q, P): losses change sign, masses become Q-masses."""
        masses = np.exp(self.log_masses - self.losses)[::-1]
        return _Lattice(-float(self.losses[-1]), self.spacing, masses, self.lost)


def _upper_lattice(step: _Step, spacing: float, reach: float) -> _Lattice:
    pair = step.pair
    infimum = _lowest_loss(step, reach)
    # A lattice through zero holds the idle step of a revealed coin exactly; otherwise one that
    # starts at the infimum of the loss, where most of the mass of a sampled step is.
    origin = 0.0 if step.share < 1.0 else infimum
    cells = _cells(pair, origin, spacing, reach)
    # Shares of the mass that go up and down; each is accurate in relative terms.
    up = np.expm1(-cells.above) / math.expm1(-spacing)
    down = np.exp(-cells.above) * np.expm1(cells.above - spacing) / math.expm1(-spacing)
    first = min(int(cells.bucket.min()), 0)
    size = max(int(cells.bucket.max()) + 2, 1) - first
    index = cells.bucket - first
    masses = _summed(index, step.share * cells.mass * down, size)
    masses += _summed(index + 1, step.share * cells.mass * up, size)
    if step.share < 1.0:
        masses[-first] += 1.0 - step.share
    return _Lattice(origin + spacing * first, spacing, masses, step.share * _lost(pair, reach))


def _summed(index: NDArray[np.int64], values: Array, size: int) -> Array:
    """Sums of the values by index, of length ``size``."""
    return np.bincount(index, values, size).astype(np.float64, copy=False)


def _lower_lattice(step: _Step, spacing: float, reach: float) -> _Lattice:
    if spacing > _COARSEST_LOWER:  # no bound worth having
        return _Lattice(0.0, spacing, np.zeros(1), 1.0)
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
    points, merged = _merge(masses[order], losses[order], origin, spacing)
    first = int(points.min()) if points.size else 0
    size = int(points.max()) - first + 1 if points.size else 1
    dense = _summed(points - first, merged, size)
    return _Lattice(origin + spacing * first, spacing, dense, step.share * _lost(step.pair, reach))


@njit(cache=True)
def _merge(
    masses: Array, losses: Array, origin: float, spacing: float
) -> tuple[NDArray[np.int64], Array]:
    """Merge outcomes, sorted by loss, into groups whose log P/Q lies on the lattice.

    A group starts with an outcome and takes in higher ones until its log P/Q has risen to the
    next lattice point; of the last one it takes the share that makes it exact. What is left at
    the top, where no lattice point is reached any more, is left out.
    """
    points = np.empty(masses.size, np.int64)
    merged = np.empty(masses.size, np.float64)
    groups = 0
    i, rest = 0, masses[0]
    while i < masses.size:
        point = math.ceil((losses[i] - origin) / spacing)
        target = origin + spacing * point
        mass = rest
        missing = rest * math.expm1(target - losses[i])  # exp(target) Q - P
        i += 1
        rest = masses[i] if i < masses.size else 0.0
        while missing > 0.0 and i < masses.size:
            gain = -masses[i] * math.expm1(target - losses[i])
            if gain < missing:
                missing -= gain
                mass += masses[i]
                i += 1
                rest = masses[i] if i < masses.size else 0.0
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


def _lost(pair: _Pair, reach: float) -> float:
    """Bound on the P-mass and on the Q-mass outside the intervals: four Gaussian tails."""
    return 2.0 * pair.weight * float(np.exp(_log_tail(reach)))


def _log_tail(reach: float) -> float:
    return math.log(math.erfc(reach / math.sqrt(2.0)) / 2.0)


# ---------------------------------------------------------------------------------------------
# Composition.


@dataclass(frozen=True)
class _Tilted:
    """The composed loss, tilted: P(loss) = masses * exp(log_scale - order * loss).

    The masses carry an absolute error of at most ``round_off`` each; tilted mass of at most
    ``aliased`` lies outside the window; ``relative_error`` bounds the error of all factors.
    """

    order: float
    log_scale: float
    losses: Array
    masses: Array
    round_off: float
    aliased: float
    relative_error: float

    def log_delta(self, epsilon: float, upper: bool) -> float:
        """Log of a bound on the part of delta that finite losses contribute."""
        start = int(np.searchsorted(self.losses, epsilon, side="right"))
        below = epsilon - self.losses[start:]
        gain = self.order * below
        np.exp(gain, out=gain)
        gain *= np.negative(np.expm1(below, out=below), out=below)
        error = self.round_off * float(gain.sum()) + self.aliased * _largest_gain(self.order)
        np.multiply(self.masses[start:], gain, out=gain)
        total = float(gain.sum()) + (error if upper else -error)
        if total <= 0.0 or (not upper and self.relative_error >= 1.0):
            return -math.inf
        slack = math.log1p(self.relative_error) if upper else math.log1p(-self.relative_error)
        return self.log_scale - self.order * epsilon + math.log(total) + slack


def _largest_gain(order: float) -> float:
    """Maximum over u > 0 of exp(-order u) (1 - exp(-u))."""
    if order == 0.0:
        return 1.0
    return math.exp(-order * math.log1p(1.0 / order)) / (order + 1.0)


@dataclass(frozen=True)
class _Composition:
    """Independent steps, each repeated; all on lattices of one spacing."""

    parts: tuple[tuple[_Lattice, int], ...]
    cache: dict[float, float] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether some step has lost all its mass, as a coarse lower lattice may."""
        return any(not part.masses.any() for part, _ in self.parts)

    @cached_property
    def lost(self) -> float:
        """Bound on the mass outside the lattices, over all steps."""
        return -math.expm1(sum(count * math.log1p(-part.lost) for part, count in self.parts))

    @cached_property
    def loss_error(self) -> float:
        """Bound on the rounding of the composed loss."""
        per_step = (
            (count, float(np.abs(part.losses[[0, -1]]).max())) for part, count in self.parts
        )
        return 8.0 * _MACHINE * sum(count * (1.0 + largest) for count, largest in per_step)

    def reversed(self) -> _Composition:
        """The direction (Q, P)."""
        return _Composition(tuple((part.reversed(), count) for part, count in self.parts))

    def log_mgf(self, order: float) -> float:
        """Log E_P[exp(order * loss)] over finite losses."""
        if order not in self.cache:
            self.cache[order] = sum(
                count * log_sum_exp(part.log_masses + order * part.losses)
                for part, count in self.parts
            )
        return self.cache[order]

    def chernoff(self, delta: float) -> tuple[float, float]:
        """An order, and the upper bound on epsilon it gives: the Renyi conversion of Canonne,
        Kamath, Steinke 2020, Proposition 12.
        """

        def epsilon(log_order: float) -> float:
            order = math.exp(log_order)
            gain = math.log(_largest_gain(order))
            return (self.log_mgf(order) + gain - math.log(delta)) / order

        best = minimize_scalar(
            epsilon, bounds=_LOG_ORDERS, method="bounded", options={"xatol": 0.02}
        )
        return math.exp(best.x), float(best.fun)

    def tilted(self, order: float) -> _Tilted:
        """Compose by Fourier transform the distribution tilted by ``order``."""
        log_scale = self.log_mgf(order)
        low, high = self._window(order)
        spacing = self.parts[0][0].spacing
        size = math.ceil((high - low) / spacing) + 2
        if size > _MAX_WINDOW:
            raise _TooManyPointsError
        size = int(fft.next_fast_len(size, real=True))
        transform_error = 10.0 * _MACHINE * math.log2(size + 2)
        log_spectrum = np.zeros(size // 2 + 1, np.complex128)
        log_modulus, sensitivity = np.zeros(size // 2 + 1), np.zeros(size // 2 + 1)
        first, relative_error = 0.0, 0.0
        for part, count in self.parts:
            exponent = part.log_masses + order * part.losses
            pmf = np.exp(exponent - log_sum_exp(exponent))
            heavy = pmf > 1e-30
            largest = float(np.abs(part.log_masses[heavy]).max()) + float(
                np.abs(order * part.losses[heavy]).max()
            )
            relative_error += count * _MACHINE * (100.0 + 8.0 * largest)
            spectrum = fft.rfft(_folded(pmf, size))
            log_spectrum.imag += count * np.angle(spectrum)
            modulus = np.abs(spectrum)
            del exponent, pmf, heavy, spectrum  # here and below: half the memory of the whole
            log_spectrum.real += count * np.log(np.maximum(modulus, 1e-300))
            modulus += transform_error
            log_modulus += count * np.log(modulus)
            sensitivity += count * (transform_error + 8.0 * _MACHINE) / modulus
            first += count * part.first
            del modulus
        sensitivity += transform_error
        sensitivity *= np.exp(log_modulus, out=log_modulus)
        round_off = 2.0 / size * float(sensitivity.sum())
        del log_modulus, sensitivity
        spectrum = np.exp(log_spectrum, out=log_spectrum)
        masses: Array = fft.irfft(spectrum, size, overwrite_x=True)
        del log_spectrum, spectrum
        # The transform knows indices modulo its size only; the window says which are meant.
        begin = math.floor((low - first) / spacing)
        masses = np.roll(masses, -(begin % size))
        losses = first + spacing * (begin + np.arange(size, dtype=np.float64))
        return _Tilted(order, log_scale, losses, masses, round_off, _ALIASED, relative_error)

    def _window(self, order: float) -> tuple[float, float]:
        """Losses outside of which the tilted distribution has at most ``_ALIASED``, by Chernoff."""
        here = self.log_mgf(order)
        deviation = math.sqrt(
            sum(count * self._variance(part, order) for part, count in self.parts)
        )
        deviation = max(deviation, self.parts[0][0].spacing)
        rates = np.array([0.25, 1.0, 2.5, 4.0, 5.5, 7.0, 10.0, 20.0]) / deviation
        need = math.log(2.0 / _ALIASED)
        high = min((self.log_mgf(order + r) - here + need) / r for r in rates)
        low = max(-(self.log_mgf(order - r) - here + need) / r for r in rates)
        return low, high

    @staticmethod
    def _variance(part: _Lattice, order: float) -> float:
        exponent = part.log_masses + order * part.losses
        pmf = np.exp(exponent - log_sum_exp(exponent))
        mean = float((pmf * part.losses).sum())
        return float((pmf * (part.losses - mean) ** 2).sum())


def log_sum_exp(exponent: Array) -> float:
    """Log of the sum of exponentials, of which one at least must be finite."""
    top = float(exponent.max())
    return top + math.log(float(np.exp(exponent - top).sum()))


def _folded(pmf: Array, size: int) -> Array:
    if pmf.size <= size:
        return pmf if pmf.size == size else np.pad(pmf, (0, size - pmf.size))
    return _summed(np.arange(pmf.size) % size, pmf, size)


# ---------------------------------------------------------------------------------------------
# Reading epsilon and delta.


def _delta(composition: _Composition, tilted: _Tilted, epsilon: float, upper: bool) -> float:
    """Bound on delta at ``epsilon`` in one direction."""
    shifted = epsilon + (-1.0 if upper else 1.0) * composition.loss_error
    finite = math.exp(min(tilted.log_delta(shifted, upper), 1.0))
    return min(finite + composition.lost, 1.0) if upper else finite


def _direction_epsilon(composition: _Composition, delta: float, upper: bool) -> float:
    """Bound on epsilon of one direction at ``delta``."""
    if composition.is_empty:
        return 0.0
    order, start = composition.chernoff(delta)
    curve = [(composition, composition.tilted(order))]

    def excess(epsilon: float) -> float:
        return math.log(max(_delta(*curve[0], epsilon, upper), 1e-320) / delta)

    # The bounds are tight near the Chernoff bound and loose far below it, where the tilt is wrong.
    # There, log delta falls with slope ``order``, nearly.
    high = max(start, 0.0) * (1.0 + 1e-6) + 2.0 * composition.loss_error
    while (below := excess(high)) > 0.0:
        high += 0.01 * high + 1e-9
    low, gap = high, 1.2 * max(-below, 1e-6) / order
    while excess(low) <= 0.0:
        if low == 0.0:
            return 0.0
        low, gap = max(low - gap, 0.0), 2.0 * gap
    root = float(brentq(excess, low, high, xtol=1e-14, rtol=1e-7))
    while excess(root) > 0.0 if upper else excess(root) < 0.0:
        root *= 1.0 + (1e-7 if upper else -1e-7)
    curve.clear()  # the root finder keeps ``excess`` in a cycle, and hundreds of megabytes with it
    return root


@dataclass(frozen=True)
class _Problem:
    """An event split into its Gaussian part, which is exact, and the sampled steps."""

    gdp_mu: float
    steps: tuple[tuple[_Step, int], ...]

    @property
    def all_steps(self) -> tuple[tuple[_Step, int], ...]:
        if self.gdp_mu == 0.0:
            return self.steps
        return ((_Step(_ShiftedPair(1.0, 1.0 / self.gdp_mu)), 1), *self.steps)


def _problem(event: SimpleEvent | ComposedEvent) -> _Problem | None:
    square, steps = 0.0, []
    for part in simple_events(event):
        if isinstance(part, UniformGaussianEvent):
            return None
        if isinstance(part, GaussianEvent):
            square += part.count / part.noise_multiplier**2
        else:
            steps.append((_step_of(part), part.count))
    return _Problem(math.sqrt(square), tuple(steps))


def _spacing(steps: tuple[tuple[_Step, int], ...], reach: float, delta: float) -> float:
    """Spacing of the lattice for a relative error of epsilon of about ``_ACCURACY``.

    Moving mass to lattice points raises the variance of a step's loss by at most spacing^2 / 4,
    hence log E exp(order L) by spacing^2 order^2 / 8 and epsilon by count * order spacing^2 / 8.
    """
    total = sum(count for _, count in steps)
    variance = sum(count * _variance(step, reach) for step, count in steps)
    deviation = max(math.sqrt(variance / total), 1e-12)
    coarse, _ = _with_coarsening(
        lambda spacing: _compose(steps, spacing, reach, upper=True), deviation / 4.0
    )
    order, epsilon = coarse.chernoff(delta)
    wanted = math.sqrt(8.0 * _ACCURACY * max(epsilon, 0.0) / (total * order))
    finest, coarsest = deviation / 64.0, deviation / 8.0
    return min(max(wanted, finest), coarsest)


def _reach(steps: Iterable[tuple[_Step, int]], delta: float) -> float:
    """Outcomes beyond this many standard deviations are lost; at most a share of delta in all."""
    total = sum(count for _, count in steps)
    return max(-float(ndtri(_LOST_SHARE * delta / (4.0 * total))), 6.0)


def _check_fit(steps: Iterable[tuple[_Step, int]], reach: float) -> None:
    """Refuse steps with an outcome so unlikely under P, yet not under Q, that its P-mass underflows.

    Only near-certain participation with very little noise is refused: losses below -600.
    """
    if any(_lowest_loss(step, reach) < -_LARGEST_EXPONENT for step, _ in steps):
        raise _DoesNotFitError


def _lowest_loss(step: _Step, reach: float) -> float:
    low = step.pair.intervals(reach)[0][0]
    return float(step.pair.loss(np.array([low]))[0])


def _compose(
    steps: tuple[tuple[_Step, int], ...], spacing: float, reach: float, upper: bool
) -> _Composition:
    lattice = _upper_lattice if upper else _lower_lattice
    return _Composition(tuple((lattice(step, spacing, reach), count) for step, count in steps))


def _with_coarsening(compute: Callable[[float], _T], spacing: float) -> tuple[_T, float]:
    """``compute(spacing)`` with the finest spacing that fits; the spacing is returned too."""
    while spacing < _LARGEST_EXPONENT:
        try:
            return compute(spacing), spacing
        except _TooManyPointsError:
            spacing *= 2.0
    raise _DoesNotFitError


@_none_if_unfit
def epsilon_bounds(event: SimpleEvent | ComposedEvent, delta: float) -> tuple[float, float] | None:
    """Certified lower and upper bound on epsilon at ``delta``; None if the event has no PLD here.

    Both hold for the mechanism's dominating pair, in the worse of the two directions.
    """
    delta = _validate.delta("delta", delta)
    problem = _problem(event)
    if problem is None:
        return None
    if not problem.steps:
        exact = gdp_epsilon(problem.gdp_mu, delta)
        return exact * (1.0 - 2e-12), exact
    steps = problem.all_steps
    reach = _reach(steps, delta)
    _check_fit(steps, reach)

    def bound(spacing: float, upper: bool) -> float:
        composition = _compose(steps, spacing, reach, upper)
        return max(
            _direction_epsilon(direction, delta, upper)
            for direction in (composition, composition.reversed())
        )

    upper, spacing = _with_coarsening(lambda h: bound(h, True), _spacing(steps, reach, delta))
    lower = 0.0
    for _ in range(_TRIES):
        found, used = _with_coarsening(lambda h: bound(h, False), spacing)
        lower = max(lower, found)
        if lower >= (1.0 - _WANTED_GAP) * upper or used > spacing:
            break
        spacing /= 3.0
    return lower, upper


@_none_if_unfit
def epsilon_upper(
    event: SimpleEvent | ComposedEvent, deltas: Sequence[float]
) -> list[float] | None:
    """Certified upper bounds on epsilon at several deltas; None if the event has no PLD here.

    One lattice, fit for the smallest delta, serves all.
    """
    deltas = [_validate.delta("delta", delta) for delta in deltas]
    problem = _problem(event)
    if problem is None:
        return None
    if not problem.steps:
        return [gdp_epsilon(problem.gdp_mu, delta) for delta in deltas]
    reach = _reach(problem.all_steps, min(deltas))
    _check_fit(problem.all_steps, reach)
    spacing = min(_spacing(problem.all_steps, reach, delta) for delta in (min(deltas), max(deltas)))

    def bounds(spacing: float) -> list[float]:
        composition = _compose(problem.all_steps, spacing, reach, upper=True)
        directions = composition, composition.reversed()
        return [max(_direction_epsilon(d, delta, True) for d in directions) for delta in deltas]

    return _with_coarsening(bounds, spacing)[0]


@_none_if_unfit
def reverse_log_moments(event: SignedGaussianEvent, orders: Array) -> Array | None:
    """Upper bounds on log E_P[(Q/P)^order] of one step, from the upper lattice; None without.

    Moments of order above one grow under dominance. Outcomes outside the lattice have Q/P of at
    most one over its infimum exp(loss at 0), since the loss grows with the outcome's size.
    """
    step, reach = _step_of(event), 12.0
    _check_fit(((step, 1),), reach)
    lattice, _ = _with_coarsening(
        lambda spacing: _upper_lattice(step, spacing, reach), _spacing(((step, 1),), reach, 1e-6)
    )
    backward = lattice.reversed()
    powers = [log_sum_exp(backward.log_masses + (a - 1.0) * backward.losses) for a in orders]
    outside = math.log(lattice.lost + 1e-300) - (orders - 1.0) * lattice.first
    moments: Array = np.logaddexp(np.asarray(powers), outside)
    return moments


@_none_if_unfit
def delta_bounds(event: SimpleEvent | ComposedEvent, epsilon: float) -> tuple[float, float] | None:
    """Certified lower and upper bound on delta at ``epsilon``; None if the event has no PLD here."""
    epsilon = _validate.real("epsilon", epsilon, at_least=0.0)
    problem = _problem(event)
    if problem is None:
        return None
    if not problem.steps:
        exact = gdp_delta(problem.gdp_mu, epsilon)
        return exact * (1.0 - 1e-12), exact * (1.0 + 1e-12)
    reach = _reach(problem.all_steps, _NEGLIGIBLE_DELTA)
    _check_fit(problem.all_steps, reach)

    def bound(spacing: float, upper: bool) -> float:
        composition = _compose(problem.all_steps, spacing, reach, upper)
        directions = composition, composition.reversed()
        return max(_direction_delta(direction, epsilon, upper) for direction in directions)

    spacing = _spacing(problem.all_steps, reach, 1e-6)
    lower, upper = 0.0, 1.0
    for _ in range(_TRIES):
        found, used = _with_coarsening(lambda h: bound(h, True), spacing)
        upper = min(upper, found)
        lower = max(lower, _with_coarsening(lambda h: bound(h, False), spacing)[0])
        if lower >= (1.0 - _WANTED_GAP) * upper or used > spacing:
            break
        spacing /= 3.0
    return lower, upper


def _direction_delta(composition: _Composition, epsilon: float, upper: bool) -> float:
    if composition.is_empty:
        return 1.0 if upper else 0.0
    tilted = composition.tilted(_order_for(composition, epsilon))
    return _delta(composition, tilted, epsilon, upper)


def _order_for(composition: _Composition, epsilon: float) -> float:
    """The order with the smallest Chernoff bound on delta at ``epsilon``."""

    def log_chernoff(log_order: float) -> float:
        order = math.exp(log_order)
        return composition.log_mgf(order) - order * epsilon + math.log(_largest_gain(order))

    best = minimize_scalar(
        log_chernoff, bounds=_LOG_ORDERS, method="bounded", options={"xatol": 0.02}
    )
    return math.exp(best.x)


@_none_if_unfit
def delta_profile(event: SimpleEvent | ComposedEvent, epsilons: Array) -> Array | None:
    """Certified upper bounds on delta at increasing ``epsilons`` >= 0; None without a PLD."""
    problem = _problem(event)
    if problem is None:
        return None
    if not problem.steps:
        exact = [gdp_delta(problem.gdp_mu, epsilon) for epsilon in epsilons]
        return np.asarray(exact) * (1.0 + 1e-12)
    reach = _reach(problem.all_steps, _NEGLIGIBLE_DELTA)
    _check_fit(problem.all_steps, reach)

    def profile(spacing: float) -> Array:
        composition = _compose(problem.all_steps, spacing, reach, upper=True)
        directions = composition, composition.reversed()
        return np.maximum(*(_direction_profile(d, epsilons) for d in directions))

    return _with_coarsening(profile, _spacing(problem.all_steps, reach, 1e-6))[0]


def _direction_profile(composition: _Composition, epsilons: Array) -> Array:
    """One tilt serves a run of neighbouring epsilons; every tilt's bound is valid everywhere."""
    bounds = []
    for run in np.array_split(epsilons, min(_TILTS, epsilons.size)):
        tilted = composition.tilted(_order_for(composition, float(run[run.size // 2])))
        bounds += [_delta(composition, tilted, float(epsilon), upper=True) for epsilon in run]
        del tilted  # before there is another
    return np.minimum.accumulate(np.asarray(bounds))  # delta never grows with epsilon
