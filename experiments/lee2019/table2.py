"""DPMix against local perturbation and random projection: DPMix's Table II.

    python -m experiments.lee2019.table2 --quick
    python -m experiments.lee2019.table2 --datasets mnist --epsilon 20 --methods dpmix dpmix-denoised

Methods, all with as many rows as records:

- ``dpmix``, ``dpmix-denoised``: rows of the paper's best degree at Theorem 1's noise; the latter smoothed by
  a Gaussian filter of one pixel.
- ``local``: rows of one record at Theorem 1's noise, as in the paper. ``local-sound``: the same records by the
  Gaussian mechanism, accounted tightly, at the same epsilon and delta.
- ``projection-<d>``: random directions with the noise that the paper prints, which hides a change of one attribute
  by 1 and no record; the paper says nothing of labels: they are as they are. ``projection-<d>-noisy``: labels with
  the same noise. ``projection-<d>-record``: with the noise times sqrt(d_X), which hides a record. (The paper's formula
  is taken as printed.) ``projection-<d>-sound``: ``privmix.baselines.RandomProjection``.

Full size trains the paper's networks by its schedule. The epoch is chosen by 1,000 training records that are in no
row. Quick: MNIST at epsilon 20, and the network of fully connected
layers for all methods, six epochs of batches of 128.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from experiments.harness import Experiment
from experiments.lee2019.common import (
    BEST_SIZES,
    BUDGETS,
    SHAPES,
    Network,
    fully_connected,
    load,
    paper_noise,
    papers_schedule,
    rows,
    short_schedule,
    test_accuracy,
    trained,
    with_validation,
)
from experiments.mixing import Floats, Rows, mixing_parser, read, spread
from numpy.typing import NDArray

from privmix.baselines import Baseline, LocalPerturbation, RandomProjection
from utility import DataSet

KEYS = ["dataset", "epsilon", "method", "network", "epochs"]
WIDTHS = (50, 100, 200, 400)
MIXED = ("dpmix", "dpmix-denoised")
PROJECTED = ("", "-noisy", "-record", "-sound")
METHODS = (
    *MIXED,
    "local",
    "local-sound",
    *(f"projection-{width}{kind}" for width in WIDTHS for kind in PROJECTED),
)
QUICK_METHODS = (
    *MIXED,
    "local",
    "local-sound",
    *(f"projection-100{kind}" for kind in PROJECTED),
)


def projection_stddev(directions: NDArray[np.float64], epsilon: float, delta: float) -> float:
    """Return the paper's noise, section IV: s (sqrt(ln(1/(2 delta)) + epsilon)) / epsilon.

    s is the spectral norm of the directions.
    """
    largest = float(np.linalg.norm(directions, ord=2))
    return largest * math.sqrt(math.log(1 / (2 * delta)) + epsilon) / epsilon


def one_hot(data: DataSet) -> Floats:
    return np.eye(10, dtype=np.float32)[data.y_train]


def projected(data: DataSet, method: str, epsilon: float, seed: int) -> tuple[Rows, DataSet, float]:
    """Return projected rows by the paper's noise, the data in their space, and the noise."""
    _, width, *kind = method.split("-")
    random, count = np.random.default_rng(seed), len(data.x_train)
    directions = RandomProjection(10, int(width), projection_seed=seed).directions(
        data.x_train.shape[1]
    )
    stddev = projection_stddev(directions, epsilon, 1 / count)
    if kind == ["record"]:
        stddev *= math.sqrt(data.x_train.shape[1])
    x_train, x_test = (x @ directions.astype(np.float32) for x in (data.x_train, data.x_test))
    noisy = x_train + np.float32(stddev) * random.standard_normal(x_train.shape, np.float32)
    labels = one_hot(data)
    if kind:
        labels = labels + np.float32(stddev) * random.standard_normal(labels.shape, np.float32)
    norm = float(np.linalg.norm(x_test, axis=1).max()) + 1.0
    made = Rows(noisy, labels, count, 1.0, norm, design="uniform")
    return made, DataSet(x_train, data.y_train, x_test, data.y_test), stddev


