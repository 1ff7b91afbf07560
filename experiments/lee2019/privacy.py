"""Epsilon over noise for several mixing degrees: DPMix's Figure 3, and Theorem 3's variant.

    python -m experiments.lee2019.privacy

d_X = d_Y = 50, n = T = 10^6, delta = 1/n, equal noise. ``theorem_1`` and ``theorem_3`` are the paper's
forms (records in a box; every record picks T l / n rows, known).
Both protect the replacement of one record.
"""

from __future__ import annotations

import math
from typing import Any

from experiments.harness import Experiment
from experiments.mixing import arguments

from privmix.accounting import dpmix_paper_epsilon

SIZE, WIDTH = 10**6, 50


def epsilons(mix_size: int, stddev: float) -> dict[str, Any]:
    facts: dict[str, Any] = {"num_records": SIZE, "num_mixtures": SIZE, "mix_size": mix_size}
    facts |= {"num_features": WIDTH, "num_classes": WIDTH, "delta": 1 / SIZE}
    facts |= {"feature_noise_stddev": stddev, "label_noise_stddev": stddev}
    return {f"theorem_{k}": dpmix_paper_epsilon(k, **facts) for k in (1, 3)}


def main() -> None:
    experiment = Experiment(__file__, ["mix_size", "stddev"], arguments(__doc__))
    sizes = (1, 16, 64, 256) if experiment.quick else (1, 4, 16, 64, 256, 1024)
    for size in sizes:
        for step in range(-8, 9, 4 if experiment.quick else 1):
            stddev = round(10 / size * 10 ** (step / 8), 6)
            experiment.measure(
                {"mix_size": size, "stddev": stddev},
                lambda size=size, stddev=stddev: epsilons(size, stddev),
            )

    def draw(axes: Any) -> None:
        for size in sizes:
            rows = [row for row in experiment.rows if row["mix_size"] == str(size)]
            x = [float(row["stddev"]) for row in rows]
            y = [math.log10(float(row["theorem_1"])) for row in rows]
            axes.semilogx(x, y, "o-", label=f"l = {size}")
        axes.set(xlabel="noise", ylabel="log10 epsilon (Theorem 1)")
        axes.legend()

    experiment.figure(draw)
    experiment.show("theorem_1", "theorem_3")


if __name__ == "__main__":
    main()
