"""What the experiments on DP feature selection share: data sets, Algorithm 1 as it is printed, Fisher's rule."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from experiments.harness import data
from numpy.typing import NDArray

DELTA = 1e-5
Matrix = NDArray[np.float64]


class Split(NamedTuple):
    """Records of unit length and their classes, for training and for testing."""

    x: Matrix
    y: NDArray[np.int64]
    test_x: Matrix
    test_y: NDArray[np.int64]


class Moments(NamedTuple):
    """Class means (K, d), and (d,) variances within classes."""

    means: Matrix
    variances: Matrix


def load(dataset: str, records: int, test_records: int) -> Split:
    """Return the first records, in a fixed random order, of MNIST's pixels or CIFAR-10's features."""
    parts: list[NDArray[np.generic]] = []
    for name, count in (("train", records), ("test", test_records)):
        if dataset == "mnist":
            with np.load(data("mnist.npz")) as file:
                x, y = file[f"x_{name}"].reshape(-1, 784), file[f"y_{name}"]
        else:
            with np.load(data(f"cifar10-efficientnet_lite0-{name}.npz")) as file:
                x, y = file["features_u8"], file["labels"]
        chosen = np.random.default_rng(0).permutation(len(y))[:count]
        rows = x[chosen].astype(np.float64)
        parts += [rows / np.linalg.norm(rows, axis=1, keepdims=True), y[chosen].astype(np.int64)]
    return Split(*parts)  # type: ignore[arg-type]


def moments(x: Matrix, y: NDArray[np.int64], num_classes: int) -> Moments:
    """Return moments of records as they are."""
    means = np.stack([x[y == k].mean(axis=0) for k in range(num_classes)])
    return Moments(means, np.square(x - means[y]).mean(axis=0))


def distance(found: Moments) -> Matrix:
    """Return DFS's criterion: the largest distance between two class means."""
    return np.asarray(np.ptp(found.means, axis=0))


def t_statistic(found: Moments) -> Matrix:
    """Return the same over the standard deviation, up to a common factor; 0 for constants."""
    return np.asarray(distance(found) / np.sqrt(np.maximum(found.variances, 1e-12)))


def best(criterion: Matrix, count: int) -> NDArray[np.int64]:
    """Return the features with the largest criterion."""
    return np.sort(np.argsort(-criterion, kind="stable")[:count])


def fisher_error(found: Moments, x: Matrix, y: NDArray[np.int64]) -> float:
    """Return the error of Fisher's independence rule in per cent."""
    variances = np.maximum(found.variances, 1e-3 * found.variances.mean())
    coef = found.means / variances
    scores = x @ coef.T - 0.5 * (found.means * coef).sum(axis=1)
    return 100 * float(np.mean(scores.argmax(axis=1) != y))


def printed_stddev(largest_norm: float, epsilon: float) -> float:
    """Return the noise of Algorithm 1: variance 2 N^2 log(1/delta) / epsilon^2.

    The formula is hard to read in the print; this is the Gaussian mechanism's for a sensitivity of N.
    """
    return largest_norm * math.sqrt(2 * math.log(1 / DELTA)) / epsilon


def algorithm_1(
    x: Matrix,
    y: NDArray[np.int64],
    num_classes: int,
    count: int,
    epsilon: float,
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], Matrix]:
    """Return Algorithm 1's columns and noisy rows. It is NOT private: see ``algorithm1.py``."""
    means = np.stack([x[y == k].mean(axis=0) for k in range(num_classes)])
    columns = best(np.ptp(means, axis=0), count)
    cut = x[:, columns]
    stddev = printed_stddev(float(np.linalg.norm(cut, axis=1).max()), epsilon)
    return columns, cut + stddev * rng.standard_normal(cut.shape)
