"""What an attacker may gain, as a target: read off the certified trade-off curve, and calibrated to.

An attacker who wants to know whether a record was there has a true-positive rate of at most 1 - f(a) at a
false-positive rate a; the difference of the two is at most the advantage max_a 1 - a - f(a). One who wants
to reconstruct a record, and would succeed with probability p by what is known without the release,
succeeds with at most 1 - f(p). All bounds hold for whatever the attacker knows of the other records.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, Self, TypeAlias

import numpy as np
from pydantic import model_validator
from scipy.special import ndtri

from privmix import _validate
from privmix._validate import FrozenModel, InvalidInputError
from privmix.accounting.calibrate import NOISE_RANGE, noise_guess, round_up
from privmix.accounting.events import Event
from privmix.accounting.rounding import format_epsilon
from privmix.accounting.tradeoff import tradeoff_curve

Measure: TypeAlias = Literal["tpr", "advantage", "reconstruction"]
_POINTS = 201
_MARGIN = 1e-5
_TOLERANCE = 2e-3  # how far below the target the gain may stay


class Risk(FrozenModel):
    """The most that an attacker may gain.

    Attributes:
        measure: ``tpr``: the true-positive rate of a test whether a record was there, at the
            false-positive rate ``at``; ``advantage``: the largest difference of the two rates, at any;
            ``reconstruction``: the probability of reconstructing a record, where ``at`` is that of
            doing so without the release.
        most: Upper bound on it, above what is reached without the release, and below 1.
        at: See there; None for ``advantage``.

    Source: Dong, Roth, Su 2022 for tests; Hayes, Mahloujifar, Balle 2023 and Kulynych, Gomez, Kaissis,
    Calmon, Troncoso 2024 for reconstruction and for planning to a risk.

    """

    measure: Measure
    most: float
    at: float | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.measure == "advantage":
            if self.at is not None:
                _validate.fail("at", "nothing for the advantage", self.at)
        elif self.at is None:
            _validate.fail("at", f"a rate for {self.measure}", "nothing")
        else:
            _validate.real("at", self.at, above=0.0, below=1.0)
        _validate.real("most", self.most, above=self.baseline, below=1.0)
        return self

    @property
    def baseline(self) -> float:
        """What is reached without the release."""
        return self.at or 0.0

    def of(self, event: Event) -> float:
        """Certified upper bound on the measure for an event.

        Example:
            >>> from privmix.accounting import GaussianEvent, Risk
            >>> risk = Risk(measure="tpr", most=0.05, at=0.01)
            >>> round(risk.of(GaussianEvent(noise_multiplier=2.0)), 3)
            0.034

        """
        fpr, fnr = tradeoff_curve(event, num_points=_POINTS)
        if self.measure == "advantage":
            return float((1.0 - fpr - fnr).max())
        return 1.0 - float(np.interp(self.baseline, fpr, fnr))

    @property
    def gdp_mu(self) -> float:
        """The mu of the Gaussian mechanism that reaches just this."""
        if self.measure == "advantage":
            return 2.0 * float(ndtri((1.0 + self.most) / 2.0))
        return float(ndtri(self.most) - ndtri(self.baseline))

    @property
    def statement(self) -> str:
        """The target in words."""
        if self.measure == "advantage":
            return f"advantage at most {self.most:g}"
        if self.measure == "tpr":
            return f"true-positive rate at most {self.most:g} at false-positive rate {self.at:g}"
        return (
            f"reconstruction at most {self.most:g} where {self.at:g} is known without the release"
        )


def calibrate_noise_to_risk(make_event: Callable[[float], Event], risk: Risk) -> float:
    """Smallest noise multiplier, to seven digits, at which the certified risk is within the target.

    ``make_event`` turns a noise multiplier into an event. What an attacker gains at the result, beyond
    the baseline, is at most the target and within 1 % of it. Otherwise: InvalidInputError naming ``risk``
    and what is reachable.

    Example:
        >>> from privmix.accounting import GaussianEvent, Risk, calibrate_noise_to_risk
        >>> risk = Risk(measure="tpr", most=0.02, at=0.01)
        >>> noise = calibrate_noise_to_risk(lambda noise: GaussianEvent(noise_multiplier=noise), risk)
        >>> round(noise, 2), risk.of(GaussianEvent(noise_multiplier=noise)) <= 0.02
        (3.67, True)

    """
    # A little less, so that another machine's last bits do not matter.
    target = (risk.most - risk.baseline) * (1.0 - _MARGIN)

    def gain(log_noise: float) -> float:
        return risk.of(make_event(math.exp(log_noise))) - risk.baseline

    low, high = (math.log(bound) for bound in NOISE_RANGE)
    at = min(max(math.log(noise_guess(make_event, risk.gdp_mu)), low), high)
    safe, spent, stride = math.inf, -math.inf, 0.02
    while not math.isfinite(safe - spent):
        if gain(at) <= target:
            safe = at
            if at == low:  # every noise keeps to the target
                spent = low
        else:
            spent = at
            if at == high:
                least = format_epsilon(risk.of(make_event(math.exp(at))))
                _validate.fail("risk", f"at least {least}", risk.most)
        at = max(at - stride, low) if spent == -math.inf else min(at + stride, high)
        stride *= 3.0
    reached = gain(safe)
    while reached < (1.0 - _TOLERANCE) * target and safe - spent > 1e-9:
        middle = (safe + spent) / 2.0
        found = gain(middle)
        safe, spent, reached = (
            (middle, spent, found) if found <= target else (safe, middle, reached)
        )
    noise = round_up(math.exp(safe))
    reached = gain(math.log(noise))
    if not 0.99 * target <= reached <= target:
        allowed = f"a value near {format_epsilon(risk.baseline + reached)}"
        raise InvalidInputError("risk", allowed, risk.most)
    return noise
