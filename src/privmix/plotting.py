"""Figures of guarantees and of what theory says; needs the extra ``plot`` (matplotlib).

Every function draws on the axes it is given, or on new ones, and returns them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix import _validate
from privmix._validate import printable
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


class HasRows(Protocol):
    """A release of one table, or a table of one."""

    @property
    def features(self) -> NDArray[np.float32]:
        """All rows' features, (rows, num_features)."""

    @property
    def feature_noise_stddev(self) -> float:
        """Standard deviation of the noise in one of them."""


class HasEpsilon(Protocol):
    """A charge of a ledger."""

    @property
    def charged_at(self) -> str:
        """When, as ISO 8601."""

    @property
    def epsilon_spent(self) -> float | None:
        """How much of the limit is used by it and all before it."""


class HasCharges(Protocol):
    """The balance of a data set."""

    @property
    def dataset_id(self) -> str:
        """The data set."""

    @property
    def epsilon_limit(self) -> float:
        """The limit."""

    @property
    def charges(self) -> Sequence[HasEpsilon]:
        """The charges, oldest first."""


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


def plot_predicted_errors(
    errors: Mapping[str, Sequence[float]], epsilons: ArrayLike, ax: Axes | None = None
) -> Axes:
    """Draw the predicted error of each design over epsilon, as ``planning.predicted_errors`` has it.

    NaN stands where a design is no alternative. Errors: ImportError without matplotlib.
    """
    ax = _axes(ax)
    for place, (design, values) in enumerate(errors.items()):
        style = ("-", "--", "-.", ":")[place % 4]  # told apart without colours, too
        ax.plot(epsilons, values, linestyle=style, marker="o", markersize=3, label=design)
    ax.set(xscale="log", xlabel="epsilon", ylabel="predicted error, reference population")
    ax.set_ylim(0.0, 1.0)
    ax.legend(frameon=False)
    return ax


def plot_budget(balance: HasCharges, ax: Axes | None = None) -> Axes:
    """Draw how much of a data set's limit was used over time, step by step, and the limit.

    Charges without a finite bound are left out. What is drawn is private to the ledger's holder.
    Errors: ImportError without matplotlib.
    """
    ax = _axes(ax)
    told = [one for one in balance.charges if one.epsilon_spent is not None]
    # Times of the ledger are in UTC; NumPy's have no zone.
    stamps = [datetime.fromisoformat(one.charged_at).replace(tzinfo=None) for one in told]
    times = np.array(stamps, dtype="datetime64[us]")
    used = np.array([one.epsilon_spent for one in told], dtype=np.float64)
    ax.step(times, used, where="post", color=CERTIFIED_COLOR, label="used")
    ax.plot(times, used, "o", color=CERTIFIED_COLOR, markersize=4)
    ax.axhline(
        balance.epsilon_limit, color=UNCERTIFIED_COLOR, linestyle="--", label="limit, which holds"
    )
    ax.set(xlabel="charged at (UTC)", ylabel="epsilon", title=printable(balance.dataset_id, 60))
    ax.set_ylim(bottom=0.0)
    ax.tick_params(axis="x", labelrotation=30)
    ax.legend(frameon=False)
    return ax


def plot_singular_values(rows: HasRows, ax: Axes | None = None) -> Axes:
    """Draw the singular values of a table of released rows, in units of the noise.

    Values are divided by the noise's standard deviation and by the root of the number of rows. Noise
    alone has its largest at 1 + sqrt(features / rows) (Marchenko & Pastur 1967): what stands above
    that line is signal. Errors: ImportError without matplotlib.
    """
    features = np.asarray(rows.features, dtype=np.float64)
    count, width = features.shape
    values = np.linalg.svd(features, compute_uv=False)
    values = values / (rows.feature_noise_stddev * math.sqrt(count))
    ax = _axes(ax)
    ranks = np.arange(1, len(values) + 1)
    ax.plot(ranks, values, ".", color=CERTIFIED_COLOR, markersize=3, label="released rows")
    edge = 1.0 + math.sqrt(width / count)
    ax.axhline(edge, color=NEUTRAL_COLOR, linestyle="--", label="largest of noise alone")
    ax.set(xscale="log", yscale="log", xlabel="rank", ylabel="singular value over noise")
    ax.legend(frameon=False)
    return ax


def plot_training(
    epsilons: Mapping[int, float], gradient_norms: Mapping[int, float], ax: Axes | None = None
) -> Axes:
    """Draw a private training over its steps, from what is public: nothing of a record.

    Args:
        epsilons: Certified epsilon after so many steps.
        gradient_norms: L2 norm of each step's published gradient, by steps done.
        ax: For the norms; epsilon has an axis of its own on the right.

    Errors: ImportError without matplotlib.

    """
    ax = _axes(ax)
    steps = list(gradient_norms)
    ax.plot(steps, list(gradient_norms.values()), color=CERTIFIED_COLOR, linewidth=0.8)
    ax.set(xlabel="steps", ylabel="length of the published gradient")
    ax.set_ylim(bottom=0.0)
    right = ax.twinx()
    right.plot(list(epsilons), list(epsilons.values()), color=UNCERTIFIED_COLOR, linestyle="--")
    right.set_ylabel("epsilon so far (dashed)")
    right.set_ylim(bottom=0.0)
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
