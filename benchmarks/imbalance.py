"""Recall of a rare class: from a release against private training by gradient descent.

    PRIVMIX_DATA=../shared/data python benchmarks/imbalance.py --epsilon 1 8 --seeds 3

CIFAR-10 EfficientNet-Lite0 features; records of class 0 are dropped until it is 1 % of the training
set. Test records are balanced. ``prior`` adds the release's own estimate of the classes' sizes.
``dp-gradient`` is full-batch softmax regression (every record in every step: DP-SGD with sampling
probability 1), by the public rule of ``benchmarks/utility.py``; ``weighted`` divides its scores'
bias by noisy counts that 1 % of the squared budget pays for.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

import privmix
from privmix.accounting import gdp_mu_from
from stamp import stamp
from utility import DataSet, centred, load_cifar10

DELTA = 1e-5
SHARE = 0.01


def with_rare_class(data: DataSet, rng: np.random.Generator) -> DataSet:
    others, rare = np.flatnonzero(data.y_train != 0), np.flatnonzero(data.y_train == 0)
    kept = rng.choice(rare, round(SHARE / (1 - SHARE) * len(others)), replace=False)
    rows = rng.permutation(np.concatenate([others, kept]))
    return DataSet(data.x_train[rows], data.y_train[rows], data.x_test, data.y_test)


def from_release(data: DataSet, epsilon: float) -> dict[str, NDArray[Any]]:
    plan = privmix.plan_release(data.schema, target_epsilon=epsilon, target_delta=DELTA)
    with tempfile.TemporaryDirectory() as folder:
        release = privmix.release(data.x_train, data.y_train, plan, out=Path(folder) / "release")
        plain = privmix.NoiseAwareClassifier(class_weight="balanced").fit(release)
        prior = privmix.NoiseAwareClassifier().fit(release)
    return {
        "release": plain.predict(data.x_test),
        "release, prior": prior.predict(data.x_test),
    }


def from_gradients(
    data: DataSet, epsilon: float, rng: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """Shares of the squared GDP parameter: mean 2 %, counts 1 %, gradients 97 %."""
    gdp_mu = gdp_mu_from(epsilon, DELTA)
    data, _ = centred(data, gdp_mu)
    counts = np.bincount(data.y_train) + rng.standard_normal(10) / (math.sqrt(0.01) * gdp_mu)
    gdp_mu *= math.sqrt(0.97)
    count, num_features = data.x_train.shape
    clip, steps = 0.5, 10 if count * gdp_mu < 5000 else 30
    rate = min(800.0, 1.5 * count * gdp_mu / (clip * steps))
    targets = np.eye(10, dtype=np.float32)[data.y_train]
    weights = np.zeros((num_features, 10), dtype=np.float32)
    for _ in range(steps):
        residuals = targets - softmax(data.x_train @ weights, axis=1)
        norms = np.linalg.norm(residuals, axis=1, keepdims=True)
        total = data.x_train.T @ (residuals * np.minimum(1, clip / np.maximum(norms, 1e-12)))
        total += clip * math.sqrt(steps) / gdp_mu * rng.standard_normal(total.shape)
        weights += (rate / count * total).astype(np.float32)
    scores = data.x_test @ weights
    weighted = scores - np.log(np.maximum(counts, 1) / count)
    return {
        "dp-gradient": scores.argmax(axis=1),
        "dp-gradient, weighted": weighted.argmax(axis=1),
    }


def judge(predicted: NDArray[Any], truth: NDArray[Any]) -> dict[str, float]:
    recalls = [float((predicted[truth == k] == k).mean()) for k in range(10)]
    chosen = predicted == 0
    precision = float((truth[chosen] == 0).mean()) if chosen.any() else 0.0
    return {
        "rare recall": recalls[0],
        "rare precision": precision,
        "mean recall": float(np.mean(recalls)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 8.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if "PRIVMIX_DATA" not in os.environ:
        parser.error("PRIVMIX_DATA must name the folder with the data")
    whole = load_cifar10(Path(os.environ["PRIVMIX_DATA"]), Path())
    rows = []
    for epsilon in arguments.epsilon:
        runs: dict[str, list[dict[str, float]]] = {}
        for seed in range(arguments.seeds):
            rng = np.random.default_rng(seed)
            data = with_rare_class(whole, rng)
            found = from_release(data, epsilon) | from_gradients(data, epsilon, rng)
            for name, predicted in found.items():
                runs.setdefault(name, []).append(judge(predicted, data.y_test))
        for name, results in runs.items():
            means = {key: float(np.mean([r[key] for r in results])) for key in results[0]}
            row = {"method": name, "epsilon": epsilon, "seeds": len(results)}
            rows.append({**stamp(), **row, **means})
            if not arguments.json:
                numbers = "".join(f"{key:>16} {value:.3f}" for key, value in means.items())
                print(f"{name:23}{epsilon:5g}{numbers}", flush=True)
    if arguments.json:
        json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
