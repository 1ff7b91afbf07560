"""Table 5: more self-augmentations, against mixtures of them.

PRIVMIX_DATA=data python -m experiments.bao2023.table5 --quick
"""

from __future__ import annotations

from experiments.bao2023.common import Plan
from experiments.bao2023.linear import Arm, Bench, table


def arms(bench: Bench) -> dict[str, Arm]:
    """Return Self-Aug with 1, 1.5, 2 and 2.25 times the usual number of views, and DP-Mix-Self with twice."""
    base, options = bench.num_base, bench.options
    counts = (base, 3 * base // 2, 2 * base, 9 * base // 4)
    found = {f"Self-Aug x{n / base:g}": Arm(Plan.self_aug(n, **options)) for n in counts}
    return {**found, "DP-Mix-Self x2": Arm(Plan.dp_mix_self(base, base, **options))}


if __name__ == "__main__":
    table(__file__, __doc__, arms, (8.0,))
