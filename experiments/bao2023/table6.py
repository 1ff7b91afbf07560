"""Table 6: public images for pretraining, or for mixing?

    PRIVMIX_DATA=data python -m experiments.bao2023.table6 --quick

The pool of public images stands for synthetic ones. ``pretrained`` heads start from a logistic regression on
it, and are then trained with self-augmentations; ``generated`` is the same with images drawn from a Gaussian
for each class (see ``linear.generated``).
"""

from __future__ import annotations

from experiments.bao2023.linear import Arm, Bench, generated, pretrained, table


def arms(bench: Bench) -> dict[str, Arm]:
    """Return what public images are used for."""
    plans = bench.plans()
    return {
        "Self-Aug": Arm(plans["Self-Aug"]),
        "Self-Aug, pretrained": Arm(plans["Self-Aug"], initial=pretrained),
        "DP-Mix-Diff": Arm(plans["DP-Mix-Diff"], Bench.pool),
        "DP-Mix-Diff, generated": Arm(plans["DP-Mix-Diff"], generated),
    }


if __name__ == "__main__":
    table(__file__, __doc__, arms, (2.0,))
