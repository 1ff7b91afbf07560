from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy import stats

from privmix import designs
from privmix.designs import Inclusions, bernoulli_inclusions, row_blocks, run_length


def include(key, prob, num_rows, num_records, **options):
    return bernoulli_inclusions(
        key.stream("i"), key.stream("extra"), prob, num_rows, num_records, **options
    )


PROBS = [0.001, 64 / 50000, 0.03, 0.25, 0.4, 0.5, 0.75, 0.999]


def cells(inclusions: Inclusions, num_records: int) -> np.ndarray:
    """Unfold compressed rows into a dense 0/1 table, refusing repeated records."""
    starts, records, _ = inclusions
    table = np.zeros((starts.size - 1, num_records), dtype=int)
    for row in range(starts.size - 1):
        np.add.at(table[row], records[starts[row] : starts[row + 1]], 1)
    assert table.max(initial=0) <= 1, "a record entered a row twice"
    return table


def looks_like(table: np.ndarray, prob: float) -> bool:
    """Whether counts over all cells, columns, rows and neighbouring pairs fit independent coins.

    A true sampler fails once in 10^7.
    """
    size, alarm = table.size, 1e-7 / 4
    total = stats.binomtest(int(table.sum()), size, prob).pvalue > alarm
    scale = np.sqrt(prob * (1 - prob))
    spread = []
    for axis in (0, 1):
        length = table.shape[axis]
        scores = (table.sum(axis=axis) - length * prob) / (scale * np.sqrt(length))
        # The variance of a sum of squared scores, with the fourth moment of a binomial.
        kurtosis = 2 + (1 - 6 * prob * (1 - prob)) / (length * prob * (1 - prob))
        z = (np.square(scores).sum() - scores.size) / np.sqrt(scores.size * kurtosis)
        spread.append(abs(z) < stats.norm.isf(alarm / 2) * 1.3)
    pairs = sum(
        int((a * b).sum()) for a, b in ((table[:, 1:], table[:, :-1]), (table[1:], table[:-1]))
    )
    possible = table[:, 1:].size + table[1:].size
    # Overlapping pairs are positively dependent: at most four times the binomial variance.
    joint = abs(pairs - possible * prob**2) < 5.6 * 2 * np.sqrt(possible * prob**2 + 9)
    return bool(total and all(spread) and joint)


@pytest.mark.parametrize("prob", PROBS)
def test_inclusions_are_independent_coins(key, prob):
    num_rows, num_records = 300, 1001
    table = cells(include(key, prob, num_rows, num_records), num_records)
    assert looks_like(table, prob)


@pytest.mark.parametrize("prob", [0.03, 0.25, 0.5])
@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_a_probability_wrong_by_five_per_cent_is_noticed(key, prob, factor):
    inclusions = include(key, prob * factor, 2000, 2000)
    assert not looks_like(cells(inclusions, 2000), prob)


@pytest.mark.parametrize("prob", PROBS)
@pytest.mark.parametrize("bits", [8, 64, 192])
def test_thresholds_are_the_binomial_distribution(prob, bits):
    length, exact, total = run_length(prob), Fraction(prob), Fraction(0)
    for count, threshold in zip(
        range(6), designs._count_probability_up_to(prob, bits), strict=False
    ):
        total += comb(length, count) * exact**count * (1 - exact) ** (length - count)
        assert threshold == int(total * 2**bits)


@pytest.mark.parametrize("prob", PROBS)
def test_counts_settled_exactly_agree_with_fast_ones(key, prob):
    fast = include(key, prob, 50, 3000)
    for bits in (3, 10, 30):  # ever fewer counts are settled the exact way
        slow = include(key, prob, 50, 3000, threshold_bits=bits)
        assert all(np.array_equal(a, b) for a, b in zip(fast[:2], slow[:2], strict=True))


@pytest.mark.parametrize("prob", PROBS)
def test_removing_the_last_record_changes_nothing_else(key, prob):
    num_rows = 40
    more = include(key, prob, num_rows, 5000)
    for count in (4999, 4096, 1, 0):
        fewer = include(key, prob, num_rows, count)
        assert np.array_equal(cells(more, 5000)[:, :count], cells(fewer, count))


def test_long_blocks_are_drawn_in_pieces(key):
    # More words than one piece holds; the rows' counts must still be binomial.
    inclusions = include(key, 0.5, 1000, 400)
    scores = (np.diff(inclusions.starts) - 200) / 10
    low, high = stats.chi2.interval(1 - 1e-7, 1000)
    assert low < np.square(scores).sum() < high


def test_sampling_everybody_draws_nothing():
    inclusions = bernoulli_inclusions(None, None, 1.0, 3, 4)  # type: ignore[arg-type]
    assert cells(inclusions, 4).all()


class Words:
    """A stream with known words."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def integer(self) -> int:
        return self.left.pop(0)


def test_a_count_is_open_until_the_bits_differ_from_the_threshold():
    # P(count = 0) = 0.75 for one cell with probability 1/4 ... of a run of four cells.
    prob = 0.25
    threshold = int(Fraction(3, 4) ** 4 * 2**192)
    words = [(threshold >> shift) & (2**64 - 1) for shift in (128, 64, 0)]
    below = Words(words[1] - 1)
    assert designs._settle_count(prob, words[0], below) == 0  # type: ignore[arg-type]
    above = Words(words[1] + 1)
    assert designs._settle_count(prob, words[0], above) == 1  # type: ignore[arg-type]
    # (3/4)^4 has eight bits: equal words stay open, and every further bit puts u above it.
    far = Words(words[1], words[2], 1)
    assert designs._settle_count(prob, words[0], far) == 1  # type: ignore[arg-type]
    assert designs._settle_count(prob, 2**64 - 1, Words(2**64 - 1)) == 4  # type: ignore[arg-type]


def test_blocks_cover_rows_once_and_never_mix_classes():
    blocks = row_blocks(70, 16, rows_per_class=35)
    assert [t for b in blocks for t in range(b.start, b.stop)] == list(range(70))
    assert [b.index for b in blocks] == list(range(len(blocks)))
    assert all(t // 35 == b.class_index for b in blocks for t in range(b.start, b.stop))
    assert {b.class_index for b in row_blocks(70, 16)} == {None}
