"""Hierarchical against Poisson rows: NeuroMixGDP's Figure 4, at claimed and at sound cost.

    python -m experiments.li2023.class_prob --quick

m = 64, label balance 1, T = n, softmax regression by KL; a class_prob of 1 is Poisson. Quick: Banking77
at epsilon 8, 20 epochs of ten times the step.
"""

from __future__ import annotations

from experiments.harness import Experiment
from experiments.li2023.cells import KEYS, Setting, draw_against, measure, parse


def main() -> None:
    given = parse(__doc__)
    experiment = Experiment(__file__, KEYS, given)
    probs = (0.03, 0.2, 1.0) if given.quick else (0.02, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0)
    settings = [
        Setting(epsilon, accounting, class_prob=prob)
        for epsilon in given.epsilon
        for accounting in ("claimed", "sound")
        for prob in probs
    ]
    measure(experiment, given, settings)
    experiment.figure(
        lambda axes: draw_against(
            experiment, "class_prob", axes, "dataset", "epsilon", "accounting", "learner"
        )
    )
    experiment.show("accuracy", "spread", "certified")


if __name__ == "__main__":
    main()
