from __future__ import annotations

import numpy as np
import pytest

from privmix import mixing
from privmix.mixing import add_features, add_labels


@pytest.mark.parametrize("num_records", [0, 1, 2, 3, 4, 5, 9, 50])
def test_sums_are_exact(rng, num_records):
    values = rng.integers(-32767, 32768, size=(60, 7)).astype(np.int16)
    records = rng.integers(60, size=3 * num_records).astype(np.int32)
    starts = np.array([0, num_records, num_records, 3 * num_records])
    sums = np.full((3, 7), 5, dtype=np.int64)
    add_features(values, np.arange(3), starts, records, sums)
    for row in range(3):
        chosen = values[records[starts[row] : starts[row + 1]]].astype(np.int64)
        assert np.array_equal(sums[row], chosen.sum(axis=0) + 5)


def test_extreme_sums_do_not_overflow():
    values = np.array([[-32767, 32767]], dtype=np.int16)
    count = 2 * mixing._RECORDS_PER_INT32 + 3
    records = np.zeros(count, dtype=np.int32)
    sums = np.zeros((1, 2), dtype=np.int64)
    add_features(values, np.arange(1), np.array([0, count]), records, sums)
    assert sums.tolist() == [[-32767 * count, 32767 * count]]


def test_labels_are_counted_and_blank_ones_are_not():
    labels = np.array([0, 1, 1, -1], dtype=np.int32)
    sums = np.zeros((2, 3), dtype=np.int64)
    records = np.array([0, 1, 2, 3, 1], dtype=np.int32)
    ones = np.empty(0, dtype=np.int32)
    add_labels(labels, 16384, np.arange(2), np.array([0, 4, 5]), records, ones, sums)
    assert sums.tolist() == [[16384, 32768, 0], [0, 16384, 0]]
