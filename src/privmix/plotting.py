"""Figures of guarantees and of what theory says; needs the extra ``plot`` (matplotlib).

Every function draws on the axes it is given, or on new ones, and returns them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from privmix import _validate
from privmix.accounting import (
    CERTIFICATE_DELTAS,
    epsilon_at,
    event_gdp_mu,
    gdp_epsilon,
    gdp_tradeoff,
    tradeoff_curve,
)
from privmix.accounting.events import Event
from privmix.theory.diagnostics import LabelHistogram
from privmix.theory.regression import RegressionSimulation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CERTIFIED_COLOR = "#1f5fa8"
UNCERTIFIED_COLOR = "#d1701f"
NEUTRAL_COLOR = "#7a7a7a"


class HasEvent(Protocol):
    """A certificate, a plan or a configuration: whatever has the event that it stands for."""

    @property
    def event(self) -> Event:
        """What the accountants see."""


Accountable: TypeAlias = Event | HasEvent


def plot_tradeoff(event_or_certificate: Accountable, ax: Axes | None = None) -> Axes:
    """Draw the trade-off between a membership test's two errors.

    Three lines over the false-positive rate: the certified bound below which no attacker's
    false-negative rate gets, the approximation by Gaussian differential privacy (dashed; only
    where the event has one, and no guarantee where anything is sampled), and the diagonal of
    perfect privacy. The curve is computed anew from the event, not read from a certificate.

    Errors: ImportError without matplotlib.
    """
    event = _event_of(event_or_certificate)
    ax = _axes(ax)
    fpr, fnr = tradeoff_curve(event, num_points=401)
    ax.plot(fpr, fnr, color=CERTIFIED_COLOR, label="certified")
    found = _finite_gdp_mu(event)
    if found is not None:
        rates = np.linspace(0.0, 1.0, 401)
        _plot_gdp(ax, rates, gdp_tradeoff(found[0], rates), *found)
    ax.plot([0.0, 1.0], [1.0, 0.0], color=NEUTRAL_COLOR, linewidth=0.8, label="perfect privacy")
    ax.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0), aspect="equal")
    ax.set(xlabel="false-positive rate", ylabel="false-negative rate")
    ax.legend(frameon=False, loc="upper right")
    return ax


def plot_epsilon(event_or_certificate: Accountable, ax: Axes | None = None) -> Axes:
    """Draw epsilon against delta at the deltas of a certificate, 1e-9 to 1e-3.

    Certified values, and the approximation by Gaussian differential privacy (dashed) where the
    event has one. Errors: ImportError without matplotlib.
    """
    event = _event_of(event_or_certificate)
    ax = _axes(ax)
    certified = epsilon_at(event, CERTIFICATE_DELTAS)
    deltas, epsilons = list(certified), list(certified.values())
    ax.plot(deltas, epsilons, color=CERTIFIED_COLOR, marker="o", markersize=3, label="certified")
    found = _finite_gdp_mu(event)
    if found is not None:
        approximate = [gdp_epsilon(found[0], delta) for delta in deltas]
        _plot_gdp(ax, deltas, approximate, *found)
    ax.set(xscale="log", xlabel="delta", ylabel="epsilon")
    ax.set_ylim(bottom=0.0)
    ax.legend(frameon=False, loc="upper right")
    return ax


def plot_regression(
    simulation: RegressionSimulation, ax: Axes | None = None, *, label: str | None = None
) -> Axes:
    """Draw the median error of a simulation over its mix sizes, with its quartiles shaded.

    Errors: ImportError without matplotlib.
    """
    ax = _axes(ax)
    low, median, high = np.quantile(simulation.errors, [0.25, 0.5, 0.75], axis=0)
    (line,) = ax.plot(simulation.mix_sizes, median, marker="o", markersize=3, label=label)
    ax.fill_between(simulation.mix_sizes, low, high, color=line.get_color(), alpha=0.15, lw=0)
    ax.set(xscale="log", xlabel="mix size", ylabel="error of the coefficients")
    if label is not None:
        ax.legend(frameon=False)
    return ax


def plot_label_histogram(histogram: LabelHistogram, ax: Axes | None = None) -> Axes:
    """Draw how often mixed label weights take which value. Errors: ImportError without matplotlib."""
    ax = _axes(ax)
    ax.stairs(histogram.counts, histogram.edges, fill=True, color=CERTIFIED_COLOR)
    ax.set(xlabel="label weight", ylabel="rows times classes")
    return ax


def plot_mixed_distances(distances: ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw the distances of ``diagnostics.mixed_distances`` with the smallest marked.

    Infinite ones are left out. Errors: ImportError without matplotlib.
    """
    values = np.asarray(distances, dtype=np.float64)
    values = values[np.isfinite(values)]
    if not values.size:
        _validate.fail("distances", "at least one finite number", "none")
    ax = _axes(ax)
    ax.hist(values, bins=50, color=CERTIFIED_COLOR)
    ax.axvline(values.min(), color=NEUTRAL_COLOR, linestyle="--", label=f"MED {values.min():.3g}")
    ax.set(xlabel="distance to the nearest record of another class", ylabel="mixtures")
    ax.legend(frameon=False)
    return ax


def _event_of(source: Accountable) -> Event:
    event: Any = getattr(source, "event", source)
    if not hasattr(event, "neighboring_relation"):
        _validate.fail("event_or_certificate", "an event, or what has one", type(source).__name__)
    return event  # type: ignore[no-any-return]


def _plot_gdp(ax: Axes, x: ArrayLike, y: ArrayLike, gdp_mu: float, exact: bool) -> None:
    name = f"{gdp_mu:.3g}-GDP ({'exact' if exact else 'no guarantee'})"
    ax.plot(x, y, color=UNCERTIFIED_COLOR, linestyle="--", label=name)


def _finite_gdp_mu(event: Event) -> tuple[float, bool] | None:
    found = event_gdp_mu(event)
    return found if found is not None and math.isfinite(found[0]) else None


def _axes(ax: Axes | None) -> Axes:
    """The axes given, or new ones; matplotlib is imported only here."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError as error:
        message = 'plotting needs matplotlib: pip install "privmix[plot]"'
        raise ImportError(message) from error
    return plt.subplots()[1]
