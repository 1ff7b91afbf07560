"""Exact integer sums of records: no randomness, no noise, no floating point but the last division."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privmix.compiling import kernel
from privmix.sampling import Inclusions

# 65536 int16 values sum to at most 2^31 in magnitude minus one step: |-32767| * 65536 < 2^31.
_RECORDS_PER_INT32 = 65536


@kernel(nogil=True)
def add_features(
    values: NDArray[np.int16],
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    records: NDArray[np.int32],
    sums: NDArray[np.int64] | NDArray[np.int32],
) -> None:  # pragma: no cover - compiled
    """Add to rows of ``sums`` the feature vectors of the records they include.

    Args:
        values: (num_records, num_features), magnitudes at most 32767, C-contiguous.
        rows: (num_rows,) distinct positions in ``sums``.
        starts: (num_rows + 1,); row t includes ``records[starts[t]:starts[t + 1]]``.
        records: Positions in ``values``.
        sums: (at least num_rows, num_features), changed in place; int32 only where a row holds
            65536 records at most, all calls together.

    Eight records, then four, are read at a time, as many streams of memory at once; eight int16
    values sum to an int32 at most.

    """
    for row in range(starts.size - 1):
        target = sums[rows[row]]
        i, stop = starts[row], starts[row + 1]
        while i + 8 <= stop:
            a, b = values[records[i]], values[records[i + 1]]
            c, d = values[records[i + 2]], values[records[i + 3]]
            e, f = values[records[i + 4]], values[records[i + 5]]
            g, h = values[records[i + 6]], values[records[i + 7]]
            for j in range(target.size):
                target[j] += (
                    (np.int32(a[j]) + np.int32(b[j])) + (np.int32(c[j]) + np.int32(d[j]))
                ) + ((np.int32(e[j]) + np.int32(f[j])) + (np.int32(g[j]) + np.int32(h[j])))
            i += 8
        while i + 4 <= stop:
            a, b = values[records[i]], values[records[i + 1]]
            c, d = values[records[i + 2]], values[records[i + 3]]
            for j in range(target.size):
                target[j] += (np.int32(a[j]) + np.int32(b[j])) + (np.int32(c[j]) + np.int32(d[j]))
            i += 4
        while i < stop:
            a = values[records[i]]
            for j in range(target.size):
                target[j] += a[j]
            i += 1


@kernel(nogil=True)
def add_weighted_features(
    values: NDArray[np.int16],
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    records: NDArray[np.int32],
    weights: NDArray[np.int32],
    sums: NDArray[np.int64] | NDArray[np.int32],
) -> None:  # pragma: no cover - compiled
    """As :func:`add_features`, each vector times an integer weight of magnitude at most 2^15.

    ``sums`` may be int32 for weights of +1 and -1 only.
    """
    for row in range(starts.size - 1):
        target = sums[rows[row]]
        for i in range(starts[row], starts[row + 1]):
            value, weight = values[records[i]], weights[i]
            for j in range(value.size):
                target[j] += np.int32(value[j]) * weight


@kernel(nogil=True)
def add_labels(
    labels: NDArray[np.int32],
    one: int,
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    records: NDArray[np.int32],
    weights: NDArray[np.int32],
    sums: NDArray[np.int64],
) -> None:  # pragma: no cover - compiled
    """Add ``one`` times its weight to ``sums[rows[t], labels[i]]`` for every record i of row t.

    A label of -1 stands for a record without a label: it adds nothing. Empty ``weights`` stand for
    ones.
    """
    for row in range(starts.size - 1):
        for i in range(starts[row], starts[row + 1]):
            label = labels[records[i]]
            if label >= 0:
                weight = np.int64(weights[i]) if weights.size else np.int64(1)
                sums[rows[row], label] += one * weight


@kernel(nogil=True)
def divide(
    sums: NDArray[np.int64] | NDArray[np.int32],
    noise: NDArray[np.int64],
    divisor: float,
    out: NDArray[np.float32],
) -> None:  # pragma: no cover - compiled
    """Set ``out`` to float32((sum + noise) / divisor): each value a function of one noisy integer."""
    for t in range(sums.shape[0]):
        for j in range(sums.shape[1]):
            out[t, j] = np.float32(np.float64(np.int64(sums[t, j]) + noise[t, j]) / divisor)


class BlockSums:
    """Exact integer sums of a block of rows. Private.

    Attributes:
        features: (num_rows, num_features), int32 for as long as no row can overflow it, then int64.
        labels: (num_rows, label_width) int64.

    """

    def __init__(
        self, num_rows: int, num_features: int, label_width: int, *, weighted: bool = False
    ) -> None:
        self.features: NDArray[np.int64] | NDArray[np.int32]
        self.features = np.zeros((num_rows, num_features), dtype=np.int32)
        if weighted:
            self.features = self.features.astype(np.int64)
        self.labels = np.zeros((num_rows, label_width), dtype=np.int64)
        self._counts = np.zeros(num_rows, dtype=np.int64)

    def add(
        self,
        values: NDArray[np.int16],
        labels: NDArray[Any],
        label_one: int,
        rows: NDArray[np.int64],
        inclusions: Inclusions,
    ) -> None:
        """Add records to rows: features, and labels if there is room for them."""
        starts, records, weights = inclusions
        self._make_room(rows, np.diff(starts))
        self._add_features(values, rows, inclusions)
        if not self.labels.shape[1]:
            return
        if labels.ndim == 1:
            some = np.empty(0, dtype=np.int32) if weights is None else weights
            add_labels(labels, label_one, rows, starts, records, some, self.labels)
        elif weights is None:  # vectors, as features are
            add_features(labels, rows, starts, records, self.labels)
        else:
            add_weighted_features(labels, rows, starts, records, weights, self.labels)

    def _add_features(
        self, values: NDArray[np.int16], rows: NDArray[np.int64], inclusions: Inclusions
    ) -> None:
        starts, records, weights = inclusions
        if weights is None:
            add_features(values, rows, starts, records, self.features)
        else:
            add_weighted_features(values, rows, starts, records, weights, self.features)

    def add_all(
        self,
        values: NDArray[np.int16],
        labels: NDArray[Any],
        label_one: int,
        rows: NDArray[np.int64],
        records: NDArray[np.int32],
    ) -> None:
        """Add the same records to each of the rows, summing them once."""
        starts = np.array([0, records.size], dtype=np.int64)
        once = type(self)(1, values.shape[1], self.labels.shape[1])
        once.add(values, labels, label_one, np.zeros(1, np.int64), Inclusions(starts, records))
        self._make_room(rows, np.full(rows.size, records.size))
        self._add_once(values, rows, once)
        self.labels[rows] += once.labels

    def _add_once(self, values: NDArray[np.int16], rows: NDArray[np.int64], once: Self) -> None:
        """Add the features of one row, sums of these values, to each of the rows."""
        self.features[rows] += once.features

    def add_sums(self, sums: BlockSums) -> None:
        """Add sums of other records, narrow or not, to the same rows; these are not narrow."""
        self._make_room(np.arange(self._counts.size), sums._counts)
        if sums.features.dtype.itemsize > self.features.dtype.itemsize:
            self._widen()
        self.features += sums.features
        self.labels += sums.labels

    def narrow(self) -> None:
        """Halve what finished sums take where all their numbers allow it, to travel."""
        self.features, self.labels = _narrow(self.features), _narrow(self.labels)

    def _make_room(self, rows: NDArray[np.int64], more: NDArray[np.int64]) -> None:
        self._counts[rows] += more
        if self._counts.max(initial=0) > _RECORDS_PER_INT32:
            self._widen()

    def _widen(self) -> None:
        self.features = self.features.astype(np.int64, copy=False)


def _narrow(sums: NDArray[Any]) -> NDArray[Any]:
    fits = sums.min(initial=0) >= -(1 << 31) and sums.max(initial=0) < 1 << 31
    return sums.astype(np.int32, copy=False) if fits else sums
