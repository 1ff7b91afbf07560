"""What two error rates of a test say of a mechanism: bounds on epsilon, on mu, on its trade-off curve.

A test looks at what was published and says whether a record was there. Under (epsilon, delta)-DP its
false-positive rate a and its false-negative rate b satisfy 1 - b <= exp(epsilon) a + delta and the same
with a and b exchanged; under f-DP b >= f(a). Both rates are counted over independent trials and bounded
from above by Clopper and Pearson; rates that are too small together contradict the guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import beta

from privmix import _validate
from privmix.accounting import (
    ComposedEvent,
    Event,
    GroupEvent,
    account,
    delta_profile,
    epsilon_at,
)
from privmix.accounting.tradeoff import Array

_LEAST_FACTOR, _MOST_FACTOR = 2.0**-6, 2.0**10  # of the noise, where the family is searched
_PRECISION = 4e-3  # of the factor found
_FACTORS = np.geomspace(0.5, 8.0, 17)  # where a test is chosen
_SMALLEST_DELTA, _NUM_LINES = 1e-9, 200  # of the lines that make up a curve


class ErrorRates(NamedTuple):
    """Upper bounds on the two error rates of one test, both valid together."""

    false_positive_rate: float
    false_negative_rate: float


class Counts(NamedTuple):
    """What a test did on trials whose answer is known."""

    false_positives: int
    negatives: int
    false_negatives: int
    positives: int


def clopper_pearson_upper(successes: int, trials: int, confidence: float) -> float:
    """Upper bound on a probability from the number of successes in independent trials.

    The true probability exceeds it with probability at most 1 - ``confidence``. 1 where every trial, or
    none at all, succeeded or was made.

    Source: Clopper and Pearson 1934, the one-sided exact bound.

    Example:
        >>> from privmix.auditing import clopper_pearson_upper
        >>> round(clopper_pearson_upper(0, 100, 0.95), 4)  # the rule of three
        0.0295

    """
    trials = _validate.integer("trials", trials, at_least=0)
    successes = _validate.integer("successes", successes, at_least=0, at_most=trials)
    confidence = _validate.real("confidence", confidence, above=0.0, below=1.0)
    if successes == trials:
        return 1.0
    return float(beta.ppf(confidence, successes + 1, trials - successes))


def error_rates(counts: Counts, confidence: float) -> ErrorRates:
    """Bound both error rates of a test, together with probability at least ``confidence``."""
    each = 1 - (1 - _validate.real("confidence", confidence, above=0.0, below=1.0)) / 2
    return ErrorRates(
        clopper_pearson_upper(counts.false_positives, counts.negatives, each),
        clopper_pearson_upper(counts.false_negatives, counts.positives, each),
    )


def epsilon_from_rates(rates: ErrorRates, delta: float) -> float:
    """Largest epsilon that the rates contradict at ``delta``, or 0, whatever the mechanism.

    Source: Kairouz, Oh, Viswanath 2015, Theorem 2.1; Nasr et al. 2021 for its use in audits.

    Example:
        >>> from privmix.auditing import ErrorRates, epsilon_from_rates
        >>> round(epsilon_from_rates(ErrorRates(0.01, 0.5), 1e-5), 3)  # log(0.5 / 0.01), nearly
        3.912

    """
    delta = _validate.delta("delta", delta)
    first, second = rates
    pairs = ((1 - delta - second, first), (1 - delta - first, second))
    ratios = [top / bottom for top, bottom in pairs if top > 0.0 and bottom > 0.0]
    return max(0.0, math.log(max(ratios))) if ratios else 0.0


def gdp_mu_from_rates(rates: ErrorRates) -> float:
    """Largest mu of mu-GDP that the rates contradict, or 0.

    It bounds the mechanism's own mu only if the mechanism is Gaussian DP: a trade-off curve of another
    shape may pass below that of any mu at one point and above at another.

    Source: Dong, Roth, Su 2022, Section 2.2: b = Phi(Phi^-1(1 - a) - mu).
    """
    first, second = rates
    if first >= 1.0 or second >= 1.0:
        return 0.0
    return max(0.0, float(-ndtri(first) - ndtri(second)))


def with_noise(event: Event, factor: float) -> Event:
    """Return the event with all its noise multiplied by ``factor``."""
    if isinstance(event, ComposedEvent):
        return ComposedEvent(events=tuple(with_noise(part, factor) for part in event.events))
    if isinstance(event, GroupEvent):
        return event.model_copy(update={"event": with_noise(event.event, factor)})
    changed = {"noise_multiplier": event.noise_multiplier * factor}
    presence = getattr(event, "presence_noise_multiplier", None)
    if presence is not None:
        changed["presence_noise_multiplier"] = presence * factor
    return event.model_copy(update=changed)


class NoiseFamily:
    """The mechanisms that differ from an event by a factor on all its noise, by their certified curves.

    Args:
        event: The event at factor 1.

    """

    def __init__(self, event: Event) -> None:
        self.event = event
        largest = epsilon_at(event, [_SMALLEST_DELTA])[_SMALLEST_DELTA]
        self._epsilons = largest * np.linspace(0.0, 1.0, _NUM_LINES)
        self._deltas: dict[float, Array] = {}

    def least_false_negative_rates(
        self, false_positive_rates: ArrayLike, factor: float = 1.0
    ) -> Array:
        """Certified lower bounds on the false-negative rate of any test, at false-positive rates.

        The largest of the lines that the certified pairs (epsilon, delta) allow; same shape.
        """
        rates = np.asarray(false_positive_rates, dtype=np.float64)[..., None]
        if factor not in self._deltas:
            self._deltas[factor] = delta_profile(with_noise(self.event, factor), self._epsilons)
        deltas = self._deltas[factor]
        with np.errstate(over="ignore", under="ignore"):
            growth = np.exp(self._epsilons)
            steep, shallow = 1 - deltas - growth * rates, (1 - deltas - rates) / growth
        return np.asarray(np.maximum(0.0, np.maximum(steep, shallow).max(axis=-1)))

    def refutes(self, rates: ErrorRates, factor: float = 1.0) -> bool:
        """Whether no mechanism with this noise has a test with such rates."""
        least = float(self.least_false_negative_rates(rates.false_positive_rate, factor))
        return rates.false_negative_rate < least

    def factors(self, false_positive_rates: Array, false_negative_rates: Array) -> Array:
        """Smallest factors that the rates of many tests contradict, roughly, and not above 8.

        Args:
            false_positive_rates: (tests,)
            false_negative_rates: (tests,)

        """
        margins = np.stack(
            [
                self.least_false_negative_rates(false_positive_rates, factor) - false_negative_rates
                for factor in _FACTORS
            ]
        )
        beyond = margins > 0.0
        place = beyond.argmax(axis=0)
        before, tests = np.maximum(place - 1, 0), np.arange(len(false_positive_rates))
        low, high = margins[before, tests], margins[place, tests]
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(place > 0, low / (low - high), 1.0)
        logs = np.log(_FACTORS)
        found = np.exp(logs[before] + share * (logs[place] - logs[before]))
        return np.asarray(np.where(beyond.any(axis=0), found, _FACTORS[-1]))

    def smallest_factor(self, rates: ErrorRates) -> float:
        """Smallest factor on the noise that the rates contradict; infinite where they contradict none.

        A factor of at most 1 contradicts the event itself.
        """
        return smallest_factor(lambda factor: self.refutes(rates, factor))

    def epsilon(self, factor: float, delta: float) -> float:
        """Lower bound on epsilon at ``delta`` of the event with its noise times ``factor``.

        That of the loss distribution; 0 for an infinite factor, and where nothing is proved from below, as
        for chains of records. Of a factor that was contradicted it is a lower bound on a mechanism's
        epsilon, if the mechanism is the event up to the size of its noise.
        """
        if math.isinf(factor):
            return 0.0
        reading = account(with_noise(self.event, factor), delta).accountants["pld"]
        return 0.0 if reading is None or reading.lower is None else reading.lower


def smallest_factor(refuted: Callable[[float], bool]) -> float:
    """Search the smallest factor on the noise that is refuted; infinite where none is.

    ``refuted`` holds for all factors above some value and for none below it, nearly: what is returned
    was refuted itself.
    """
    low = high = 1.0  # of which the lower one is to stand and the higher one to be refuted
    while not refuted(high):
        low, high = high, 2 * high
        if high > _MOST_FACTOR:
            return math.inf
    while low == high:
        if low / 2 < _LEAST_FACTOR:
            return high
        low /= 2
        if refuted(low):
            high = low
    while high > (1 + _PRECISION) * low:
        middle = math.sqrt(low * high)
        if refuted(middle):
            high = middle
        else:
            low = middle
    return high
