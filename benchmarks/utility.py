"""Accuracy of models learnt from releases, against the papers' method and no privacy.

    PRIVMIX_DATA=../shared/data python benchmarks/utility.py --dataset banking77 --epsilon 1

Prints mean and standard deviation over seeds and saves ``benchmarks/results/<name>.json``. A seed
names a repetition: releases draw fresh secret randomness, so runs differ. Records are scaled to
unit norm, one at a time; whatever else is done to them is charged. Test labels are used for the
final accuracy only. ``dp-gradient`` and ``dp-moments`` train a model privately and release no data;
their noise is drawn by NumPy, which serves to measure accuracy and protects nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.linear_model import RidgeClassifierCV

import privmix
from privmix.accounting import ComposedEvent, GaussianEvent, account, gdp_mu_from
from privmix.planning_rule import recommend_design

DELTA = 1e-5
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class DataSet:
    """Unit-norm records, split as their publishers split them; classes are 0..K-1."""

    x_train: NDArray[np.float32]
    y_train: NDArray[np.int64]
    x_test: NDArray[np.float32]
    y_test: NDArray[np.int64]

    @property
    def schema(self) -> privmix.Schema:
        """The public facts; the number of records is published with each of these data sets."""
        return privmix.Schema(
            classes=range(int(self.y_train.max()) + 1),
            num_features=self.x_train.shape[1],
            num_records=len(self.x_train),
            feature_clip_norm=1.0,
        )


def unit_norm(x: NDArray[Any]) -> NDArray[np.float32]:
    rows = np.asarray(x, dtype=np.float32)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    # A hair below 1: rounding must not make a record longer than the clip norm.
    return rows / np.maximum(norms, np.finfo(np.float32).tiny) * np.float32(1 - 1e-6)


def load_banking77(data: Path, cache: Path) -> DataSet:
    with np.load(data / "banking77-minilm.npz", allow_pickle=False) as file:
        classes, y_train = np.unique(file["y_train"], return_inverse=True)
        y_test = np.searchsorted(classes, file["y_test"])
        return DataSet(unit_norm(file["x_train"]), y_train, unit_norm(file["x_test"]), y_test)


def load_cifar10(data: Path, cache: Path) -> DataSet:
    parts: list[Any] = []
    for split in ("train", "test"):
        with np.load(data / f"cifar10-efficientnet_lite0-{split}.npz") as file:
            scaled = file["features_u8"].astype(np.float32) * file["scale"]
            parts += [unit_norm(scaled), file["labels"].astype(np.int64)]
    return DataSet(*parts)


def load_mnist(data: Path, cache: Path) -> DataSet:
    path = cache / "mnist-scattering-groups.npz"
    if not path.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        with np.load(data / "mnist.npz") as file:
            features = {name: scatter(file[name]) for name in ("x_train", "x_test")}
            labels = {name: file[name].astype(np.int64) for name in ("y_train", "y_test")}
        np.savez(path, **features, **labels)
    with np.load(path) as file:
        return DataSet(
            unit_norm(file["x_train"]),
            file["y_train"],
            unit_norm(file["x_test"]),
            file["y_test"],
        )


def scatter(images: NDArray[np.uint8], batch: int = 500) -> NDArray[np.float16]:
    """Scattering transform (J = 2, 8 angles), each image's 27 channel groups standardised.

    The normalisation is Tramer & Boneh's (2021) group norm: it uses one image at a time.
    """
    import torch
    from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D

    transform = ScatteringTorch2D(J=2, shape=images.shape[1:], L=8)
    done = []
    for start in range(0, len(images), batch):
        pixels = torch.from_numpy(images[start : start + batch].astype(np.float32) / 255)
        groups = transform(pixels).reshape(len(pixels), 27, -1).numpy()
        groups = groups - groups.mean(axis=2, keepdims=True)
        groups /= np.sqrt((groups**2).mean(axis=2, keepdims=True) + 1e-10)
        done.append(unit_norm(groups.reshape(len(pixels), -1)).astype(np.float16))
        progress(f"scattering {start + len(pixels)}/{len(images)}")
    return np.concatenate(done)


DATASETS: dict[str, Callable[[Path, Path], DataSet]] = {
    "banking77": load_banking77,
    "mnist-scattering": load_mnist,
    "cifar10-efficientnet": load_cifar10,
}


def learn_from_release(
    data: DataSet, epsilon: float, learner: Any, design: str | None, **options: Any
) -> tuple[float, dict[str, Any]]:
    plan = privmix.plan_release(
        data.schema, target_epsilon=epsilon, target_delta=DELTA, design=design, **options
    )
    with tempfile.TemporaryDirectory() as folder:
        release = privmix.release(data.x_train, data.y_train, plan, out=Path(folder) / "release")
        accuracy = float(learner.fit(release).score(data.x_test, data.y_test))
    stated = plan.to_dict()
    facts = ("design", "num_mixtures", "mix_size", "noise_multiplier", "feature_budget", "epsilon")
    return accuracy, {name: stated[name] for name in facts if name in stated}


def ours(data: DataSet, epsilon: float, seed: int) -> tuple[float, dict[str, Any]]:
    """Default plan, noise-aware classifier."""
    return learn_from_release(data, epsilon, privmix.NoiseAwareClassifier(), None)


def papers(data: DataSet, epsilon: float, seed: int) -> tuple[float, dict[str, Any]]:
    """Poisson mixtures at their sound cost, softmax trained by KL with the papers' schedule."""

    def report(epoch: int, epochs: int, loss: float) -> None:
        progress(f"seed {seed} epoch {epoch}/{epochs} loss {loss:.4f}")

    learner = privmix.KLSoftmaxClassifier(seed=seed, progress=report)
    return learn_from_release(data, epsilon, learner, "poisson")


