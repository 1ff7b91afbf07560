"""Linear learners over the mixing degree on pixels: DPMix's Table I and Figure 2b, without its network.

    python -m experiments.lee2019.mixing_degree --quick
    python -m experiments.lee2019.mixing_degree --quick --datasets mnist --seeds 3

n = T rows of exactly l records, at the noise that Theorem 1 asks for in the paper's own form: delta = 1/n,
equal noise of features and labels, sensitivities sqrt(d) and sqrt(10). Pixels less 1/2 lie in a ball of
radius sqrt(d) / 2, so the library's own sensitivity of the features is the same. Learners:
``least-squares`` on the rows as they are, and ``noise-aware``. The network is in ``network``. Quick: epsilon
20 on MNIST; epsilon 30 on CIFAR-10 of 16 x 16 pixels, averaged before they are mixed, which needs less noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from experiments.harness import Experiment
from experiments.lee2019.common import BUDGETS, SHAPES, load, paper_noise, rows
from experiments.mixing import mixing_parser, read, spread

import privmix
from utility import DataSet

KEYS = ["dataset", "features", "epsilon", "mix_size", "releases"]
QUICK_SIZES = {"mnist": (16, 32, 64, 128, 256), "cifar10": (64, 128, 256)}
LEARNERS = ("least-squares", "noise-aware")


def least_squares(release: Any, data: DataSet) -> float:
    """Regress label weights on features, noise and all; return the test accuracy."""
    blocks = list(release.iter_blocks())
    count = sum(len(x) for x, _ in blocks)
    x_mean = sum(x.sum(axis=0, dtype=float) for x, _ in blocks) / count
    y_mean = sum(y.sum(axis=0, dtype=float) for _, y in blocks) / count
    gram = np.zeros((len(x_mean), len(x_mean)))
    cross = np.zeros((len(x_mean), len(y_mean)))
    for x, y in blocks:
        centred = x - x_mean.astype(np.float32)
        gram += centred.T @ centred
        cross += centred.T @ (y - y_mean.astype(np.float32))
    scores = (data.x_test - x_mean) @ np.linalg.solve(gram, cross) + y_mean
    return float((scores.argmax(axis=1) == data.y_test).mean())


def figures(data: DataSet, mix_size: int, epsilon: float, releases: int = 1) -> dict[str, Any]:
    """Release rows of ``mix_size`` records; return the accuracies of the learners."""
    stddev = paper_noise(mix_size, epsilon, *data.x_train.shape)
    scores: dict[str, list[float]] = {name: [] for name in LEARNERS}
    for _ in range(releases):
        with rows(data, mix_size, stddev) as release:
            scores["least-squares"].append(least_squares(release, data))
            aware = privmix.NoiseAwareClassifier().fit(release)
            scores["noise-aware"].append(aware.score(data.x_test, data.y_test))
            certified = release.certificate.epsilon
    found: dict[str, Any] = {"noise": stddev, "certified": certified}
    for name in LEARNERS:
        both = spread(scores[name])
        found[name], found[f"{name} spread"] = both["accuracy"] / 100, both["spread"] / 100
    return found


def main() -> None:
    found = mixing_parser(__doc__)
    found.add_argument("--datasets", nargs="+", choices=SHAPES, default=list(SHAPES))
    found.add_argument("--epsilon", type=float, nargs="+")
    found.add_argument("--sizes", type=int, nargs="+", help="mixing degrees")
    given = read(found)
    experiment = Experiment(__file__, KEYS, given)
    quick = experiment.quick
    for name in given.datasets:
        data = load(name, pooled=quick and name == "cifar10")
        width = data.x_train.shape[1]
        for epsilon in given.epsilon or BUDGETS[name][: 1 if quick else None]:
            for size in given.sizes or (QUICK_SIZES[name] if quick else [2**k for k in range(10)]):
                setting = [name, width, f"{epsilon:g}", size, given.seeds]
                experiment.measure(
                    dict(zip(KEYS, setting, strict=True)),
                    lambda data=data, size=size, epsilon=epsilon: figures(
                        data, size, epsilon, given.seeds
                    ),
                )

    def draw(axes: Any) -> None:
        settings = dict.fromkeys(
            (row["dataset"], row["epsilon"], row["releases"]) for row in experiment.rows
        )
        for setting in settings:
            chosen = [
                row
                for row in experiment.rows
                if (row["dataset"], row["epsilon"], row["releases"]) == setting
            ]
            sizes = [float(row["mix_size"]) for row in chosen]
            for name in LEARNERS:
                scores = [float(row[name]) for row in chosen]
                errors = [float(row[f"{name} spread"]) for row in chosen]
                label = f"{setting[0]}, epsilon {setting[1]}, {name}"
                axes.errorbar(sizes, scores, errors, marker="o", label=label)
        axes.set(xlabel="mixing degree", ylabel="test accuracy", xscale="log")
        axes.legend(fontsize="small")

    experiment.figure(draw)
    experiment.show("noise", "certified", *LEARNERS, "cnn")


if __name__ == "__main__":
    main()
