"""Exact samples of a rounded Gaussian, and choices at random: the only place privacy noise is drawn.

``rounded_gaussian`` returns rint(N) for N ~ Normal(0, stddev^2). It works by rejection under a
staircase: |N| / stddev is proposed uniformly in a strip of width 1/32, a strip being chosen with
probability proportional to an integer number of slots that lies above the density at its left edge,
and accepted with probability density / height. Beyond 13.5 standard deviations a geometric number
of coin flips chooses among strips of width 1/8. Slots, positions and acceptance values are integers;
a draw is settled by one word where that is certain, otherwise by a second one, and what floating
point cannot decide with certainty then is repeated in exact arithmetic, with further random bits as
needed. So the draws follow the distribution exactly, given uniform words, and their bits do not
depend on the machine's floating-point library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privmix.compiling import kernel
from privmix.precision import precise

if TYPE_CHECKING:
    from privmix.rng import KeyStream

_STRIPS_PER_STDDEV = 32
_NUM_STRIPS = 432  # 13.5 standard deviations; also the number of the tail
_NUM_SLOTS = 1 << 15
_UNIT_SLOTS = 790  # slots of a strip of height 1; all strips together then fit into _NUM_SLOTS
_RUN = 1 << 15  # draws at a time: few enough to stay in the cache
_ACCEPT_BITS = 48
_TAIL_STRIPS_PER_STDDEV = 8
_PRODUCT = 2.0**-10  # products are that much more certain than exponentials

# Above this the position of a draw would not be an exact integer in a double.
MAX_STDDEV = 2.0**42

_ROUNDING_ALLOWANCE = 1 + 1e-12


class _Staircase(NamedTuple):
    slot_strip: NDArray[np.int16]  # strip of a slot; above _NUM_STRIPS: propose again
    surely: NDArray[np.uint64]  # acceptance values below this are accepted anywhere in the strip
    surely_short: NDArray[np.int64]  # the same for their first 16 bits; 0 where there is no strip
    scale: NDArray[np.float64]  # density * scale = acceptance threshold
    slots: NDArray[np.int64]


@cache
def _staircase() -> _Staircase:
    edges = np.arange(_NUM_STRIPS + 1) / _STRIPS_PER_STDDEV
    density = np.exp(-edges * edges / 2)
    # One more slot than rounding could ask for: the stairs lie strictly above the density.
    slots = np.floor(_UNIT_SLOTS * density[:-1] * (1 + 1e-12)).astype(np.int64) + 1
    used = int(slots.sum())
    if used >= _NUM_SLOTS:
        raise AssertionError("the strips need more slots than there are")
    slot_strip = np.full(_NUM_SLOTS, _NUM_STRIPS + 1, dtype=np.int16)
    slot_strip[:used] = np.repeat(np.arange(_NUM_STRIPS), slots)
    slot_strip[used] = _NUM_STRIPS
    scale = 2.0**_ACCEPT_BITS * _UNIT_SLOTS / slots
    surely = np.floor(density[1:] * scale * (1 - 1e-12)).astype(np.uint64)
    surely_short = np.append(surely >> np.uint64(32), [np.uint64(0)] * 2).astype(np.int64)
    return _Staircase(slot_strip, surely, surely_short, scale, slots)


@kernel(nogil=True)
def _draw_quickly(
    stddev: float,
    slot_strip: NDArray[np.int16],
    surely_short: NDArray[np.int64],
    doubt: float,
    out: NDArray[np.int64],
    left: NDArray[np.int64],
    left_words: NDArray[np.uint64],
) -> int:  # pragma: no cover - compiled
    """Turn words, in ``out``, into draws where one word settles one; return how many it does not.

    The places and words of these go into ``left`` and ``left_words``. A word is 15 bits of slot, 1 of
    sign, the first 32 of the position and the first 16 of the acceptance value. There is no branch on
    what it holds: about one draw in twenty is left.
    """
    unit = stddev / 32.0 * 2.0**-32
    margin = unit + 1e-15
    missing = 0
    for i in range(out.size):
        word = np.uint64(out[i])
        strip = slot_strip[word >> np.uint64(49)]
        position = np.int64((word >> np.uint64(16)) & np.uint64(0xFFFFFFFF))
        y = np.float64((np.int64(strip) << 32) + position) * unit
        magnitude = math.floor(y + 0.5)
        accepted = np.int64(word & np.uint64(0xFFFF)) < surely_short[strip]
        # The true place lies between y and y + unit; y is a product, rounded once.
        rounded = abs(y - magnitude) < 0.5 - (y * doubt * _PRODUCT + margin)
        negative = -np.int64((word >> np.uint64(48)) & np.uint64(1))
        out[i] = (np.int64(magnitude) ^ negative) - negative
        left[missing] = i
        left_words[missing] = word
        missing += not (accepted & rounded)
    return missing


@kernel(nogil=True)
def _draw(
    first: NDArray[np.uint64],
    words: NDArray[np.uint64],
    stddev: float,
    slot_strip: NDArray[np.int16],
    surely: NDArray[np.uint64],
    scale: NDArray[np.float64],
    doubt: float,
    out: NDArray[np.int64],
    filled: int,
    begun: bool,
) -> tuple[int, bool, int, np.uint64, np.uint64, bool]:  # pragma: no cover - compiled
    """Fill ``out`` from ``filled`` on, two words a proposal; stop when one is undecided.

    The first proposal of a draw has its word in ``first``, all others are new. The second word holds
    32 more bits of the position, and then of the acceptance value. ``begun`` says that the first
    proposal of draw ``filled`` has been rejected. ``doubt`` is the relative error that a comparison
    in doubles allows for.

    Returns (filled, begun, used, word, position, undecided): an undecided proposal's slot, sign and
    acceptance value in ``word``.
    """
    low = np.uint64(0xFFFFFFFF)
    used = 0
    word, position = np.uint64(0), np.uint64(0)
    while filled < out.size and used + 2 <= words.size:
        if begun:
            one = words[used]
            used += 1
        else:
            one = first[filled]
        two = words[used]
        used += 1
        strip = slot_strip[one >> np.uint64(49)]
        value = ((one & np.uint64(0xFFFF)) << np.uint64(32)) | (two & low)
        word = ((one >> np.uint64(48)) << np.uint64(48)) | value
        position = (((one >> np.uint64(16)) & low) << np.uint64(32)) | (two >> np.uint64(32))
        begun = True
        if strip >= 432:
            # Of the tail's proposals not one in 10^36 is accepted: the first bits tell.
            if strip == 432 and value == 0:
                return filled, begun, used, word, position, True
            continue
        x = (np.float64(strip) + np.float64(position) * 2.0**-64) / 32.0
        if value >= surely[strip]:
            threshold = math.exp(-0.5 * x * x) * scale[strip]
            margin = threshold * doubt + 2.0
            if np.float64(value) > threshold + margin:
                continue
            if np.float64(value) > threshold - margin:
                return filled, begun, used, word, position, True
        y = stddev * x
        whole = math.floor(y)
        fraction = y - whole
        # The position is known to 2^-64 of a strip: at large scales that is no small part of one.
        # On the way to y three results are rounded, by 2^-53 each; the allowance is three times that.
        if abs(fraction - 0.5) <= y * doubt * _PRODUCT + stddev * 2.0**-68 + 1e-15:
            return filled, begun, used, word, position, True
        magnitude = np.int64(whole) + (1 if fraction > 0.5 else 0)
        negative = (word >> np.uint64(48)) & np.uint64(1)
        out[filled] = -magnitude if negative else magnitude
        filled += 1
        begun = False
    return filled, begun, used, word, position, False


class _Strip(NamedTuple):
    left: Fraction
    width: Fraction
    height: Fraction


def _strip(number: int, extra: KeyStream) -> _Strip | None:
    """Return the strip of a proposal in exact numbers; None means: propose again.

    The tail's slot has area 1 / (_UNIT_SLOTS * _STRIPS_PER_STDDEV). Flips choose its strip g with
    probability 2^-(g + 1), which leaves each point there the height below; the density falls by
    more than a factor of two from one strip to the next, so it stays under that height.
    """
    if number < _NUM_STRIPS:
        height = Fraction(int(_staircase().slots[number]), _UNIT_SLOTS)
        return _Strip(Fraction(number, _STRIPS_PER_STDDEV), Fraction(1, _STRIPS_PER_STDDEV), height)
    if number > _NUM_STRIPS:
        return None
    flips = 0
    while extra.integer() >> 63:
        flips += 1
    width = Fraction(1, _TAIL_STRIPS_PER_STDDEV)
    left = Fraction(_NUM_STRIPS, _STRIPS_PER_STDDEV) + flips * width
    area = Fraction(1, _UNIT_SLOTS * _STRIPS_PER_STDDEV) / 2 ** (flips + 1)
    return _Strip(left, width, area / width)


def _decide(word: int, position: int, stddev: float, extra: KeyStream) -> int | None:
    """Settle one draw in exact arithmetic; None means that it is rejected.

    The position and the acceptance value are intervals of width one unit in their last place;
    64 further bits are appended to each until the answer is the same over the whole interval.
    """
    strip = _strip(int(_staircase().slot_strip[word >> 49]), extra)
    if strip is None:
        return None
    place, place_bits = position, 64
    value, value_bits = word & ((1 << _ACCEPT_BITS) - 1), _ACCEPT_BITS
    accepted = False
    while True:
        low = strip.left + strip.width * Fraction(place, 1 << place_bits)
        high = strip.left + strip.width * Fraction(place + 1, 1 << place_bits)
        if not accepted:
            least = _density_below(high, value_bits) / strip.height
            most = _density_above(low, value_bits) / strip.height
            if Fraction(value, 1 << value_bits) >= most:
                return None
            accepted = Fraction(value + 1, 1 << value_bits) <= least
        if accepted:
            magnitude = math.floor(Fraction(stddev) * low + Fraction(1, 2))
            if magnitude == math.floor(Fraction(stddev) * high + Fraction(1, 2)):
                return -magnitude if (word >> _ACCEPT_BITS) & 1 else magnitude
        place, place_bits = (place << 64) | extra.integer(), place_bits + 64
        value, value_bits = (value << 64) | extra.integer(), value_bits + 64


def _density(x: Fraction, bits: int) -> Fraction:
    mp = precise(bits + 80)
    value = mp.exp(-(mp.mpf(x.numerator) ** 2) / (2 * mp.mpf(x.denominator) ** 2))
    mantissa, exponent = mp.frexp(value)
    scaled = int(mp.floor(mp.ldexp(mantissa, bits + 60)))
    return Fraction(scaled) * Fraction(2) ** (int(exponent) - bits - 60)


def _density_below(x: Fraction, bits: int) -> Fraction:
    return _density(x, bits) * (1 - Fraction(1, 1 << (bits + 40)))


def _density_above(x: Fraction, bits: int) -> Fraction:
    return _density(x, bits) * (1 + Fraction(1, 1 << (bits + 40)))


def noise_stddev(noise_multiplier: float, sensitivity: float) -> float:
    """Return the standard deviation to draw, for every noise of this library.

    It is larger by one part in 10^12 than what is accounted for, noise_multiplier * sensitivity, so
    that no rounding of a double on the way makes it smaller.

    Args:
        noise_multiplier: Noise per sensitivity, as accounted for.
        sensitivity: L2 bound on the change of the integer sum by one record, in units of the grid.

    """
    return noise_multiplier * sensitivity * _ROUNDING_ALLOWANCE


def rounded_gaussian(
    stream: KeyStream,
    extra: KeyStream,
    stddev: float,
    size: int,
    *,
    doubt: float = 1e-12,
    out: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Draw ``size`` independent values of rint(Normal(0, stddev^2)).

    Args:
        stream: Words for the draws.
        extra: Words for the few draws that doubles cannot decide.
        stddev: Standard deviation before rounding, in units of the integer grid; above 0 and at
            most ``MAX_STDDEV``.
        size: Number of draws.
        doubt: Relative error allowed for in floating-point comparisons. Any value of at least
            1e-12 gives a correct sampler; larger ones only send more draws the slow way.
        out: Contiguous array of shape (size,) to fill and return, instead of a new one.

    Returns:
        An int64 array of shape (size,).

    Source: rejection from a staircase (Devroye, Non-Uniform Random Variate Generation, 1986,
    II.3.2), with lazily extended random bits (Karney, ACM TOMS 42(1), 2016, section 2).

    Example:
        >>> from privmix.noise import rounded_gaussian
        >>> from privmix.rng import MasterKey
        >>> key = MasterKey.for_test(0, b"example")
        >>> rounded_gaussian(key.stream("noise"), key.stream("extra"), 100.0, 4)
        array([-117,  109,  178, -103])

    """
    if not 0 < stddev <= MAX_STDDEV:
        raise ValueError(f"stddev must be above 0 and at most {MAX_STDDEV:g}, not {stddev}")
    stairs = _staircase()
    if out is None:
        out = np.empty(size, dtype=np.int64)
    if out.shape != (size,) or out.dtype != np.int64 or not out.flags.c_contiguous:
        raise ValueError(f"out must be {size} contiguous int64, not {out.dtype} of {out.shape}")
    left = np.empty(min(size, _RUN) + 1, dtype=np.int64)
    left_words = np.empty(left.size, dtype=np.uint64)
    for start in range(0, size, _RUN):
        run = out[start : start + _RUN]
        stream.fill(run.view(np.uint64))
        missing = _draw_quickly(
            stddev, stairs.slot_strip, stairs.surely_short, doubt, run, left, left_words
        )
        run[left[:missing]] = _draw_slowly(left_words[:missing], stream, extra, stddev, doubt)
    return out


