"""Accuracy of models learnt from releases, against the papers' methods and no privacy.

    PRIVMIX_DATA=../shared/data python benchmarks/utility.py --dataset banking77 --epsilon 1 8

Prints mean and standard deviation over seeds, one table a data set, and saves
``benchmarks/results/utility-<dataset>.json``, beside what earlier runs saved, each row with the commit
that made it; the table marks rows of different commits. A seed names a
repetition: releases draw fresh secret randomness, so runs differ. Records are scaled to unit norm,
one at a time; whatever else is done to them is charged, in the release's own certificate. Test
labels are used for the final accuracy only, but for ``dp-gradient-tuned``, which is marked
optimistic. ``dp-gradient``, ``dp-gradient-strong``, ``dp-gradient-tuned`` and ``dp-moments`` train a model privately and
release no data; the noise of their training is drawn by NumPy, which serves to measure accuracy and
protects nothing.
"""

from __future__ import annotations

import argparse
import itertools
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
from privmix.accounting import gdp_mu_from
from privmix.mechanism.residual import learning_rate
from privmix.planning.plan import record_facts
from privmix.planning.rule import Alternative, recommend_design
from privmix.preprocess import Center, Preprocessor, UnitNorm
from privmix.preprocess.transforms import with_constant
from privmix.rng import MasterKey, fresh_secret
from privmix.theory.regression import optimal_mix_size
from stamp import Marks, stamp

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


Outcome = tuple[float, dict[str, Any]]


def learn_from_release(data: DataSet, epsilon: float, learner: Any, **options: Any) -> Outcome:
    plan = privmix.plan_release(data.schema, target_epsilon=epsilon, target_delta=DELTA, **options)
    with tempfile.TemporaryDirectory() as folder:
        release = privmix.release(data.x_train, data.y_train, plan, out=Path(folder) / "release")
        accuracy = float(learner.fit(release).score(data.x_test, data.y_test))
        stated = json.loads(release.certificate.to_bytes())
    mechanism = stated["mechanism"]
    facts = {name: mechanism[name] for name in ("design", "feature_budget") if name in mechanism}
    facts |= {"epsilon": stated["epsilon"], "preprocessing": stated["preprocessing"]}
    sizes = ("design", "num_mixtures", "num_rounds", "mix_size", "noise_multiplier")
    tables = [
        {name: part[name] for name in sizes if name in part}
        for part in mechanism.get("components", [mechanism])
    ]
    return accuracy, {**facts, "tables": tables}


def ours(data: DataSet, epsilon: float, seed: int) -> Outcome:
    """The library's default plan, everything charged, with the classifier of its design."""
    return learn_from_release(data, epsilon, privmix.NoiseAwareClassifier())


def kl_softmax(seed: int) -> privmix.KLSoftmaxClassifier:
    """The papers' learner with their schedule."""

    def report(epoch: int, epochs: int, loss: float) -> None:
        progress(f"seed {seed} epoch {epoch}/{epochs} loss {loss:.4f}")

    return privmix.KLSoftmaxClassifier(seed=seed, progress=report)


def papers(data: DataSet, epsilon: float, seed: int) -> Outcome:
    """Poisson mixtures of the papers' optimal size at their sound cost, softmax trained by KL."""
    return learn_from_release(data, epsilon, kl_softmax(seed), **papers_mixtures(data, epsilon))


def papers_hierarchical(data: DataSet, epsilon: float, seed: int) -> Outcome:
    """Hierarchical sampling at its sound cost, two classes a row on average, KL.

    The paper picks the share of open classes by test accuracy; two suits few and many classes.
    """
    class_prob = 2 / data.schema.num_classes
    size = min(papers_mix_size(data, epsilon), class_prob * data.schema.num_records)
    options: dict[str, Any] = {"design": "hierarchical", "class_prob": class_prob}
    options |= {
        "mix_size": size,
        "preprocessing": recommended("poisson", data, epsilon).preprocessing,
    }
    return learn_from_release(data, epsilon, kl_softmax(seed), **options)


