"""Which record enters which row, with what sign or weight: index sets and row layouts.

Never sees features. Every sampler is exact, given uniform words: what 64 bits cannot decide is
decided with more of them. Independent inclusions are drawn in stretches of cells along the records, so
that the cost is proportional to the number of inclusions, not of (row, record) cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privmix.compiling import kernel
from privmix.precision import precise

if TYPE_CHECKING:
    from privmix.rng import KeyStream

# Random weights are multiples of one over this.
WEIGHT_SCALE = 1 << 14

_WORD_BITS = 64
_MOST_WORDS = 1 << 16  # words drawn at a time
_LONGEST_RUN_BITS = 16


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


class Inclusions(NamedTuple):
    """Compressed rows: row t includes ``records[starts[t]:starts[t + 1]]``.

    Attributes:
        starts: (num_rows + 1,).
        records: (number of inclusions,), numbered within the shard.
        weights: (number of inclusions,) integers, or None for ones.

    """

    starts: NDArray[np.int64]
    records: NDArray[np.int32]
    weights: NDArray[np.int32] | None = None


def row_blocks(
    num_mixtures: int, block_rows: int, rows_per_class: int | None = None
) -> list[RowBlock]:
    """Lay ``num_mixtures`` rows out in blocks of at most ``block_rows``.

    With ``rows_per_class`` the rows of class k are those from k * rows_per_class on, and no block
    holds rows of two classes.

    Example:
        >>> from privmix.sampling import row_blocks
        >>> [(block.start, block.stop) for block in row_blocks(10, 4)]
        [(0, 4), (4, 8), (8, 10)]
        >>> [(block.start, block.stop, block.class_index) for block in row_blocks(6, 4, rows_per_class=3)]
        [(0, 3, 0), (3, 6, 1)]

    """
    group = num_mixtures if rows_per_class is None else rows_per_class
    bounds = [
        (
            start,
            min(start + block_rows, first + group),
            None if rows_per_class is None else first // group,
        )
        for first in range(0, num_mixtures, group)
        for start in range(first, first + group, block_rows)
    ]
    return [RowBlock(i, *bound) for i, bound in enumerate(bounds)]


def run_length(sampling_prob: float) -> int:
    """Number of cells drawn together: a power of two of which at most four are included on average.

    A stretch costs a word, and each inclusion another: longer stretches are cheaper where few of their
    places are taken. They are never longer than 65536 cells, whose numbers fit into 32 bits with
    room to spare.
    """
    bits = max(0, math.floor(-math.log2(sampling_prob)))
    return 1 << min(_LONGEST_RUN_BITS, bits + min(2, bits // 3))


def _count_probability_up_to(sampling_prob: float, bits: int) -> Iterator[int]:
    """Yield floor(2^bits * P(count <= c)), c = 0, 1, ..., for the count of inclusions in a stretch."""
    length = run_length(sampling_prob)
    # Sums of positive terms lose at most a few units of the last of these places.
    mp = precise(2 * bits + 64 + length.bit_length())
    prob, one = mp.mpf(sampling_prob), mp.mpf(1)
    term = total = (one - prob) ** length
    for count in range(length):
        if count:
            term *= (length - count + 1) * prob / (count * (one - prob))
            total += term
        yield int(mp.floor(total * (1 << bits)))


@lru_cache(maxsize=8)
def _count_thresholds(sampling_prob: float, bits: int) -> NDArray[np.uint64]:
    """Thresholds of a stretch's count in units of 2^-bits, up to the first that no number exceeds.

    A ``bits``-bit number u above threshold c says that the count is above c, one below it that it
    is at most c, and one equal to it leaves it open.
    """
    thresholds: list[int] = []
    for threshold in _count_probability_up_to(sampling_prob, bits):
        thresholds.append(min(threshold, (1 << bits) - 1))
        if thresholds[-1] == (1 << bits) - 1:
            break
    return np.array(thresholds, dtype=np.uint64)


def _exact_count(sampling_prob: float, word: int, extra: KeyStream) -> int:
    """Count the inclusions of a stretch whose first word equals a threshold, by appending bits."""
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


@kernel(nogil=True)
def _fill(
    words: NDArray[np.uint64],
    thresholds: NDArray[np.uint64],
    unused_bits: int,
    length: int,
    num_rows: int,
    num_records: int,
    stretch: int,
    row: int,
    settled: int,
    rows: NDArray[np.int32],
    records: NDArray[np.int32],
    signs: NDArray[np.int32],
) -> tuple[int, int, int, int, int, bool]:  # pragma: no cover - compiled
    """Visit stretches of cells from (stretch, row) on until words run out or a count is undecided.

    Runs are the outer loop: what a record beyond the end draws comes last and changes nothing
    before it. ``settled`` is the count of the first stretch if it is known, or -1. A record's position
    comes from the low bits of a word and its sign from the highest.
    Returns the next (stretch, row) with its settled count or -1, the numbers of inclusions and of words
    used, and ``undecided``.
    """
    mask = np.uint64(length - 1)
    used, found = 0, 0
    while stretch * length < num_records:
        while row < num_rows:
            first = used
            begin = found
            if used == words.size:
                return stretch, row, settled, found, used, False
            word = words[used] >> np.uint64(unused_bits)
            used += 1
            count = settled
            if settled < 0:
                count = 0
                while count < thresholds.size and word > thresholds[count]:
                    count += 1
                if count < thresholds.size and word == thresholds[count]:
                    return stretch, row, -1, begin, first, True
            drawn = 0
            while drawn < count:  # distinct positions: a repeated one is drawn again
                if used == words.size:
                    return stretch, row, settled, begin, first, False
                record = np.int32(stretch * length + np.int64(words[used] & mask))
                sign = np.int32(1) - np.int32(2) * np.int32(words[used] >> np.uint64(63))
                used += 1
                repeated = False
                for i in range(begin, begin + drawn):
                    repeated |= records[i] == record
                if not repeated:
                    records[begin + drawn] = record
                    signs[begin + drawn] = sign
                    drawn += 1
            settled = -1
            for i in range(begin, begin + drawn):
                if records[i] < num_records:
                    records[found] = records[i]
                    signs[found] = signs[i]
                    rows[found] = row
                    found += 1
            row += 1
        row = 0
        stretch += 1
    return stretch, row, -1, found, used, False


@kernel(nogil=True)
def _group(
    rows: NDArray[np.int32], num_rows: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # pragma: no cover - compiled
    """Sort entries by row, keeping their order within a row: starts of rows, and the order."""
    starts = np.zeros(num_rows + 1, dtype=np.int64)
    for row in rows:
        starts[row + 1] += 1
    for i in range(num_rows):
        starts[i + 1] += starts[i]
    place = starts[:-1].copy()
    order = np.empty(rows.size, dtype=np.int64)
    for i in range(rows.size):
        order[place[rows[i]]] = i
        place[rows[i]] += 1
    return starts, order


def bernoulli_inclusions(
    stream: KeyStream,
    extra: KeyStream,
    sampling_prob: float,
    num_rows: int,
    num_records: int,
    *,
    signed: bool = False,
    threshold_bits: int = _WORD_BITS,
) -> Inclusions:
    """Include every (row, record) cell independently with probability ``sampling_prob``.

    Args:
        stream: Words for this shard of records and block of rows.
        extra: Words for the few counts that 64 bits cannot decide.
        sampling_prob: In (0, 1].
        num_rows: Rows in the block.
        num_records: Records in the shard; 0 is allowed.
        signed: Weigh each inclusion by a fair sign, +1 or -1.
        threshold_bits: Bits that fast comparisons look at; fewer send more counts the slow way and
            change no result.

    With the same streams, removing the last record removes its inclusions and changes no other.

    Example:
        >>> from privmix.rng import MasterKey
        >>> from privmix.sampling import bernoulli_inclusions
        >>> key = MasterKey.for_test(0, b"example")
        >>> found = bernoulli_inclusions(key.stream("who"), key.stream("extra"), 0.5, 2, 6)
        >>> [found.records[a:b].tolist() for a, b in zip(found.starts, found.starts[1:])]
        [[2], [1, 0, 3, 5]]

    """
    if sampling_prob == 1 and not signed:
        starts = np.arange(num_rows + 1, dtype=np.int64) * num_records
        return Inclusions(starts, np.tile(np.arange(num_records, dtype=np.int32), num_rows))
    length = run_length(sampling_prob)
    thresholds = _count_thresholds(sampling_prob, threshold_bits)
    stretch, row, settled, undecided = 0, 0, -1, False
    words = np.empty(0, dtype=np.uint64)
    chunks = [np.empty((3, 0), dtype=np.int32)]
    while stretch * length < num_records:
        if not undecided:
            stretches_left = (math.ceil(num_records / length) - stretch) * num_rows
            words = np.concatenate([words, stream.words(min(2 * stretches_left + 64, _MOST_WORDS))])
        chunk = np.empty((3, words.size), dtype=np.int32)
        stretch, row, settled, found, used, undecided = _fill(
            words,
            thresholds,
            _WORD_BITS - threshold_bits,
            length,
            num_rows,
            num_records,
            stretch,
            row,
            settled,
            *chunk,
        )
        words = words[used:]
        if undecided:
            settled = _exact_count(sampling_prob, int(words[0]), extra)
        chunks.append(chunk[:, :found])
    rows, records, signs = np.concatenate(chunks, axis=1)
    starts, order = _group(rows, num_rows)
    return Inclusions(starts, records[order], signs[order] if signed else None)


@kernel(nogil=True)
def _distinct(
    words: NDArray[np.uint64],
    mask: np.uint64,
    population: int,
    size: int,
    taken: NDArray[np.uint8],
    chosen: NDArray[np.int32],
    filled: int,
) -> tuple[int, int]:  # pragma: no cover - compiled
    """Append members of [0, population) until every stretch of ``size`` in ``chosen`` is distinct.

    ``taken`` marks the members of the stretch in progress. Numbers out of range or taken are drawn
    again. Returns the numbers of places filled and of words used.
    """
    used = 0
    while filled < chosen.size and used < words.size:
        member = np.int64(words[used] & mask)
        used += 1
        if member >= population or taken[member]:
            continue
        taken[member] = 1
        chosen[filled] = member
        filled += 1
        if filled % size == 0:
            for i in range(filled - size, filled):
                taken[chosen[i]] = 0
    return filled, used


def distinct_choices(
    stream: KeyStream, num_choosers: int, size: int, population: int
) -> NDArray[np.int32]:
    """Let each of ``num_choosers`` pick a uniformly random set of ``size`` in [0, population).

    Returns:
        (num_choosers, size) int32; the order within a row is random as well.

    """
    if not 1 <= size <= population:
        raise ValueError(f"size must lie in [1, {population}], not {size}")
    if 2 * size > population:  # picking what is left out is quicker
        left_out = np.zeros((num_choosers, population), dtype=bool)
        if size < population:
            others = distinct_choices(stream, num_choosers, population - size, population)
            np.put_along_axis(left_out, others.astype(np.int64), True, axis=1)
        members: NDArray[np.int32] = np.nonzero(~left_out)[1].astype(np.int32)
        return np.asarray(members.reshape(num_choosers, size))
    chosen = np.empty(num_choosers * size, dtype=np.int32)
    taken = np.zeros(population, dtype=np.uint8)
    mask = np.uint64((1 << (population - 1).bit_length()) - 1)
    filled, words = 0, np.empty(0, dtype=np.uint64)
    while filled < chosen.size:
        words = np.concatenate([words, stream.words(min(2 * (chosen.size - filled), _MOST_WORDS))])
        filled, used = _distinct(words, mask, population, size, taken, chosen, filled)
        words = words[used:]
    return chosen.reshape(num_choosers, size)


def uniform_inclusions(
    stream: KeyStream, mix_size: int, num_rows: int, num_records: int
) -> Inclusions:
    """Include exactly ``mix_size`` records in each row, every set of that size alike.

    Example:
        >>> from privmix.rng import MasterKey
        >>> from privmix.sampling import uniform_inclusions
        >>> found = uniform_inclusions(MasterKey.for_test(0, b"example").stream("who"), 3, 2, 10)
        >>> found.starts.tolist()
        [0, 3, 6]
        >>> [len(set(found.records[a:b].tolist())) for a, b in zip(found.starts, found.starts[1:])]
        [3, 3]

    """
    records = distinct_choices(stream, num_rows, mix_size, num_records)
    return Inclusions(np.arange(num_rows + 1, dtype=np.int64) * mix_size, records.reshape(-1))


def dirichlet_weights(
    stream: KeyStream, alpha: float, weight_clip: float, num_rows: int, mix_size: int
) -> NDArray[np.int32]:
    """Draw clipped Dirichlet weights in multiples of 1 / WEIGHT_SCALE, independent of any data.

    No guarantee rests on their distribution, only on their bound, so that a fast generator seeded
    from the key stream serves.

    Returns:
        (num_rows * mix_size,) integers of at most floor(weight_clip * WEIGHT_SCALE).

    """
    generator = np.random.Generator(np.random.PCG64([int(word) for word in stream.words(4)]))
    # Gamma variables of tiny shape underflow to zero; a row of zeros has weight nowhere.
    shares = generator.standard_gamma(alpha, size=(num_rows, mix_size))
    total = shares.sum(axis=1, keepdims=True)
    weights = np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)
    clipped = np.minimum(weights, weight_clip)
    integers: NDArray[np.int32] = np.floor(clipped * WEIGHT_SCALE).astype(np.int32)
    return integers.reshape(-1)


class Choices(NamedTuple):
    """Rows that records chose, sorted by row: ``records[i]`` enters row ``rows[i]``."""

    rows: NDArray[np.int32]
    records: NDArray[np.int32]

    def of_block(self, block: RowBlock) -> Inclusions:
        """Cut one block out."""
        bounds = np.searchsorted(self.rows, np.arange(block.start, block.stop + 1))
        return Inclusions(bounds - bounds[0], self.records[bounds[0] : bounds[-1]])


def transposed_choices(
    stream: KeyStream, rows_per_record: int, num_mixtures: int, num_records: int
) -> Choices:
    """Let every record pick exactly ``rows_per_record`` of all rows, every such set alike.

    Records pick one after another: removing the last one changes no other's rows.
    """
    rows = distinct_choices(stream, num_records, rows_per_record, num_mixtures).reshape(-1)
    _, order = _group(rows, num_mixtures)
    return Choices(rows[order], (order // rows_per_record).astype(np.int32))


def split_inclusions(
    inclusions: Inclusions, shard_records: int, num_shards: int
) -> list[Inclusions]:
    """Divide inclusions of all records by shards, in which records are numbered from 0 on."""
    shards = inclusions.records // shard_records
    num_rows = inclusions.starts.size - 1
    rows = np.repeat(np.arange(num_rows), np.diff(inclusions.starts))
    parts = []
    for shard in range(num_shards):
        here = np.flatnonzero(shards == shard)
        weights = None if inclusions.weights is None else inclusions.weights[here]
        starts = np.searchsorted(rows[here], np.arange(num_rows + 1))
        records = inclusions.records[here] - np.int32(shard * shard_records)
        parts.append(Inclusions(starts, records, weights))
    return parts


def balanced_eligibility(
    stream: KeyStream, eligible_rows: int, num_mixtures: int, num_classes: int
) -> NDArray[np.bool_]:
    """Open exactly ``eligible_rows`` rows to each class, all rows to as many classes as the others.

    The guarantee holds for any such assignment, known to everybody, so that a fast generator
    seeded from the key stream serves. Rows differ by at most one in the number of their classes.

    Returns:
        (num_mixtures, num_classes) table.

    """
    generator = np.random.Generator(np.random.PCG64([int(word) for word in stream.words(4)]))
    table = np.zeros((num_mixtures, num_classes), dtype=bool)
    load = np.zeros(num_mixtures)
    for k in range(num_classes):
        # The least loaded rows, ties in random order.
        order = np.argpartition(load + generator.random(num_mixtures), eligible_rows - 1)
        chosen = order[:eligible_rows]
        table[chosen, k] = True
        load[chosen] += 1
    return table


def random_eligibility(
    stream: KeyStream, extra: KeyStream, class_prob: float, num_mixtures: int, num_classes: int
) -> NDArray[np.bool_]:
    """Open every row to every class independently with probability ``class_prob``, exactly.

    Returns:
        (num_mixtures, num_classes) table.

    """
    drawn = bernoulli_inclusions(stream, extra, class_prob, num_mixtures, num_classes)
    table = np.zeros((num_mixtures, num_classes), dtype=bool)
    table[np.repeat(np.arange(num_mixtures), np.diff(drawn.starts)), drawn.records] = True
    return table
