"""Second moments of the rows of a release, in one pass and memory independent of their number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from privmix.learners.base import Block, Matrix, ReleaseLike, Vector

_CHUNK = 4096


@dataclass
class RowMoments:
    """Sums over rows, in float64. Added together, they are the sums over both sets of rows.

    Attributes:
        count: Number of rows.
        features: (d,) sum of the features.
        labels: (K,) sum of the label weights.
        gram: (d, d) sum of the outer products of the features.
        cross: (K, d) sum of the outer products of label weights and features.

    """

    count: int
    features: Vector
    labels: Vector
    gram: Matrix
    cross: Matrix

    @classmethod
    def zero(cls, num_features: int, num_classes: int) -> Self:
        """Return the sums over no rows."""
        shapes = (num_features,), (num_classes,), (num_features,) * 2, (num_classes, num_features)
        return cls(0, *(np.zeros(shape) for shape in shapes))

    def include(self, features: Matrix, labels: Matrix) -> None:
        """Add rows, in place."""
        self.count += len(features)
        self.features += features.sum(axis=0)
        self.labels += labels.sum(axis=0)
        self.gram += features.T @ features
        self.cross += labels.T @ features

    def __add__(self, other: Self) -> Self:
        return type(self)(
            self.count + other.count,
            self.features + other.features,
            self.labels + other.labels,
            self.gram + other.gram,
            self.cross + other.cross,
        )


def split_moments(release: ReleaseLike, held_out: int) -> tuple[RowMoments, RowMoments]:
    """Return the moments of a release's rows with mixed labels, and those of a held-out share.

    Args:
        release: A release with label weights.
        held_out: Every ``held_out``-th row is held out.

    Returns:
        The moments of the other rows and of the held-out rows.

    """
    kept = RowMoments.zero(release.num_features, release.num_classes)
    held = RowMoments.zero(release.num_features, release.num_classes)
    position = 0
    for features, labels in _chunks(release):
        out = np.arange(position, position + len(features)) % held_out == held_out - 1
        kept.include(features[~out], labels[~out])
        held.include(features[out], labels[out])
        position += len(features)
    return kept, held


def _chunks(release: ReleaseLike) -> Iterator[tuple[Matrix, Matrix]]:
    """Regroup a release's blocks: an update of the sums costs d^2 however few rows it adds."""
    waiting: list[Block] = []
    for block in release.iter_blocks():
        waiting.append(block)
        if sum(len(features) for features, _ in waiting) >= _CHUNK:
            yield from _merge(waiting)
            waiting = []
    yield from _merge(waiting)


def _merge(blocks: list[Block]) -> Iterator[tuple[Matrix, Matrix]]:
    if not blocks:
        return
    features = np.concatenate([block[0] for block in blocks])
    labels = np.concatenate([block[1] for block in blocks])
    for start in range(0, len(features), 2 * _CHUNK):
        part = slice(start, start + 2 * _CHUNK)
        yield features[part].astype(np.float64), labels[part].astype(np.float64)


def class_means(release: ReleaseLike) -> tuple[Matrix, float]:
    """Average the rows of each class of a release with public labels.

    Returns:
        (K, d) means, and the noise variance of each of their coordinates.

    """
    num_classes = release.num_classes
    sums, counts = np.zeros((num_classes, release.num_features)), np.zeros(num_classes)
    for features, labels in release.iter_blocks():
        np.add.at(sums, labels.astype(np.intp), features.astype(np.float64))
        counts += np.bincount(labels.astype(np.intp), minlength=num_classes)
    means = sums / np.maximum(counts, 1)[:, None]
    return means, release.feature_noise_stddev**2 * num_classes / release.num_mixtures