def papers_mixtures(data: DataSet, epsilon: float) -> dict[str, Any]:
    """As many rows as records, none of the planning rule's sizes, and the centring that ours gets."""
    options: dict[str, Any] = {"design": "poisson", "mix_size": papers_mix_size(data, epsilon)}
    options |= {"num_mixtures": data.schema.num_records, "label_balance": math.sqrt(2)}
    return {**options, "preprocessing": recommended("poisson", data, epsilon).preprocessing}


def papers_mix_size(data: DataSet, epsilon: float) -> float:
    n = data.schema.num_records
    return optimal_mix_size(n, n, gdp_mu_from(epsilon, DELTA))


def poisson(data: DataSet, epsilon: float, seed: int) -> Outcome:
    """The papers' mixtures, noise-aware classifier."""
    options = papers_mixtures(data, epsilon)
    return learn_from_release(data, epsilon, privmix.NoiseAwareClassifier(), **options)


def recommended(design: str, data: DataSet, epsilon: float) -> Alternative:
    """What the planning rule gives a design."""
    sizes = {n: getattr(data.schema, n) for n in ("num_records", "num_classes", "num_features")}
    found = recommend_design(**sizes, epsilon=epsilon, delta=DELTA)
    return next(alternative for alternative in found if alternative.design == design)


def as_planned(design: str) -> Callable[[DataSet, float, int], Outcome]:
    """A design with the sizes and the centring that the planning rule gives it."""

    def method(data: DataSet, epsilon: float, seed: int) -> Outcome:
        best = recommended(design, data, epsilon)
        options = {"preprocessing": best.preprocessing, **best.options}
        return learn_from_release(
            data, epsilon, privmix.NoiseAwareClassifier(), design=design, **options
        )

    return method


def prototypes(data: DataSet, epsilon: float, seed: int) -> Outcome:
    """One sum for each class, noise-aware classifier."""
    options: dict[str, Any] = {"design": "stratified", "sampling_prob": 1.0, "rows_per_class": 1}
    options["preprocessing"] = ()
    return learn_from_release(data, epsilon, privmix.NoiseAwareClassifier(), **options)


def centred(data: DataSet, gdp_mu: float) -> tuple[DataSet, float]:
    """Centre by a private mean that costs 2 % of the squared parameter; return what is left."""
    schema = data.schema
    steps = (Center(budget_share=0.02).planned(gdp_mu), UnitNorm())
    preprocessor = Preprocessor(steps, record_facts(schema, "add_or_remove_one"))
    records = privmix.bound_records(data.x_train, data.y_train, schema)
    key = MasterKey(fresh_secret(), b"utility benchmark")
    while not preprocessor.is_complete:
        preprocessor = preprocessor.run_next(records, key)
    x_train, x_test = (
        preprocessor.transform(x).astype(np.float32) for x in (data.x_train, data.x_test)
    )
    return DataSet(x_train, data.y_train, x_test, data.y_test), gdp_mu * math.sqrt(0.98)


def dp_gradient(data: DataSet, epsilon: float, seed: int) -> Outcome:
    """Full-batch softmax regression with noisy gradients and the public rule of design 4.5."""
    data, gdp_mu = centred(data, gdp_mu_from(epsilon, DELTA))
    n = len(data.x_train)
    clip, steps = 0.5, 10 if n * gdp_mu < 5000 else 30
    rate = min(800.0, 1.5 * n * gdp_mu / (clip * steps))
    accuracy = train_by_gradient(data, gdp_mu, clip, steps, rate, seed)
    return accuracy, {"clip": clip, "steps": steps, "learning_rate": rate, "epsilon": epsilon}


def dp_gradient_tuned(data: DataSet, epsilon: float, seed: int) -> Outcome:
    """The best of a grid around that rule, by test accuracy: optimistic, and no privacy for it."""
    data, gdp_mu = centred(data, gdp_mu_from(epsilon, DELTA))
    tried = []
    for clip, steps, factor in itertools.product((0.5, 1.0), (10, 30), (0.5, 1.0, 2.0)):
        rate = factor * 1.5 * len(data.x_train) * gdp_mu / (clip * steps)
        progress(f"dp-gradient-tuned, seed {seed}, clip {clip}, steps {steps}, rate {rate:g}")
        accuracy = train_by_gradient(data, gdp_mu, clip, steps, rate, seed)
        tried.append((accuracy, {"clip": clip, "steps": steps, "learning_rate": rate}))
    accuracy, facts = max(tried, key=lambda one: one[0])
    return accuracy, {**facts, "epsilon": epsilon, "optimistic": True}


