"""Second moments of the rows of a release, in one pass and memory independent of their number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from privmix import _validate
from privmix.learners.base import Block, Matrix, ReleaseLike, Vector
from privmix.running.resources import default_memory

_CHUNK = 4096


@dataclass
class RowMoments:
    """Sums over rows, in float64; rows without labels have label weights of width 0.

    Attributes:
        count: Number of rows.
        features: (d,) sum of the features.
        labels: (K,) sum of the label weights.
        gram: (d, d) sum of the outer products of the features.
        cross: (K, d) sum of the outer products of label weights and features.
        label_gram: (K, K) sum of the outer products of the label weights.

    """

    count: int
    features: Vector
    labels: Vector
    gram: Matrix
    cross: Matrix
    label_gram: Matrix

    @classmethod
    def zero(cls, num_features: int, num_labels: int) -> Self:
        """Return the sums over no rows."""
        d, k = num_features, num_labels
        return cls(0, *(np.zeros(shape) for shape in (d, k, (d, d), (k, d), (k, k))))

    @classmethod
    def of(cls, release: ReleaseLike) -> Self:
        """Sum over the rows of a release, which have label weights or no labels."""
        return cls.folds(release, 1)[0]

    @classmethod
    def folds(cls, release: ReleaseLike, count: int) -> list[Self]:
        """Sum over each of ``count`` parts of the rows: row t is in part t modulo ``count``."""
        absent = release.label_noise_stddev is None
        width = 0 if absent else release.num_classes
        need, most = 8 * count * (release.num_features + width) ** 2, default_memory()
        if need > most:
            position = f"num_features = {release.num_features}, second moments of which"
            _validate.fail(position, f"at most {most} bytes, half of this machine's memory", need)
        parts = [cls.zero(release.num_features, width) for _ in range(count)]
        start = 0
        for features, labels in _chunks(release):
            for number, part in enumerate(parts):
                every = slice((number - start) % count, None, count)
                part.include(features[every], labels[every])
            start += len(features)
        return parts

    def __add__(self, other: Self) -> Self:
        """Return the sums over the rows of both."""
        return type(self)(*(a + b for a, b in zip(self._sums(), other._sums(), strict=True)))

    def __sub__(self, other: Self) -> Self:
        """Return the sums over the rows that are not in ``other``."""
        return type(self)(*(a - b for a, b in zip(self._sums(), other._sums(), strict=True)))

    def _sums(self) -> tuple[Any, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    def include(self, features: Matrix, labels: Matrix) -> None:
        """Add rows, in place."""
        self.count += len(features)
        self.features += features.sum(axis=0)
        self.labels += labels.sum(axis=0)
        self.gram += features.T @ features
        self.cross += labels.T @ features
        self.label_gram += labels.T @ labels

    def centred(self) -> Self:
        """Return the same sums of the rows less their mean."""
        x, y = self.features, self.labels / self.count
        return type(self)(
            self.count,
            np.zeros_like(x),
            np.zeros_like(y),
            self.gram - np.outer(x / self.count, x),
            self.cross - np.outer(y, x),
            self.label_gram - self.count * np.outer(y, y),
        )


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
