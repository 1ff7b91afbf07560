"""f-DP: the trade-off curve of a composed release, and what an attacker can do with it.

The trade-off function gives the smallest false-negative rate of any test that tells two
neighbouring data sets apart, as a function of its false-positive rate (Dong, Roth, Su 2022). It is
the largest of the lines that the pairs (epsilon, delta(epsilon)) allow; with certified deltas that
maximum is a certified lower bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.accounting import accountants, gdp
from privmix.accounting.events import Event

Array: TypeAlias = NDArray[np.float64]

_SMALLEST_DELTA = 1e-9


class TradeoffReport(FrozenModel):
    """Readings of a trade-off curve; certified ones bound every attacker from above.

    Attributes:
        advantage: Bound on true-positive minus false-positive rate.
        tpr_at_fpr_0_001: Bound on the true-positive rate at a false-positive rate of 0.1 %.
        tpr_at_fpr_0_01: The same at 1 %.
        gdp_mu: Parameter of the Gaussian approximation; None if the event has none.
        gdp_is_exact: Whether that approximation is the truth.
        gdp_sup_distance: Largest difference of the false-negative rates, curve and approximation.
        gdp_l2_distance: Root of the integral over the false-positive rate of the squared one.

    """

    advantage: float
    tpr_at_fpr_0_001: float
    tpr_at_fpr_0_01: float
    gdp_mu: float | None
    gdp_is_exact: bool | None
    gdp_sup_distance: float | None
    gdp_l2_distance: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return self.model_dump(mode="json")


def tradeoff_curve(event: Event, *, num_points: int = 101) -> tuple[Array, Array]:
    """Certified lower bound on the false-negative rate against the false-positive rate.

    Returns two arrays of at most ``num_points`` values, the corners of a convex polygonal line
    from fpr = 0 to fpr = 1: between corners, linear interpolation is certified as well. The curve
    is symmetric: it holds for both directions of the neighbouring relation.

    Example:
        >>> import numpy as np
        >>> from privmix.accounting import GaussianEvent, tradeoff_curve
        >>> fpr, fnr = tradeoff_curve(GaussianEvent(noise_multiplier=2.0))
        >>> round(1.0 - float(np.interp(0.01, fpr, fnr)), 3)  # members found at 1 false alarm in 100
        0.034

    """
    num_points = _validate.integer("num_points", num_points, at_least=5)
    half = (num_points - 3) // 2
    largest = accountants.epsilon_at(event, [_SMALLEST_DELTA])[_SMALLEST_DELTA]
    epsilons = largest * np.linspace(0.0, 1.0, half + 1)
    deltas = accountants.delta_profile(event, epsilons)
    # fnr >= 1 - delta - exp(epsilon) fpr, and the same with the two rates exchanged.
    with np.errstate(under="ignore"):
        shallow = [
            (-np.exp(-e), (1.0 - d) * np.exp(-e)) for e, d in zip(epsilons, deltas, strict=True)
        ]
    steep = [
        (-np.exp(min(e, 700.0)), 1.0 - d) for e, d in zip(epsilons[1:], deltas[1:], strict=True)
    ]
    return _upper_envelope([*reversed(steep), *shallow, (0.0, 0.0)])


def tradeoff_report(event: Event, *, num_points: int = 201) -> TradeoffReport:
    """Readings of the certified trade-off curve and its distance from the GDP approximation."""
    fpr, fnr = tradeoff_curve(event, num_points=num_points)
    tpr = [1.0 - float(np.interp(rate, fpr, fnr)) for rate in (0.001, 0.01)]
    found = gdp.event_gdp_mu(event)
    if found is not None and not math.isfinite(found[0]):
        found = None
    sup, l2 = (
        (None, None)
        if found is None
        else _distances(
            lambda rates: np.interp(rates, fpr, fnr), lambda rates: gdp_tradeoff(found[0], rates)
        )
    )
    return TradeoffReport(
        advantage=float((1.0 - fpr - fnr).max()),
        tpr_at_fpr_0_001=tpr[0],
        tpr_at_fpr_0_01=tpr[1],
        gdp_mu=None if found is None else found[0],
        gdp_is_exact=None if found is None else found[1],
        gdp_sup_distance=sup,
        gdp_l2_distance=l2,
    )


def gdp_tradeoff(gdp_mu: float, fpr: ArrayLike) -> Array:
    """False-negative rate of mu-GDP: Phi(Phi^-1(1 - fpr) - mu), same shape as ``fpr``."""
    gdp_mu = _validate.real("gdp_mu", gdp_mu, at_least=0.0)
    result: Array = ndtr(-ndtri(np.asarray(fpr, np.float64)) - gdp_mu)
    return result


def _distances(
    first: Callable[[Array], Array], second: Callable[[Array], Array]
) -> tuple[float, float]:
    """Supremum and L2 distance of two functions of the false-positive rate, on a fine mesh."""
    half = np.concatenate([[0.0], np.geomspace(1e-9, 0.5, 2000)])
    rates = np.concatenate([half, 1.0 - half[-2::-1]])
    gap = np.abs(first(rates) - second(rates))
    return float(gap.max()), float(np.sqrt(np.trapezoid(gap**2, rates)))


def _upper_envelope(lines: list[tuple[float, float]]) -> tuple[Array, Array]:
    """Corners on [0, 1] of the maximum of lines (slope, intercept), slopes increasing."""

    def crossing(a: tuple[float, float], b: tuple[float, float]) -> float:
        return float((a[1] - b[1]) / (b[0] - a[0])) if b[0] > a[0] else np.inf

    kept: list[tuple[float, float]] = []
    for line in lines:
        if kept and line[0] <= kept[-1][0]:  # the same slope, by rounding
            if line[1] <= kept[-1][1]:
                continue
            kept.pop()
        while len(kept) > 1 and crossing(kept[-1], line) <= crossing(kept[-2], kept[-1]):
            kept.pop()
        kept.append(line)
    corners = [crossing(a, b) for a, b in itertools.pairwise(kept)]
    fpr = np.unique(np.concatenate([[0.0], [c for c in corners if 0.0 < c < 1.0], [1.0]]))
    slopes, intercepts = np.asarray(kept).T
    fnr = (intercepts[:, None] + slopes[:, None] * fpr[None, :]).max(axis=0)
    return fpr, np.clip(fnr, 0.0, 1.0)
