"""Average against random weights: NeuroMixGDP's Figures 1 and 13.

    python -m experiments.li2023.weights --quick

Rows of exactly m records with weights 1/m, or Dirichlet weights clipped at C_w, at certified epsilon 1
and 8 (sampling without replacement, which random weights need). ``kl`` is the papers' learner,
``noise-aware`` one that uses the known noise and knows that weights scale the signal alone. Quick:
epsilon 8, 10,000 records, 20 epochs of ten times the step, and ``noise-aware`` of Banking77 alone.
"""

from __future__ import annotations

import itertools
import tempfile
import warnings
from pathlib import Path
from typing import Any

from experiments.harness import Experiment
from experiments.li2023.cells import draw_bars
from experiments.li2023.rows import accuracy
from experiments.mixing import DELTA, kl_softmax, load, mixing_parser, read, spread, threads

import privmix
from privmix.running.unrecorded import UnrecordedSpendingWarning
from utility import DataSet

SETTINGS = {"average": {}, "alpha 0.5": {"weight_alpha": 0.5}, "alpha 5": {"weight_alpha": 5.0}}


def figures(
    data: DataSet, setting: str, clip: float, size: int, epsilon: float, given: Any
) -> dict[str, Any]:
    """Release at an epsilon; return mean accuracies of both learners in per cent, and their spreads."""
    options: dict[str, Any] = {"design": "uniform", "mix_size": size, **SETTINGS[setting]}
    if "weight_alpha" in options:
        options["weight_clip"] = clip / size
    plan = privmix.plan_release(
        data.schema,
        target_epsilon=epsilon,
        target_delta=DELTA,
        preprocessing=(),
        label_balance=1.0,
        **options,
    )
    found: dict[str, list[float]] = {"kl": [], "noise-aware": []}
    both = not given.quick or data.schema.num_classes > 10
    for seed in range(given.seeds):
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", UnrecordedSpendingWarning)
            made = privmix.release(
                data.x_train, data.y_train, plan, out=Path(folder) / "rows", threads=threads()
            )
            epochs = 20 if given.quick else 200
            found["kl"].append(accuracy(made, kl_softmax(seed, epochs), data))
            if both:
                learner = privmix.NoiseAwareClassifier()
                found["noise-aware"].append(accuracy(made, learner, data))
    row: dict[str, Any] = {}
    for name, scores in found.items():
        if scores:
            measured = spread(scores)
            row |= {name: measured["accuracy"], f"{name}_spread": measured["spread"]}
    return {**row, "noise": made.feature_noise_stddev, "certified": made.certificate.epsilon}


def main() -> None:
    given = read(mixing_parser(__doc__, ("banking77", "cifar10-efficientnet")))
    keys = ["epsilon", "dataset", "weights", "clip_over_average", "mix_size", "records", "seeds"]
    experiment = Experiment(__file__, keys, given)
    sizes = (64,) if given.quick else (16, 64, 256)
    for dataset in given.datasets:
        data = load(dataset, given.cache, 10_000 if given.quick else None)
        epsilons = (8.0,) if given.quick else (1.0, 8.0)
        for epsilon, size, setting in itertools.product(epsilons, sizes, SETTINGS):
            for clip in (1.0,) if setting == "average" else (2.0, 8.0):
                key = [f"{epsilon:g}", dataset, setting, clip, size, len(data.x_train), given.seeds]
                experiment.measure(
                    dict(zip(keys, key, strict=True)),
                    lambda data=data, rest=(setting, clip, size, epsilon): figures(
                        data, *rest, given
                    ),
                )
    names = ("dataset", "epsilon", "weights", "clip_over_average", "mix_size")
    experiment.figure(lambda axes: draw_bars(experiment, axes, names, "kl", "kl_spread"))
    experiment.show("kl", "kl_spread", "noise-aware", "noise-aware_spread", "noise", "certified")


if __name__ == "__main__":
    main()
