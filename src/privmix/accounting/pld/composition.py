"""Composition of steps on lattices, by fast Fourier transforms of tilted distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import fft

from privmix.accounting.pld.lattice import Lattice, TooManyPointsError, summed
from privmix.accounting.pld.pairs import Array
from privmix.accounting.search import minimum

MACHINE = float(np.finfo(np.float64).eps)
LOG_ORDERS = math.log(1e-9), math.log(1e7)  # where the tilt is searched
MAX_WINDOW = 2**20  # of the composed loss: what 10^7 rows take, and transformed soon enough
_ALIASED = 1e-9  # tilted mass allowed outside the window of the transform
_RATES = np.array([0.25, 1.0, 2.5, 4.0, 5.5, 7.0, 10.0, 20.0])  # of Chernoff, over the deviation
_USUAL_RATE = 5  # the place of the best of them where the loss is nearly normal
_NOTHING = 760.0  # exp(-746) is zero, whatever is lost to rounding


@dataclass(frozen=True)
class Tilted:
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
        error = self.round_off * float(gain.sum()) + self.aliased * largest_gain(self.order)
        np.multiply(self.masses[start:], gain, out=gain)
        total = float(gain.sum()) + (error if upper else -error)
        if total <= 0.0 or (not upper and self.relative_error >= 1.0):
            return -math.inf
        slack = math.log1p(self.relative_error) if upper else math.log1p(-self.relative_error)
        return self.log_scale - self.order * epsilon + math.log(total) + slack


def largest_gain(order: float) -> float:
    """Maximum over u > 0 of exp(-order u) (1 - exp(-u))."""
    if order == 0.0:
        return 1.0
    return math.exp(-order * math.log1p(1.0 / order)) / (order + 1.0)


@dataclass(frozen=True)
class Composition:
    """Independent steps, each repeated; all on lattices of one spacing."""

    parts: tuple[tuple[Lattice, int], ...]
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
        rounding = 8.0 * MACHINE * sum(count * (1.0 + largest) for count, largest in per_step)
        return rounding + sum(count * part.slack for part, count in self.parts)

    @property
    def directions(self) -> tuple[Composition, ...]:
        """(P, Q) and (Q, P), or one of them where each step is its own reverse."""
        if all(part.is_symmetric for part, _ in self.parts):
            return (self,)
        return self, self.reversed()

    def reversed(self) -> Composition:
        """The direction (Q, P)."""
        return Composition(tuple((part.reversed(), count) for part, count in self.parts))

    def log_mgf(self, order: float) -> float:
        """Log E_P[exp(order * loss)] over finite losses."""
        if order not in self.cache:
            self.cache[order] = sum(count * part.log_mgf(order) for part, count in self.parts)
        return self.cache[order]

    def chernoff(self, delta: float) -> tuple[float, float]:
        """An order, and the upper bound on epsilon it gives: the Renyi conversion of Canonne,
        Kamath, Steinke 2020, Proposition 12.
        """

        def epsilon(log_order: float) -> float:
            order = math.exp(log_order)
            gain = math.log(largest_gain(order))
            return (self.log_mgf(order) + gain - math.log(delta)) / order

        log_order, least = minimum(epsilon, *LOG_ORDERS, xtol=0.02)
        return math.exp(log_order), least

    def tilted(self, order: float) -> Tilted:
        """Compose by Fourier transform the distribution tilted by ``order``."""
        log_scale = self.log_mgf(order)
        low, high = self.window(order)
        spacing = self.parts[0][0].spacing
        size = math.ceil((high - low) / spacing) + 2
        if size > MAX_WINDOW:
            raise TooManyPointsError(size, MAX_WINDOW)
        size = int(fft.next_fast_len(size, real=True))
        transform_error = 10.0 * MACHINE * math.log2(size + 2)
        log_spectrum = np.zeros(size // 2 + 1, np.complex128)
        log_modulus, sensitivity = np.zeros(size // 2 + 1), np.zeros(size // 2 + 1)
        first, relative_error = 0.0, 0.0
        kept = size // 2 + 1  # of the spectrum: beyond, its powers are zero
        for part, count in self.parts:
            pmf = part.tilted_masses(order)
            heavy = pmf > 1e-30
            largest = float(np.abs(part.log_masses[heavy]).max()) + float(
                np.abs(order * part.losses[heavy]).max()
            )
            relative_error += count * MACHINE * (100.0 + 8.0 * largest)
            spectrum = fft.rfft(_folded(pmf, size))
            modulus = np.abs(spectrum)
            least = math.exp(-_NOTHING / count) - transform_error
            kept = min(kept, modulus.size - int((modulus[::-1] >= least).argmax()))
            spectrum, modulus = spectrum[:kept], modulus[:kept]
            log_spectrum.imag[:kept] += count * np.angle(spectrum)
            del pmf, heavy, spectrum  # here and below: half the memory of the whole
            log_spectrum.real[:kept] += count * np.log(np.maximum(modulus, 1e-300))
            modulus += transform_error
            log_modulus[:kept] += count * np.log(modulus)
            sensitivity[:kept] += count * (transform_error + 8.0 * MACHINE) / modulus
            first += count * part.first
            del modulus
        sensitivity[:kept] += transform_error
        sensitivity[:kept] *= np.exp(log_modulus[:kept], out=log_modulus[:kept])
        sensitivity[kept:] = 0.0
        round_off = 2.0 / size * float(sensitivity.sum())
        del log_modulus, sensitivity
        spectrum = log_spectrum
        np.exp(spectrum[:kept], out=spectrum[:kept])
        spectrum[kept:] = 0.0
        masses: Array = fft.irfft(spectrum, size, overwrite_x=True)
        del log_spectrum, spectrum
        # The transform knows indices modulo its size only; the window says which are meant.
        begin = math.floor((low - first) / spacing)
        masses = np.roll(masses, -(begin % size))
        losses = first + spacing * (begin + np.arange(size, dtype=np.float64))
        return Tilted(order, log_scale, losses, masses, round_off, _ALIASED, relative_error)

    def window(self, order: float) -> tuple[float, float]:
        """Losses outside of which the tilted distribution has at most ``_ALIASED``, by Chernoff."""
        here = self.log_mgf(order)
        deviation = math.sqrt(
            sum(count * self._variance(part, order) for part, count in self.parts)
        )
        deviation = max(deviation, self.parts[0][0].spacing)
        rates = _RATES / deviation
        need = math.log(2.0 / _ALIASED)
        high = _least(lambda r: (self.log_mgf(order + r) - here + need) / r, rates)
        low = -_least(lambda r: (self.log_mgf(order - r) - here + need) / r, rates)
        return low, high

    @staticmethod
    def _variance(part: Lattice, order: float) -> float:
        pmf = part.tilted_masses(order)
        mean = float((pmf * part.losses).sum())
        square = part.losses - mean
        square **= 2
        square *= pmf
        return float(square.sum())


def _least(bound: Callable[[float], float], rates: Array) -> float:
    """Least Chernoff bound at any of the rates, of which few are looked at.

    A bound (K(r) + c) / r with K convex, K(0) = 0 and c > 0 falls up to one rate and grows from there.
    """
    least = bound(rates[_USUAL_RATE])
    for others in (rates[_USUAL_RATE + 1 :], rates[:_USUAL_RATE][::-1]):
        for rate in others:
            if (found := bound(rate)) >= least:
                break
            least = found
    return least


def _folded(pmf: Array, size: int) -> Array:
    if pmf.size <= size:
        return pmf if pmf.size == size else np.pad(pmf, (0, size - pmf.size))
    return summed(np.arange(pmf.size) % size, pmf, size)