def poisson(data: DataSet, epsilon: float, seed: int) -> tuple[float, dict[str, Any]]:
    """The papers' mixtures, noise-aware classifier."""
    return learn_from_release(data, epsilon, privmix.NoiseAwareClassifier(), "poisson")


def signed(data: DataSet, epsilon: float, seed: int) -> tuple[float, dict[str, Any]]:
    """Signed mixtures sized by design 4.5's public rule, noise-aware classifier."""
    sizes = signed_sizes(data.schema, gdp_mu_from(epsilon, DELTA))
    return learn_from_release(data, epsilon, privmix.NoiseAwareClassifier(), "signed", **sizes)


def hybrid(data: DataSet, epsilon: float, seed: int) -> tuple[float, dict[str, Any]]:
    """Class sums and signed mixtures sized by the same rule, noise-aware classifier."""
    schema, gdp_mu = data.schema, gdp_mu_from(epsilon, DELTA)
    squared_snr = (gdp_mu * schema.num_records / schema.num_classes) ** 2 / schema.num_features
    budget = squared_snr / (2 * (squared_snr + 25))
    options = {**signed_sizes(schema, math.sqrt(budget) * gdp_mu), "feature_budget": budget}
    return learn_from_release(data, epsilon, privmix.NoiseAwareClassifier(), "hybrid", **options)


def signed_sizes(schema: privmix.Schema, gdp_mu: float) -> dict[str, Any]:
    """Size signed mixtures for a joint noise multiplier of about 1.2."""
    num_mixtures = max(schema.num_records, 20 * schema.num_features)
    per_row = math.cosh(1 / 1.2**2) - 1
    sampling_prob = min(1.0, gdp_mu / math.sqrt(num_mixtures * per_row))
    return {"num_mixtures": num_mixtures, "mix_size": sampling_prob * schema.num_records}


def planned(data: DataSet, epsilon: float, seed: int) -> tuple[float, dict[str, Any]]:
    """The design and the sizes that the planning rule puts first, noise-aware classifier."""
    design, options = recommended(data.schema, epsilon)
    return learn_from_release(data, epsilon, privmix.NoiseAwareClassifier(), design, **options)


def recommended(schema: privmix.Schema, epsilon: float) -> tuple[str, dict[str, Any]]:
    best = recommend_design(
        num_records=schema.num_records,
        num_classes=schema.num_classes,
        num_features=schema.num_features,
        epsilon=epsilon,
        delta=DELTA,
    )[0]
    names = ("num_mixtures", "mix_size", "feature_budget")
    return best.design, {n: getattr(best, n) for n in names if getattr(best, n) is not None}


def centred(data: DataSet, epsilon: float, seed: int) -> tuple[float, dict[str, Any]]:
    """As ``planned``, from records less a noisy mean that 2 % of the squared budget pays for."""
    mean_event = GaussianEvent(
        noise_multiplier=1 / (math.sqrt(0.02) * gdp_mu_from(epsilon, DELTA)), count=1
    )
    rest = epsilon_left(data.schema, epsilon, mean_event)
    moved = less_noisy_mean(data, mean_event.noise_multiplier)
    accuracy, facts = planned(moved, rest, seed)
    return accuracy, {**facts, "epsilon": epsilon, "epsilon_of_release": facts["epsilon"]}


