"""The classifier that the rounds of an ``adaptive`` release have trained."""

from __future__ import annotations

from collections.abc import Iterator
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
)
from privmix.learners.shares import (
    ClassPrior,
    ClassWeight,
    PriorClassifier,
    Sizes,
    denoised,
    prediction_prior,
)
from privmix.publishing.release import Release
from privmix.rounds.public_model import PublicModel, Weights

_LAST_ROUNDS = 3


class Learnt(NamedTuple):
    """What a linear classifier keeps."""

    coef: Matrix
    intercept: Vector
    logit_scale: float
    class_prior: Vector | None


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

    **Prior.** The model predicts by the records' own class sizes as far as records have an
    intercept (``privmix.preprocess.Intercept``). A ``class_prior`` replaces them. The sizes are the
    class counts that the release has paid for. Without such, weights of the first round are zero, so
    that its rows count classes along the intercept.

    Args:
        class_prior: Prior of the classes at prediction: K numbers, none negative, of any positive sum;
            ``uniform``; ``counts`` that the release has paid for; ``estimated``, that of the records
            as counts or else the first round show it; or None for that of the records, as the rounds
            have learnt it.
        class_weight: ``balanced``: a uniform prior, by scikit-learn's name.

    Attributes:
        class_prior_: (K,) the prior that predictions use, or None for that of the records.

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
        learnt = learn_rounds(release, self.class_prior, self.class_weight)
        self.class_prior_ = learnt.class_prior
        self._keep(release, learnt.coef, learnt.intercept, learnt.logit_scale)
        return self


def learn_rounds(
    release: ReleaseLike, class_prior: ClassPrior, class_weight: ClassWeight
) -> Learnt:
    """Take the last step of the public model of an ``adaptive`` release."""
    _validate.one_of("release.design", release.design, ("adaptive",))
    published = cast(Release, release)
    mechanism: Any = published.certificate.mechanism
    rows = (some.features for some in published.tables[0].iter_rows())
    model = PublicModel.of(mechanism, published.feature_clip_norm, rows)
    pairs = list(_pairs(published))
    weights = model.after(*pairs[-1]).astype(np.float64)
    weights = _without_noisy_lengths(model, weights, _intercept_share(published) is not None)
    scale = _logit_scale(model, pairs[-_LAST_ROUNDS:], weights)
    coef = weights / published.feature_clip_norm
    if class_prior is None and class_weight is None:
        return Learnt(coef, np.zeros(len(coef)), scale, None)
    sizes = _class_sizes(published, pairs[0][1])
    prior = prediction_prior(class_prior, class_weight, sizes, None, release)
    assert prior is not None
    intercept = np.log(prior) - np.log(sizes)
    return Learnt(scale * coef, intercept, 1.0, prior)


def weight_noise(model: PublicModel) -> Vector:
    """Return the noise stddev that each direction of the last weights has, (d,), but for feedback.

    With P the step of a round along a direction and h the curvature, v / K, noise of stddev s that came
    j rounds ago is left times P (1 - P h)^j.
    """
    config = model.config
    curvature = model.variances / config.num_classes
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


def _class_sizes(release: Release, rows: NDArray[np.float32]) -> Vector:
    """Return the classes' shares of the records: as counted, else as the first round shows them."""
    counted = getattr(release.preprocessor, "counted", None)
    if counted is not None:
        return Sizes.of(*counted).shares
    return round_class_sizes(release, rows)


def _pairs(release: Release) -> Iterator[tuple[Weights, NDArray[np.float32]]]:
    for rows in release.iter_rounds():
        assert rows.weights is not None
        yield rows.weights, rows.features


def _logit_scale(
    model: PublicModel, pairs: list[tuple[Weights, NDArray[np.float32]]], weights: NDArray[Any]
) -> float:
    slope = np.mean([float((w * g).sum(dtype=np.float64)) for w, g in pairs]) / model.clip_norm
    along = weights @ model.basis
    curvature = float((along**2 @ model.variances).sum()) / len(weights)
    return 1.0 + max(float(slope), 0.0) / curvature if curvature > 0 else 1.0


def _intercept_share(release: Release) -> float | None:
    """Return the share of the squared clip norm that records' last feature, a constant, has."""
    done = release.preprocessor
    last = None if done is None or not done.steps else done.steps[-1]
    return getattr(last, "share", None) if getattr(last, "step", "") == "intercept" else None


def round_class_sizes(release: Release, rows: NDArray[np.float32]) -> Vector:
    """Estimate the classes' shares of the records from the first round.

    Its residuals are e_y - 1/K, all clipped alike; along the intercept c, row k adds up to
    (share of class k - 1/K) times c and the clipping's factor.
    """
    share = _intercept_share(release)
    if share is None:
        allowed = "none for a release without class counts and without an intercept"
        _validate.fail("class_prior", allowed, "some")
    num_classes = release.num_classes
    length = np.sqrt(1 - 1 / num_classes)
    mechanism: Any = release.certificate.mechanism
    factor = min(1.0, mechanism.components[1].residual_clip_norm / length)
    constant = np.sqrt(share) * release.feature_clip_norm
    shares = 1 / num_classes + rows[:, -1].astype(np.float64) / (factor * constant)
    # A share that noise makes nearly 0 would let a new prior carry its class past all others.
    return denoised(shares, release.tables[1].feature_noise_stddev / (factor * constant))
