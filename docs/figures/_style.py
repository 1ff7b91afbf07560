"""What the figures of the theory pages share: their size, and files that repeat bit for bit."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

PAGES = Path(__file__).parents[1] / "theory"


def panels(count: int) -> tuple[Figure, list[Axes]]:
    """A row of axes without frames on the right and on top."""
    matplotlib.use("svg")
    plt.rcParams.update(
        {
            "axes.spines.right": False,
            "axes.spines.top": False,
            "font.size": 9,
            "legend.frameon": False,
            "svg.fonttype": "none",  # text stays text: small files
            "svg.hashsalt": "privmix",  # identifiers, and so the file, repeat
        }
    )
    figure, axes = plt.subplots(1, count, figsize=(4.2 * count, 3.2), layout="constrained")
    return figure, list(figure.axes if count > 1 else [axes])


def save(figure: Figure, name: str) -> None:
    """Write docs/theory/NAME.svg, on white, so that it reads on dark pages too."""
    figure.savefig(PAGES / f"{name}.svg", metadata={"Date": None}, facecolor="white")
