"""The noise of DPMix and of its variant for little noise: plans by Theorems 1 and 3, and sound ones.

    python -m experiments.lee2019.low_privacy --quick

In the variant (the paper's appendix A) every record picks l rows of n = T. ``theorem_1`` and ``theorem_3`` are the noise of a
published number by the paper's forms, at which the theorem says epsilon, delta = 1/n, d_X = 784, d_Y = 10, pixels.
``uniform`` and ``transposed`` are the plans of ``privmix.plan_release`` for the same epsilon and delta, with equal
noise in features and labels: ``transposed`` keeps the picked rows secret, where Theorem 3 gives them away.
All protect the replacement of one record.
"""

from __future__ import annotations

import math
from typing import Any

from experiments.harness import Experiment
from experiments.mixing import arguments

import privmix
from privmix.accounting import dpmix_paper_stddev

SIZE, WIDTH, CLASSES = 60_000, 784, 10
CLIP_NORM = math.sqrt(WIDTH) / 2


def planned(design: str, epsilon: float, mix_size: int, size: int) -> privmix.ReleasePlan:
    """Plan rows of ``mix_size`` records, as many as records."""
    schema = privmix.Schema(
        classes=range(CLASSES), num_features=WIDTH, num_records=size, feature_clip_norm=CLIP_NORM
    )
    picked: dict[str, Any] = {"mix_size": mix_size}
    if design == "transposed":
        picked = {"rows_per_record": mix_size, "neighboring_relation": "replace_one"}
    return privmix.plan_release(
        schema,
        target_epsilon=epsilon,
        target_delta=1 / size,
        design=design,
        num_mixtures=size,
        label_balance=CLIP_NORM,
        preprocessing=(),
        **picked,
    )


def figures(epsilon: float, mix_size: int, size: int = SIZE) -> dict[str, Any]:
    found: dict[str, Any] = {
        f"theorem_{theorem}": dpmix_paper_stddev(
            theorem,
            num_records=size,
            mix_size=mix_size,
            num_mixtures=size,
            num_features=WIDTH,
            num_classes=CLASSES,
            epsilon=epsilon,
            delta=1 / size,
        )
        for theorem in (1, 3)
    }
    for design in ("uniform", "transposed"):
        plan = planned(design, epsilon, mix_size, size)
        found[design] = float(plan.mechanism.published_stddev(CLIP_NORM, "feature"))
        found[f"{design} epsilon"] = plan.epsilon
    return found


def main() -> None:
    experiment = Experiment(__file__, ["epsilon", "mix_size"], arguments(__doc__))
    quick = experiment.quick
    budgets = (1.0, 20.0, 1000.0) if quick else (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 100.0, 1000.0)
    for epsilon in budgets:
        for size in (1, 64) if quick else (1, 4, 16, 64, 256, 1024):
            experiment.measure(
                {"epsilon": f"{epsilon:g}", "mix_size": size},
                lambda epsilon=epsilon, size=size: figures(epsilon, size),
            )

    def draw(axes: Any) -> None:
        rows = [row for row in experiment.rows if row["mix_size"] == "64"]
        budgets = [float(row["epsilon"]) for row in rows]
        for name in ("theorem_1", "theorem_3", "uniform", "transposed"):
            axes.loglog(budgets, [float(row[name]) for row in rows], "o-", label=name)
        axes.set(xlabel="epsilon", ylabel="noise of a published number, l = 64")
        axes.legend()

    experiment.figure(draw)
    experiment.show("theorem_1", "theorem_3", "uniform", "transposed")


if __name__ == "__main__":
    main()
