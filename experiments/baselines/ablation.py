"""What DP-HP's accuracy on MNIST depends on: kernel, generator, code, steps, noise.

    PRIVMIX_DATA=data python -m experiments.baselines.ablation --variants base conv

One row a variant, which differs from ``base`` in what it names. All is scored on 10,000 training images that
the release leaves out, by four quick classifiers, and by Gaussian Bayes with a standard deviation of at
least a tenth of the largest pixel's (``smoothed bayes``). ``within`` is the spread within classes of what was made,
``margin`` the mean of pixels that are black in every training image.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from experiments.baselines.mnist import (
    PUBLISHED,
    SYNTHETIC,
    Digits,
    accuracy,
    classifiers,
    load,
    synthetic,
)
from experiments.harness import Experiment, parser
from sklearn.naive_bayes import GaussianNB

from privmix.baselines import FourierFeatures, HermiteFeatures, MeanEmbedding

QUICK = ("lda", "forest", "tree", "gaussian bayes")
BASE: dict[str, Any] = {
    "feature_map": HermiteFeatures(20, 0.6, 2.0),
    "num_steps": 600,
    "hidden_size": 500,
    "batch_size": 200,
    "code_size": 5,
}
FOURIER = FourierFeatures(784, 500, math.sqrt(105))
CONV = {"image_side": 28}
VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    "no noise": {"epsilon": math.inf},
    "3000 steps": {"num_steps": 3000},
    "code of 16": {"code_size": 16},
    "conv": CONV,
    "conv, code of 16": {**CONV, "code_size": 16},
    "published kernel": {"feature_map": PUBLISHED},
    "published kernel, 3000 steps": {"feature_map": PUBLISHED, "num_steps": 3000},
    "published kernel, no noise": {"feature_map": PUBLISHED, "epsilon": math.inf},
    "Fourier": {"feature_map": FOURIER},
    "Fourier, conv": {"feature_map": FOURIER, **CONV},
}


def spread(made: Digits, train: Digits) -> dict[str, float]:
    """Return the spread within classes over that of the images, and the mean of pixels that are black there."""
    within = [np.mean([x[y == k].std(axis=0).mean() for k in range(10)]) for x, y in (made, train)]
    black = train[0].max(axis=0) == 0
    return {"within": float(within[0] / within[1]), "margin": float(made[0][:, black].mean())}


def measured(variant: dict[str, Any], train: Digits, test: Digits, seed: int) -> dict[str, float]:
    settings = {**BASE, **variant}
    epsilon = settings.pop("epsilon", 1.0)
    made = synthetic(MeanEmbedding(10, len(train[0]), **settings), train, epsilon, seed, SYNTHETIC)
    found = {name: accuracy(classifiers(seed)[name], made, test) for name in QUICK}
    smoothed = accuracy(GaussianNB(var_smoothing=0.01), made, test)
    return {**found, "smoothed bayes": smoothed, **spread(made, train)}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--variants", nargs="+", choices=VARIANTS)
    options.add_argument("--seeds", type=int, default=1)
    arguments = options.parse_args()
    experiment = Experiment(__file__, ("variant", "seed"), arguments)
    train, test = load(development=True)
    for seed in range(arguments.seeds):
        for name in arguments.variants or VARIANTS:
            experiment.measure(
                {"variant": name, "seed": seed},
                lambda name=name, seed=seed: measured(VARIANTS[name], train, test, seed),
            )
    experiment.show(*QUICK, "smoothed bayes", "within", "margin")


if __name__ == "__main__":
    main()
