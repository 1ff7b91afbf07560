"""Solve for the one unknown of an event so that a target epsilon is met, on the safe side always.

The certified epsilon itself is searched, and what is returned was checked against the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from privmix import _validate
from privmix._validate import InvalidInputError
from privmix.accounting import accountants, gdp, pld
from privmix.accounting.events import Event
from privmix.accounting.group import group_view
from privmix.accounting.guarantee import number
from privmix.accounting.rounding import format_epsilon, rounded_down
from privmix.accounting.search import root

MakeEvent: TypeAlias = Callable[[float], Event]

_TOLERANCE = 2e-3  # how far below the target the search may stop
_AIM = 8e-4  # how far below it aims
_FINE = 1e-8  # of logs: where a bound jumps, no value brings it near the target
NOISE_RANGE = 1e-3, 1e9


def calibrate_noise_multiplier(
    make_event: MakeEvent, target_epsilon: float, target_delta: float
) -> float:
    """Smallest noise multiplier, to seven digits, whose certified epsilon is within the target.

    ``make_event`` turns a noise multiplier into an event. The certified epsilon at the result is
    at most ``target_epsilon`` and within 1 % of it. Otherwise: InvalidInputError naming
    ``target_epsilon`` and the reachable range.

    Example:
        >>> from privmix.accounting import GaussianEvent, calibrate_noise_multiplier
        >>> calibrate_noise_multiplier(lambda noise: GaussianEvent(noise_multiplier=noise), 1.0, 1e-5)
        3.730632

    """
    target = _validate.real("target_epsilon", target_epsilon, above=0.0)
    delta = _validate.delta("target_delta", target_delta)
    low, high = NOISE_RANGE
    guess = noise_guess(make_event, gdp.gdp_mu_from(target, delta))
    reached = math.nan
    for fully in (False, True):
        search = _Search(make_event, target, delta, increasing=False, fully=fully)
        noise = round_up(search.real(low, high, guess))
        reached = certified_epsilon(make_event(noise), delta)
        if 0.99 * target <= reached <= target:
            return noise
    if reached == 0:
        # A record takes part with probability below delta: every noise is within the target.
        allowed = (
            f"anything, but at target_delta {number(delta)} even little noise costs 0: lower it"
        )
        raise InvalidInputError("target_epsilon", allowed, target)
    raise InvalidInputError("target_epsilon", f"a value near {format_epsilon(reached)}", target)


def certified_epsilon(event: Event, delta: float) -> float:
    """The certified epsilon alone, as :func:`epsilon_at` has it."""
    return accountants.epsilon_at(event, [delta])[delta]


def calibrate(
    make_event: MakeEvent,
    parameter: str,
    *,
    target_epsilon: float,
    target_delta: float,
    lower: float,
    upper: float,
    increasing: bool,
    integer: bool = False,
) -> float:
    """The value of one unknown in [lower, upper] that spends the target, never more.

    ``make_event`` turns a value (an int if ``integer``) into an event whose epsilon grows with
    the value if ``increasing``, else shrinks. Returns the largest (else smallest) value within the
    target: exactly for integers, to 0.2 % of the target for reals. If the whole range is within
    the target its least private end is returned; if none of it is: InvalidInputError naming
    ``parameter``'s reachable epsilons. ``lower`` must be positive.

    Example:
        >>> from privmix.accounting import PoissonGaussianEvent, calibrate
        >>> def steps(count):
        ...     return PoissonGaussianEvent(sampling_prob=0.01, noise_multiplier=1.0, count=count)
        >>> calibrate(
        ...     steps,
        ...     "count",
        ...     target_epsilon=1.0,
        ...     target_delta=1e-5,
        ...     lower=1,
        ...     upper=10_000,
        ...     increasing=True,
        ...     integer=True,
        ... )
        254

    """
    target = _validate.real("target_epsilon", target_epsilon, above=0.0)
    delta = _validate.delta("target_delta", target_delta)
    low = _validate.real("lower", lower, above=0.0)
    high = _validate.real("upper", upper, at_least=low)
    convert: Callable[[float], float] = round if integer else float
    search = _Search(lambda value: make_event(convert(value)), target, delta, increasing)
    safe, spent = (low, high) if increasing else (high, low)
    if search.epsilon(spent) <= target:
        return convert(spent)
    if search.epsilon(safe) > target:
        # What is told as reachable is reached when it is asked for.
        least, most = format_epsilon(search.epsilon(safe)), rounded_down(search.epsilon(spent), 6)
        reachable = f"from {least} to {most:.6g}"
        _validate.fail(
            "target_epsilon", f"{reachable} for {parameter} in [{low:g}, {high:g}]", target
        )
    if integer:
        return search.integer(round(safe), round(spent))
    return search.real(low, high, math.sqrt(low * high))


@dataclass
class _Search:
    make_event: MakeEvent
    target: float
    delta: float
    increasing: bool
    fully: bool = False

    def epsilon(self, value: float) -> float:
        """The certified epsilon; unless ``fully``, the PLD's bound, which rarely is larger."""
        event = self.make_event(value)
        inner, size, _ = group_view(event)
        if size > 1:
            try:
                return certified_epsilon(event, self.delta)
            except _validate.InvalidInputError:  # no finite bound for so large a group
                return math.inf
        bounds = None if self.fully else pld.epsilon_upper(inner, [self.delta])
        return certified_epsilon(event, self.delta) if bounds is None else bounds[0]

    def excess(self, log_value: float) -> float:
        """Log of epsilon over what is aimed at."""
        epsilon = max(self.epsilon(math.exp(log_value)), 1e-12 * self.target)
        return math.log(epsilon / (self.target * (1.0 - _AIM)))

    def real(self, low: float, high: float, guess: float) -> float:
        """A value whose epsilon is at most ``_TOLERANCE`` below the target."""
        limit = -math.log1p(-_AIM)
        (safe, safe_excess), (spent, spent_excess) = self._bracket(low, high, guess)
        for iteration in range(100):
            if safe_excess >= math.log1p(-_TOLERANCE) + limit or abs(safe - spent) < _FINE:
                break
            share = safe_excess / (safe_excess - spent_excess)
            # Two secant steps in three; the third halves, so that no shape can stall the search.
            if iteration % 3 == 2 or not 0.0 < share < 1.0:
                share = 0.5
            middle = safe + share * (spent - safe)
            excess = self.excess(middle)
            if excess <= limit:
                safe, safe_excess = middle, excess
            else:
                spent, spent_excess = middle, excess
        return math.exp(safe)

    def integer(self, safe: int, spent: int) -> int:
        """Bisect to the last integer within the target."""
        while abs(spent - safe) > 1:
            middle = (safe + spent) // 2
            if self.epsilon(middle) <= self.target:
                safe = middle
            else:
                spent = middle
        return safe

    def _bracket(
        self, low: float, high: float, guess: float
    ) -> tuple[tuple[float, float], tuple[float, float]]:
        """A log value within the target and one beyond it, each with its excess."""
        limit = -math.log1p(-_AIM)
        outward = (
            math.log(low if self.increasing else high),
            math.log(high if self.increasing else low),
        )
        at = min(max(math.log(guess), math.log(low)), math.log(high))
        found: dict[bool, tuple[float, float]] = {}
        stride = 0.02
        while len(found) < 2:
            excess = self.excess(at)
            within = excess <= limit
            found[within] = at, excess
            end = outward[1] if within else outward[0]
            if len(found) < 2 and at == end:
                reached = self.epsilon(math.exp(at))
                least, most = format_epsilon(reached), f"{rounded_down(reached, 6):.6g}"
                allowed = f"at most {most}" if within else f"at least {least}"
                _validate.fail("target_epsilon", allowed, self.target)
            at = min(at + stride, end) if end > at else max(at - stride, end)
            stride *= 3.0
        return found[True], found[False]


def noise_guess(make_event: MakeEvent, gdp_mu: float) -> float:
    """The noise multiplier that the central limit approximation asks for, or 1."""

    def excess(log_noise: float) -> float:
        found = gdp.event_gdp_mu(make_event(math.exp(log_noise)))
        return 0.0 if found is None else math.log(max(min(found[0], 1e150), 1e-150) / gdp_mu)

    low, high = math.log(0.05), math.log(1e7)
    if excess(low) <= 0.0 or excess(high) >= 0.0:
        return 1.0
    return math.exp(root(excess, low, high, xtol=1e-3))


def round_up(value: float) -> float:
    """Up to seven significant digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 6)
    return float(f"{math.ceil(value / unit) * unit:.7g}")
