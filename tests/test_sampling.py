from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import islice
from math import comb
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from privmix import sampling as designs
from privmix.sampling import Inclusions, bernoulli_inclusions, row_blocks, run_length


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


MIXED_PRECISIONS = [(0.0013, 192), (0.3, 8), (1e-9, 64), (0.02, 30)]


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


def test_thresholds_computed_at_the_same_time_do_not_disturb_each_other():
    """Each computation has its own precision: mpmath's is shared by all threads."""
    alone = [list(islice(designs._count_probability_up_to(p, b), 2)) for p, b in MIXED_PRECISIONS]
    running = [designs._count_probability_up_to(p, b) for p, b in MIXED_PRECISIONS]
    together = list(zip(*(islice(values, 2) for values in running), strict=True))
    assert [list(values) for values in zip(*together, strict=True)] == alone


def test_thresholds_are_the_same_on_many_threads():
    def thresholds(case):
        return list(islice(designs._count_probability_up_to(*case), 40))

    cases = MIXED_PRECISIONS * 8
    alone = [thresholds(case) for case in cases]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(thresholds, cases)) == alone
    finally:
        sys.setswitchinterval(before)


def test_no_module_uses_the_shared_precision():
    for path in Path(designs.__file__).parent.rglob("*.py"):
        used = set(re.findall(r"\bmpmath\.(\w+)", path.read_text()))
        assert used <= {"MPContext"}, f"{path}: {used}"


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


@pytest.mark.parametrize("prob", [1e-5, 1e-7, 1e-9, 1e-12, 1e-300])
def test_tiny_probabilities(key, prob):
    """Inclusions of rare records: their number is Poisson, whatever the length of a run."""
    num_rows, num_records = 100, 65_536
    inclusions = include(key, prob, num_rows, num_records)
    expected = prob * num_rows * num_records
    low, high = stats.poisson.interval(1 - 1e-7, expected) if expected > 1e-9 else (0, 0)
    assert low <= inclusions.records.size <= high
    assert ((inclusions.records >= 0) & (inclusions.records < num_records)).all()


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
    assert designs._exact_count(prob, words[0], below) == 0  # type: ignore[arg-type]
    above = Words(words[1] + 1)
    assert designs._exact_count(prob, words[0], above) == 1  # type: ignore[arg-type]
    # (3/4)^4 has eight bits: equal words stay open, and every further bit puts u above it.
    far = Words(words[1], words[2], 1)
    assert designs._exact_count(prob, words[0], far) == 1  # type: ignore[arg-type]
    assert designs._exact_count(prob, 2**64 - 1, Words(2**64 - 1)) == 4  # type: ignore[arg-type]


