"""Draw docs/theory/hierarchical-sampling.svg: claimed against sound epsilon over p and K.

python docs/figures/hierarchical_sampling.py
"""

from __future__ import annotations

import numpy as np
from _style import panels, save
from matplotlib.axes import Axes

from privmix.plotting import CERTIFIED_COLOR, NEUTRAL_COLOR, UNCERTIFIED_COLOR
from privmix.theory.hierarchical import HierarchicalCost, hierarchical_cost

CLASSES_PER_ROW = 3


def cost(class_prob: float, noise_multiplier: float) -> HierarchicalCost:
    """Cost of the setting of CIFAR-size data in NeuroMixGDP: n = T = 50000, m = 64."""
    return hierarchical_cost(
        num_records=50000,
        num_mixtures=50000,
        mix_size=64,
        class_prob=class_prob,
        noise_multiplier=noise_multiplier,
        delta=1e-5,
    )


def draw(axes: Axes, x: list[float], costs: list[HierarchicalCost]) -> None:
    """Sound values as lines, the claim dashed."""
    axes.plot(x, [c.balanced for c in costs], color=CERTIFIED_COLOR, label="sound, balanced")
    axes.plot(
        x, [c.random for c in costs], color=NEUTRAL_COLOR, linestyle=":", label="sound, random"
    )
    axes.plot(
        x, [c.claimed for c in costs], color=UNCERTIFIED_COLOR, linestyle="--", label="claimed"
    )
    axes.set(xscale="log", ylabel="epsilon at delta 1e-5")
    axes.set_ylim(bottom=0.0)
    axes.minorticks_off()
    axes.legend()


def main() -> None:
    """Over the share of eligible rows, and over classes with three of them in a row."""
    figure, (left, right) = panels(2)
    shares = [float(p) for p in np.geomspace(0.01, 1.0, 13)]
    draw(left, shares, [cost(p, 1.26) for p in shares])
    left.set_xlabel("p, share of the rows that a class is eligible for")
    left.set_xticks([0.01, 0.03, 0.1, 0.3, 1.0], ["0.01", "0.03", "0.1", "0.3", "1"])
    classes = [3, 5, 10, 20, 50, 77, 100, 200]
    draw(right, [float(k) for k in classes], [cost(CLASSES_PER_ROW / k, 1.26) for k in classes])
    right.set_xlabel(f"K, number of classes, {CLASSES_PER_ROW} eligible in a row")
    right.set_xticks([3, 10, 30, 100, 200], ["3", "10", "30", "100", "200"])
    save(figure, "hierarchical-sampling")


if __name__ == "__main__":
    main()
