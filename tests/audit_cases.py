"""Plans that audits of all designs share, accounted for once."""

from __future__ import annotations

from functools import cache
from typing import Any

from privmix.dpsgd import AugmentationPlan, TrainingPlan, plan_training
from privmix.planning.plan import ReleasePlan
from privmix.planning.solve import calibrate_config

SIZES = {"num_records": 1000, "num_classes": 3, "num_features": 5}
# Few rows, each with a good share of the records: a run takes a fraction of a second.
DESIGNS: dict[str, dict[str, Any]] = {
    "poisson": {"num_mixtures": 50, "mix_size": 100.0},
    "signed": {"num_mixtures": 50, "mix_size": 200.0},
    "stratified": {"rows_per_class": 10, "sampling_prob": 0.5},
    "hybrid": {"num_mixtures": 50, "mix_size": 200.0, "feature_budget": 0.5},
    "hierarchical": {
        "num_mixtures": 100,
        "mix_size": 50.0,
        "class_prob": 0.2,
        "label_balance": 3.0,
    },
    "uniform": {"num_mixtures": 10, "mix_size": 500.0},
    "transposed": {"num_mixtures": 50, "rows_per_record": 3},
    "adaptive": {"num_mixtures": 50, "mix_size": 200.0, "feature_budget": 0.5, "num_rounds": 3},
}


@cache
def plan_of(design: str, epsilon: float, **options: Any) -> ReleasePlan:
    config = calibrate_config(
        SIZES, design, DESIGNS[design] | options, target_epsilon=epsilon, target_delta=1e-5
    )
    return ReleasePlan.for_config(config, 1e-5)


@cache
def training_plan(epsilon: float) -> TrainingPlan:
    return plan_training(
        target_epsilon=epsilon,
        target_delta=1e-5,
        epochs=4,
        batch_size=250,
        num_records=500,
        classes=range(3),
        input_shape=(16,),
        augmentation=AugmentationPlan.plain(),
    )
