"""Noisy second moments and class sums, published as they are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privmix.baselines.base import (
    BaselineRelease,
    Budget,
    Method,
    Records,
    class_sums,
    noisy,
    one_hot,
    quantised,
)

_CHUNK = 1 << 13


@dataclass(frozen=True)
class SecondMoments(Method):
    """The Gaussian mechanism on the sum of x x' and on the sums of the classes.

    Two Gaussian mechanisms that share one budget. On the grid, x x' is a matrix of integers whose
    Frobenius norm is |x|^2 <= C^2, and so is at most C^2 what a record changes of the upper triangle
    that is published. Guarantee under ``add_or_remove_one``. Analyze Gauss (Dwork et al. 2014) for the
    moments. ``records`` draws from the Gaussians that the statistics describe.

    Attributes:
        num_classes: Number of classes.
        clip_norm: L2 bound C on a record.
        moment_share: Share of the squared GDP parameter that the moments get.

    """

    num_classes: int
    clip_norm: float = 1.0
    moment_share: float = 0.3

    def _publish(
        self, features: NDArray[np.float64], classes: NDArray[np.int64], budget: Budget
    ) -> BaselineRelease:
        """Publish both statistics."""
        event, epsilon = budget.gaussian("add_or_remove_one")
        key = budget.make_key(event)
        # 1/s^2 = 1/s_1^2 + 1/s_2^2: both together are one Gaussian mechanism of multiplier s.
        moment_noise = event.noise_multiplier / math.sqrt(self.moment_share)
        sum_noise = event.noise_multiplier / math.sqrt(1 - self.moment_share)
        integers, grid = quantised(features, self.clip_norm)
        upper = np.triu_indices(features.shape[1])
        moments = noisy(
            gram(integers)[upper], float(grid.largest_square), moment_noise, key, "moments"
        )
        sums = class_sums(integers, classes, self.num_classes)
        published = {
            "second_moments": symmetric(moments / grid.scale**2, features.shape[1]),
            "class_sums": noisy(sums, grid.sensitivity, sum_noise, key, "sums") / grid.scale,
        }

        def draw(num_records: int | None, seed: int) -> Records:
            count = len(published["class_sums"]) if num_records is None else num_records
            return _gaussian_records(published, self.clip_norm, count, seed)

        return budget.release(event, epsilon, draw, published)


def gram(integers: NDArray[np.int16]) -> NDArray[np.int64]:
    """Return the exact sum of x x': a chunk's sums stay below 2^53, where doubles are exact."""
    width = integers.shape[1]
    total = np.zeros((width, width), dtype=np.int64)
    for start in range(0, len(integers), _CHUNK):
        chunk = integers[start : start + _CHUNK].astype(np.float64)
        total += (chunk.T @ chunk).astype(np.int64)
    return total


def symmetric(upper: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Return the symmetric matrix that has ``upper`` as its upper triangle, row by row."""
    matrix = np.zeros((width, width))
    matrix[np.triu_indices(width)] = upper
    return matrix + np.triu(matrix, 1).T


def _gaussian_records(
    published: dict[str, NDArray[np.float64]], clip_norm: float, count: int, seed: int
) -> Records:
    """Draw from one Gaussian a class: means from the sums, one covariance from the moments.

    The count of records is taken from the trace of the moments, which is sum |x|^2: with records on
    the clip norm it is n C^2.
    """
    values, axes = np.linalg.eigh(published["second_moments"])
    kept = np.maximum(values, 0.0)
    num_records = max(float(np.trace(published["second_moments"])) / clip_norm**2, 1.0)
    num_classes, width = published["class_sums"].shape
    means = published["class_sums"] * num_classes / num_records
    spread = axes * np.sqrt(kept / num_records)
    random = np.random.default_rng(seed)
    classes = np.arange(count) % num_classes
    between = means.T @ means / num_classes
    # The spread within classes is what the spread of class means leaves of the whole.
    share = max(0.05, 1 - float(np.trace(between)) * num_records / max(float(kept.sum()), 1e-12))
    noise = random.normal(size=(count, width)) @ (spread.T * math.sqrt(share))
    return (means[classes] + noise).astype(np.float32), one_hot(classes, num_classes)
