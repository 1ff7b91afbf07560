"""Accuracy over the label balance: NeuroMixGDP's Figure 12, at claimed and at sound cost.

    python -m experiments.li2023.balance --quick

m = 64, T = n, softmax regression by KL. Quick: Banking77 at epsilon 8, 20 epochs of ten times the
step.
"""

from __future__ import annotations

from experiments.harness import Experiment
from experiments.li2023.cells import KEYS, Setting, draw_against, measure, parse


def main() -> None:
    given = parse(__doc__)
    experiment = Experiment(__file__, KEYS, given)
    balances = (0.25, 1.0, 4.0) if given.quick else (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
    settings = [
        Setting(epsilon, accounting, class_prob=prob, label_balance=balance)
        for epsilon in given.epsilon
        for accounting in ("claimed", "sound")
        for prob in (0.2, 1.0)
        for balance in balances
    ]
    measure(experiment, given, settings)
    experiment.figure(
        lambda axes: draw_against(
            experiment,
            "label_balance",
            axes,
            "dataset",
            "epsilon",
            "accounting",
            "class_prob",
            "learner",
        )
    )
    experiment.show("accuracy", "spread", "certified")


if __name__ == "__main__":
    main()
