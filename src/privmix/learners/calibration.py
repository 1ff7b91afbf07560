"""From scores to probabilities, by what parts of a release say about rules learnt from the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.optimize import minimize_scalar

from privmix.learners.base import LinearRule, Matrix, Vector
from privmix.learners.population import PopulationMoments

# Records' scores are taken to have the tails of Student's t with this many degrees of freedom
# around their class's mean. Rows show no fourth moments of records, so that this is an assumption;
# chosen on held-out training records of Banking77 and of scikit-learn's digits.
_TAIL_DEGREES = 3
_SAMPLE = 6000


@dataclass(frozen=True)
class HeldOut:
    """What rows that a rule did not see say about its scores.

    Attributes:
        rule: The rule.
        margin: Mean score of a class for its own records; averaged over classes, by their sizes.
        error: Its standard error.
        variance: Variance of a score over all records, averaged over classes; None where the rows
            cannot tell.
        variance_error: Its standard error.

    """

    rule: LinearRule
    margin: float
    error: float
    variance: float | None = None
    variance_error: float = 0.0

    @classmethod
    def of_offsets(cls, rule: LinearRule, offsets: Matrix, noise: float) -> Self:
        """Judge a rule by (K, d) offsets of a known noise variance."""
        margin = float((rule.weights * offsets).sum()) / len(offsets)
        error = float(np.sqrt(noise * (rule.weights**2).sum())) / len(offsets)
        return cls(rule, margin, error)

    @classmethod
    def of(cls, rule: LinearRule, held: PopulationMoments) -> Self:
        """Judge a rule by moments."""
        seen = cls.of_offsets(rule, held.offsets, held.offset_noise)
        overlap = rule.weights @ rule.weights.T
        scores = rule.weights @ held.covariance @ rule.weights.T
        variance = float(np.trace(scores) - held.noise * np.trace(overlap)) / len(scores)
        error = float(np.linalg.norm(scores)) * np.sqrt(2 / held.num_rows) / len(scores)
        return cls(rule, seen.margin, seen.error, variance, error)


@dataclass(frozen=True)
class Calibration:
    """What held-out rows make of a rule's scores.

    Attributes:
        scale: Factor from scores to logits, at least 0; 0 where nothing shows that the rule knows
            anything.
        attenuation: Factor by which the rule's class means are too far apart, from 0 to 1; its
            ``intercept`` shrinks by the same.
        loss: Expected log loss of a record.

    """

    scale: float
    attenuation: float
    loss: float


def calibrate(
    rule: LinearRule, parts: Sequence[HeldOut], shares: Vector | None = None
) -> Calibration:
    """Find the factor that turns scores into logits, from rules like this one seen from outside.

    A rule believes too much of what it has fitted. Held-out rows tell by which factor its class
    means are too far apart and by which factor its scores vary more within a class. With both
    corrected, records are drawn, and the factor is the one that minimises their expected log loss.
    Only the release is used: no private and no test record.

    Args:
        rule: The rule.
        parts: Rules like it, judged by what they did not see.
        shares: (K,) shares of the classes among the records, each above 0; None for all alike.

    """
    prior = np.full(len(rule.means), 1 / len(rule.means)) if shares is None else shares
    nothing = Calibration(0.0, 0.0, -float(prior @ np.log(prior)))
    if not parts or not rule.weights.any():
        return nothing
    margin = float(np.mean([part.margin for part in parts]))
    believed = float(np.mean([_believed_margin(part.rule) for part in parts]))
    # Folds that train on each other's rows count every pair of them twice, hence the 2.
    noise = 2 * float(np.mean([part.error * part.error for part in parts])) / len(parts)
    if not (margin > 0 and believed > 0 and noise < margin * margin):
        return nothing
    share = min(margin / believed, 1.0)
    between = float((rule.means**2 @ rule.class_weights).mean())
    spread = _spread(parts, share**2 * between)
    # The margin is shrunk by its error as James and Stein would.
    attenuation = (1 - noise / (margin * margin)) * share
    means = attenuation * (rule.means + np.reshape(rule.intercept, (-1, 1)))
    scale, loss = _best_scale(means, spread * rule.covariance, shares, rule.largest_scale)
    return Calibration(scale, attenuation, loss)


def _believed_margin(rule: LinearRule) -> float:
    return float(rule.means.diagonal() @ rule.class_weights)


def _spread(parts: Sequence[HeldOut], between: float) -> float:
    """Factor by which scores vary more within a class than the rule believes."""
    seen = [part.variance for part in parts if part.variance is not None]
    believed = float(np.mean([part.rule.covariance.diagonal().mean() for part in parts]))
    if not seen or not believed > 0:
        return 1.0
    error = np.sqrt(2 * np.mean([part.variance_error**2 for part in parts]) / len(parts))
    return max(float(np.mean(seen)) - between, float(error)) / believed


def _best_scale(
    means: Matrix, covariance: Matrix, shares: Vector | None = None, largest: float = np.inf
) -> tuple[float, float]:
    """Minimise the expected log loss of softmax(scale * scores + log shares) over scales to ``largest``.

    Returns:
        The scale and the loss.

    """
    num_classes = len(means)
    rng = np.random.default_rng(0)
    count = max(_SAMPLE, num_classes)
    labels, prior = np.arange(count) % num_classes, np.zeros(num_classes)
    if shares is not None:
        labels = np.searchsorted(np.cumsum(shares), (np.arange(count) + 0.5) / count)
        labels, prior = np.minimum(labels, num_classes - 1), np.log(shares)
    variances, basis = np.linalg.eigh(covariance)
    root = basis * np.sqrt(np.maximum(variances, 0))
    noise = rng.standard_normal((count, num_classes)) @ root.T
    tails = np.sqrt((_TAIL_DEGREES - 2) / rng.chisquare(_TAIL_DEGREES, count))
    scores = means[:, labels].T + tails[:, None] * noise
    unit = float(np.abs(scores).mean())
    own, chosen = scores[np.arange(count), labels], prior[labels]

    def loss(log_scale: float) -> float:
        scale = np.exp(log_scale) / unit
        return float((_log_sum_exp(scale * scores + prior) - scale * own - chosen).mean())

    if largest * unit <= 1e-3:
        return largest, loss(np.log(largest * unit))
    upper = np.log(min(1e3, largest * unit))
    best = minimize_scalar(loss, bounds=(np.log(1e-3), upper), method="bounded")
    return float(np.exp(best.x)) / unit, float(best.fun)


def _log_sum_exp(logits: Matrix) -> Vector:
    """Log of the sum of exponentials of each row of finite numbers; ``logits`` are lost.

    The bits of scipy.special.logsumexp, which takes every exponential twice.
    """
    top = logits.max(axis=1, keepdims=True)
    at_top = logits == top
    number = at_top.sum(axis=1, dtype=np.float64)
    logits -= top
    np.exp(logits, out=logits)
    logits[at_top] = 0.0  # counted, which is more exact
    return np.asarray(np.log1p(logits.sum(axis=1) / number) + np.log(number) + top[:, 0])
