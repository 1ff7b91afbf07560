"""Table 9: numbers of views, of mixtures and of public images.

PRIVMIX_DATA=data python -m experiments.bao2023.table9 --quick
"""

from __future__ import annotations

import itertools

from experiments.bao2023.common import Plan
from experiments.bao2023.linear import Arm, Bench, table


def arms(bench: Bench) -> dict[str, Arm]:
    """Return the grid: the paper's numbers times num_base / 16."""
    counts = [bench.num_base * n // 16 for n in (8, 16, 24)]
    pools = (0, 1, 2) if bench.num_base < 16 else (0, 2, 4)
    return {
        f"{base}/{mixed}/{pool}": Arm(
            Plan.dp_mix_diff(base, mixed, pool, **bench.options), Bench.pool if pool else None
        )
        for base, mixed, pool in itertools.product(counts, counts, pools)
        if bench.num_base >= 16 or mixed != counts[1]
    }


if __name__ == "__main__":
    table(__file__, __doc__, arms, (1.0,))