def _draw_slowly(
    first: NDArray[np.uint64], stream: KeyStream, extra: KeyStream, stddev: float, doubt: float
) -> NDArray[np.int64]:
    """Settle draws of which the first word of the first proposal is known."""
    stairs = _staircase()
    out = np.empty(first.size, dtype=np.int64)
    filled, begun = 0, False
    words = np.empty(0, dtype=np.uint64)
    while filled < out.size:
        if words.size < 2:
            more = stream.words(2 * (out.size - filled) + 16)
            words = np.concatenate([words, more])
        filled, begun, used, word, position, undecided = _draw(
            first,
            words,
            stddev,
            stairs.slot_strip,
            stairs.surely,
            stairs.scale,
            doubt,
            out,
            filled,
            begun,
        )
        words = words[used:]
        if undecided:
            settled = _decide(int(word), int(position), stddev, extra)
            if settled is not None:
                out[filled] = settled
                filled, begun = filled + 1, False
    return out


def exponential_choice(utilities: Sequence[int], rate: Fraction, stream: KeyStream) -> int:
    """Draw a place j with probability proportional to exp(rate * utilities[j]), exactly.

    Utilities are integers and everything else is integer arithmetic: a place is proposed uniformly and
    accepted with probability exp(-rate * (largest - utilities[j])). The time that it takes tells of
    the utilities.

    Args:
        utilities: At least one integer. Private.
        rate: Not negative.
        stream: Uniform words.

    Source: the exponential mechanism (McSherry & Talwar 2007); exponentials by von Neumann's
    alternating coins, as in Canonne, Kamath & Steinke (2020), Algorithm 1.

    Example:
        >>> from fractions import Fraction
        >>> from privmix.noise import exponential_choice
        >>> from privmix.rng import MasterKey
        >>> exponential_choice([3, 50, 7], Fraction(1), MasterKey.for_test(0, b"").stream("choice"))
        1

    """
    if not len(utilities) or rate < 0:
        raise ValueError("utilities must not be empty, and rate not be negative")
    largest = max(utilities)
    while True:
        place = _below(len(utilities), stream)
        if _exponential_coin(rate * (largest - int(utilities[place])), stream):
            return place


def _below(count: int, stream: KeyStream) -> int:
    """Draw an integer from 0 to count - 1 uniformly."""
    bits = (count - 1).bit_length()
    while True:
        value = 0
        for _ in range(-(-bits // 64)):
            value = (value << 64) | stream.integer()
        value >>= -bits % 64
        if value < count:
            return value


def _exponential_coin(exponent: Fraction, stream: KeyStream) -> bool:
    """Return True with probability exp(-exponent), exactly."""
    while exponent > 1:
        if not _small_exponential_coin(Fraction(1), stream):
            return False
        exponent -= 1
    return _small_exponential_coin(exponent, stream)


def _small_exponential_coin(exponent: Fraction, stream: KeyStream) -> bool:
    """Return True with probability exp(-exponent), for an exponent from 0 to 1.

    The first tails among coins of probability exponent / 1, exponent / 2, ... is at an odd place with
    probability 1 - x + x^2/2 - ..., the series of the exponential.
    """
    place = 1
    while _below(exponent.denominator * place, stream) < exponent.numerator:
        place += 1
    return place % 2 == 1
