"""The classifier that the rounds of an ``adaptive`` release have trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.learners.base import (
    Matrix,
    ReleaseLike,
    ReleaseOrFolder,
    Vector,
    as_release,
    refuse_numbers,
)
from privmix.learners.class_vectors import Pull, no_pull, pull_towards
from privmix.learners.mean_record import mean_record
from privmix.learners.record_norm import common_norm, intercept_of
from privmix.learners.round_balance import Balance, balance_classes, draw_scores
from privmix.learners.round_population import matched_intercept
from privmix.learners.shares import (
    ClassPrior,
    ClassWeight,
    PriorClassifier,
    known_sizes,
    prediction_prior,
)
from privmix.mechanism import ResidualConfig
from privmix.publishing.release import Release
from privmix.rounds.public_model import PublicModel, Weights

_LAST_ROUNDS = 3
# Rounds that count classes: their weights are small, so that what a model makes of the records matters
# little. On tables set aside more were further off. Weights of the first round are zero: it alone counts without bias.
_COUNTING_ROUNDS = (3, 1)


class Learnt(NamedTuple):
    """What a linear classifier keeps."""

    coef: Matrix
    intercept: Vector
    logit_scale: float
    class_prior: Vector | None


class Rounds(NamedTuple):
    """What the rounds of a release have trained and counted.

    ``pairs`` are the weights and rows of every round, ``weights`` the last step's, (K, d), for features in
    clip norms, and ``scale`` is their factor to logits. ``balance`` is None where no classes are counted.
    """

    model: PublicModel
    pairs: list[tuple[Weights, NDArray[np.float32]]]
    weights: Matrix
    scale: float
    balance: Balance | None


class AdaptiveClassifier(PriorClassifier):
    """Softmax regression, as the rounds of an ``adaptive`` release have trained it.

    The public model's weights after the last round follow from the published rows
    (``privmix.rounds.public_model``): this learner takes that last step. d x d float64 matrices are held.

    **Lengths.** Noise makes the weights of some classes longer than those of others, which then win too
    often. How much lengths would vary by noise alone is known: as far as that explains how they do vary,
    they are made equal, and so are the weights of the intercept (empirical Bayes). Where budget is plenty
    nothing changes.

    **Probabilities.** Trained through noise in few rounds, the model is less sure of itself than it
    could be. With G_t and W_t the rows and the weights of a round, G_t . W_t is the slope of the log
    loss's decrease along the length of W_t, but for clipping and known noise. ``logit_scale_`` is one
    Newton step from 1 with its mean over the last three rounds and with sum_kj v_j W_kj^2 / K for
    the curvature, which is seldom less: the scale is between 1 and what would be best.

    **Prior.** Where records have an intercept (``privmix.preprocess.Intercept``), rounds count residuals,
    and with them classes. Clipping takes more from the residuals of rare classes, so that the rounds
    themselves end with probabilities that are too small for these. ``intercept_`` gives back what two
    estimates of this agree on (see ``privmix.learners.round_balance``), as far as it varies by more than
    noise: with many classes of like sizes nothing. Of two classes it is where predictions average the classes'
    shares in the population that explains the rounds (``privmix.learners.round_population``). Class counts that
    the release has paid for, or a public ``Schema.class_balance``, replace the shares that the rounds show, and a ``class_prior`` replaces both.

    **Other targets.** Soft labels are learnt as classes are, several labels by their own sigmoids; neither
    has a prior to be changed, and what clipping takes from rare ones is not given back. Numbers:
    ``NoiseAwareRegressor``.

    Args:
        class_prior: Prior of the classes at prediction: K numbers, none negative, of any positive sum;
            ``uniform``; ``counts`` that the release has paid for; ``estimated``, or None, that of the
            records as counts or else the rounds show it.
        class_weight: ``balanced``, or a mapping from classes to factors on the prior; as
            ``NoiseAwareClassifier`` has it.
        class_vectors: Public vectors of the classes, (K, num_inputs), in the schema's order and in the space of
            records before preprocessing, such as a text encoder makes of the classes' names. Noisy
            estimates are pulled towards them as far as noise hides them and as far as they agree; see
            ``privmix.learners.class_vectors``. Never anything learnt from the records.

    Attributes:
        class_prior_: (K,) the prior that was asked for, or None for that of the records.

    And those of ``LinearClassifier``.

    """

    def fit(self, release: ReleaseOrFolder, y: None = None) -> Self:
        """Learn from a release.

        Args:
            release: A release of design ``adaptive``, or its folder.
            y: Nothing: the labels are the release's.

        Returns:
            self

        Raises:
            InvalidInputError: Another design, a prior that is none, or one for a release whose
                preprocessing has neither class counts nor an intercept.

        """
        release = as_release(release)
        refuse_numbers(release)
        pull = pull_towards(release, self.class_vectors)
        learnt = learn_rounds(release, self.class_prior, self.class_weight, pull)
        self.class_prior_ = learnt.class_prior
        self._keep(release, learnt.coef, learnt.intercept, learnt.logit_scale)
        return self

    @classmethod
    def of_rounds(cls, release: ReleaseLike, rounds: Rounds) -> Self:
        """Return the classifier of rounds that were read before, without intercepts for the classes' shares."""
        model = cls()
        coef = rounds.weights / release.feature_clip_norm
        model._keep(release, coef, np.zeros(len(coef)), rounds.scale)
        model.class_prior_ = None
        return model


