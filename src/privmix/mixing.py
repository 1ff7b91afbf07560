"""Exact integer sums of records: no randomness, no noise, no floating point."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

# 65536 int16 values sum to at most 2^31 in magnitude minus one step: |-32767| * 65536 < 2^31.
_RECORDS_PER_INT32 = 65536


@njit(nogil=True, cache=True)
def add_features(
    values: NDArray[np.int16],
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    records: NDArray[np.int32],
    sums: NDArray[np.int64],
) -> None:  # pragma: no cover - compiled
    """Add to rows of ``sums`` the feature vectors of the records they include.

    Args:
        values: (num_records, num_features), magnitudes at most 32767, C-contiguous.
        rows: (num_rows,) distinct positions in ``sums``.
        starts: (num_rows + 1,); row t includes ``records[starts[t]:starts[t + 1]]``.
        records: Positions in ``values``.
        sums: (at least num_rows, num_features), changed in place.

    Partial sums are kept in 32 bits for at most 65536 records and then carried over, so that no
    count of records overflows.

    """
    width = values.shape[1]
    partial = np.zeros(width, dtype=np.int32)
    for row in range(starts.size - 1):
        stop = starts[row + 1]
        begin = starts[row]
        while begin < stop:
            end = min(stop, begin + _RECORDS_PER_INT32)
            partial[:] = 0
            i = begin
            while i + 4 <= end:  # four at a time: fewer loads and stores of the partial sums
                a, b = values[records[i]], values[records[i + 1]]
                c, d = values[records[i + 2]], values[records[i + 3]]
                for j in range(width):
                    partial[j] += (np.int32(a[j]) + np.int32(b[j])) + (
                        np.int32(c[j]) + np.int32(d[j])
                    )
                i += 4
            while i < end:
                a = values[records[i]]
                for j in range(width):
                    partial[j] += np.int32(a[j])
                i += 1
            for j in range(width):
                sums[rows[row], j] += partial[j]
            begin = end


@njit(nogil=True, cache=True)
def add_weighted_features(
    values: NDArray[np.int16],
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    records: NDArray[np.int32],
    weights: NDArray[np.int32],
    sums: NDArray[np.int64],
) -> None:  # pragma: no cover - compiled
    """As :func:`add_features`, each vector times an integer weight of magnitude at most 2^15."""
    for row in range(starts.size - 1):
        target = sums[rows[row]]
        for i in range(starts[row], starts[row + 1]):
            value, weight = values[records[i]], weights[i]
            for j in range(value.size):
                target[j] += np.int32(value[j]) * weight


@njit(nogil=True, cache=True)
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
