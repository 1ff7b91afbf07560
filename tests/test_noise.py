from __future__ import annotations

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from privmix import noise
from privmix.noise import exponential_choice, noise_stddev, rounded_gaussian
from privmix.rng import MasterKey


def draw(key, stddev, size, **options):
    return rounded_gaussian(key.stream("n"), key.stream("extra"), stddev, size, **options)


def fits(sample: np.ndarray, stddev: float, bins: int = 200) -> bool:
    """Chi-square fit and scale test; together they reject a true sample once in 10^7 draws."""
    edges = stats.norm.ppf(np.linspace(0, 1, bins + 1))
    counts = np.histogram((sample + 0.5 * np.sign(sample)) / stddev, edges)[0]
    shape = stats.chisquare(counts).pvalue > 5e-8
    total = np.square(sample / stddev).sum()
    low, high = stats.chi2.interval(1 - 5e-8, sample.size)
    return bool(shape and low < total < high)


@pytest.mark.parametrize("stddev", [1e4, 3.7e5, 1e9, 2.0**42])
def test_large_scales_are_normal(key, stddev):
    sample = draw(key, stddev, 20_000)
    assert fits(sample, stddev)
    assert not fits(sample, stddev * 1.5)
    assert not fits(sample, stddev / 1.5)


@pytest.mark.parametrize("stddev", [0.05, 0.3, 1.0, 2.5])
def test_small_scales_follow_the_rounded_gaussian(key, stddev):
    sample = draw(key, stddev, 50_000)
    support = np.arange(-40, 41)
    probs = np.diff(stats.norm.cdf((np.arange(-40, 42) - 0.5) / stddev))
    counts = np.bincount(sample + 40, minlength=81)[: support.size]
    likely = probs * sample.size > 5
    assert counts[probs == 0].sum() == 0
    scores = (counts - probs * sample.size)[likely] / np.sqrt(probs[likely] * sample.size)
    assert np.abs(scores).max() < 5.5  # fewer than 25 cells, each beyond it once in 10^7


@pytest.mark.parametrize("stddev", [0.7, 1.0, 3e5, 2.0**40])
def test_exact_decisions_agree_with_fast_ones(key, stddev):
    first = key.stream("first").words(3000)
    fast = noise._draw_slowly(first, key.stream("n"), key.stream("extra"), stddev, 1e-12)
    for doubt in (1e-6, 1e-3, 0.05):  # sends ever more of the draws the exact way
        again = noise._draw_slowly(first, key.stream("n"), key.stream("extra"), stddev, doubt)
        assert np.array_equal(again, fast)


@pytest.mark.parametrize(
    "room", [np.empty(9, np.int64), np.empty(10, np.int32), np.empty(20, np.int64)[::2]]
)
def test_room_of_another_kind_is_refused(key, room):
    with pytest.raises(ValueError, match="out must be 10 contiguous int64"):
        rounded_gaussian(key.stream("n"), key.stream("extra"), 3.0, 10, out=room)
    due = rounded_gaussian(key.stream("n"), key.stream("extra"), 3.0, 10)
    given = np.empty(10, np.int64)
    found = rounded_gaussian(key.stream("n"), key.stream("extra"), 3.0, 10, out=given)
    assert found is given
    assert np.array_equal(given, due)


def draw_quickly(words: np.ndarray, stddev: float) -> tuple[np.ndarray, np.ndarray]:
    """The draws that one word settles: which, and their values."""
    stairs = noise._staircase()
    out, left = words.view(np.int64).copy(), np.zeros(words.size + 1, dtype=np.int64)
    left_words = np.zeros(left.size, dtype=np.uint64)
    missing = noise._draw_quickly(
        stddev, stairs.slot_strip, stairs.surely_short, 1e-12, out, left, left_words
    )
    assert np.array_equal(left_words[:missing], words[left[:missing]])
    settled = np.setdiff1d(np.arange(words.size), left[:missing])
    return settled, out[settled]


@pytest.mark.parametrize("stddev", [0.7, 20_600.0, 3e8, 1e10])
def test_one_word_settles_what_any_further_bits_would(key, stddev):
    """Whatever the second word: the proposal is accepted, and rounds to the same integer."""
    words = key.stream("first").words(400)
    settled, values = draw_quickly(words, stddev)
    share = settled.size / words.size
    assert share > 0.9 if stddev < 1e9 else share < 0.9  # ever more need a second word
    for second in (0, 2**64 - 1, 2**32 - 1):
        for i, value in zip(settled.tolist(), values.tolist(), strict=True):
            one = int(words[i])
            word = (one >> 48 << 48) | ((one & 0xFFFF) << 32) | (second & 0xFFFFFFFF)
            position = ((one >> 16 & 0xFFFFFFFF) << 32) | second >> 32
            assert noise._decide(word, position, stddev, Words()) == value  # type: ignore[arg-type]


