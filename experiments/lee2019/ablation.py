"""Why a network stays at chance on DPMix's rows as they are: not in the paper.

    python -m experiments.lee2019.ablation --quick

One release of MNIST's rows of 64 records at epsilon 20, and the same rows without noise. Arms change one thing at a
time of what ``network`` does: ``clipped`` takes the divergence with label weights clipped at 0 (the papers' loss)
for the cross-entropy, ``raw`` takes features as published, ``raw-clipped`` both, ``he`` He's larger
initial weights. ``set aside`` is the best epoch's accuracy on 1,000 training records that are in no row, by which it is
chosen; ``first`` is that of the first epoch. Quick: the network of fully connected layers, two epochs of batches of 128; full size: the convolutional one,
ten epochs.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from experiments.harness import Experiment
from experiments.lee2019.common import (
    SHAPES,
    Network,
    fully_connected,
    load,
    noiseless,
    paper_noise,
    rows,
    short_schedule,
    test_accuracy,
    trained,
    with_validation,
)
from experiments.mixing import Rows, arguments

from utility import DataSet

KEYS = ["epsilon", "arm", "network", "epochs"]
ARMS: dict[str, dict[str, Any]] = {
    "all": {},
    "clipped": {"loss": "kl"},
    "raw": {"standardize": False},
    "raw-clipped": {"standardize": False, "loss": "kl"},
    "he": {},
}
SIZE = 64


def published_rows(data: DataSet, epsilon: float) -> Rows:
    """Return rows with or without noise, kept in memory."""
    if math.isinf(epsilon):
        return noiseless(data, SIZE, 0)
    with rows(data, SIZE, paper_noise(SIZE, epsilon, *data.x_train.shape)) as release:
        assert release.label_weights is not None
        return Rows(
            release.features,
            release.label_weights,
            len(data.x_train),
            float(SIZE),
            release.feature_clip_norm,
            design="uniform",
        )


def figures(
    made: Rows, data: DataSet, arm: str, module: torch.nn.Module, epochs: int
) -> dict[str, float]:
    """Train one arm."""
    if arm == "he":
        for layer in module.modules():
            if isinstance(layer, torch.nn.Linear | torch.nn.Conv2d):
                torch.nn.init.kaiming_normal_(layer.weight)
    model = trained(made, module, data, **short_schedule(epochs), **ARMS[arm])
    scores = model.validation_scores_
    return {
        "first": scores[0],
        "set aside": max(scores),
        "accuracy": test_accuracy(model, data),
    }


def main() -> None:
    experiment = Experiment(__file__, KEYS, arguments(__doc__))
    quick = experiment.quick
    data = with_validation(load("mnist"))
    epochs = 2 if quick else 10
    for epsilon in (math.inf, 20.0):
        made = published_rows(data, epsilon)
        for arm in ARMS:
            torch.manual_seed(0)
            module = fully_connected(made.num_features) if quick else Network(SHAPES["mnist"])
            name = "fully connected" if quick else "convolutional"
            experiment.measure(
                dict(zip(KEYS, [f"{epsilon:g}", arm, name, epochs], strict=True)),
                lambda made=made, arm=arm, module=module: figures(made, data, arm, module, epochs),
            )

    def draw(axes: Any) -> None:
        names = [f"{row['arm']}, epsilon {row['epsilon']}" for row in experiment.rows]
        axes.barh(names, [float(row["accuracy"]) for row in experiment.rows])
        axes.axvline(0.1, color="grey")  # chance
        axes.set(xlabel="test accuracy")
        axes.invert_yaxis()

    experiment.figure(draw)
    experiment.show("first", "set aside", "accuracy")


if __name__ == "__main__":
    main()
