"""Every record by itself: noise on the record, or on a random projection of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.baselines.base import (
    BaselineRelease,
    Budget,
    Method,
    Records,
    noisy,
    one_hot,
    quantised,
)
from privmix.mechanism import split_noise_multiplier


@dataclass(frozen=True)
class LocalPerturbation(Method):
    """Each record and each label vector with Gaussian noise of their own.

    The number of rows is the number of records, so the guarantee is for ``replace_one``: a row moves
    by at most 2 C in its features and sqrt(2) in its one-hot label.

    Attributes:
        num_classes: Number of classes.
        clip_norm: L2 bound C on the features.
        label_balance: Label over feature noise multiplier.

    Source: the first comparison method of DPMix (Lee et al. 2019, section IV).

    """

    num_classes: int
    clip_norm: float = 1.0
    label_balance: float = 1.0

    def _publish(
        self, features: NDArray[np.float64], classes: NDArray[np.int64], budget: Budget
    ) -> BaselineRelease:
        """Publish one noisy row a record."""
        event, epsilon = budget.gaussian("replace_one")
        feature_noise, label_noise = split_noise_multiplier(
            event.noise_multiplier, self.label_balance, "replace_one"
        )
        assert label_noise is not None
        key = budget.make_key(event)
        rows, grid = quantised(features, self.clip_norm)
        labels, label_grid = quantised(one_hot(classes, self.num_classes).astype(float), 1.0)
        published_x = noisy(rows.astype(np.int64), grid.sensitivity, feature_noise, key, "features")
        published_y = noisy(
            labels.astype(np.int64), label_grid.sensitivity, label_noise, key, "labels"
        )
        x_rows = (published_x / grid.scale).astype(np.float32)
        y_rows = (published_y / label_grid.scale).astype(np.float32)

        def draw(num_records: int | None, seed: int) -> Records:
            return x_rows[:num_records], y_rows[:num_records]

        return budget.release(event, epsilon, draw)


@dataclass(frozen=True)
class RandomProjection(Method):
    """Each record, projected to few random directions, with Gaussian noise of its own.

    Kenthapadi et al. (2013) and DPPro (Xu et al. 2017) scale the noise by the projection's largest
    row, which protects one attribute of a record. Here the projected record is clipped to
    ``clip_norm`` and the noise protects the whole record, under ``replace_one``.

    Attributes:
        num_classes: Number of classes.
        num_directions: Width of the published rows.
        clip_norm: L2 bound on a projected record.
        label_balance: Label over feature noise multiplier.
        reconstruct: Whether rows are mapped back to the width of the records (DPPro), by the
            projection's transpose.
        projection_seed: Of the directions, which are public.

    """

    num_classes: int
    num_directions: int = 100
    clip_norm: float = 1.0
    label_balance: float = 1.0
    reconstruct: bool = False
    projection_seed: int = 0

    def directions(self, num_features: int) -> NDArray[np.float64]:
        """Return the public matrix, (num_features, num_directions), entries N(0, 1 / directions)."""
        _validate.integer("num_directions", self.num_directions, at_least=1)
        seed = _validate.integer("projection_seed", self.projection_seed, at_least=0)
        random = np.random.default_rng(seed)
        shape = num_features, self.num_directions
        return random.normal(0, 1 / math.sqrt(self.num_directions), shape)

    def _publish(
        self, features: NDArray[np.float64], classes: NDArray[np.int64], budget: Budget
    ) -> BaselineRelease:
        """Publish one noisy row a record."""
        directions = self.directions(features.shape[1])
        inner = LocalPerturbation(self.num_classes, self.clip_norm, self.label_balance)
        published = inner.release(
            features @ directions,
            classes,
            target_epsilon=budget.epsilon,
            target_delta=budget.delta,
            test_seed=budget.test_seed,
        )

        def draw(num_records: int | None, seed: int) -> Records:
            rows, labels = published.draw(num_records, seed)
            return (rows @ directions.T.astype(np.float32) if self.reconstruct else rows), labels

        return replace(published, method=type(self).__name__, draw=draw)


def kenthapadi_stddev(directions: NDArray[np.float64], epsilon: float, delta: float) -> float:
    """Noise of Kenthapadi et al. (2013), Theorem 1, for neighbours that differ in one attribute by 1.

    It is w sqrt(2 (ln(1 / (2 delta)) + epsilon)) / epsilon with w the largest norm of a row of
    ``directions``, (num_features, num_directions). It protects an attribute and not a record: for
    comparison with the papers' figures only.
    """
    _validate.real("epsilon", epsilon, above=0.0)
    _validate.real("delta", delta, above=0.0, below=0.5)
    directions = np.asarray(directions)
    numbers = directions.dtype.kind in "fiu" and directions.ndim == 2 and directions.size > 0
    if not (numbers and np.isfinite(directions).all()):
        allowed = "finite numbers of shape (num_features, num_directions)"
        _validate.fail("directions", allowed, f"{directions.dtype} {directions.shape}")
    largest = float(np.linalg.norm(directions, axis=1).max())
    return largest * math.sqrt(2 * (math.log(1 / (2 * delta)) + epsilon)) / epsilon