def sound(data: DataSet, method: str, epsilon: float, seed: int) -> tuple[Rows, DataSet, float]:
    """Return rows of a baseline with a guarantee, the data in their space, and epsilon."""
    clip_norm = math.sqrt(data.x_train.shape[1]) / 2
    baseline: Baseline = LocalPerturbation(10, clip_norm=clip_norm, label_balance=clip_norm)
    seen = data
    if method != "local-sound":
        width = int(method.split("-")[1])
        baseline = RandomProjection(
            10, width, clip_norm=clip_norm, label_balance=clip_norm, projection_seed=seed
        )
        directions = baseline.directions(data.x_train.shape[1]).astype(np.float32)
        seen = DataSet(*(data.x_train, data.y_train, data.x_test @ directions, data.y_test))
    count = len(data.x_train)
    released = baseline.release(
        data.x_train, data.y_train, target_epsilon=epsilon, target_delta=1 / count, test_seed=seed
    )
    features, labels = released.records()
    norm = float(np.linalg.norm(seen.x_test, axis=1).max()) + 1.0
    return Rows(features, labels, count, 1.0, norm, design="uniform"), seen, released.epsilon


def accuracy(
    name: str, data: DataSet, method: str, epsilon: float, seed: int, schedule: dict[str, Any]
) -> tuple[float, dict[str, Any]]:
    """Publish by one method and train the method's network; return accuracy and facts."""
    options = {**schedule, "seed": seed}
    fully = options.pop("fully", False) or method.startswith("projection")
    torch.manual_seed(seed)
    if method.startswith("dpmix") or method == "local":
        size = 1 if method == "local" else BEST_SIZES[name]
        stddev = paper_noise(size, epsilon, *data.x_train.shape)
        if method == "dpmix-denoised":
            options |= {"denoise": "gaussian", "image_shape": SHAPES[name]}
        module = fully_connected(data.x_train.shape[1]) if fully else Network(SHAPES[name])
        if fully and method == "dpmix-denoised":
            module = torch.nn.Sequential(torch.nn.Flatten(), module)
        with rows(data, size, stddev) as release:
            model = trained(release, module, data, **options)
            facts = {"noise": stddev, "certified": release.certificate.epsilon}
        return test_accuracy(model, data), facts
    if method.endswith("-sound"):
        made, seen, certified = sound(data, method, epsilon, seed)
        facts = {"noise": "", "certified": certified}
    else:
        made, seen, stddev = projected(data, method, epsilon, seed)
        facts = {"noise": stddev, "certified": "none"}
    module = fully_connected(made.num_features) if fully else Network(SHAPES[name])
    return test_accuracy(trained(made, module, seen, **options), seen), facts


def figures(
    name: str, data: DataSet, method: str, epsilon: float, seeds: int, schedule: dict[str, Any]
) -> dict[str, Any]:
    found = [accuracy(name, data, method, epsilon, seed, schedule) for seed in range(seeds)]
    both = spread([score for score, _ in found])
    return {
        "accuracy": both["accuracy"] / 100,
        "spread": both["spread"] / 100,
        "releases": seeds,
        **found[-1][1],
    }


def main() -> None:
    found = mixing_parser(__doc__)
    found.add_argument("--datasets", nargs="+", choices=SHAPES)
    found.add_argument("--epsilon", type=float, nargs="+")
    found.add_argument("--methods", nargs="+", choices=METHODS)
    found.add_argument("--epochs", type=int)
    given = read(found)
    experiment = Experiment(__file__, KEYS, given)
    quick = experiment.quick
    epochs = given.epochs or (6 if quick else 50)
    schedule = {**short_schedule(epochs), "fully": True} if quick else papers_schedule(epochs)
    for name in given.datasets or (("mnist",) if quick else tuple(SHAPES)):
        data = with_validation(load(name))
        for epsilon in given.epsilon or BUDGETS[name][: 1 if quick else None]:
            for method in given.methods or (QUICK_METHODS if quick else METHODS):
                network = "fully connected" if quick or "projection" in method else "convolutional"
                setting = [name, f"{epsilon:g}", method, network, epochs]
                experiment.measure(
                    dict(zip(KEYS, setting, strict=True)),
                    lambda name=name, data=data, epsilon=epsilon, method=method: figures(
                        name, data, method, epsilon, given.seeds, schedule
                    ),
                )

    def draw(axes: Any) -> None:
        shown = [row for row in experiment.rows if row["epsilon"] == experiment.rows[0]["epsilon"]]
        names = [f"{row['dataset']} {row['method']}" for row in shown]
        axes.barh(names, [float(row["accuracy"]) for row in shown])
        axes.axvline(0.1, color="grey")  # chance
        axes.set(xlabel="test accuracy")
        axes.invert_yaxis()

    experiment.figure(draw)
    experiment.show("accuracy", "spread", "noise", "certified")


if __name__ == "__main__":
    main()
