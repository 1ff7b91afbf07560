"""Are predicted probabilities right? Expected calibration error on held-out training records.

    PRIVMIX_DATA=../shared/data python benchmarks/probabilities.py --dataset digits --epsilon 1 8

A quarter of the **training** records is held out; test sets are not read. ``present`` is the
learner's probability; ``best`` that of the one factor on the scores that a look at the held-out
labels would choose, which nobody has: what a single factor can reach. Fifteen bins of confidence.
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
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax
from sklearn.datasets import load_digits

import privmix
from privmix.accounting import gdp_mu_from
from stamp import stamp

DELTA = 1e-5
DESIGNS = (
    *("poisson", "signed", "stratified", "sums", "hybrid"),
    *("hierarchical", "transposed", "uniform"),
)


def unit_norm(x: NDArray[Any]) -> NDArray[np.float32]:
    rows = np.asarray(x, dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) * np.float32(1 - 1e-6)


def load(name: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    if name == "digits":
        x, y = load_digits(return_X_y=True)
        return unit_norm(x), y
    with np.load(Path(os.environ["PRIVMIX_DATA"]) / "banking77-minilm.npz") as file:
        return unit_norm(file["x_train"]), np.unique(file["y_train"], return_inverse=True)[1]


def plan(schema: privmix.Schema, design: str, epsilon: float) -> privmix.ReleasePlan:
    """Default sizes; the public rule of design 4.5 where signs are drawn."""
    options: dict[str, Any] = {"preprocessing": ()}
    gdp_mu = gdp_mu_from(epsilon, DELTA)
    if design == "hybrid":
        snr = (gdp_mu * schema.num_records / schema.num_classes) ** 2 / schema.num_features
        options["feature_budget"] = snr / (2 * (snr + 25))
        gdp_mu *= math.sqrt(options["feature_budget"])
    if design in ("hybrid", "signed"):
        rows = max(schema.num_records, 20 * schema.num_features)
        prob = min(1.0, gdp_mu / math.sqrt(rows * (math.cosh(1 / 1.2**2) - 1)))
        options |= {"num_mixtures": rows, "mix_size": prob * schema.num_records}
    if design == "sums":
        design = "stratified"
        options |= {"sampling_prob": 1.0, "rows_per_class": 1}
    if design == "hierarchical":
        options["class_prob"] = 3 / schema.num_classes
    if design == "poisson":
        options |= {
            "mix_size": min(64, schema.num_records // 2),
            "num_mixtures": schema.num_records,
        }
    if design in ("poisson", "signed"):
        options["label_balance"] = math.sqrt(2)
    return privmix.plan_release(
        schema, target_epsilon=epsilon, target_delta=DELTA, design=design, **options
    )


def calibration_error(probabilities: NDArray[Any], labels: NDArray[Any], bins: int = 15) -> float:
    """Mean gap between confidence and accuracy over bins of confidence, by their records."""
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    number = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(number, confidence - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(labels))


def best_factor(scores: NDArray[Any], labels: NDArray[Any]) -> float:
    own = scores[np.arange(len(labels)), labels]

    def loss(log_factor: float) -> float:
        factor = np.exp(log_factor)
        return float((logsumexp(factor * scores, axis=1) - factor * own).mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-8, 8), method="bounded").x))


def measure(name: str, design: str, epsilon: float, seed: int) -> dict[str, float]:
    x, y = load(name)
    order = np.random.default_rng(seed).permutation(len(x))
    train, held = np.split(order, [3 * len(x) // 4])
    schema = privmix.Schema(
        classes=range(int(y.max()) + 1),
        num_features=x.shape[1],
        num_records=len(train),
        feature_clip_norm=1.0,
    )
    with tempfile.TemporaryDirectory() as folder:
        chosen = plan(schema, design, epsilon)
        release = privmix.release(x[train], y[train], chosen, out=Path(folder) / "release")
        model = privmix.NoiseAwareClassifier().fit(release)
    present, labels = model.predict_proba(x[held]), y[held]
    scores = x[held] @ model.coef_.T + model.intercept_
    best = softmax(best_factor(scores, labels) * scores, axis=1)
    return {
        "accuracy": float((present.argmax(axis=1) == labels).mean()),
        "present": calibration_error(present, labels),
        "best": calibration_error(best, labels),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dataset", choices=("digits", "banking77"), default="digits")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 2.0, 4.0, 8.0])
    parser.add_argument("--designs", nargs="+", choices=DESIGNS, default=DESIGNS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.dataset == "banking77" and "PRIVMIX_DATA" not in os.environ:
        parser.error("PRIVMIX_DATA must name the folder with the data")
    rows = []
    for design in arguments.designs:
        for epsilon in arguments.epsilon:
            seeds = range(arguments.seeds)
            runs = [measure(arguments.dataset, design, epsilon, seed) for seed in seeds]
            means = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
            rows.append({**stamp(), "design": design, "epsilon": epsilon, **means})
            if not arguments.json:
                numbers = "".join(f"{key:>10} {value:.3f}" for key, value in means.items())
                print(f"{design:13}{epsilon:5g}{numbers}", flush=True)
    if arguments.json:
        json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