def dp_gradient_strong(data: DataSet, epsilon: float, seed: int) -> Outcome:
    """Private training at its best that we know: what ``adaptive`` has, and more.

    The preconditioner of ``adaptive``, from a noisy matrix of second moments (3 % of the budget), its
    learning rate and intercept, 100 steps, momentum 0.5, the mean of the last five steps, and no cap of
    the rate.
    """
    data, gdp_mu = centred(data, gdp_mu_from(epsilon, DELTA))
    rng = np.random.default_rng(seed)
    x_train, x_test = (with_constant(x, 1 / 64, 1.0) for x in (data.x_train, data.x_test))
    (n, d), steps, clip, momentum, share = x_train.shape, 100, 0.5, 0.5, 0.03
    noise = rng.standard_normal((d, d)) / (gdp_mu * math.sqrt(share))
    moments = (x_train.T @ x_train + np.triu(noise) + np.triu(noise, 1).T) / n
    variances, basis = np.linalg.eigh(moments.astype(np.float64))
    edge = 2 * math.sqrt(d) / (gdp_mu * math.sqrt(share) * n)  # of the noise's semicircle
    variances = np.where(variances > edge, variances, np.maximum(variances.clip(0).mean(), 0))
    gdp_mu *= math.sqrt(1 - share)
    x_train, x_test = ((x @ basis).astype(np.float32) for x in (x_train, x_test))
    targets = np.eye(data.schema.num_classes, dtype=np.float32)[data.y_train]
    rate = learning_rate(clip / (n * gdp_mu), steps, data.schema.num_classes)
    pace = ((1 - momentum) / (variances / targets.shape[1] + 1 / rate)).astype(np.float32)[:, None]
    weights = np.zeros((d, targets.shape[1]), dtype=np.float32)
    velocity, total = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(steps):
        gradient = noisy_gradient(x_train, targets, weights, clip, math.sqrt(steps) / gdp_mu, rng)
        velocity = momentum * velocity + pace * gradient
        weights = weights + velocity
        total += weights if step >= steps - 5 else 0
    accuracy = float(((x_test @ total).argmax(axis=1) == data.y_test).mean())
    return accuracy, {"clip": clip, "steps": steps, "momentum": momentum, "epsilon": epsilon}


