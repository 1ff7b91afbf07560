"""Table 12: DP-Mix-Diff without any view of the record itself.

    PRIVMIX_DATA=data python -m experiments.bao2023.table12 --quick

Such a gradient holds nothing of the record: what is learnt is learnt from public images alone.
"""

from __future__ import annotations

from experiments.bao2023.common import Plan
from experiments.bao2023.linear import Arm, Bench, table


def arms(bench: Bench) -> dict[str, Arm]:
    """Return the table's rows."""
    plans = bench.plans()
    pure = Plan.pure_diff(bench.num_base + 2, bench.num_mixed, **bench.options)
    return {
        "Self-Aug": Arm(plans["Self-Aug"]),
        "DP-Mix-Self": Arm(plans["DP-Mix-Self"]),
        "DP-Mix-Diff": Arm(plans["DP-Mix-Diff"], Bench.pool),
        "Pure-DP-Mix-Diff": Arm(pure, Bench.pool),
    }


if __name__ == "__main__":
    table(__file__, __doc__, arms, (1.0,))
