"""Plots that commands draw into a file, beside what they say."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privmix import _validate
from privmix.running.durable import put_in_place

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from privmix.dpsgd.training_plan import TrainingPlan
    from privmix.plotting import Accountable

_SUFFIXES = (".pdf", ".png", ".svg")
_COST_POINTS = 16

Plot = Annotated[
    Path | None,
    typer.Option("--plot", help="Draw it into this new file as well: .svg, .pdf or .png."),
]


def check_plot(path: Path | None) -> None:
    """Refuse, before any work, a file that cannot be drawn into."""
    if path is None:
        return
    if path.suffix.lower() not in _SUFFIXES:
        _validate.fail("--plot", f"a file that ends in {', '.join(_SUFFIXES)}", str(path))
    if os.path.lexists(path) or not path.parent.is_dir():
        _validate.fail("--plot", "a new file in an existing folder", str(path))
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        _validate.fail("--plot", "matplotlib: pip install 'privmix[plot]'", "none")


def draw(path: Path | None, *panels: Callable[[Axes], object]) -> None:
    """Draw panels side by side into a file, if there is one; the same bits for the same numbers."""
    if path is None:
        return
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "privmix"}):
        figure = Figure(figsize=(5.4 * len(panels), 4.4), layout="constrained")
        for place, panel in enumerate(panels, start=1):
            panel(figure.add_subplot(1, len(panels), place))
        dated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        drawn, kind = BytesIO(), path.suffix.lower()
        figure.savefig(drawn, format=kind[1:], dpi=150, metadata=dated.get(kind))
    try:
        with put_in_place(path, new=True) as file:
            file.write(drawn.getvalue())
    except OSError as error:
        _validate.fail("--plot", "a new file in a writable folder", f"{path}: {error.strerror}")


def draw_guarantee(path: Path | None, source: Accountable) -> None:
    """Draw epsilon over delta beside the trade-off curve, if there is a file for it."""
    if path is None:
        return
    from privmix.plotting import plot_epsilon, plot_tradeoff

    draw(path, lambda ax: plot_epsilon(source, ax), lambda ax: plot_tradeoff(source, ax))


def draw_training(path: Path | None, plan: TrainingPlan, norms: Mapping[int, float]) -> None:
    """Draw what was published step by step and what it cost so far, if there is a file for it."""
    if path is None:
        return
    from privmix.accounting import epsilon_at
    from privmix.plotting import plot_training

    steps = plan.config.num_steps
    told = sorted(
        {1, *(round(steps * share / _COST_POINTS) for share in range(1, _COST_POINTS + 1))}
    )
    spent = {
        count: epsilon_at(plan.event_after(count), [plan.delta])[plan.delta]
        for count in told
        if count > 0
    }
    draw(path, lambda ax: plot_training(spent, norms, ax))
