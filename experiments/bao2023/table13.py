"""Table 13: running time, with views drawn afresh in every step.

PRIVMIX_DATA=data python -m experiments.bao2023.table13 --quick
"""

from __future__ import annotations

from experiments.bao2023.linear import Arm, Bench, table


def arms(bench: Bench) -> dict[str, Arm]:
    """Return the table's columns, and the record itself."""
    return {
        name: Arm(plan, Bench.pool if plan.num_synthetic else None, cached=False)
        for name, plan in bench.plans().items()
    }


if __name__ == "__main__":
    table(__file__, __doc__, arms, (8.0,), columns=("training_seconds",))
