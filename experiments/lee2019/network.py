"""The convolutional network over the mixing degree: DPMix's Table I.

    python -m experiments.lee2019.network --quick
    python -m experiments.lee2019.network --datasets mnist --epsilon 20 --sizes 64

Rows are those of ``mixing_degree``; epsilon ``inf`` mixes without noise. Full size is the paper's schedule
on the paper's network: 50 epochs of batches of 8, Adam at 1e-4, halved every 10. Not the paper's: the rows are
standardized and the loss is the cross-entropy with label weights as published (``ablation`` says why).
The epoch is chosen by 1,000 training records that are in no row; the paper does so with some real records.
Quick: MNIST at epsilon 20, means of 2 x 2 pixels of the rows, four epochs of batches of 128.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from experiments.harness import Experiment
from experiments.lee2019.common import (
    BUDGETS,
    SHAPES,
    Network,
    load,
    noiseless,
    paper_noise,
    papers_schedule,
    rows,
    short_schedule,
    test_accuracy,
    trained,
    with_validation,
)
from experiments.mixing import mixing_parser, read, spread

from utility import DataSet

KEYS = ["dataset", "epsilon", "mix_size", "pooled", "epochs"]


def figures(
    name: str,
    data: DataSet,
    epsilon: float,
    mix_size: int,
    *,
    pooled: bool,
    schedule: dict[str, Any],
    seeds: int,
) -> dict[str, Any]:
    """Train on ``seeds`` releases; return mean accuracy, and what the last release costs."""
    scores, certified, stddev = [], math.inf, 0.0
    for seed in range(seeds):
        torch.manual_seed(seed)
        module = Network(SHAPES[name], pooled)
        options = {**schedule, "seed": seed}
        if math.isinf(epsilon):
            model = trained(noiseless(data, mix_size, seed), module, data, **options)
        else:
            stddev = paper_noise(mix_size, epsilon, *data.x_train.shape)
            with rows(data, mix_size, stddev) as release:
                certified = release.certificate.epsilon
                model = trained(release, module, data, **options)
        scores.append(test_accuracy(model, data))
    found = spread(scores)
    return {
        "best epoch": 1 + model.validation_scores_.index(max(model.validation_scores_)),
        "cnn": found["accuracy"] / 100,
        "spread": found["spread"] / 100,
        "releases": seeds,
        "noise": stddev,
        "certified": certified,
    }


def main() -> None:
    found = mixing_parser(__doc__)
    found.add_argument("--datasets", nargs="+", choices=SHAPES)
    found.add_argument("--epsilon", type=float, nargs="+", help="inf: without noise")
    found.add_argument("--sizes", type=int, nargs="+", help="mixing degrees")
    found.add_argument("--epochs", type=int)
    found.add_argument("--pooled", action="store_true", help="means of 2 x 2 pixels, as --quick")
    given = read(found)
    experiment = Experiment(__file__, KEYS, given)
    quick = experiment.quick
    epochs = given.epochs or (4 if quick else 50)
    schedule = short_schedule(epochs) if quick or given.pooled else papers_schedule(epochs)
    pooled = quick or given.pooled
    for name in given.datasets or (("mnist",) if quick else tuple(SHAPES)):
        data = with_validation(load(name))
        for epsilon in given.epsilon or ((20.0,) if quick else (math.inf, *BUDGETS[name])):
            for size in given.sizes or ((16, 64, 256) if quick else [2**k for k in range(10)]):
                setting = [name, f"{epsilon:g}", size, "yes" if pooled else "no", epochs]
                experiment.measure(
                    dict(zip(KEYS, setting, strict=True)),
                    lambda name=name, data=data, epsilon=epsilon, size=size: figures(
                        name,
                        data,
                        epsilon,
                        size,
                        pooled=pooled,
                        schedule=schedule,
                        seeds=given.seeds,
                    ),
                )

    def draw(axes: Any) -> None:
        curves = dict.fromkeys((row["dataset"], row["epsilon"]) for row in experiment.rows)
        for curve in curves:
            chosen = [row for row in experiment.rows if (row["dataset"], row["epsilon"]) == curve]
            chosen.sort(key=lambda row: int(row["mix_size"]))
            sizes = [int(row["mix_size"]) for row in chosen]
            label = f"{curve[0]}, epsilon {curve[1]}"
            axes.semilogx(sizes, [float(row["cnn"]) for row in chosen], "o-", label=label)
        axes.set(xlabel="mixing degree", ylabel="test accuracy of the network")
        axes.legend()

    experiment.figure(draw)
    experiment.show("cnn", "spread", "best epoch", "noise", "certified")


if __name__ == "__main__":
    main()