def learn_rounds(
    release: ReleaseLike, class_prior: ClassPrior, class_weight: ClassWeight, pull: Pull = no_pull
) -> Learnt:
    """Take the last step of the public model of an ``adaptive`` release."""
    published = _adaptive(release)
    model, pairs, weights, scale, balance = read_rounds(release, pull)
    coef = weights / published.feature_clip_norm
    if (target := model.config.target) != "class":
        pulled = target == "multilabel" and pull is not no_pull
        if class_prior is not None or class_weight is not None or pulled:
            names = "class_prior, class_weight, class_vectors"
            _validate.fail(names, f"None for rounds of target {target}", "others")
        # The scale of several labels is in their logits, whose sigmoids are probabilities by themselves.
        several = scale if target == "multilabel" else 1.0
        return Learnt(several * coef, np.zeros(len(coef)), scale / several, None)
    known = known_sizes(release)
    sizes = None if known is None else known.shares
    if balance is not None and release.num_classes == 2:
        shares = balance.shares if sizes is None else sizes
        found = matched_intercept(published, model, pairs, scale * weights, shares)
        balance = Balance(found, balance.variance, shares)
    asked = class_prior is not None or class_weight is not None
    if balance is None:
        if not asked:
            return Learnt(coef, np.zeros(len(coef)), scale, None)
        if sizes is None:
            allowed = "nothing for a release without class counts and without an intercept"
            name = "class_weight" if class_prior is None else "class_prior"
            _validate.fail(name, allowed, "some")
        balance = Balance(np.zeros(len(coef)), 0.0, sizes)
    shown = balance.shares if sizes is None else sizes
    prior = prediction_prior(class_prior, class_weight, shown, None, release)
    assert prior is not None
    intercept = balance.intercept + np.log(prior) - np.log(balance.shares)
    return Learnt(coef, intercept / scale, scale, prior if asked else None)


def read_rounds(release: ReleaseLike, pull: Pull = no_pull) -> Rounds:
    """Take the last step of the public model, and count the classes, where they are counted."""
    published = _adaptive(release)
    model, pairs = _replayed(published)
    weights = pull(model.after(*pairs[-1]).astype(np.float64), _mean_noise(model.config, published))
    weights = _without_noisy_lengths(model, weights, intercept_of(published) is not None)
    scale = _logit_scale(model, pairs[-_LAST_ROUNDS:], weights)
    counted = model.config.target == "class"
    balance = _balanced(published, model, pairs, scale * weights) if counted else None
    return Rounds(model, pairs, weights, scale, balance)


