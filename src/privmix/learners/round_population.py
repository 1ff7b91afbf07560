"""Two classes of records that would have left the rows of an ``adaptive`` release's rounds.

How often a model says a rare class depends on how its scores scatter. What the signed rows say of that is
noisy: they have a twentieth of the budget, and the weights lean to directions in which they happen to say too
little. The rounds say more. Given its weights, the noise of a round's rows is independent of them, so that two
means over rounds are known with little noise: of the clipped residuals, which the intercept's coordinate
counts, and of residual times score, which is <G_t, W_t>, the slope of the loss.

Records are drawn from two Gaussian classes, with class means from the first rounds and second moments from the
signed rows. The factor on the scatter within classes, that on the distance between them, the position of both and the
classes' shares are then the likeliest under those means. In such a population an intercept is sought at which
predictions average the shares. They are free too because real classes are no Gaussians: what the fit does for
the rounds is to have as many sure predictions of a class as they had, and held to the estimate of
``round_balance``, predictions were a point too high on average. As an estimate of the shares theirs is no good.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.special import expit

from privmix.learners.base import Matrix, Vector
from privmix.learners.mean_record import mean_record
from privmix.learners.record_norm import common_norm, intercept_of
from privmix.publishing.release import Release
from privmix.rounds.public_model import PublicModel, Weights

_DRAWS = 4096
# Rounds that show the class means: their weights are small, so that a softmax is nearly linear.
_FIRST_ROUNDS = 3
# Rounds are alike to the next ones: the middle one of so many stands for them.
_EVERY = 3
_GROUPS = 6
# Standard deviations before rounds are seen: of the logs of both factors, of the position in logits, and of the
# log odds of the shares. On training records set aside of three tables, and on Gaussian classes of 3 and 8 %,
# predictions then averaged within 2 points of the share of every release, and within 1 on average.
_PRIOR = np.array([0.3, 0.3, 0.5, 1.0])
# What the slope is off for other reasons than noise, as a factor on it.
_ERROR_FACTOR = 2.0
_MOST_EXPLAINED = 0.9
_TINY = float(np.finfo(float).tiny)

Pairs = Sequence[tuple[Weights, NDArray[np.float32]]]


class Scores(NamedTuple):
    """Log odds of the second class: of draws within their class, (n,), of both class means, (2,), and all.

    ``length`` is that of the weights, to which errors of the position are proportional.
    """

    within: Vector
    means: Vector
    middle: float
    length: float

    def placed(self, labels: NDArray[np.int64], fit: Vector, last: float) -> Vector:
        """Return the log odds with the factors and the position of a fit."""
        wide, apart = np.exp(fit[:2])
        position = self.length / max(last, _TINY) * fit[2]
        moved = apart * (self.means - self.middle) + self.middle + position
        return np.asarray(wide * self.within + moved[labels])


class Draws(NamedTuple):
    """Classes of the draws, (n,), and their scores in some rounds."""

    labels: NDArray[np.int64]
    rounds: list[Scores]

    def weighed(self, shares: Vector) -> Vector:
        """Return what each draw counts, (n,)."""
        return np.asarray((shares / np.bincount(self.labels, minlength=2))[self.labels])


class Seen(NamedTuple):
    """Residuals of groups of rounds, as counted, and last the slope; and their standard errors."""

    values: Vector
    errors: Vector


def matched_intercept(
    release: Release, model: PublicModel, pairs: Pairs, weights: Matrix, shares: Vector
) -> Vector:
    """Find the intercepts, (2,), at which a model's predictions average the classes' shares.

    Args:
        release: A release of two classes whose records have an intercept.
        model: Its public model.
        pairs: Weights and rows of every round.
        weights: (2, d) the model's, for features in clip norms, in logits.
        shares: (2,) the classes' shares of the records, where the fit starts.

    """
    records, labels, means = _draw(release, model, pairs, shares)

    def scores(some: NDArray[np.floating]) -> Scores:
        along = some[1].astype(np.float64) - some[0]
        found = means @ along
        length = float(np.linalg.norm(along[:-1]))
        return Scores(records @ along - found[labels], found, float(shares @ found), length)

    final = scores(weights)
    middles = [min(start + _EVERY // 2, len(pairs) - 1) for start in range(0, len(pairs), _EVERY)]
    draws = Draws(labels, [scores(pairs[number][0]) for number in middles])
    fit = _fitted(release, model, pairs, draws, shares)
    odds = final.placed(labels, fit, final.length)
    shares = _shares(fit[3])
    weighed = draws.weighed(shares)
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        below = float(weighed @ expit(odds + middle)) < shares[1]
        low, high = (middle, high) if below else (low, middle)
    return np.array([-low / 2, low / 2])


def _draw(
    release: Release, model: PublicModel, pairs: Pairs, shares: Vector
) -> tuple[Matrix, NDArray[np.int64], Matrix]:
    """Draw records in clip norms, always the same: (n, d), their classes, (n,), and class means, (2, d)."""
    constant = intercept_of(release)
    assert constant is not None
    clip_norm = release.feature_clip_norm
    constant /= clip_norm
    mean = mean_record(release) / clip_norm
    second = (model.basis * model.variances) @ model.basis.T
    covariance = second[:-1, :-1] - np.outer(mean, mean)
    variances, axes = np.linalg.eigh(covariance)
    held = variances > 1e-6 * variances.max(initial=0.0)
    variances, axes = variances[held], axes[:, held]
    stddevs = np.sqrt(variances)
    offsets = _offsets(model, pairs, (mean, covariance, constant), clip_norm, shares) @ axes
    direction = (offsets[1] - offsets[0]) / stddevs
    length = float(np.linalg.norm(direction))
    direction /= max(length, _TINY)
    # What class means explain is no scatter within classes.
    explained = min(float(shares.prod()) * length**2, _MOST_EXPLAINED)
    half = np.random.Generator(np.random.PCG64(0)).standard_normal((_DRAWS // 2, len(variances)))
    drawn = np.concatenate([half, -half])
    drawn -= np.outer(drawn @ direction, (1 - np.sqrt(1 - explained)) * direction)
    labels = np.arange(_DRAWS) // (_DRAWS // 4) % 2
    records = (drawn * stddevs + offsets[labels]) @ axes.T + mean
    norm = common_norm(release)
    if norm is not None:
        lengths = np.linalg.norm(records, axis=1, keepdims=True)
        records *= norm / clip_norm / np.maximum(lengths, _TINY)
    records = np.column_stack([records, np.full(_DRAWS, constant)])
    return records, labels, np.array([records[labels == k].mean(axis=0) for k in (0, 1)])


def _offsets(
    model: PublicModel,
    pairs: Pairs,
    moments: tuple[Vector, Matrix, float],
    clip_norm: float,
    shares: Vector,
) -> Matrix:
    """Read class means less the mean record, (2, d), off the first rounds.

    With small weights W a softmax is 1/2 + (s_k - mean of s) / 2, and all residuals are clipped alike: row k is
    that factor times p_k m_k - m / 2 - E[(s_k - mean of s) x] / 2.
    """
    mean, covariance, constant = moments
    factor = min(1.0, model.config.residual_clip_norm / np.sqrt(0.5))
    total = np.zeros((2, len(mean)))
    first = pairs[:_FIRST_ROUNDS]
    for found, rows in first:
        weights = found.astype(np.float64) - found.mean(axis=0)
        due = weights[:, :-1] @ (covariance + np.outer(mean, mean))
        due += constant * np.outer(weights[:, -1], mean)
        total += rows[:, :-1] / clip_norm / factor + due / 2
    sums = total / len(first) + mean * (0.5 - shares[:, None])
    offsets = sums / np.maximum(shares, 0.05)[:, None]
    return np.asarray(offsets - shares @ offsets)


def _fitted(
    release: Release, model: PublicModel, pairs: Pairs, some: Draws, shares: Vector
) -> Vector:
    """Return the logs of both factors, the position in logits of the last model, and the log odds of shares."""
    seen = _seen(release, pairs)
    start = np.array([0.0, 0.0, 0.0, np.log(shares[1] / shares[0])])
    groups = [part // _EVERY for part in np.array_split(np.arange(0, len(pairs), _EVERY), _GROUPS)]
    signs = 2.0 * some.labels - 1
    clip = model.config.residual_clip_norm / np.sqrt(2)

    def misfit(fit: Vector) -> Vector:
        weighed = some.weighed(_shares(fit[3]))
        due = np.zeros((len(some.rounds), 2))
        for number, scores in enumerate(some.rounds):
            odds = scores.placed(some.labels, fit, some.rounds[-1].length)
            # Of two classes residuals are r and -r, of length sqrt(2) r.
            residuals = signs * np.minimum(expit(-signs * odds), clip)
            due[number] = 2 * (weighed @ residuals), weighed @ (residuals * odds)
        means = [due[part, 0].mean() for part in groups if len(part)]
        off = np.array([*means, due[:, 1].mean()]) - seen.values
        return np.concatenate([off / seen.errors, (fit - start) / _PRIOR])

    return np.asarray(least_squares(misfit, start, x_scale=_PRIOR, max_nfev=30).x)


def _seen(release: Release, pairs: Pairs) -> Seen:
    """Read the means that the rounds show, and their standard errors."""
    constant = intercept_of(release)
    assert constant is not None
    noise = release.tables[1].feature_noise_stddev
    counts = np.array([rows[1, -1] - rows[0, -1] for _, rows in pairs], dtype=np.float64) / constant
    found = [w.astype(np.float64) / release.feature_clip_norm for w, _ in pairs]
    slopes = [float((w * rows).sum()) for w, (_, rows) in zip(found, pairs, strict=True)]
    length = max(float(np.sqrt(np.mean([(w**2).sum() for w in found]))), _TINY)
    starts = np.array_split(np.arange(0, len(pairs), _EVERY), _GROUPS)
    parts = [counts[part[0] : part[-1] + _EVERY] for part in starts if len(part)]
    errors = [noise * np.sqrt(2 / len(part)) / constant for part in parts]
    errors.append(_ERROR_FACTOR * noise * length / np.sqrt(len(pairs)))
    return Seen(np.array([*(part.mean() for part in parts), np.mean(slopes)]), np.array(errors))


def _shares(log_odds: float) -> Vector:
    return np.array([expit(-log_odds), expit(log_odds)])
