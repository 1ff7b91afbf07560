"""Table 4: Self-Aug with one more transform, with one of all transforms at random, and DP-Mix-Self.

PRIVMIX_DATA=data python -m experiments.bao2023.table4 --quick
"""

from __future__ import annotations

from experiments.bao2023.linear import QUICK_COLOUR, Arm, Bench, table

MORE = ("jitter", "affine", "cutout", "noise", "blur", "sobel")


def arms(bench: Bench) -> dict[str, Arm]:
    """Return the table's columns; crops and flips come first in all of them."""
    own = bench.plans()
    found = {"Self-Aug": Arm(own["Self-Aug"])}
    for name in MORE:
        plan = bench.plans(transforms=("crop", "flip", name))["Self-Aug"]
        found[f"+{name}"] = Arm(plan)
    found["+all"] = Arm(bench.plans(random_transforms=MORE)["Self-Aug"])
    return {**found, "DP-Mix-Self": Arm(own["DP-Mix-Self"])}


if __name__ == "__main__":
    table(__file__, __doc__, arms, (1.0, 8.0), QUICK_COLOUR)
