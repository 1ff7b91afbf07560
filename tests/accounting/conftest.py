"""An accountant that shares nothing with the library's: no lattice, no discrete transform.

delta(epsilon) = 1/(2 pi) * integral over t of exp(K(z) - z epsilon) / (z (z + 1)), z = order + i t,
with K(z) the composed cumulant function log E_P[exp(z L)], itself integrated by the trapezoidal
rule over the outcome. Both rules converge faster than any power.
"""

from __future__ import annotations

import numpy as np
import pytest

from privmix.accounting import (
    ComposedEvent,
    EligibleGaussianEvent,
    GaussianEvent,
    PoissonGaussianEvent,
    SignedGaussianEvent,
)


class Step:
    """Loss and density of one step on a fine mesh of outcomes."""

    def __init__(self, event, reverse):
        s, self.count = event.noise_multiplier, event.count
        self.share = getattr(event, "eligible_prob", 1.0)
        x = np.arange(-14.0 * s - 1.0, 14.0 * s + 12.0, min(s, s**2) / 12.0)
        if isinstance(event, GaussianEvent):
            loss = (x - 0.5) / s**2
        else:
            up, down = (x - 0.5) / s**2, (-x - 0.5) / s**2
            signed = isinstance(event, SignedGaussianEvent)
            assert signed or isinstance(event, PoissonGaussianEvent | EligibleGaussianEvent)
            entered = np.logaddexp(up, down) - np.log(2.0) if signed else up
            prob = event.sampling_prob
            loss = np.logaddexp(np.log1p(-prob), np.log(prob) + entered)
            near = np.abs(entered) < 1.0
            loss[near] = np.log1p(prob * np.expm1(entered[near]))
        log_q = -(x**2) / (2.0 * s**2) + np.log((x[1] - x[0]) / np.sqrt(2.0 * np.pi) / s)
        self.loss = -loss if reverse else loss
        self.log_density = log_q if reverse else log_q + loss

    def cumulant(self, z):
        exponent = np.outer(np.atleast_1d(z), self.loss) + self.log_density
        top = exponent.real.max(axis=1)
        moments = np.exp(exponent - top[:, None]).sum(axis=1)
        with np.errstate(divide="ignore"):
            idle = np.log(1.0 - self.share) - top
        return self.count * (top + np.log(np.exp(idle) + self.share * moments))


def one_direction(event, epsilon, reverse):
    parts = event.events if isinstance(event, ComposedEvent) else [event]
    steps = [Step(part, reverse) for part in parts]

    def exponent(z):
        return sum(step.cumulant(z) for step in steps) - z * epsilon

    # Any order gives the same integral. The smallest one not far above the saddle point's height
    # costs a few digits and spares slowly falling integrands.
    orders = np.geomspace(1e-3, 8e3, 80)
    heights = exponent(orders).real - np.log(orders * (orders + 1.0))
    order = orders[heights <= heights.min() + 5.0][0]
    bend = exponent(order * 1.01) - 2.0 * exponent(order) + exponent(order * 0.99)
    width = 0.02 * 0.01 * order / np.sqrt(bend[0])  # a fiftieth of the peak's width
    total, k, low = 0.0, 0, 0
    while low < 50 and k < 4000:
        z = order + 1j * width * (k + np.arange(50))
        terms = np.exp(exponent(z) - exponent(order)[0]) / (z * (z + 1.0))
        weights = np.where(k + np.arange(50) == 0, 1.0, 2.0)
        total += float((weights * terms.real).sum())
        low = int((np.abs(terms) < 1e-13 * abs(total)).sum())
        k += 50
    assert low == 50, "the inversion integral converges too slowly for this event"
    return total * width / (2.0 * np.pi) * float(np.exp(exponent(order)[0]))


@pytest.fixture(scope="session")
def true_delta():
    """The exact delta of the dominating pair, the worse direction, to about nine digits."""

    def delta(event, epsilon):
        return max(one_direction(event, epsilon, reverse) for reverse in (False, True))

    return delta
