"""One noisy mean a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from privmix.baselines.base import (
    BaselineRelease,
    Records,
    checked_records,
    class_sums,
    gaussian_cost,
    make_key,
    noisy,
    prototype_rows,
    quantised,
)
from privmix.clipping import rescaled


@dataclass(frozen=True)
class ClassMeans:
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

    def release(
        self,
        x: Any,
        y: Any,
        *,
        target_epsilon: float,
        target_delta: float,
        test_seed: int | None = None,
    ) -> BaselineRelease:
        """Publish one unit vector a class; see :class:`privmix.baselines.Baseline`."""
        features, classes = checked_records(x, y, self.num_classes)
        event, epsilon = gaussian_cost(target_epsilon, target_delta, "add_or_remove_one")
        key = make_key(type(self).__name__, event, target_delta, test_seed)
        integers, grid = quantised(features, self.clip_norm)
        sums = class_sums(integers, classes, self.num_classes)
        published = noisy(sums, grid.sensitivity, event.noise_multiplier, key, "sums") / grid.scale
        prototypes = rescaled(published, 1.0).astype(np.float32)

        def draw(num_records: int | None, seed: int) -> Records:
            return prototype_rows(prototypes, num_records)

        statistics = {"class_sums": published}
        return BaselineRelease(
            type(self).__name__, event, epsilon, target_delta, test_seed is None, statistics, draw
        )
