"""Reading epsilon and delta off composed losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, wraps
from typing import ParamSpec, TypeVar

import numpy as np
from scipy.special import ndtri

from privmix import _validate
from privmix._validate import InvalidInputError
from privmix.accounting.events import (
    AllocationGaussianEvent,
    ComposedEvent,
    EligibleGaussianEvent,
    GaussianEvent,
    PoissonGaussianEvent,
    SignedAllocationGaussianEvent,
    SignedGaussianEvent,
    SimpleEvent,
    UniformGaussianEvent,
    simple_events,
)
from privmix.accounting.gdp import gdp_delta, gdp_epsilon
from privmix.accounting.pld.allocation import AllocationStep
from privmix.accounting.pld.composition import (
    LOG_ORDERS,
    MAX_WINDOW,
    Composition,
    Tilted,
    largest_gain,
)
from privmix.accounting.pld.lattice import (
    LARGEST_EXPONENT,
    DoesNotFitError,
    SampledStep,
    Step,
    SubsetStep,
    TooManyPointsError,
    log_sum_exp,
)
from privmix.accounting.pld.pairs import Array, ShiftedPair, SignedPair
from privmix.accounting.search import minimum, root

_P = ParamSpec("_P")
_T = TypeVar("_T")

_ACCURACY = 2e-4  # relative error of epsilon that the lattice may cause, roughly
_NEGLIGIBLE_DELTA = 1e-15  # where delta is asked for: the smallest that is resolved
_WANTED_GAP = 2e-3  # relative distance of two bounds at which they are refined no further
_TRIES = 3
_SPARE = 1.02  # the composed loss of a coarser lattice is a little wider
_LOST_SHARE = 1e-4  # share of delta spent on outcomes beyond the lattice
_LEAST_NOISE = 0.05  # of random allocation: with less, secret rows save next to nothing
_LEAST_SAMPLED_NOISE = 2e-3
_MOST_STEPS = 60  # in search of an epsilon that is large enough
_ORDER_GRID = 0.1  # of logs of orders, in a search
_TILTS = 8  # transforms for one curve of delta
_KEPT = 512  # answers: what is planned is stated, certified and verified by the same numbers


def _none_if_unfit(function: Callable[_P, _T | None]) -> Callable[_P, _T | None]:
    """Let a public function return None for an event that fits no lattice."""

    @wraps(function)
    def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _T | None:
        try:
            return function(*args, **kwargs)
        except DoesNotFitError:
            return None

    return guarded


def _delta(composition: Composition, tilted: Tilted, epsilon: float, upper: bool) -> float:
    """Bound on delta at ``epsilon`` in one direction."""
    shifted = epsilon + (-1.0 if upper else 1.0) * composition.loss_error
    finite = math.exp(min(tilted.log_delta(shifted, upper), 1.0))
    return min(finite + composition.lost, 1.0) if upper else finite


def _direction_epsilon(composition: Composition, delta: float, upper: bool) -> float:
    """Bound on epsilon of one direction at ``delta``."""
    if composition.is_empty:
        return 0.0
    order, start = composition.chernoff(delta)
    tilted = composition.tilted(order)

    @cache  # the ends of the search are asked for again and again
    def excess(epsilon: float) -> float:
        return math.log(max(_delta(composition, tilted, epsilon, upper), 1e-320) / delta)

    # The bounds are tight near the Chernoff bound and loose far below it, where the tilt is wrong.
    # There, log delta falls with slope ``order``, nearly.
    high = max(start, 0.0) * (1.0 + 1e-6) + 2.0 * composition.loss_error
    tries = 0
    while (below := excess(high)) > 0.0:
        # Steps of a per cent are enough for all but extreme events; those get ever longer ones.
        high += (0.01 * high + 1e-9) * 2.0 ** max(tries - 20, 0)
        tries += 1
        if tries > _MOST_STEPS:
            raise DoesNotFitError
    low, gap = high, 1.2 * max(-below, 1e-6) / order
    while excess(low) <= 0.0:
        if low == 0.0:
            return 0.0
        low, gap = max(low - gap, 0.0), 2.0 * gap
    found = root(excess, low, high, xtol=1e-14, rtol=1e-7)
    while excess(found) > 0.0 if upper else excess(found) < 0.0:
        found *= 1.0 + (1e-7 if upper else -1e-7)
    return found


def _step_of(event: SimpleEvent) -> Step:
    if isinstance(event, PoissonGaussianEvent):
        return SampledStep(ShiftedPair(event.sampling_prob, event.noise_multiplier))
    if isinstance(event, SignedGaussianEvent):
        return SampledStep(SignedPair(event.sampling_prob, event.noise_multiplier))
    if isinstance(event, UniformGaussianEvent):
        prob = math.nextafter(event.mix_size / event.num_records, 1.0)
        return SubsetStep(ShiftedPair(prob, event.noise_multiplier))
    if isinstance(event, EligibleGaussianEvent):
        pair = ShiftedPair(event.sampling_prob, event.noise_multiplier)
        return SampledStep(pair, event.eligible_prob)
    raise InvalidInputError("event", "a mechanism with a loss distribution", event.mechanism)


@dataclass(frozen=True)
class _Problem:
    """An event split into its Gaussian part, which is exact, and the sampled steps.

    Unless ``is_exact``, some of the Gaussian part only dominates the event: no lower bounds then.
    """

    gdp_mu: float
    steps: tuple[tuple[Step, int], ...]
    is_exact: bool = True

    @property
    def all_steps(self) -> tuple[tuple[Step, int], ...]:
        if self.gdp_mu == 0.0:
            return self.steps
        return ((SampledStep(ShiftedPair(1.0, 1.0 / self.gdp_mu)), 1), *self.steps)


def _problem(event: SimpleEvent | ComposedEvent) -> _Problem:
    square, is_exact = 0.0, True
    steps: list[tuple[Step, int]] = []
    for part in simple_events(event):
        if isinstance(part, GaussianEvent):
            square += part.count / part.noise_multiplier**2
        elif isinstance(part, AllocationGaussianEvent | SignedAllocationGaussianEvent):
            signed = isinstance(part, SignedAllocationGaussianEvent)
            if part.neighboring_relation == "replace_one" or part.noise_multiplier < _LEAST_NOISE:
                # As if the rows were known.
                square += part.count * part.rows_per_record / part.noise_multiplier**2
                is_exact = False
                continue
            for rows, count in part.blocks:
                if rows == 1 and not signed:
                    square += part.count * count / part.noise_multiplier**2
                else:
                    step = AllocationStep(rows, part.noise_multiplier, signed)
                    steps.append((step, part.count * count))
        elif part.noise_multiplier < _LEAST_SAMPLED_NOISE:
            raise DoesNotFitError  # losses of more than a hundred thousand
        else:
            steps.append((_step_of(part), part.count))
    return _Problem(math.sqrt(square), tuple(steps), is_exact)


@dataclass(frozen=True)
class _Coarse:
    """Steps on a coarse lattice, from which that of the answer is chosen."""

    total: int
    deviation: float  # of the loss of one step
    composition: Composition


def _coarse(steps: tuple[tuple[Step, int], ...], reach: float) -> _Coarse:
    total = sum(count for _, count in steps)
    variance = sum(count * step.variance(reach) for step, count in steps)
    deviation = max(math.sqrt(variance / total), 1e-12)
    composition, _ = _with_coarsening(
        lambda spacing: _compose(steps, spacing, reach, upper=True), deviation / 4.0
    )
    return _Coarse(total, deviation, composition)


def _spacing(coarse: _Coarse, delta: float) -> tuple[float, float]:
    """Spacing of the lattice for a relative error of epsilon of about ``_ACCURACY``, and the least to try.

    Moving mass to lattice points raises the variance of a step's loss by at most spacing^2 / 4,
    hence log E exp(order L) by spacing^2 order^2 / 8 and epsilon by count * order spacing^2 / 8.
    Below the least the composed loss, tilted as ``delta`` asks for, would take too many points. It changes
    with the event as little by little as the event does: searches meet no jumps.
    """
    order, epsilon = coarse.composition.chernoff(delta)
    wanted = math.sqrt(8.0 * _ACCURACY * max(epsilon, 0.0) / (coarse.total * order))
    finest, coarsest = coarse.deviation / 64.0, coarse.deviation / 8.0
    low, high = coarse.composition.window(order)
    return min(max(wanted, finest), coarsest), float(_SPARE * (high - low) / MAX_WINDOW)


def _reach(steps: Iterable[tuple[Step, int]], delta: float) -> float:
    """Outcomes beyond this many standard deviations are lost; at most a share of delta in all."""
    total = sum(count for _, count in steps)
    return max(-float(ndtri(_LOST_SHARE * delta / (4.0 * total))), 6.0)


def _check_fit(steps: Iterable[tuple[Step, int]], reach: float) -> None:
    """Refuse steps with an outcome so unlikely under P, yet not under Q, that its P-mass underflows.

    Only near-certain participation with very little noise is refused: losses below -600.
    """
    if any(step.lowest_loss(reach) < -LARGEST_EXPONENT for step, _ in steps):
        raise DoesNotFitError


def _compose(
    steps: tuple[tuple[Step, int], ...], spacing: float, reach: float, upper: bool
) -> Composition:
    lattices = (
        (step.upper(spacing, reach) if upper else step.lower(spacing, reach), count)
        for step, count in steps
    )
    return Composition(tuple(lattices))


def _with_coarsening(compute: Callable[[float], _T], spacing: float) -> tuple[_T, float]:
    """``compute(spacing)`` with the spacing, doubled until it fits; that spacing is returned too."""
    least = spacing
    while spacing < LARGEST_EXPONENT:
        if spacing >= least:
            try:
                return compute(spacing), spacing
            except TooManyPointsError as error:
                least = error.factor * spacing
        spacing *= 2.0
    raise DoesNotFitError


@lru_cache(maxsize=_KEPT)
@_none_if_unfit
def epsilon_bounds(event: SimpleEvent | ComposedEvent, delta: float) -> tuple[float, float] | None:
    """Certified lower and upper bound on epsilon at ``delta``; None if the event has no PLD here.

    Both hold for the mechanism's dominating pair, in the worse of the two directions.
    """
    delta = _validate.delta("delta", delta)
    problem = _problem(event)
    if not problem.steps:
        exact = gdp_epsilon(problem.gdp_mu, delta)
        return (exact * (1.0 - 2e-12) if problem.is_exact else 0.0), exact
    steps = problem.all_steps
    reach = _reach(steps, delta)
    (upper,), spacing, least = _uppers(event, (delta,))

    def bound(spacing: float) -> float:
        composition = _compose(steps, spacing, reach, upper=False)
        return max(_direction_epsilon(d, delta, False) for d in composition.directions)

    lower = 0.0
    for _ in range(_TRIES if problem.is_exact else 0):
        found, used = _with_coarsening(bound, spacing)
        lower = max(lower, found)
        if lower >= (1.0 - _WANTED_GAP) * upper or used > spacing or spacing <= least:
            break
        spacing = max(spacing / 3.0, least)
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
    if not problem.steps:
        return [gdp_epsilon(problem.gdp_mu, delta) for delta in deltas]
    return list(_uppers(event, tuple(deltas))[0])


@lru_cache(maxsize=_KEPT)
def _uppers(
    event: SimpleEvent | ComposedEvent, deltas: tuple[float, ...]
) -> tuple[tuple[float, ...], float, float]:
    """Upper bounds on epsilon of an event with steps; the spacing they took, and the least to try."""
    steps = _problem(event).all_steps
    reach = _reach(steps, min(deltas))
    _check_fit(steps, reach)
    coarse = _coarse(steps, reach)
    ends = (_spacing(coarse, delta) for delta in {min(deltas), max(deltas)})
    wanted, leasts = zip(*ends, strict=True)
    del coarse  # before there is another

    def bounds(spacing: float) -> tuple[float, ...]:
        directions = _compose(steps, spacing, reach, upper=True).directions
        return tuple(
            max(_direction_epsilon(d, delta, True) for d in directions) for delta in deltas
        )

    found, spacing = _with_coarsening(bounds, max(*leasts, min(wanted)))
    return found, spacing, max(leasts)


@_none_if_unfit
def reverse_log_moments(event: SignedGaussianEvent, orders: Array) -> Array | None:
    """Upper bounds on log E_P[(Q/P)^order] of one step, from the upper lattice; None without.

    Moments of order above one grow under dominance. Outcomes outside the lattice have Q/P of at
    most one over its infimum exp(loss at 0), since the loss grows with the outcome's size.
    """
    step, reach = _step_of(event), 12.0
    _check_fit(((step, 1),), reach)
    lattice, _ = _with_coarsening(
        lambda spacing: step.upper(spacing, reach), _spacing(_coarse(((step, 1),), reach), 1e-6)[0]
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
    if not problem.steps:
        exact = gdp_delta(problem.gdp_mu, epsilon)
        return (exact * (1.0 - 1e-12) if problem.is_exact else 0.0), exact * (1.0 + 1e-12)
    reach = _reach(problem.all_steps, _NEGLIGIBLE_DELTA)
    _check_fit(problem.all_steps, reach)

    def bound(spacing: float, upper: bool) -> float:
        composition = _compose(problem.all_steps, spacing, reach, upper)
        directions = composition.directions
        return max(_direction_delta(direction, epsilon, upper) for direction in directions)

    spacing, _ = _spacing(_coarse(problem.all_steps, reach), 1e-6)
    lower, upper = 0.0, 1.0
    for _ in range(_TRIES):
        found, used = _with_coarsening(lambda h: bound(h, True), spacing)
        upper = min(upper, found)
        if problem.is_exact:
            lower = max(lower, _with_coarsening(lambda h: bound(h, False), spacing)[0])
        if lower >= (1.0 - _WANTED_GAP) * upper or used > spacing:
            break
        spacing /= 3.0
    return lower, upper


def _direction_delta(composition: Composition, epsilon: float, upper: bool) -> float:
    if composition.is_empty:
        return 1.0 if upper else 0.0
    tilted = composition.tilted(_order_for(composition, epsilon))
    return _delta(composition, tilted, epsilon, upper)


def _order_for(composition: Composition, epsilon: float) -> float:
    """The order with the smallest Chernoff bound on delta at ``epsilon``."""

    def log_chernoff(log_order: float) -> float:
        order = math.exp(log_order)
        return composition.log_mgf(order) - order * epsilon + math.log(largest_gain(order))

    return math.exp(minimum(log_chernoff, *LOG_ORDERS, xtol=0.02)[0])


@_none_if_unfit
def delta_profile(event: SimpleEvent | ComposedEvent, epsilons: Array) -> Array | None:
    """Certified upper bounds on delta at increasing ``epsilons`` >= 0; None without a PLD."""
    problem = _problem(event)
    if not problem.steps:
        exact = [gdp_delta(problem.gdp_mu, epsilon) for epsilon in epsilons]
        return np.asarray(exact) * (1.0 + 1e-12)
    reach = _reach(problem.all_steps, _NEGLIGIBLE_DELTA)
    _check_fit(problem.all_steps, reach)

    def profile(spacing: float) -> Array:
        composition = _compose(problem.all_steps, spacing, reach, upper=True)
        directions = composition, composition.reversed()
        return np.maximum(*(_direction_profile(d, epsilons) for d in directions))

    wanted, _ = _spacing(_coarse(problem.all_steps, reach), 1e-6)
    return _with_coarsening(profile, wanted)[0]


def delta_curve(event: SimpleEvent | ComposedEvent) -> Callable[[float], float]:
    """Certified upper bound on delta as a function of epsilon >= 0; 1 where there is no PLD.

    For searches, which ask at one epsilon after another: the lattice is made once, and orders are
    rounded to a grid, so that one tilt serves for neighbouring epsilons. Every tilt's bound is valid
    everywhere.
    """
    problem = _unfit_is_none(event)
    if problem is None:
        return lambda _: 1.0
    if not problem.steps:
        return lambda epsilon: gdp_delta(problem.gdp_mu, epsilon) * (1.0 + 1e-12)
    reach = _reach(problem.all_steps, _NEGLIGIBLE_DELTA)

    def composed(spacing: float) -> tuple[Composition, Composition]:
        composition = _compose(problem.all_steps, spacing, reach, upper=True)
        return composition, composition.reversed()

    try:
        _check_fit(problem.all_steps, reach)
        wanted, _ = _spacing(_coarse(problem.all_steps, reach), 1e-6)
        directions, spacing = _with_coarsening(composed, wanted)
    except DoesNotFitError:
        return lambda _: 1.0
    tilts: dict[int, tuple[float, Tilted]] = {}

    def of_direction(number: int, epsilon: float) -> float:
        log_order = math.log(_order_for(directions[number], epsilon))
        order = math.exp(_ORDER_GRID * round(log_order / _ORDER_GRID))
        if number not in tilts or order != tilts[number][0]:
            tilts.pop(number, None)  # before there is another
            tilts[number] = order, directions[number].tilted(order)
        return _delta(directions[number], tilts[number][1], epsilon, upper=True)

    def delta(epsilon: float) -> float:
        nonlocal directions, spacing
        while True:
            try:
                return max(of_direction(0, epsilon), of_direction(1, epsilon))
            except TooManyPointsError as error:
                factor = max(2.0, error.factor)
                tilts.clear()
            try:
                directions, spacing = _with_coarsening(composed, factor * spacing)
            except DoesNotFitError:
                return 1.0

    return delta


@_none_if_unfit
def _unfit_is_none(event: SimpleEvent | ComposedEvent) -> _Problem | None:
    return _problem(event)


def _direction_profile(composition: Composition, epsilons: Array) -> Array:
    """One tilt serves a run of neighbouring epsilons; every tilt's bound is valid everywhere."""
    bounds = []
    for run in np.array_split(epsilons, min(_TILTS, epsilons.size)):
        tilted = composition.tilted(_order_for(composition, float(run[run.size // 2])))
        bounds += [_delta(composition, tilted, float(epsilon), upper=True) for epsilon in run]
        del tilted  # before there is another
    return np.minimum.accumulate(np.asarray(bounds))  # delta never grows with epsilon
