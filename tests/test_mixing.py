from __future__ import annotations

import numpy as np
import pytest

from privmix import mixing
from privmix.mixing import BlockSums, add_features, add_labels, divide
from privmix.sampling import Inclusions


@pytest.mark.parametrize("num_records", [0, 1, 2, 7, 8, 9, 17, 50])
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


class TestBlockSums:
    """Sums stay in 32 bits for as long as no row could overflow them, and no longer."""

    values = np.full((40_000, 1), 32767, dtype=np.int16)
    labels = np.zeros(40_000, dtype=np.int32)
    everyone = np.arange(40_000, dtype=np.int32)

    def add(self, sums: BlockSums, number: int) -> None:
        starts = np.array([0, number, 2 * number])
        records = np.concatenate([self.everyone[:number]] * 2)
        sums.add(self.values, self.labels, 3, np.arange(2), Inclusions(starts, records))

    def test_counts_come_together_over_calls(self):
        sums = BlockSums(3, 1, 2)
        self.add(sums, 40_000)
        assert sums.features.dtype == np.int32
        self.add(sums, 65_536 - 40_000)
        assert sums.features.dtype == np.int32
        assert sums.features[0, 0] == 65_536 * 32767
        self.add(sums, 1)
        assert sums.features.dtype == np.int64
        assert sums.features.tolist() == [[65_537 * 32767]] * 2 + [[0]]
        assert sums.labels.tolist() == [[65_537 * 3, 0]] * 2 + [[0, 0]]

    def test_everybody_is_summed_once_for_all_rows(self):
        sums = BlockSums(3, 1, 2)
        rows = np.array([0, 2])
        for _ in range(2):
            sums.add_all(self.values, self.labels, 3, rows, self.everyone)
        assert sums.features.tolist() == [[80_000 * 32767], [0], [80_000 * 32767]]
        assert sums.labels.tolist() == [[240_000, 0], [0, 0], [240_000, 0]]

    def test_weighted_sums_are_wide_from_the_start(self):
        sums = BlockSums(1, 1, 0, weighted=True)
        weights = np.full(40_000, 1 << 14, dtype=np.int32)
        whole = Inclusions(np.array([0, 40_000]), self.everyone, weights)
        sums.add(self.values, self.labels, 3, np.arange(1), whole)
        assert sums.features.tolist() == [[40_000 * 32767 * (1 << 14)]]


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_published_values_are_the_nearest_floats(kind):
    sums = np.array([[3, -5], [2**31 - 1, 7]], dtype=kind)
    noise = np.array([[4, 5], [2**40, -1]])
    out = np.empty((2, 2), dtype=np.float32)
    divide(sums, noise, 3.0, out)
    assert np.array_equal(out, ((sums.astype(np.int64) + noise) / 3.0).astype(np.float32))


def test_sums_are_joined_and_travel_narrow():
    """Numbers past 32 bits stay wide; what was joined to others stays as it was."""
    for number, kind in ((2**31 - 1, np.int32), (-(2**31), np.int32), (2**31, np.int64)):
        sums = BlockSums(1, 2, 1, weighted=True)
        sums.features[0, 1] = sums.labels[0, 0] = number
        sums.narrow()
        assert (sums.features.dtype, sums.features[0, 1]) == (kind, number)
        assert (sums.labels.dtype, sums.labels[0, 0]) == (kind, number)
    wide = BlockSums(1, 2, 1, weighted=True)
    wide.features[:] = wide.labels[:] = 2**31 - 1
    narrow = BlockSums(1, 2, 1, weighted=True)
    narrow.features[:] = narrow.labels[:] = 2**31 - 1
    narrow.narrow()
    for _ in range(2):
        wide.add_sums(narrow)
    assert wide.features.tolist() == [[3 * (2**31 - 1)] * 2]
    assert wide.labels.tolist() == [[3 * (2**31 - 1)]]
    assert narrow.features.tolist() == [[2**31 - 1] * 2]


def test_joined_sums_are_widened_before_they_overflow():
    """Each half holds 40 000 records of the largest value; together they pass 2^31."""
    values = np.full((1, 3), 32767, dtype=np.int16)
    halves = [BlockSums(1, 3, 0), BlockSums(1, 3, 0)]
    some = Inclusions(np.array([0, 40_000]), np.zeros(40_000, dtype=np.int32))
    for half in halves:
        half.add(values, np.zeros(1, dtype=np.int32), 1, np.zeros(1, dtype=np.int64), some)
        assert half.features.dtype == np.int32
    halves[1].narrow()
    halves[0].add_sums(halves[1])
    assert halves[0].features.tolist() == [[80_000 * 32767] * 3]


def test_labels_take_the_weight_of_their_record():
    """Signs and random weights count for labels as they do for features; blank labels add nothing."""
    labels = np.array([0, 1, 1, -1], dtype=np.int32)
    weights = np.array([1, -1, 3, 5, -2], dtype=np.int32)
    inclusions = Inclusions(np.array([0, 3, 5]), np.array([0, 1, 2, 3, 0], dtype=np.int32), weights)
    sums = BlockSums(2, 1, 2, weighted=True)
    sums.add(np.ones((4, 1), dtype=np.int16), labels, 100, np.arange(2), inclusions)
    assert sums.labels.tolist() == [[100, 200], [-200, 0]]
    assert sums.features.tolist() == [[3], [3]]
