"""Accuracy over the mix size: NeuroMixGDP's Figure 3, at claimed and at sound cost.

    python -m experiments.li2023.mix_size --quick

Softmax regression by KL, label balance 1, T = n; ``none`` are rows without noise. Hierarchical rows
are open to a fifth of the classes. Quick: Banking77 at epsilon 8, 20 epochs of ten times the step.
"""

from __future__ import annotations

from experiments.harness import Experiment
from experiments.li2023.cells import KEYS, Setting, draw_against, measure, parse


def settings(
    epsilons: list[float], sizes: tuple[int, ...], probs: tuple[float, ...]
) -> list[Setting]:
    """Return noisy rows of every mix size, and rows without noise."""
    found = [
        Setting(epsilon, accounting, size, prob)
        for epsilon in epsilons
        for accounting in ("claimed", "sound")
        for prob in probs
        for size in sizes
    ]
    return found + [Setting(float("inf"), "none", size) for size in sizes]


def main() -> None:
    given = parse(__doc__)
    experiment = Experiment(__file__, KEYS, given)
    sizes = (16, 64, 256, 1024) if given.quick else tuple(4**k for k in range(1, 7))
    measure(experiment, given, settings(given.epsilon, sizes, (0.2, 1.0)))
    experiment.figure(
        lambda axes: draw_against(
            experiment,
            "mix_size",
            axes,
            "dataset",
            "epsilon",
            "accounting",
            "class_prob",
            "learner",
        )
    )
    experiment.show("accuracy", "spread", "noise", "certified")


if __name__ == "__main__":
    main()
