"""How large classes are, and what intercepts that asks for, as the rounds of a release count it.

With an intercept c in every record, the last coordinate of row k of a round is c times the sum of the
clipped residuals of class k. Were nothing clipped, a model that has been trained until these are zero would
predict every class as often as it is. Clipping to C takes more from large residuals, which are those of
rare classes: at C = 1/2 such a model predicts a class of a tenth of the records a quarter too seldom.

So the residuals are computed as they would be if labels followed the learnt model with other intercepts b:
on a draw of scores from N(m, S), which is what the signed rows say of the records, with each round's weights
and its clipping. b makes their mean over rounds the one that was published. With all rounds the noise is that
of one over sqrt(J), and b suits the model. The shares themselves are told best by the first rounds alone,
where all residuals are nearly alike whatever the records are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from privmix.learners.base import Matrix, Vector
from privmix.rounds.public_model import PublicModel

_DRAWS = 2048
_STEPS = 50
# Standard deviation of intercepts before anything is seen: clipping takes no more than about this.
_PRIOR_STDDEV = 1.0
_LEAST_SHARE = 1e-6


class Balance(NamedTuple):
    """Intercepts to add to a model's logits, (K,), their variance, and the classes' shares of the records."""

    intercept: Vector
    variance: float
    shares: Vector


def draw_scores(
    model: PublicModel,
    weights: Sequence[NDArray[np.floating]],
    mean: Vector,
    constant: float,
    norm: float | None,
) -> list[Matrix]:
    """Draw scores of records with every one of several weights; always the same draw.

    Args:
        model: Second moments of the records, in clip norms, and their directions.
        weights: (K, d) each, for features in clip norms; the intercept's column is the last.
        mean: (d - 1,) the mean record, without its intercept, in clip norms.
        constant: The intercept, in clip norms.
        norm: What all records' norm is without it, or None.

    Returns:
        (2048, K) scores for each of the weights.

    """
    random = np.random.Generator(np.random.PCG64(0))
    basis = model.basis
    along = random.standard_normal((_DRAWS, len(model.variances))) * np.sqrt(model.variances)
    # A Gaussian whose last coordinate is given has the covariance of records with it. Their mean is known better.
    last = basis[-1]
    spread = float(last**2 @ model.variances)
    if spread > 0:
        along -= np.outer(along @ last, model.variances * last / spread)
    along += mean @ basis[:-1]
    along -= np.outer(along @ last, last)
    if norm is not None:
        lengths = np.linalg.norm(along, axis=1, keepdims=True)
        along *= norm / np.maximum(lengths, np.finfo(float).tiny)
    along += constant * last
    return [along @ (some.astype(np.float64) @ basis).T for some in weights]


def balance_classes(
    rounds: Sequence[Matrix], logits: Matrix, seen: Vector, noise: float, clip_norm: float
) -> Balance:
    """Find intercepts with which a model leaves the residuals that the rounds have published.

    Args:
        rounds: (draws, K) scores of each round.
        logits: (draws, K) those of the model.
        seen: (K,) mean over the rounds of a class's clipped residuals, per planned record.
        noise: Standard deviation of each of them.
        clip_norm: To which residuals were clipped.

    Returns:
        The likeliest intercepts, if those before anything is seen are N(0, 1).

    """
    chances, factors = [], []
    for scores in rounds:
        chance = softmax(scores, axis=1)
        squares = 1 - 2 * chance + (chance**2).sum(axis=1, keepdims=True)
        chances.append(chance)
        factors.append(np.minimum(1.0, clip_norm / np.sqrt(np.maximum(squares, _LEAST_SHARE))))
    kept = float(np.mean([factor.mean() for factor in factors]))
    seen = seen - seen.mean()
    intercept = np.zeros(logits.shape[1])
    variance = max(noise, _LEAST_SHARE) ** 2
    for _ in range(_STEPS):
        labels = softmax(logits + intercept, axis=1)
        shares = labels.mean(axis=0)
        due = np.zeros_like(seen)
        for chance, factor in zip(chances, factors, strict=True):
            weighed = labels * factor
            due += (weighed - weighed.sum(axis=1, keepdims=True) * chance).mean(axis=0)
        due /= len(rounds)
        slope = kept * shares
        gradient = slope * (seen - due) / variance - intercept / _PRIOR_STDDEV**2
        precision = slope**2 / variance + 1 / _PRIOR_STDDEV**2
        step = gradient / precision
        intercept += np.clip(step, -1.0, 1.0)
        if float(np.abs(step).max()) < _LEAST_SHARE:
            break
    shares = np.maximum(softmax(logits + intercept, axis=1).mean(axis=0), _LEAST_SHARE)
    return Balance(intercept, float((1 / precision).mean()), shares / shares.sum())
