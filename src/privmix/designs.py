"""Which record enters which row: index sets and row layouts. Never sees features.

A design lays the rows out in blocks; a block belongs to one group of records (all of them for
``poisson``, one class for ``stratified``). Inside a block every (row, record) cell is included
independently with the same probability. The cells are visited in runs along the records, so that
the cost is proportional to the number of inclusions, not of cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import mpmath
import numpy as np
from numba import njit
from numpy.typing import NDArray

from privmix.rng import KeyStream

_WORD_BITS = 64
_PIECE = 1 << 16  # words drawn at a time


@dataclass(frozen=True)
class RowBlock:
    """A fixed run of rows, drawn under its own key.

    Attributes:
        index: Number of the block; keys are derived from it.
        start: First row.
        stop: Row after the last.
        class_index: Class whose records enter the rows (``stratified``), or None for all.

    """

    index: int
    start: int
    stop: int
    class_index: int | None

    @property
    def num_rows(self) -> int:
        """Number of rows in the block."""
        return self.stop - self.start


def row_blocks(
    num_mixtures: int, block_rows: int, rows_per_class: int | None = None
) -> list[RowBlock]:
    """Lay ``num_mixtures`` rows out in blocks of at most ``block_rows``.

    With ``rows_per_class`` the rows of class k are those from k * rows_per_class on, and no block
    holds rows of two classes.
    """
    run = num_mixtures if rows_per_class is None else rows_per_class
    bounds = [
        (
            start,
            min(start + block_rows, first + run),
            None if rows_per_class is None else first // run,
        )
        for first in range(0, num_mixtures, run)
        for start in range(first, first + run, block_rows)
    ]
    return [RowBlock(i, *bound) for i, bound in enumerate(bounds)]


def run_length(sampling_prob: float) -> int:
    """Number of cells drawn together: the power of two for which about one is included."""
    return 1 << max(0, math.floor(-math.log2(sampling_prob)))


def _count_probability_up_to(sampling_prob: float, bits: int) -> Iterator[int]:
    """Yield floor(2^bits * P(count <= c)), c = 0, 1, ..., for the count of inclusions in a run."""
    length = run_length(sampling_prob)
    # Sums of positive terms lose at most a few units of the last of these places.
    with mpmath.workprec(2 * bits + 64 + length.bit_length()):
        prob, one = mpmath.mpf(sampling_prob), mpmath.mpf(1)
        term = total = (one - prob) ** length
        for count in range(length):
            yield int(mpmath.floor(total * (1 << bits)))
            term = term * (length - count) / (count + 1) * prob / (one - prob)
            total += term


@lru_cache(maxsize=8)
def _count_thresholds(sampling_prob: float, bits: int) -> NDArray[np.uint64]:
    """Thresholds of a run's count in units of 2^-bits, up to the first that no number exceeds.

    A ``bits``-bit number u above threshold c says that the count is above c, one below it that it
    is at most c, and one equal to it leaves it open.
    """
    thresholds: list[int] = []
    for threshold in _count_probability_up_to(sampling_prob, bits):
        thresholds.append(threshold)
        if threshold == (1 << bits) - 1:
            break
    return np.array(thresholds, dtype=np.uint64)


def _settle_count(sampling_prob: float, word: int, extra: KeyStream) -> int:
    """Count the inclusions of a run whose first word equals a threshold, by appending bits."""
    bits = _WORD_BITS
    while True:
        count = 0
        for threshold in _count_probability_up_to(sampling_prob, bits):
            if word <= threshold:
                break
            count += 1
        else:
            return count
        if word < threshold:
            return count
        word, bits = (word << _WORD_BITS) | extra.integer(), bits + _WORD_BITS


@njit(nogil=True, cache=True)
def _fill(
    words: NDArray[np.uint64],
    thresholds: NDArray[np.uint64],
    unused_bits: int,
    length: int,
    num_rows: int,
    num_records: int,
    run: int,
    row: int,
    settled: int,
    rows: NDArray[np.int32],
    records: NDArray[np.int32],
) -> tuple[int, int, int, int, bool]:  # pragma: no cover - compiled
    """Visit runs of cells from (run, row) on until words run out or a count is undecided.

    Runs are the outer loop: what a record beyond the end draws comes last and changes nothing
    before it. ``settled`` is the count of the first run if it is known, or -1.
    Returns the next (run, row), the numbers of inclusions and of words used, and ``undecided``.
    """
    mask = np.uint64(length - 1)
    used, found = 0, 0
    while run * length < num_records:
        while row < num_rows:
            first = used
            begin = found
            if used == words.size:
                return run, row, found, used, False
            word = words[used] >> np.uint64(unused_bits)
            used += 1
            count = settled
            if settled < 0:
                count = 0
                while count < thresholds.size and word > thresholds[count]:
                    count += 1
                if count < thresholds.size and word == thresholds[count]:
                    return run, row, begin, first, True
            drawn = 0
            while drawn < count:  # distinct positions: a repeated one is drawn again
                if used == words.size:
                    return run, row, begin, first, False
                record = np.int32(run * length + np.int64(words[used] & mask))
                used += 1
                repeated = False
                for i in range(begin, begin + drawn):
                    repeated |= records[i] == record
                if not repeated:
                    records[begin + drawn] = record
                    drawn += 1
            settled = -1
            for i in range(begin, begin + drawn):
                if records[i] < num_records:
                    records[found] = records[i]
                    rows[found] = row
                    found += 1
            row += 1
        row = 0
        run += 1
    return run, row, found, used, False


@njit(nogil=True, cache=True)
def _group_by_row(
    rows: NDArray[np.int32], records: NDArray[np.int32], num_rows: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:  # pragma: no cover - compiled
    """Turn pairs in any order into compressed rows; records of a row keep their order."""
    starts = np.zeros(num_rows + 1, dtype=np.int64)
    for row in rows:
        starts[row + 1] += 1
    for i in range(num_rows):
        starts[i + 1] += starts[i]
    place = starts[:-1].copy()
    grouped = np.empty_like(records)
    for i in range(rows.size):
        grouped[place[rows[i]]] = records[i]
        place[rows[i]] += 1
    return starts, grouped


def bernoulli_inclusions(
    stream: KeyStream,
    extra: KeyStream,
    sampling_prob: float,
    num_rows: int,
    num_records: int,
    *,
    threshold_bits: int = _WORD_BITS,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Include every (row, record) cell independently with probability ``sampling_prob``, exactly.

    Args:
        stream: Words for this shard of records and block of rows.
        extra: Words for the few counts that 64 bits cannot decide.
        sampling_prob: In (0, 1].
        num_rows: Rows in the block.
        num_records: Records in the shard; 0 is allowed.
        threshold_bits: Bits that fast comparisons look at; fewer send more counts the slow way and
            change no result.

    Returns:
        ``(starts, records)``: row t includes ``records[starts[t]:starts[t + 1]]``, numbered within
        the shard. Shapes (num_rows + 1,) and (number of inclusions,).

    With the same streams, removing the last record removes its inclusions and changes no other.

    """
    if sampling_prob == 1:
        starts = np.arange(num_rows + 1, dtype=np.int64) * num_records
        return starts, np.tile(np.arange(num_records, dtype=np.int32), num_rows)
    length = run_length(sampling_prob)
    thresholds = _count_thresholds(sampling_prob, threshold_bits)
    run, row, settled = 0, 0, -1
    words = np.empty(0, dtype=np.uint64)
    pieces = [(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32))]
    while run * length < num_records:
        if settled < 0:
            runs_left = (math.ceil(num_records / length) - run) * num_rows
            words = np.concatenate([words, stream.words(min(2 * runs_left + 64, _PIECE))])
        rows, records = np.empty((2, words.size), dtype=np.int32)
        run, row, found, used, undecided = _fill(
            words,
            thresholds,
            _WORD_BITS - threshold_bits,
            length,
            num_rows,
            num_records,
            run,
            row,
            settled,
            rows,
            records,
        )
        words = words[used:]
        settled = _settle_count(sampling_prob, int(words[0]), extra) if undecided else -1
        pieces.append((rows[:found], records[:found]))
    all_rows, all_records = (np.concatenate(column) for column in zip(*pieces, strict=True))
    starts, grouped = _group_by_row(all_rows, all_records, num_rows)
    return starts, grouped