def less_noisy_mean(data: DataSet, noise_multiplier: float) -> DataSet:
    """Subtract a noisy mean of the training records, then scale to unit norm again."""
    sums = data.x_train.sum(axis=0, dtype=np.float64)
    sums += noise_multiplier * np.random.default_rng().standard_normal(sums.shape)
    mean = (sums / len(data.x_train)).astype(np.float32)
    return DataSet(
        unit_norm(data.x_train - mean), data.y_train, unit_norm(data.x_test - mean), data.y_test
    )


def epsilon_left(schema: privmix.Schema, epsilon: float, spent: GaussianEvent) -> float:
    """Find what a release may cost so that it and ``spent`` together cost at most ``epsilon``."""
    target = epsilon
    while True:
        design, options = recommended(schema, target)
        plan = privmix.plan_release(
            schema, target_epsilon=target, target_delta=DELTA, design=design, **options
        )
        parts = (spent, *(part.event for part in plan.mechanism.components))
        if account(ComposedEvent(events=parts), DELTA).epsilon <= epsilon:
            return target
        target *= 0.9975


def prototypes(data: DataSet, epsilon: float, seed: int) -> tuple[float, dict[str, Any]]:
    """One sum for each class, noise-aware classifier."""
    options = {"sampling_prob": 1.0, "rows_per_class": 1}
    return learn_from_release(
        data, epsilon, privmix.NoiseAwareClassifier(), "stratified", **options
    )


def dp_gradient(data: DataSet, epsilon: float, seed: int) -> tuple[float, dict[str, Any]]:
    """Full-batch softmax regression with noisy gradients and the public rule of design 4.5.

    A record's gradient is its residual, clipped to norm C, times its unit-norm features, which are
    centred as in ``centred``: Gaussian mechanisms with mu^2 in shares of 2 % and 98 %.
    """
    gdp_mu, rng = gdp_mu_from(epsilon, DELTA), np.random.default_rng(seed)
    data = less_noisy_mean(data, 1 / (math.sqrt(0.02) * gdp_mu))
    gdp_mu *= math.sqrt(0.98)
    n, num_features = data.x_train.shape
    clip, steps = 0.5, 10 if n * gdp_mu < 5000 else 30
    rate = min(800.0, 1.5 * n * gdp_mu / (clip * steps))
    targets = np.eye(data.schema.num_classes, dtype=np.float32)[data.y_train]
    weights = np.zeros((num_features, targets.shape[1]), dtype=np.float32)
    for _ in range(steps):
        residuals = targets - softmax(data.x_train @ weights, axis=1)
        norms = np.linalg.norm(residuals, axis=1, keepdims=True)
        total = data.x_train.T @ (residuals * np.minimum(1, clip / np.maximum(norms, 1e-12)))
        total += clip * math.sqrt(steps) / gdp_mu * rng.standard_normal(total.shape)
        weights += (rate / n * total).astype(np.float32)
    accuracy = float(((data.x_test @ weights).argmax(axis=1) == data.y_test).mean())
    return accuracy, {"steps": steps, "learning_rate": rate, "epsilon": epsilon}


def dp_moments(data: DataSet, epsilon: float, seed: int) -> tuple[float, dict[str, Any]]:
    """Least squares from noisy sums of x x' and y x', each with half of the squared budget.

    Both change by at most 1 in Frobenius norm. The ridge is the learner's rule, with the edge of
    the semicircle for that of Marchenko and Pastur.
    """
    scale = math.sqrt(2) / gdp_mu_from(epsilon, DELTA)
    rng, x = np.random.default_rng(seed), data.x_train.astype(np.float64)
    n, d = x.shape
    noise = rng.standard_normal((d, d))
    gram = (x.T @ x + scale * (noise + noise.T) / 2) / n
    cross = np.eye(data.schema.num_classes)[data.y_train].T @ x
    cross = (cross + scale * rng.standard_normal(cross.shape)) / n
    mean = cross.sum(axis=0)  # labels are one-hot
    variances, basis = np.linalg.eigh(gram - np.outer(mean, mean))
    variances = np.maximum(variances, 0)
    edge = scale * math.sqrt(2 * d) / n
    rotated = (cross - mean / len(cross)) @ basis
    weights = rotated / (variances + math.sqrt(edge * variances.mean()))
    weights /= np.sqrt(np.maximum((weights * rotated).sum(axis=1), 1e-30))[:, None]
    scores = (data.x_test - mean) @ (weights @ basis.T).T
    accuracy = float((scores.argmax(axis=1) == data.y_test).mean())
    return accuracy, {"epsilon": epsilon}