def learn_numbers(release: ReleaseLike) -> tuple[Matrix, Matrix]:
    """Take the last step of the public model of numbers.

    Returns:
        (J, d) and (J, d): coefficients of the targets scaled to [-1, 1], and the standard deviation that
        the noise of the rounds gives them.

    """
    published = _adaptive(release)
    model, pairs = _replayed(published)
    coef = model.after(*pairs[-1]).astype(np.float64) / published.feature_clip_norm
    noise = np.sqrt(np.square(model.basis) @ np.square(weight_noise(model)))
    return coef, np.broadcast_to(noise / published.feature_clip_norm, coef.shape).copy()


def _adaptive(release: ReleaseLike) -> Release:
    _validate.one_of("release.design", release.design, ("adaptive",))
    return cast(Release, release)


def _replayed(release: Release) -> tuple[PublicModel, list[tuple[Weights, NDArray[np.float32]]]]:
    """Return the public model of a release, and the weights and rows of its rounds."""
    mechanism: Any = release.certificate.mechanism
    rows = (some.features for some in release.tables[0].iter_rows())
    return PublicModel.of(mechanism, release.feature_clip_norm, rows), list(_pairs(release))


def _mean_noise(rounds: ResidualConfig, release: Release) -> float:
    """Return the variance of the noise in all coordinates of a class mean that all rounds would show."""
    stddev = rounds.published_stddev(release.feature_clip_norm, "feature") * rounds.num_classes
    return rounds.num_features * stddev**2 / rounds.num_rounds


def weight_noise(model: PublicModel) -> Vector:
    """Return the noise stddev that each direction of the last weights has, (d,), but for feedback.

    With P the step of a round along a direction and h the curvature, v / K, noise of stddev s that came
    j rounds ago is left times P (1 - P h)^j.
    """
    config = model.config
    curvature = model.variances / config.curvature_divisor
    pace = 1 / (curvature + 1 / config.learning_rate)
    left = np.square(pace / config.learning_rate)  # (1 - P h)^2
    rounds = config.num_rounds
    with np.errstate(divide="ignore", invalid="ignore"):
        total = np.where(left < 1, (1 - left**rounds) / (1 - left), rounds)
    return np.asarray(config.published_stddev(1.0, "feature") * pace * np.sqrt(total))


def _without_noisy_lengths(model: PublicModel, weights: Matrix, intercept: bool) -> Matrix:
    """Shrink classes' lengths, and their intercepts, towards their means by what noise makes of them."""
    noise = np.square(weight_noise(model))
    if intercept:
        own = weights[:, -1]
        kept = _kept(own, float(model.basis[-1] ** 2 @ noise))
        weights = weights.copy()
        weights[:, -1] = own.mean() + kept * (own - own.mean())
    squares = np.square(weights).sum(axis=1)
    mean = float(squares.mean())
    if mean == 0.0:
        return weights
    # The square of a noisy vector: central part, and noise times signal.
    spread = 2 * float((noise**2).sum()) + 4 * float(noise.mean()) * max(mean - noise.sum(), 0.0)
    due = mean + _kept(squares, spread) * (squares - mean)
    tiny = np.finfo(float).tiny
    return np.asarray(weights * np.sqrt(np.maximum(due, 0.0) / np.maximum(squares, tiny))[:, None])


def _kept(values: Vector, noise: float) -> float:
    """Return the share of the values' variance that is not noise."""
    found = float(values.var(ddof=1))
    return max(0.0, 1 - noise / found) if found > 0 else 0.0


def round_shares(release: ReleaseLike, rounds: Rounds) -> Vector:
    """Return the classes' shares of the records, (K,), as rounds show them; of two classes, known ones."""
    known = known_sizes(release)
    if known is not None and release.num_classes == 2:
        return known.shares
    assert rounds.balance is not None
    return rounds.balance.shares


