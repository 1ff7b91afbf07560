"""Whether classes collapse: NeuroMixGDP's measures of pixels and features (Section 4, Appendix I.5).

    python -m experiments.li2023.neural_collapse --quick

Records of unit norm. ``collapse`` is Tr(Sigma_W Sigma_B^+) / K, the scatter within classes over that of
the class means (Papyan, Han, Donoho 2020). ``cosine`` is the mean cosine between two class means less
the mean of these, -1 / (K - 1) where they form a simplex. ``distance`` is the mean distance from a
mixture of two records to the nearest record of another class than theirs, the papers' measure of how
far mixtures are from being mistaken. ``to_own`` and ``to_mean`` are the mean distances from a mixture of
m records to the mean of the class with the largest share of it, and to the nearest class mean; ``held``
the share of mixtures for which that is the same class. ``collapse`` and ``cosine`` of mixtures take each
for one of its leading class. Quick: 5,000 records (all of Banking77), 1,000 mixtures.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from experiments.harness import Experiment
from experiments.li2023.pixels import records
from experiments.mixing import mixing_parser, read
from numpy.typing import NDArray

from utility import DataSet

NAMES = (
    "mnist-pixels",
    "mnist-scattering",
    "cifar10-pixels",
    "cifar10-efficientnet",
    "banking77",
)
Matrix = NDArray[np.float64]


def class_means(x: NDArray[Any], y: NDArray[Any]) -> Matrix:
    """Return (K, d) means of the classes that are there, in their order."""
    return np.stack([x[y == k].mean(axis=0, dtype=np.float64) for k in np.unique(y)])


def collapse(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Return Tr(Sigma_W Sigma_B^+) / K (NeuroMixGDP, Equations 29 and 30).

    With M the class means less the records' mean, Sigma_B = M' M / K, and by the singular values
    M = U S V' the trace is the sum over directions v of K v' Sigma_W v / s^2.
    """
    means, (_, place) = class_means(x, y), np.unique(y, return_inverse=True)
    _, sizes, directions = np.linalg.svd(
        means - x.mean(axis=0, dtype=np.float64), full_matrices=False
    )
    some = sizes > 1e-6 * sizes[0]
    within = ((x - means[place].astype(x.dtype)) @ directions[some].T.astype(x.dtype)) ** 2
    return float((within.mean(axis=0, dtype=np.float64) / sizes[some] ** 2).sum())


def mean_cosine(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Return the mean cosine between two different class means, less the mean of class means."""
    means = class_means(x, y)
    means -= means.mean(axis=0)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    count = len(means)
    return float(((means @ means.T).sum() - count) / (count * (count - 1)))


def _squares(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    squares = (a**2).sum(axis=1)[:, None] - 2 * a @ b.T + (b**2).sum(axis=1)
    return np.maximum(squares, 0)


def distance_to_others(data: DataSet, mixtures: int, seed: int) -> float:
    """Return the mean distance of mixtures of two records to the nearest record of a third class."""
    x, y, rng = data.x_train, data.y_train, np.random.default_rng(seed)
    pairs = rng.integers(0, len(x), (mixtures, 2))
    found = []
    for some in np.array_split(pairs, max(1, mixtures // 250)):
        squares = _squares(x[some].mean(axis=1), x)
        own = (y[some][:, :, None] == y).any(axis=1)
        found.append(np.where(own, np.inf, squares).min(axis=1))
    return float(np.sqrt(np.concatenate(found)).mean())


def mixtures_of(
    data: DataSet, mix_size: int, count: int, seed: int
) -> tuple[Matrix, NDArray[np.int64]]:
    """Return (count, d) means of ``mix_size`` records, and the class with the largest share of each."""
    x, y, rng = data.x_train, data.y_train, np.random.default_rng(seed)
    inside = rng.integers(0, len(x), (count, mix_size))
    mixed = np.stack([x[row].mean(axis=0, dtype=np.float64) for row in inside])
    classes = int(y.max()) + 1
    return mixed, np.array([np.bincount(y[row], minlength=classes).argmax() for row in inside])


def distance_to_means(
    mixed: Matrix, leading: NDArray[np.int64], means: Matrix
) -> tuple[float, float, float]:
    """Return mean distances to the leading and to the nearest class mean, and how often they are one."""
    apart = np.sqrt(_squares(mixed, means))
    to_own = float(apart[np.arange(len(mixed)), leading].mean())
    return to_own, float(apart.min(axis=1).mean()), float((apart.argmin(axis=1) == leading).mean())


def figures(data: DataSet, mix_size: int, count: int) -> dict[str, Any]:
    """Measure records (mix_size 1), or their mixtures, each taken for one of its leading class."""
    mixed, leading = mixtures_of(data, mix_size, count, 0)
    measured = (data.x_train, data.y_train) if mix_size == 1 else (mixed, leading)
    names = ("to_own", "to_mean", "held")
    distances = distance_to_means(mixed, leading, class_means(data.x_train, data.y_train))
    found = {"collapse": collapse(*measured), "cosine": mean_cosine(*measured)}
    found |= dict(zip(names, distances, strict=True))
    if mix_size == 2:
        found["distance"] = distance_to_others(data, count, 0)
    return found


def main() -> None:
    given = read(mixing_parser(__doc__, NAMES))
    keys = ["dataset", "mix_size", "records", "mixtures"]
    experiment = Experiment(__file__, keys, given)
    mixtures = 1_000 if given.quick else 5_000
    for dataset in given.datasets:
        few = given.quick and dataset != "banking77"
        data = records(dataset, given.cache, 5_000 if few else None)
        for size in (1, 2, 16, 64, 256):
            key = [dataset, size, len(data.x_train), mixtures]
            experiment.measure(
                dict(zip(keys, key, strict=True)),
                lambda data=data, size=size: figures(data, size, mixtures),
            )

    def draw(axes: Any) -> None:
        for name in dict.fromkeys(row["dataset"] for row in experiment.rows):
            rows = [row for row in experiment.rows if row["dataset"] == name]
            points = sorted((int(row["mix_size"]), float(row["held"])) for row in rows)
            axes.semilogx(*zip(*points, strict=True), "o-", label=name)
        axes.set(xlabel="records in a mixture", ylabel="nearest class mean is the leading class's")
        axes.legend()

    experiment.figure(draw)
    experiment.show("collapse", "cosine", "distance", "to_own", "to_mean", "held")


if __name__ == "__main__":
    main()
