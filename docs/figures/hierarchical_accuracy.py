"""Print the accuracy table of docs/theory/hierarchical-sampling.md, on the bundled Banking77.

python docs/figures/hierarchical_accuracy.py [RELEASES]     (3 by default; about 10 minutes)

Releases draw fresh secret randomness, so runs differ by a point or two.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import privmix
from privmix.datasets.demo import load_demo_data
from privmix.planning.plan import ReleasePlan
from privmix.planning.solve import DesignOptions, configure, plan_release

DELTA = 1e-5
THREE_CLASSES: DesignOptions = {"class_prob": 3 / 77}
DATA = load_demo_data()
SCHEMA = privmix.Schema(
    classes=range(77), num_features=384, num_records=10_003, feature_clip_norm=1.0
)


class PlainRows:
    """A release of mixed rows, for a learner that looks at rows only."""

    design = "poisson"

    def __init__(self, release: privmix.Release) -> None:
        self._release = release

    def __getattr__(self, name: str) -> Any:
        return getattr(self._release, name)


def claimed_plan(noise_multiplier: float) -> ReleasePlan:
    """Hierarchical rows with the noise that Poisson rows need: what the paper's claim allows."""
    names = ("num_records", "num_classes", "num_features")
    sizes = {name: getattr(SCHEMA, name) for name in names}
    config = configure(sizes, "hierarchical", THREE_CLASSES, noise_multiplier)
    return ReleasePlan.for_config(config, DELTA, SCHEMA)


def accuracy(plan: ReleasePlan, seed: int) -> float:
    """Release, train by the papers' divergence, and test."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "release"
        release = privmix.release(DATA.x_train, DATA.y_train, plan, out=out)
        rows = release if plan.design == "stratified" else PlainRows(release)
        model = privmix.KLSoftmaxClassifier(seed=seed).fit(rows)
        return float(model.score(DATA.x_test, DATA.y_test))


def plans(epsilon: float) -> dict[str, ReleasePlan]:
    """The rows of the table at one epsilon."""

    def planned(design: Any, **options: Any) -> ReleasePlan:
        return plan_release(
            SCHEMA,
            target_epsilon=epsilon,
            target_delta=DELTA,
            design=design,
            preprocessing=(),
            **options,
        )

    records = SCHEMA.num_records
    poisson = planned("poisson", mix_size=64, num_mixtures=records, label_balance=math.sqrt(2))
    return {
        "poisson": poisson,
        "hierarchical": planned("hierarchical", **THREE_CLASSES),
        "hierarchical, p = 0.3": planned("hierarchical", class_prob=0.3),
        "stratified": planned("stratified"),
        "hierarchical, as claimed": claimed_plan(poisson.mechanism.noise_multiplier),
    }


def main() -> None:
    """Print a line for each design and epsilon."""
    releases = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    for epsilon in (1.0, 8.0):
        for name, plan in plans(epsilon).items():
            found = [100 * accuracy(plan, seed) for seed in range(releases)]
            print(
                f"epsilon {epsilon:g}  {name:26} noise {plan.mechanism.noise_multiplier:6.2f}  "
                f"certified {plan.epsilon:6.2f}  accuracy {statistics.fmean(found):5.1f}  "
                f"({', '.join(f'{value:.1f}' for value in found)})",
                flush=True,
            )


if __name__ == "__main__":
    main()