def _balanced(
    release: Release,
    model: PublicModel,
    pairs: list[tuple[Weights, NDArray[np.float32]]],
    weights: Matrix,
) -> Balance | None:
    constant = intercept_of(release)
    if constant is None:
        return None
    norm, clip_norm = common_norm(release), release.feature_clip_norm
    drawn = draw_scores(
        model,
        [*(found for found, _ in pairs), weights],
        mean_record(release) / clip_norm,
        constant / clip_norm,
        None if norm is None else norm / clip_norm,
    )
    seen = np.array([rows[:, -1] for _, rows in pairs], dtype=np.float64) / constant
    noise = release.tables[1].feature_noise_stddev / constant

    def balanced(rounds: int) -> Balance:
        error = noise / np.sqrt(rounds)
        mean = seen[:rounds].mean(axis=0)
        clip = model.config.residual_clip_norm
        return balance_classes(drawn[:rounds], drawn[-1], mean, error, clip)

    whole = balanced(len(pairs))
    counts = [min(some, len(pairs)) for some in _COUNTING_ROUNDS]
    early = [balanced(count).shares for count in counts]
    factor = min(1.0, model.config.residual_clip_norm / np.sqrt(1 - 1 / len(early[0])))
    variances = [(noise / factor) ** 2 / count for count in (len(pairs), *counts)]
    shares = _combined_shares([whole.shares, *early], variances)
    # Well separated classes are not as their draw has them: then the intercepts of all rounds favour rare
    # classes, and those that make the draw's shares the counted ones go against them. What both agree on is kept.
    even = np.zeros_like(drawn[-1])
    due = factor * (early[0] - 1 / len(shares))
    counted = balance_classes(
        [even], drawn[-1], due, noise / np.sqrt(counts[0]), model.config.residual_clip_norm
    )
    one, other = (found - found.mean() for found in (whole.intercept, counted.intercept))
    agreed = np.where(one * other > 0, np.sign(one) * np.minimum(abs(one), abs(other)), 0.0)
    # Of many classes they are mostly noise: then only lengths are corrected.
    return Balance(_kept(agreed, whole.variance) * agreed, whole.variance, shares)


def _combined_shares(estimates: Sequence[Vector], variances: Sequence[float]) -> Vector:
    """Combine estimates of the classes' shares, of ever fewer rounds: with more noise and less bias.

    The rounds of each are among those of the ones before it, so that two differ by chance as their variances
    do. By how much they differ beyond that is the error of the one before, which is moved towards the next
    as far as that error is to the noise it takes on. Of many classes noise makes shares uneven: they
    are shrunk to each other by what noise is left.
    """
    shares, left = estimates[0], variances[0]
    num_classes = len(shares)
    for estimate, variance in zip(estimates[1:], variances[1:], strict=True):
        further = max(variance - left, 0.0)
        chance = further * (1 + np.sqrt(2 / (num_classes - 1)))
        error = max(float(((estimate - shares) ** 2).mean()) - chance, 0.0)
        kept = error / (error + further) if error > 0 else 0.0
        shares = shares + kept * (estimate - shares)
        left += kept**2 * further
    average = 1 / num_classes
    spread = float(((shares - average) ** 2).mean())
    return np.asarray(average + max(spread - left, 0.0) / max(spread, 1e-300) * (shares - average))


def _pairs(release: Release) -> Iterator[tuple[Weights, NDArray[np.float32]]]:
    for rows in release.iter_rounds():
        assert rows.weights is not None
        yield rows.weights, rows.features


def _logit_scale(
    model: PublicModel, pairs: list[tuple[Weights, NDArray[np.float32]]], weights: NDArray[Any]
) -> float:
    slope = np.mean([float((w * g).sum(dtype=np.float64)) for w, g in pairs]) / model.clip_norm
    along = weights @ model.basis
    curvature = float((along**2 @ model.variances).sum()) / model.config.curvature_divisor
    return 1.0 + max(float(slope), 0.0) / curvature if curvature > 0 else 1.0
