"""Audit every design, and training, at several budgets with many runs; print bounds and tightness.

    python benchmarks/audits.py --folder runs/ --canaries 65536 --json

Finished runs are kept in the folder: called again, it goes on from there. Fails if a guarantee is
violated; all audits together raise a false alarm with probability 1e-3 at most. Takes about an hour.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from privmix.auditing import audit
from privmix.auditing.canaries import MOST_CANARIES, most_canaries
from privmix.dpsgd import AugmentationPlan, TrainingPlan, plan_training
from privmix.planning.plan import ReleasePlan
from privmix.planning.solve import calibrate_config

DELTA, FALSE_ALARMS = 1e-5, 1e-3
EPSILONS = (1.0, 2.0, 4.0, 8.0)
SIZES = {"num_records": 1000, "num_classes": 3, "num_features": 5}
DESIGNS: dict[str, dict[str, Any]] = {
    "poisson": {"num_mixtures": 1000, "mix_size": 64.0},
    "signed": {"num_mixtures": 1000, "mix_size": 64.0},
    "stratified": {"rows_per_class": 100, "sampling_prob": 0.5},
    "hybrid": {"num_mixtures": 500, "mix_size": 64.0, "feature_budget": 0.25},
    "hierarchical": {
        "num_mixtures": 1000,
        "mix_size": 32.0,
        "class_prob": 0.1,
        "label_balance": 4.0,
    },
    "uniform": {"num_mixtures": 100, "mix_size": 200.0},
    "transposed": {"num_mixtures": 100, "rows_per_record": 5},
    "adaptive": {"num_mixtures": 500, "mix_size": 64.0, "feature_budget": 0.1, "num_rounds": 10},
}


def plan_of(name: str, epsilon: float) -> ReleasePlan | TrainingPlan:
    """Plan a release of a design, or a training."""
    target = {"target_epsilon": epsilon, "target_delta": DELTA}
    if name == "training":
        return plan_training(
            **target,
            epochs=10,
            batch_size=100,
            num_records=1000,
            classes=range(3),
            input_shape=(16,),
            augmentation=AugmentationPlan.plain(),
        )
    config = calibrate_config(SIZES, name, DESIGNS[name], **target)
    return ReleasePlan.for_config(config, DELTA)


def main() -> None:
    """Audit, print a line for each as it is done, and fail if one was violated."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where finished runs are kept")
    parser.add_argument("--canaries", type=int, default=65536, help="in all runs of an audit")
    parser.add_argument("--designs", nargs="*", default=[*DESIGNS, "training"])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.folder is not None:
        given.folder.mkdir(parents=True, exist_ok=True)
    cases = [(name, epsilon) for name in given.designs for epsilon in EPSILONS]
    confidence = 1 - FALSE_ALARMS / (len(EPSILONS) * (len(DESIGNS) + 1))
    violated = False
    for name, epsilon in cases:
        plan, start = plan_of(name, epsilon), time.process_time()
        count = most_canaries(plan.mechanism) if isinstance(plan, ReleasePlan) else MOST_CANARIES
        kept = None if given.folder is None else given.folder / f"{name}-{epsilon:g}.runs"
        report = audit(plan, runs=max(8, given.canaries // count), confidence=confidence, out=kept)
        violated |= report.verdict == "violated"
        seconds = time.process_time() - start
        if given.json:
            told = {"design": name, "processor_seconds": round(seconds, 1), **report.to_dict()}
            print(json.dumps(told), flush=True)
        else:
            print(
                f"{name:13} certified {report.epsilon:6.3f}  measured {report.lower_bound:6.3f}  "
                f"whatever it is {report.lower_bound_without_assumptions:6.3f}  "
                f"tightness {report.tightness or 0.0:5.2f}  {report.verdict}  {seconds:6.1f} s",
                flush=True,
            )
    sys.exit(violated)


if __name__ == "__main__":
    main()
