"""Table 3: four methods, and plain DP-SGD clipped at 0.05 (Mixed Ghost's), on a frozen backbone.

    PRIVMIX_DATA=data python -m experiments.bao2023.table3 --quick

Mixed Ghost clipping is a way to compute DP-SGD's clipped sum without forming every gradient; which of
the two is quicker is decided by sizes. That is how linear heads compute theirs for every method, so that the
arm of that name is plain DP-SGD at its authors' clip norm (0.05), the rate scaled up accordingly.
"""

from __future__ import annotations

from experiments.bao2023.linear import Arm, Bench, table


def arms(bench: Bench) -> dict[str, Arm]:
    """Return the table's rows."""
    plans = bench.plans()
    found = {
        name: Arm(plan, Bench.pool if plan.num_synthetic else None) for name, plan in plans.items()
    }
    return {"Mixed Ghost": Arm(plans["plain"], clip_norm=0.05), **found}


if __name__ == "__main__":
    table(__file__, __doc__, arms, (1.0, 2.0, 4.0, 8.0))
