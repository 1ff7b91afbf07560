"""Figure 2: magnitudes of gradient entries before clipping and noise, by epoch.

    PRIVMIX_DATA=data python -m experiments.bao2023.figure2 --quick

``stddev`` is that of the entries' magnitudes, each averaged over an epoch's records, as the paper states
it. Uncharged functions of private records: the models are stamped as not private.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from experiments.bao2023 import common
from experiments.bao2023.linear import FULL, QUICK, Arm, Bench, shared_head
from experiments.bao2023.table3 import arms
from experiments.harness import Experiment, parser


def histograms(bench: Bench, arm: Arm) -> dict[str, Any]:
    """Train with histograms; return spreads and the whole of them as JSON."""
    plan = common.training_plan(
        bench.private(),
        arm.plan,
        epsilon=1.0,
        epochs=bench.epochs,
        batch_size=bench.batch_size,
        learning_rate=bench.rates[0],
    )
    public = None if arm.synthetic is None else arm.synthetic(bench)
    head = shared_head(bench.dataset, bench.side)
    trained = common.train(bench.private(), plan, head, 0, public, research=True)
    found = json.loads(trained.histograms)  # type: ignore[attr-defined]
    epochs = found["epochs"]
    return {
        "mean": float(np.mean([epoch["mean"] for epoch in epochs])),
        "stddev": float(np.mean([epoch["stddev"] for epoch in epochs])),
        "stddev first epoch": epochs[0]["stddev"],
        "stddev last epoch": epochs[-1]["stddev"],
        "histogram": json.dumps(np.sum([epoch["counts"] for epoch in epochs], axis=0).tolist()),
        "edges": json.dumps([float(f"{edge:.3g}") for edge in found["edges"]]),
    }


def main() -> None:
    """Measure three methods and draw their histograms."""
    arguments = parser(__doc__).parse_args()
    experiment = Experiment(__file__, ("method",), arguments)
    bench = QUICK if arguments.quick else FULL
    for name in ("plain", "Self-Aug", "DP-Mix-Self", "DP-Mix-Diff"):
        experiment.measure({"method": name}, lambda name=name: histograms(bench, arms(bench)[name]))
    experiment.show("mean", "stddev", "stddev first epoch", "stddev last epoch")

    def draw(axes: Any) -> None:
        for row in experiment.rows:
            edges, counts = json.loads(row["edges"]), json.loads(row["histogram"])
            shares = np.array(counts) / sum(counts)
            axes.step(edges[1:], shares[1:], label=row["method"])
        axes.set(
            xlabel="mean magnitude of a gradient entry", ylabel="share of entries", xscale="log"
        )
        axes.set_xlim(1e-7, 1)
        axes.legend()

    experiment.figure(draw)


if __name__ == "__main__":
    main()