def crossings(stddev: float, bits: int) -> list[tuple[int, int]]:
    """Slots and positions just below the places at which stddev * x crosses a half-integer."""
    strip, exact, found = 20, Fraction(stddev), []
    slot = int(np.flatnonzero(noise._staircase().slot_strip == strip)[0])
    for target in range(50):
        whole = math.floor(exact * Fraction(strip, 32)) + 1 + target
        crossing = (Fraction(2 * whole + 1, 2) / exact * 32 - strip) * 2**bits
        if 0 <= crossing < 2**bits and crossing != math.floor(crossing):
            found.append((slot, math.floor(crossing)))
    assert len(found) > 20
    return found


@pytest.mark.parametrize("stddev", [2.0**31 * 0.9, 2.0**42 * 0.9])
def test_a_position_that_straddles_two_integers_is_open(stddev):
    """The interval of a 64-bit position may hold a half-integer: the fast path must not decide."""
    stairs = noise._staircase()
    for slot, position in crossings(stddev, 64):
        first = np.array([slot << 49 | (position >> 32) << 16], dtype=np.uint64)
        words = np.array([(position & 0xFFFFFFFF) << 32, 0], dtype=np.uint64)
        out = np.zeros(1, dtype=np.int64)
        *_, word, place, undecided = noise._draw(
            first,
            words,
            stddev,
            stairs.slot_strip,
            stairs.surely,
            stairs.scale,
            1e-12,
            out,
            0,
            False,
        )
        assert (word, place, undecided) == (slot << 49, position, True)


@pytest.mark.parametrize("stddev", [1500.0, 20_600.0, 3e8])
def test_a_short_position_that_straddles_two_integers_is_open(stddev):
    words = [slot << 49 | position << 16 for slot, position in crossings(stddev, 32)]
    settled, _ = draw_quickly(np.array(words, dtype=np.uint64), stddev)
    assert settled.size == 0


def test_stairs_lie_above_the_density():
    stairs = noise._staircase()
    for strip in range(0, noise._NUM_STRIPS, 7):
        edge = mpmath.mpf(strip) / noise._STRIPS_PER_STDDEV
        next_edge = mpmath.mpf(strip + 1) / noise._STRIPS_PER_STDDEV
        height = mpmath.mpf(int(stairs.slots[strip])) / noise._UNIT_SLOTS
        assert height > mpmath.exp(-(edge**2) / 2)
        surely = mpmath.mpf(int(stairs.surely[strip])) / 2**noise._ACCEPT_BITS * height
        assert surely <= mpmath.exp(-(next_edge**2) / 2)


class Words:
    """A stream with known words."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def integer(self) -> int:
        return self.left.pop(0)


def test_the_tail_has_the_mass_of_the_tail():
    """Sum over the tail's strips of P(strip) * P(accepted) * slot area = integral of the density."""
    slot = mpmath.mpf(1) / (noise._UNIT_SLOTS * noise._STRIPS_PER_STDDEV)
    edge = mpmath.mpf(27) / 2
    mass = mpmath.mpf(0)
    for flips in range(40):
        strip = noise._strip(noise._NUM_STRIPS, Words(*[2**63] * flips, 0))  # type: ignore[arg-type]
        left, height = (mpmath.mpf(f.numerator) / f.denominator for f in (strip.left, strip.height))
        assert left == edge + mpmath.mpf(flips) / 8
        assert mpmath.exp(-(left**2) / 2) <= height
        accepted = mpmath.quad(lambda x: mpmath.exp(-(x**2) / 2), [left, left + 0.125]) * 8 / height
        mass += slot * accepted / 2 ** (flips + 1)
    exact = mpmath.sqrt(mpmath.pi / 2) * mpmath.erfc(edge / mpmath.sqrt(2))
    assert abs(mass / exact - 1) < 1e-9


def test_a_draw_from_the_tail():
    slot = int(np.flatnonzero(noise._staircase().slot_strip == noise._NUM_STRIPS)[0])
    word = slot << 49
    zeros = Words(*[0] * 20)  # heads at once, then an acceptance value of zero
    assert noise._decide(word, 0, 1000.0, zeros) == 13500  # type: ignore[arg-type]
    assert noise._decide(word | 1 << 48, 0, 1000.0, Words(*[0] * 20)) == -13500  # type: ignore[arg-type]
    # The next strip, position in its middle.
    second = noise._decide(word, 1 << 63, 1000.0, Words(2**63, *[0] * 20))  # type: ignore[arg-type]
    assert second == round(1000 * (13.5 + 1.5 / 8))
    assert noise._decide(word, 0, 1000.0, Words(0, 0, 1 << 63)) is None  # type: ignore[arg-type]
    assert noise._decide((slot + 1) << 49, 0, 1000.0, Words()) is None  # type: ignore[arg-type]


