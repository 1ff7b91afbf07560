"""Bounds from one run with many canaries, each there or not by a fair coin.

The auditor guesses, for some of the canaries, whether they were there. Nothing is assumed of how the
guesses depend on each other: one release or one training is enough.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from privmix import _validate
from privmix.accounting import Event, tradeoff_curve
from privmix.accounting.tradeoff import Array
from privmix.auditing.bounds import smallest_factor, with_noise

_MOST_EPSILON = 100.0


def one_run_p_value(
    correct: int, guesses: int, canaries: int, epsilon: float, delta: float
) -> float:
    """Probability of so many correct guesses, at most, under (epsilon, delta)-DP.

    Args:
        correct: Right guesses, or more.
        guesses: Guesses made, the others being abstained from.
        canaries: Canaries in all, each there independently with probability 1/2.
        epsilon: Of the guarantee that is tested.
        delta: Its delta.

    Source: Steinke, Nasr, Jagielski 2023, Theorem 5.2. Under epsilon-DP the number of right guesses is
    dominated by Binomial(guesses, p), p = 1 / (1 + exp(-epsilon)); delta adds
    2 canaries delta max_i P[correct > Binomial >= correct - i] / i.

    Example:
        >>> from privmix.auditing import one_run_p_value
        >>> one_run_p_value(90, 100, 1000, 1.0, 1e-5) < 1e-3  # 1-DP guesses 73 of 100 right
        True

    """
    canaries = _validate.integer("canaries", canaries)
    guesses = _validate.integer("guesses", guesses, at_least=0, at_most=canaries)
    correct = _validate.integer("correct", correct, at_least=0, at_most=guesses)
    epsilon = _validate.real("epsilon", epsilon, at_least=0.0)
    prob = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(correct - 1, guesses, prob))
    if correct == 0 or delta == 0.0:
        return min(1.0, tail)
    below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, prob))
    largest = float((below / np.arange(1, correct + 1)).max())
    return min(1.0, tail + 2 * canaries * _validate.delta("delta", delta) * largest)


def one_run_epsilon(
    correct: int, guesses: int, canaries: int, delta: float, confidence: float
) -> float:
    """Largest epsilon that the guesses of one run refute at ``delta``, or 0; assumes nothing else.

    Arguments as of :func:`one_run_p_value`.
    """
    allowed = 1 - _validate.real("confidence", confidence, above=0.0, below=1.0)

    def refuted(epsilon: float) -> bool:
        return one_run_p_value(correct, guesses, canaries, epsilon, delta) <= allowed

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, _MOST_EPSILON
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def one_run_refutes(
    correct: int,
    guesses: int,
    canaries: int,
    curve: tuple[Array, Array],
    confidence: float,
) -> bool:
    """Whether so many right guesses, or more, have probability below 1 - ``confidence`` under f-DP.

    Args:
        correct: Right guesses.
        guesses: Guesses made.
        canaries: Canaries in all, each there independently with probability 1/2.
        curve: The trade-off curve f, symmetric: false-positive rates and least false-negative rates.
        confidence: In (0, 1).

    With p_j the probability of j right guesses, r_i = sum over j >= i of j p_j / m is the probability
    that a random one of the m canaries is guessed right and at least i are, and h_i = sum over j >= i of
    (g - j) p_j / m that it is guessed wrong; the coin of that canary turned over, i right guesses are
    i - 1. So r_(i+1) <= 1 - f(h_i): h_i >= f(1 - r_(i+1)). Starting from the probability that is asked
    for, all of it at ``correct``, the least p_j are added up; above g / m in all they cannot be.

    Source: Mahloujifar, Melis, Chaudhuri 2025 (arXiv 2410.22235), Theorem 8 and Algorithm 3, with two
    values a canary.

    """
    canaries = _validate.integer("canaries", canaries)
    guesses = _validate.integer("guesses", guesses, at_least=0, at_most=canaries)
    correct = _validate.integer("correct", correct, at_least=0, at_most=guesses)
    allowed = 1 - _validate.real("confidence", confidence, above=0.0, below=1.0)
    if correct == 0:
        return False
    right = allowed * correct / canaries
    wrong = allowed * (guesses - correct) / canaries
    fpr, fnr = curve
    for i in range(correct - 1, -1, -1):
        least = float(np.interp(1 - right, fpr, fnr))
        more = max(wrong, least) - wrong
        wrong += more
        right += i / (guesses - i) * more
        if right + wrong > guesses / canaries:
            return True
    return False


def one_run_noise_factor(
    correct: int, guesses: int, canaries: int, event: Event, confidence: float
) -> float:
    """Smallest factor on an event's noise that the guesses of one run refute, by f-DP; infinite for none.

    Arguments as of :func:`one_run_refutes`.
    """

    def refuted(factor: float) -> bool:
        curve = tradeoff_curve(with_noise(event, factor))
        return one_run_refutes(correct, guesses, canaries, curve, confidence)

    return smallest_factor(refuted)


def best_guesses(
    scores: Array, present: NDArray[np.bool_], shares: tuple[float, ...]
) -> list[tuple[int, int]]:
    """Count (correct, guesses) where the surest share of the canaries is guessed, for each share.

    Half of the guesses say that a canary was there, those with the highest scores, and half that it
    was not. Numbers of guesses are fixed by the shares, not by the scores.

    Args:
        scores: (canaries,) the higher the likelier to be there.
        present: (canaries,) whether they were.
        shares: Of the canaries, of which half each are guessed to be there and not to be.

    """
    order = np.argsort(scores, kind="stable")
    found = []
    for share in shares:
        half = max(1, int(share * len(scores) / 2))
        right = int(present[order[-half:]].sum()) + half - int(present[order[:half]].sum())
        found.append((right, 2 * half))
    return found