def without_privacy(data: DataSet, epsilon: float, seed: int) -> tuple[float, dict[str, Any]]:
    """Ridge classifier on the records, its ridge by leave-one-out; no randomness."""
    # Leave-one-out decomposes the records; a fixed subsample of them chooses the ridge well.
    some = np.random.default_rng(seed).permutation(len(data.x_train))[:10_000]
    ridges = np.logspace(-4, 2, 13)
    ridge = RidgeClassifierCV(ridges).fit(data.x_train[some], data.y_train[some]).alpha_
    x = data.x_train.astype(np.float64)
    center = x.mean(axis=0)
    x -= center
    targets = np.eye(int(data.y_train.max()) + 1)[data.y_train]
    penalty = float(ridge) * len(x) / len(some) * np.eye(x.shape[1])
    weights = np.linalg.solve(x.T @ x + penalty, x.T @ targets)
    scores = (data.x_test - center) @ weights + targets.mean(axis=0)
    return float((scores.argmax(axis=1) == data.y_test).mean()), {"ridge": float(ridge)}


METHODS = {
    "ours": ours,
    "signed": signed,
    "hybrid": hybrid,
    "planned": planned,
    "centred": centred,
    "prototypes": prototypes,
    "dp-gradient": dp_gradient,
    "dp-moments": dp_moments,
    "poisson": poisson,
    "papers": papers,
    "non-private": without_privacy,
}
DEFAULT_METHODS = ["ours", "papers", "non-private"]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    method: str
    mean: float
    std: float | None
    seeds: int
    seconds: float
    accuracies: list[float]
    facts: dict[str, Any]


def measure(name: str, data: DataSet, epsilon: float, seeds: int) -> Row:
    start, accuracies, facts = time.perf_counter(), [], {}
    for seed in range(1 if name == "non-private" else seeds):
        progress(f"{name}, seed {seed}")
        accuracy, facts = METHODS[name](data, epsilon, seed)
        accuracies.append(accuracy)
    return Row(
        method=name,
        mean=statistics.fmean(accuracies),
        std=statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        seeds=len(accuracies),
        seconds=(time.perf_counter() - start) / len(accuracies),
        accuracies=accuracies,
        facts=facts,
    )


def progress(message: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{message}", end="", file=sys.stderr, flush=True)


def print_table(result: dict[str, Any]) -> None:
    print(f"\n{result['dataset']}, epsilon {result['epsilon']:g}, delta {result['delta']:g}")
    print(f"{'method':14}{'design':12}{'mean':>8}{'std':>8}{'seeds':>7}{'s/seed':>9}")
    for row in result["rows"]:
        std = "" if row["std"] is None else f"{100 * row['std']:.2f}"
        print(
            f"{row['method']:14}{row['facts'].get('design', ''):12}{100 * row['mean']:8.2f}"
            f"{std:>8}{row['seeds']:7}{row['seconds']:9.1f}"
        )


def save(result: dict[str, Any]) -> None:
    """Write the results, beside those of other methods that an earlier run saved."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"utility-{result['dataset']}-epsilon-{result['epsilon']:g}.json"
    earlier = json.loads(path.read_text())["rows"] if path.is_file() else []
    rows = {row["method"]: row for row in [*earlier, *result["rows"]]}
    ordered = [rows[name] for name in METHODS if name in rows]
    path.write_text(json.dumps({**result, "rows": ordered}, indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dataset", required=True, choices=DATASETS)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=DEFAULT_METHODS)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "privmix")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    arguments = parser.parse_args()
    if arguments.seeds < 1:
        parser.error("--seeds must be at least 1")
    if "PRIVMIX_DATA" not in os.environ:
        parser.error("PRIVMIX_DATA must name the folder with the data")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    data = DATASETS[arguments.dataset](Path(os.environ["PRIVMIX_DATA"]), arguments.cache)
    rows = [measure(m, data, arguments.epsilon, arguments.seeds) for m in arguments.methods]
    result = {
        "dataset": arguments.dataset,
        "epsilon": arguments.epsilon,
        "delta": DELTA,
        "rows": [asdict(row) for row in rows],
    }
    save(result)
    progress("")
    if arguments.json:
        print(json.dumps(result))
    else:
        print_table(result)


if __name__ == "__main__":
    main()