def test_blocks_cover_rows_once_and_never_mix_classes():
    blocks = row_blocks(70, 16, rows_per_class=35)
    assert [t for b in blocks for t in range(b.start, b.stop)] == list(range(70))
    assert [b.index for b in blocks] == list(range(len(blocks)))
    assert all(t // 35 == b.class_index for b in blocks for t in range(b.start, b.stop))
    assert {b.class_index for b in row_blocks(70, 16)} == {None}


class TestSigns:
    """Signs are fair, and independent of the record, of the row and of each other."""

    def table(self, key, prob: float) -> np.ndarray:
        inclusions = include(key, prob, 400, 500, signed=True)
        table = np.zeros((400, 500), dtype=int)
        rows = np.repeat(np.arange(400), np.diff(inclusions.starts))
        table[rows, inclusions.records] = inclusions.weights
        return table

    @staticmethod
    def are_fair(table: np.ndarray) -> bool:
        """Each statistic has mean 0 and variance 1 under fair signs; false alarm 1e-7 in all."""
        count = np.abs(table).sum()
        scores = [table.sum() / np.sqrt(count)]
        for a, b in ((table[:, 1:], table[:, :-1]), (table[1:], table[:-1])):
            pairs = np.abs(a * b).sum()
            scores.append((a * b).sum() / np.sqrt(max(pairs, 1)))
        return bool(np.abs(scores).max() < 5.6)

    @pytest.mark.parametrize("prob", [0.02, 0.25, 0.5, 0.9, 1.0])
    def test_fair_signs(self, key, prob):
        table = self.table(key, prob)
        assert set(np.unique(table)) <= {-1, 0, 1}
        assert self.are_fair(table)
        if prob < 1:
            assert looks_like(np.abs(table), prob)

    def test_unfair_signs_are_noticed(self, key, rng):
        table = self.table(key, 0.25)
        flipped = rng.random(table.shape) < 0.05  # 5 % of the signs made positive
        assert not self.are_fair(np.where(flipped, np.abs(table), table))

    def test_signs_change_no_inclusion(self, key):
        assert np.array_equal(
            np.abs(self.table(key, 0.25)), cells(include(key, 0.25, 400, 500), 500)
        )

    def test_signs_keep_their_place_when_a_record_goes(self, key):
        more = include(key, 0.3, 20, 100, signed=True)
        fewer = include(key, 0.3, 20, 99, signed=True)
        kept = more.records < 99
        assert np.array_equal(more.weights[kept], fewer.weights)


def hypergeometric_fits(table: np.ndarray, size: int) -> bool:
    """Whether rows of ``size`` ones look like uniform sets: columns and pairs of columns.

    Column counts are Binomial(rows, size/n); neighbouring pairs meet with probability
    size (size - 1) / (n (n - 1)). A true sampler fails once in 10^7.
    """
    rows, population = table.shape
    if not (table.sum(axis=1) == size).all():
        return False
    prob = size / population
    scores = (table.sum(axis=0) - rows * prob) / np.sqrt(rows * prob * (1 - prob))
    # The scores' sum is zero: population - 1 degrees of freedom, slightly inflated.
    total = np.square(scores).sum() * (population - 1) / population
    low, high = stats.chi2.interval(1 - 5e-8, population - 1)
    both = size * (size - 1) / (population * (population - 1))
    pairs = (table[:, 1:] * table[:, :-1]).sum()
    cells_looked_at = rows * (population - 1)
    joint = abs(pairs - cells_looked_at * both) < 5.5 * 2 * np.sqrt(cells_looked_at * both + 9)
    apart = (table[1:] * table[:-1]).sum()
    expected = (rows - 1) * population * prob**2
    independent = abs(apart - expected) < 5.5 * 2 * np.sqrt(expected + 9)
    return bool(low < total < high and joint and independent)


@pytest.mark.parametrize(("size", "population"), [(1, 7), (3, 7), (4, 7), (64, 1000), (700, 1000)])
class TestUniformSets:
    def table(self, key, size: int, population: int) -> np.ndarray:
        return cells(
            designs.uniform_inclusions(key.stream("u"), size, 4000, population), population
        )

    def test_every_set_alike(self, key, size, population):
        assert hypergeometric_fits(self.table(key, size, population), size)

    def test_favouring_half_of_the_records_is_noticed(self, key, rng, size, population):
        table = self.table(key, size, population)
        # In one row of four, swap members of the second half for members of the first.
        for row in range(0, 4000, 4):
            for column in range(population // 2, population):
                if table[row, column] and not table[row, population - 1 - column]:
                    table[row, column], table[row, population - 1 - column] = 0, 1
        assert not hypergeometric_fits(table, size)


def test_small_sets_are_all_equally_likely(key):
    chosen = np.sort(designs.distinct_choices(key.stream("c"), 70_000, 3, 7), axis=1)
    _, counts = np.unique(chosen, axis=0, return_counts=True)
    assert counts.size == comb(7, 3)
    assert stats.chisquare(counts).pvalue > 1e-7


def test_transposed_records_pick_distinct_rows(key):
    def pick(count: int, blocks: list[designs.RowBlock]) -> np.ndarray:
        choices = designs.transposed_choices(key.stream("t"), 5, 40, count)
        return np.concatenate([cells(choices.of_block(block), count) for block in blocks])

    table = pick(2000, row_blocks(40, 40))
    assert hypergeometric_fits(table.T, 5)
    assert np.array_equal(pick(2000, row_blocks(40, 16)), table)
    assert np.array_equal(pick(1999, row_blocks(40, 40)), table[:, :1999])


def test_inclusions_are_divided_by_shards(key):
    whole = designs.uniform_inclusions(key.stream("u"), 7, 30, 100)
    whole = whole._replace(weights=np.arange(210, dtype=np.int32))
    parts = designs.split_inclusions(whole, 32, 4)
    tables = [cells(part, 32) for part in parts]
    assert np.array_equal(np.concatenate(tables, axis=1)[:, :100], cells(whole, 100))
    for shard, part in enumerate(parts):
        records = part.records + 32 * shard
        assert np.array_equal(whole.records[part.weights], records)


@pytest.mark.parametrize(("rows", "num_mixtures", "classes"), [(30, 100, 7), (1, 3, 5), (9, 9, 2)])
def test_balanced_eligibility(key, rows, num_mixtures, classes):
    table = designs.balanced_eligibility(key.stream("e"), rows, num_mixtures, classes)
    assert table.shape == (num_mixtures, classes)
    assert (table.sum(axis=0) == rows).all()
    assert np.ptp(table.sum(axis=1)) <= 1


def test_random_eligibility_is_independent_coins(key):
    table = designs.random_eligibility(key.stream("e"), key.stream("x"), 0.3, 3000, 20)
    assert looks_like(table.astype(int), 0.3)
    assert not looks_like(table.astype(int), 0.3 * 1.05)


def test_dirichlet_weights_are_bounded_and_sum_to_about_one(key):
    free = designs.dirichlet_weights(key.stream("w"), 1.0, 1.0, 500, 8).reshape(500, 8)
    assert (free >= 0).all()
    assert np.abs(free.sum(axis=1) / designs.WEIGHT_SCALE - 1).max() < 8 / designs.WEIGHT_SCALE
    clipped = designs.dirichlet_weights(key.stream("w"), 1.0, 0.2, 500, 8)
    assert clipped.max() == int(0.2 * designs.WEIGHT_SCALE)
    assert np.array_equal(np.minimum(free.reshape(-1), clipped.max()), clipped)
    tiny = designs.dirichlet_weights(key.stream("w"), 1e-300, 1.0, 5, 3)
    assert ((tiny >= 0) & (tiny <= designs.WEIGHT_SCALE)).all()


@pytest.mark.parametrize("size", [0, 8])
def test_impossible_sets(key, size):
    with pytest.raises(ValueError, match="size must lie"):
        designs.distinct_choices(key.stream("c"), 1, size, 7)
