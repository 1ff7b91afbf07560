"""Averages of a few records of one class, with noise."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privmix.baselines.base import BaselineRelease, Budget, Method, Records, one_hot
from privmix.engine import release
from privmix.planning.solve import plan_release
from privmix.schema import Schema


@dataclass(frozen=True)
class ClassMixtures(Method):
    """Rows that average random records of one class each.

    After DP-CDA (arXiv 2411.16121), which draws exactly ``mix_size`` of a class's records. Here
    they enter by independent coins, the ``stratified`` design, so that the guarantee is under
    ``add_or_remove_one`` and needs no class count.

    Attributes:
        num_classes: Number of classes.
        num_records: Public number of records, for planning.
        clip_norm: L2 bound on a record.
        mix_size: Planned number of records in a row, classes being equally large.
        rows_per_class: Number of rows of each class.

    """

    num_classes: int
    num_records: int
    clip_norm: float = 1.0
    mix_size: float = 10.0
    rows_per_class: int = 100

    def _publish(
        self, features: NDArray[np.float64], classes: NDArray[np.int64], budget: Budget
    ) -> BaselineRelease:
        """Publish rows."""
        plan = plan_release(
            Schema(
                classes=tuple(range(self.num_classes)),
                num_features=features.shape[1],
                num_records=self.num_records,
                feature_clip_norm=self.clip_norm,
            ),
            target_epsilon=budget.epsilon,
            target_delta=budget.delta,
            design="stratified",
            sampling_prob=min(1.0, self.mix_size * self.num_classes / self.num_records),
            rows_per_class=self.rows_per_class,
        )
        with tempfile.TemporaryDirectory() as folder:
            made = release(
                features, classes, plan, out=Path(folder) / "rows", test_seed=budget.test_seed
            )
            rows = np.asarray(made.features, dtype=np.float32)
            labels = np.asarray(made.labels)
        vectors = (
            labels.astype(np.float32) if labels.ndim == 2 else one_hot(labels, self.num_classes)
        )

        def draw(num_records: int | None, seed: int) -> Records:
            return rows[:num_records], vectors[:num_records]

        return budget.release(plan.event, plan.epsilon, draw)
