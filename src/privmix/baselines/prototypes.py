"""One noisy mean a class."""

from __future__ import annotations

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
    prototype_rows,
    quantised,
)
from privmix.clipping import rescaled


@dataclass(frozen=True)
class ClassMeans(Method):
    """The direction of each class's sum, as a prototype: classify by the largest inner product.

    After DPPL-Mean (Wahdany et al., arXiv 2406.08039), whose estimate of a mean is replaced by one
    Gaussian sum of clipped records, under ``add_or_remove_one``: a record moves one class's sum by at
    most ``clip_norm``.

    Attributes:
        num_classes: Number of classes.
        clip_norm: L2 bound on a record.

    """

    num_classes: int
    clip_norm: float = 1.0

    def _publish(
        self, features: NDArray[np.float64], classes: NDArray[np.int64], budget: Budget
    ) -> BaselineRelease:
        """Publish one unit vector a class."""
        event, epsilon = budget.gaussian("add_or_remove_one")
        key = budget.make_key(event)
        integers, grid = quantised(features, self.clip_norm)
        sums = class_sums(integers, classes, self.num_classes)
        published = noisy(sums, grid.sensitivity, event.noise_multiplier, key, "sums") / grid.scale
        prototypes = rescaled(published, 1.0).astype(np.float32)

        def draw(num_records: int | None, seed: int) -> Records:
            return prototype_rows(prototypes, num_records)

        statistics = {"class_sums": published}
        return budget.release(event, epsilon, draw, statistics)