def test_the_fast_paths_hand_the_tail_over():
    stairs = noise._staircase()
    slot = int(np.flatnonzero(stairs.slot_strip == noise._NUM_STRIPS)[0])
    tail = slot << 49
    settled, _ = draw_quickly(np.array([tail, tail + (1 << 49)], dtype=np.uint64), 1e3)
    assert settled.size == 0
    # The first proposal is the tail's and rejected by its acceptance value; the second is open.
    first = np.array([tail, 0], dtype=np.uint64)
    words = np.array([5, tail, 0, 1, 2], dtype=np.uint64)
    out = np.empty(2, dtype=np.int64)
    drawn = noise._draw(
        first,
        words,
        1e3,
        stairs.slot_strip,
        stairs.surely,
        stairs.scale,
        1e-12,
        out,
        0,
        False,
    )
    assert drawn == (0, True, 3, tail, 0, True)


def test_densities_are_the_same_on_many_threads():
    """Each has its own precision: mpmath's is shared by all threads."""
    cases = [(Fraction(7 + i, 5), bits) for i in range(8) for bits in (48, 400, 112)] * 4
    alone = [noise._density(*case) for case in cases]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda case: noise._density(*case), cases)) == alone
    finally:
        sys.setswitchinterval(before)
    assert mpmath.mp.prec == 53


def test_density_bounds_enclose_the_density():
    for x in (Fraction(1, 3), Fraction(27, 2), Fraction(0)):
        low, high = noise._density_below(x, 48), noise._density_above(x, 48)
        with mpmath.workprec(300):
            exact = mpmath.exp(
                -(mpmath.mpf(x.numerator) ** 2) / (2 * mpmath.mpf(x.denominator) ** 2)
            )
            assert mpmath.mpf(low.numerator) / low.denominator <= exact
            assert mpmath.mpf(high.numerator) / high.denominator >= exact
        assert high - low <= high * Fraction(1, 2**85)


def test_draws_are_independent_of_each_other(key):
    sample = draw(key, 1e5, 100_000) / 1e5
    for lag in (1, 2, 3):
        correlation = np.mean(sample[lag:] * sample[:-lag]) * np.sqrt(sample.size)
        assert abs(correlation) < 5.5


@pytest.mark.parametrize("stddev", [0.0, -1.0, float("nan"), float("inf"), 2.0**43])
def test_impossible_scales_are_refused(key, stddev):
    with pytest.raises(ValueError, match="stddev must be"):
        draw(key, stddev, 1)


def test_no_draws(key):
    assert draw(key, 1.0, 0).shape == (0,)


@pytest.mark.parametrize(("multiplier", "sensitivity"), [(0.7, 32767.0), (1e-3, 3.3), (1e6, 1e5)])
def test_what_is_drawn_is_a_hair_larger_than_what_is_accounted_for(multiplier, sensitivity):
    exact = Fraction(multiplier) * Fraction(sensitivity)
    drawn = Fraction(noise_stddev(multiplier, sensitivity))
    assert exact * (1 + Fraction(1, 2 * 10**12)) < drawn < exact * (1 + Fraction(2, 10**12))


class TestExponentialChoice:
    def test_places_come_as_often_as_they_should(self):
        """Within 6 standard errors of 4,000 draws each: false alarms below 1e-8."""
        utilities, rate, count = [3, 0, 7, 7, -90], Fraction(1, 3), 4_000
        stream = MasterKey.for_test(5, b"").stream("choice")
        found = np.bincount(
            [exponential_choice(utilities, rate, stream) for _ in range(count)], minlength=5
        )
        odds = np.exp(np.array(utilities) / 3.0)
        due = odds / odds.sum()
        assert (abs(found - count * due) <= 6 * np.sqrt(count * due * (1 - due)) + 1e-9).all()

    def test_without_a_rate_all_places_are_alike(self):
        """Within 6 standard errors of 3,000 draws: false alarms below 1e-8."""
        stream = MasterKey.for_test(6, b"").stream("choice")
        found = np.bincount(
            [exponential_choice([1, 10**30, 0], Fraction(0), stream) for _ in range(3000)]
        )
        assert (abs(found - 1000) < 6 * np.sqrt(3000 * 2 / 9)).all()

    def test_one_place_is_chosen(self):
        stream = MasterKey.for_test(7, b"").stream("choice")
        assert exponential_choice([-5], Fraction(10), stream) == 0

    @pytest.mark.parametrize(("utilities", "rate"), [([], Fraction(1)), ([1], Fraction(-1))])
    def test_nothing_to_choose_from_is_refused(self, utilities, rate):
        with pytest.raises(ValueError, match="utilities"):
            exponential_choice(utilities, rate, MasterKey.for_test(7, b"").stream("choice"))