def noisy_gradient(
    x: NDArray[np.float32],
    targets: NDArray[np.float32],
    weights: NDArray[np.float32],
    clip: float,
    noise: float,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Return the mean ascent direction, of residuals clipped to norm ``clip``, through noise."""
    residuals = targets - softmax(x @ weights, axis=1)
    norms = np.linalg.norm(residuals, axis=1, keepdims=True)
    total = x.T @ (residuals * np.minimum(1, clip / np.maximum(norms, 1e-12)))
    total += clip * noise * rng.standard_normal(total.shape)
    return (total / len(x)).astype(np.float32)


def train_by_gradient(
    data: DataSet, gdp_mu: float, clip: float, steps: int, rate: float, seed: int
) -> float:
    """Run noisy gradient descent; return the test accuracy.

    A record's gradient is its residual, clipped to norm ``clip``, times its unit-norm features.
    """
    rng = np.random.default_rng(seed)
    targets = np.eye(data.schema.num_classes, dtype=np.float32)[data.y_train]
    weights = np.zeros((data.x_train.shape[1], targets.shape[1]), dtype=np.float32)
    for _ in range(steps):
        noise = math.sqrt(steps) / gdp_mu
        weights += np.float32(rate) * noisy_gradient(
            data.x_train, targets, weights, clip, noise, rng
        )
    return float(((data.x_test @ weights).argmax(axis=1) == data.y_test).mean())


def dp_moments(data: DataSet, epsilon: float, seed: int) -> Outcome:
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


def without_privacy(data: DataSet, epsilon: float, seed: int) -> Outcome:
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


METHODS: dict[str, Callable[[DataSet, float, int], Outcome]] = {
    "ours": ours,
    "adaptive": as_planned("adaptive"),
    "signed": as_planned("signed"),
    "hybrid": as_planned("hybrid"),
    "prototypes": prototypes,
    "dp-gradient": dp_gradient,
    "dp-gradient-strong": dp_gradient_strong,
    "dp-gradient-tuned": dp_gradient_tuned,
    "dp-moments": dp_moments,
    "poisson": poisson,
    "papers": papers,
    "papers-hierarchical": papers_hierarchical,
    "non-private": without_privacy,
}
DEFAULT_METHODS = [
    name for name in METHODS if name not in ("adaptive", "signed", "hybrid", "poisson")
]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    method: str
    epsilon: float
    mean: float
    std: float | None
    seeds: int
    seconds: float
    accuracies: list[float]
    facts: dict[str, Any]
    commit: str
    date: str


def measure(name: str, data: DataSet, epsilon: float, seeds: int) -> Row:
    start, accuracies, facts = time.perf_counter(), [], {}
    for seed in range(1 if name == "non-private" else seeds):
        progress(f"{name}, epsilon {epsilon:g}, seed {seed}")
        accuracy, facts = METHODS[name](data, epsilon, seed)
        accuracies.append(accuracy)
    return Row(
        method=name,
        epsilon=epsilon,
        mean=statistics.fmean(accuracies),
        std=statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        seeds=len(accuracies),
        seconds=(time.perf_counter() - start) / len(accuracies),
        accuracies=accuracies,
        facts=facts,
        **stamp(),
    )


def progress(message: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{message}", end="", file=sys.stderr, flush=True)


def print_table(dataset: str, rows: list[dict[str, Any]]) -> None:
    """Print accuracies in per cent: a line for each method, a column for each epsilon."""
    epsilons = sorted({row["epsilon"] for row in rows})
    cells = {(row["method"], row["epsilon"]): row for row in rows}
    seeds, marks = sorted({row["seeds"] for row in rows}), Marks(rows)
    print(f"\n{dataset}, delta {DELTA:g}, accuracy in % (standard deviation), seeds {seeds}")
    print(f"{'epsilon':24}" + "".join(f"{epsilon:>16g}" for epsilon in epsilons))
    for method in METHODS:
        if not any((method, epsilon) in cells for epsilon in epsilons):
            continue
        name = method + (" (optimistic)" if method == "dp-gradient-tuned" else "")
        line = f"{name:24}"
        for epsilon in epsilons:
            row = cells.get((method, epsilon))
            line += f"{'' if row is None else cell(row) + marks.of(row):>16}"
        print(line)
    print("\n".join(marks.legend()))


def cell(row: dict[str, Any]) -> str:
    spread = "" if row["std"] is None else f" ({100 * row['std']:.2f})"
    return f"{100 * row['mean']:.2f}{spread}"


def save(dataset: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write results beside those that earlier runs saved; return all of them."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"utility-{dataset}.json"
    earlier = json.loads(path.read_text())["rows"] if path.is_file() else []
    found = {(row["method"], row["epsilon"]): row for row in [*earlier, *rows]}
    order = list(METHODS)
    merged = sorted(found.values(), key=lambda row: (row["epsilon"], order.index(row["method"])))
    result = {"dataset": dataset, "delta": DELTA, "rows": merged}
    path.write_text(json.dumps(result, indent=2) + "\n")
    return merged


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dataset", required=True, choices=DATASETS)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 2.0, 4.0, 8.0])
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
    rows: list[dict[str, Any]] = []
    for epsilon, method in itertools.product(arguments.epsilon, arguments.methods):
        rows.append(asdict(measure(method, data, epsilon, arguments.seeds)))
        merged = save(arguments.dataset, [rows[-1]])  # long runs keep what they have
    progress("")
    if arguments.json:
        print(json.dumps({"dataset": arguments.dataset, "delta": DELTA, "rows": rows}))
    else:
        print_table(arguments.dataset, merged)


if __name__ == "__main__":
    main()
