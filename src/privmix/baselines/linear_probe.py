"""Private training of a linear classifier by full-batch gradient descent."""

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
    noisy,
    prototype_rows,
    quantised,
)
from privmix.mechanism import ResidualConfig
from privmix.rng import MasterKey
from privmix.rounds.residuals import add_residuals

_STRETCH = 1 << 14  # records at a time, the most that keep the sums exact


@dataclass(frozen=True)
class LinearProbe(Method):
    """A softmax regression trained by noisy gradients of all records: a model and no data set.

    A step is the Gaussian mechanism on the sum of residual times record, whose norm is at most
    ``residual_clip_norm * clip_norm``; J steps compose to one Gaussian mechanism, each with sqrt(J)
    times its noise. Under ``add_or_remove_one``. Steps and rate follow a public rule: J = 10 where
    n mu < 5000 and 30 otherwise, rate min(800, 1.5 n mu / (C J)), mu the GDP parameter of the whole.

    ``records`` gives the weight vector of each class as its prototype: the class of the largest inner
    product is the model's prediction.

    Attributes:
        num_classes: Number of classes.
        num_records: Public number of records n, which the rule uses and the sums are divided by.
        clip_norm: L2 bound on a record.
        residual_clip_norm: L2 bound C on e_y - softmax.

    """

    num_classes: int
    num_records: int
    clip_norm: float = 1.0
    residual_clip_norm: float = 0.5

    def _publish(
        self, features: NDArray[np.float64], classes: NDArray[np.int64], budget: Budget
    ) -> BaselineRelease:
        """Publish weights."""
        event, epsilon = budget.gaussian("add_or_remove_one")
        key = budget.make_key(event)
        scale = (
            self.num_records / event.noise_multiplier
        )  # n mu: mu is exact for a Gaussian mechanism
        steps = 10 if scale < 5000 else 30
        config = ResidualConfig(
            num_records=self.num_records,
            num_classes=self.num_classes,
            num_features=features.shape[1],
            num_rounds=steps,
            residual_clip_norm=self.residual_clip_norm,
            noise_multiplier=event.noise_multiplier * math.sqrt(steps),
            learning_rate=min(800.0, 1.5 * scale / (self.residual_clip_norm * steps)),
        )
        weights = self._train(features, classes, config, key)
        prototypes = weights.astype(np.float32)

        def draw(num_records: int | None, seed: int) -> Records:
            return prototype_rows(prototypes, num_records)

        statistics = {"weights": weights}
        return budget.release(event, epsilon, draw, statistics)

    def _train(
        self,
        features: NDArray[np.float64],
        classes: NDArray[np.int64],
        config: ResidualConfig,
        key: MasterKey,
    ) -> NDArray[np.float64]:
        """Return weights for features in clip norms, (num_classes, num_features)."""
        integers, grid = quantised(features, self.clip_norm)
        sensitivity = config.residual_grid.sensitivity * grid.sensitivity
        weights = np.zeros((self.num_classes, features.shape[1]), dtype=np.float32)
        for step in range(config.num_rounds):
            sums = np.zeros(weights.shape, dtype=np.int64)
            for start in range(0, len(integers), _STRETCH):
                stretch = slice(start, start + _STRETCH)
                add_residuals(
                    integers[stretch], classes[stretch], weights, 1 / grid.sensitivity, config, sums
                )
            published = noisy(sums, sensitivity, config.noise_multiplier, key, f"step {step}")
            mean = published / (config.weight_unit * grid.sensitivity * config.divisor)
            weights = (weights + config.learning_rate * mean).astype(np.float32)
        return weights.astype(np.float64)
