"""The noise-aware linear classifier."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Self, cast

import numpy as np

from privmix import _validate
from privmix.learners.adaptive import learn_rounds
from privmix.learners.base import (
    HybridLike,
    LinearRule,
    Matrix,
    ReleaseLike,
    ReleaseOrFolder,
    Vector,
    as_release,
    refuse_numbers,
    target_of,
)
from privmix.learners.calibration import HeldOut, calibrate
from privmix.learners.class_means import learn_class_means
from privmix.learners.class_vectors import Pull, no_pull, pull_towards, sized
from privmix.learners.discriminant import learn_discriminant, learn_gaussian
from privmix.learners.moments import RowMoments, class_means
from privmix.learners.population import PopulationMoments, hybrid_moments, mixed_moments
from privmix.learners.several_labels import learn_labels
from privmix.learners.shares import (
    PriorClassifier,
    Sizes,
    known_sizes,
    prediction_prior,
)

_FOLDS = 5

Fit = Callable[[PopulationMoments, Vector | None], LinearRule]
Learnt = tuple[LinearRule, list[HeldOut]]
Means = tuple[Matrix, float]


def _fits(shares: Vector | None, pull: Pull) -> tuple[Fit, ...]:
    """Return the rules to choose from; Bayes's needs to know the classes' sizes.

    Between two classes cosines have the direction of Bayes's rule, and no scale of their own.
    """
    if shares is None:
        fits: tuple[Fit, ...] = (learn_discriminant,)
    else:
        fits = (_gaussian,) if len(shares) == 2 else (learn_discriminant, _gaussian)
    return tuple(partial(_pulled, fit, sized(pull, shares)) for fit in fits)


def _pulled(fit: Fit, pull: Pull, moments: PopulationMoments, shares: Vector | None) -> LinearRule:
    energy = moments.offset_noise * moments.offsets.shape[1]
    return fit(replace(moments, offsets=pull(moments.offsets, energy)), shares)


def _gaussian(moments: PopulationMoments, shares: Vector | None) -> LinearRule:
    assert shares is not None
    return learn_gaussian(moments, shares)


def _sizes_of(release: ReleaseLike, moments: PopulationMoments) -> Sizes:
    """Return class sizes; labels of mixed rows show how many records there are, charged or not."""
    assert moments.size_error is not None
    found = Sizes.of(moments.class_sizes, moments.size_error)
    known = known_sizes(release)
    return found if known is None else found._replace(shares=known.shares)


def _learn_mixed(release: ReleaseLike, pull: Pull) -> list[Learnt]:
    """Fit to all rows, and to all but each fold to judge the fits by the fold."""
    folds = RowMoments.folds(release, _FOLDS if release.num_mixtures >= 2 * _FOLDS else 1)
    rows = sum(folds[1:], folds[0])
    moments = mixed_moments(release, rows)
    shares, total = _sizes_of(release, moments)
    parts = folds if len(folds) > 1 else []
    held = [mixed_moments(release, fold).per_record(total) for fold in parts]
    rest = [mixed_moments(release, rows - fold).per_record(total) for fold in parts]
    whole = moments.per_record(total)
    return [_judged(fit, whole, shares, rest, held) for fit in _fits(shares, pull)]


def _judged(
    fit: Fit,
    whole: PopulationMoments,
    shares: Vector | None,
    rest: list[PopulationMoments],
    held: list[PopulationMoments],
) -> Learnt:
    parts = zip(rest, held, strict=True)
    return fit(whole, shares), [HeldOut.of(fit(some, shares), other) for some, other in parts]


def _learn_hierarchical(release: ReleaseLike, pull: Pull) -> list[Learnt]:
    """As above, but few rows would not do for the regression on labels that finds the offsets."""
    moments = mixed_moments(release)
    shares, total = _sizes_of(release, moments)
    moments = moments.per_record(total)
    found = []
    for fit in _fits(shares, pull):
        judged = []
        for (rest, noise), (held, held_noise) in _thinned(moments.offsets, moments.offset_noise):
            trained = fit(replace(moments, offsets=rest, offset_noise=noise), shares)
            judged.append(HeldOut.of_offsets(trained, held, held_noise))
        found.append((fit(moments, shares), judged))
    return found


def _learn_hybrid(release: ReleaseLike, pull: Pull) -> list[Learnt]:
    sums, mixtures = cast(HybridLike, release).tables
    means, known = class_means(sums), known_sizes(release)
    shares = None if known is None else known.shares
    folds = RowMoments.folds(mixtures, _FOLDS if mixtures.num_mixtures >= 2 * _FOLDS else 1)
    rows = sum(folds[1:], folds[0])
    whole = hybrid_moments(sums, mixtures, means, rows, known)
    rest, held = [], []
    for fold, (some, other) in zip(folds if len(folds) > 1 else [], _thinned(*means), strict=False):
        rest.append(hybrid_moments(sums, mixtures, some, rows - fold, known))
        held.append(hybrid_moments(sums, mixtures, other, fold, known))
    return [_judged(fit, whole, shares, rest, held) for fit in _fits(shares, pull)]


def _learn_stratified(release: ReleaseLike, pull: Pull) -> list[Learnt]:
    known = known_sizes(release)
    shares, total = (None, 1.0) if known is None else known
    found, noise_variance = class_means(release)
    means = found / total, noise_variance / total**2

    def learn(means: Matrix, noise: float) -> LinearRule:
        pulled = sized(pull, shares)(means, noise * means.shape[1])
        return learn_class_means(pulled, noise, release.feature_clip_norm, shares)

    rule = learn(*means)
    judged = []
    for rest, (held, noise) in _thinned(*means):
        trained = learn(*rest)
        offsets = held - np.outer(trained.class_sizes, held.mean(axis=0))
        judged.append(HeldOut.of_offsets(trained, offsets, noise))
    return [(rule, judged)]


def _thinned(means: Matrix, noise: float) -> Iterator[tuple[Means, Means]]:
    """Yield class means (or offsets) as all rows but a fold, and as that fold, would show them.

    A Gaussian of known variance v splits into F independent ones of variance F v with the same
    mean, by added noise whose sum is 0; it need not have come from F rows (Neufeld, Dharamshi, Gao,
    Witten 2024, JMLR 25, "data thinning").
    """
    added = np.random.default_rng(0).standard_normal((_FOLDS, *means.shape))
    added = np.sqrt(_FOLDS * noise) * (added - added.mean(axis=0))
    for part in added:
        rest = (means - part / (_FOLDS - 1), noise * _FOLDS / (_FOLDS - 1))
        yield rest, (means + part, noise * _FOLDS)


_RULES = {
    "poisson": _learn_mixed,
    "signed": _learn_mixed,
    "stratified": _learn_stratified,
    "hybrid": _learn_hybrid,
    "hierarchical": _learn_hierarchical,
    "uniform": _learn_mixed,
    "transposed": _learn_mixed,
}


class NoiseAwareClassifier(PriorClassifier):
    """Linear classifier that uses the public noise level of a release.

    Every choice is a function of the release. Multiplying features and clip norm by a constant
    changes no prediction.

    **Class sizes.** The classes' shares of the records are those of a public
    ``Schema.class_balance``, of counts that preprocessing has paid for, or of the label weights of mixed
    rows, less their noise. With them the rule cuts between the class means and predicts by the shares;
    two rules are fitted, the cosines below about the unweighted mean of the class means, and
    Bayes's for Gaussian classes of one covariance (``privmix.learners.discriminant.learn_gaussian``),
    and the one is kept whose log loss is the smaller by what held-out parts of the release show. Class
    sums alone (``hybrid``, ``stratified``) do not show sizes: then no share enters a score, records are
    centred by the mean of all of them, and rare classes are not found as well as large ones.

    **Offsets.** A class's sum of features less the overall mean is estimated with a known noise
    variance v, and shrunk by an empirical-Bayes Gaussian prior: its covariance is the offsets'
    own, linearly shrunk (Ledoit & Wolf 2004), less v. Class k scores the cosine of x - mean to its
    posterior offset, in the metric of a record's covariance around it; no class sizes are needed.

    **Mixed labels** (``poisson``, ``signed``, ``uniform``, ``transposed``, ``hierarchical``;
    errors in variables, the closed form of the bias correction of DPMix, Theorem 5). The rows'
    second moments, less the known noise, estimate the records' mean, covariance A and cross
    moments of labels and features, by the formulas of ``privmix.learners.population``. ``hybrid``
    takes mean and offsets from the class sums and A from the signed rows. A's eigenvalues are
    replaced by what random-matrix theory expects along sample eigenvectors (Ledoit & Peche 2011),
    less the noise; most of the scatter of the posterior offsets is subtracted; and a ridge is added that
    goes to 0 as rows grow (``privmix.learners.discriminant.ridge``). d x d float64 matrices are
    held: memory is quadratic in d, constant in the rows.

    ``stratified``. A class's rows are averaged. Its unknown size scales its mean; it is estimated
    from the mean's length. A record's covariance within its class is taken as isotropic, with what
    is left of clip norm^2 as trace. Scatter of the rows within a class is not used: at q = 1/2 its
    signal is about n/(4 K d) clip norms squared per direction against a squared noise multiplier
    of a few to hundreds.

    **Several labels** of a record. Each is a regression of its own, as of ``NoiseAwareRegressor``, whose
    predictions become its logit (``privmix.learners.several_labels``); priors are the labels' shares.

    ``adaptive``. The rounds have trained a model themselves: as ``AdaptiveClassifier``.

    Edge cases: more features than rows or records, a class without records (its offset is noise
    and rarely wins), all-zero rows (everything is the first class), one row in all, and an
    inclusion probability of 1 with public labels or signs.

    **Probabilities.** ``logit_scale_`` is fitted to what rows say about rules that did not see them
    (``privmix.learners.calibration``): five folds of the rows, or class sums split in five by added
    noise. It is 0, and all classes equally likely, where nothing shows that the rule knows
    anything. With a class prior, log prior is added to the logits, so that ``decision_function``
    returns logits and ``logit_scale_`` is 1.

    Args:
        class_prior: Prior of the classes at prediction. None: the shares of the records, where the
            release shows them. K numbers, none negative, of any positive sum (counts will do).
            ``uniform``: all alike. ``counts``: the charged ones. ``estimated``: the shares as above,
            or, of records that were not centred, by the lengths of class sums.
        class_weight: ``balanced``: a uniform prior, by scikit-learn's name; serves balanced accuracy and
            rare classes, where the records' own shares serve accuracy. Or a mapping from classes to
            weights above 0, by which the prior is multiplied; 1 for classes that it does not name.
        class_vectors: Public vectors of the classes, (K, num_inputs), in the schema's order and in the space of
            records before preprocessing, such as a text encoder makes of the classes' names. Noisy
            estimates are pulled towards them as far as noise hides them and as far as they agree; see
            ``privmix.learners.class_vectors``. Never anything learnt from the records.

    Attributes:
        class_prior_: (K,) the prior that predictions use, or None.

    And those of ``LinearClassifier``.

    Example:
        >>> import numpy as np
        >>> from privmix import NoiseAwareClassifier, Schema, plan_release, release
        >>> schema = Schema(classes=["a", "b"], num_features=2, num_records=900, feature_clip_norm=1.0)
        >>> plan = plan_release(schema, target_epsilon=8.0, target_delta=1e-5, design="stratified")
        >>> x, y = np.eye(2)[np.arange(900) % 2], np.array(["a", "b"])[np.arange(900) % 2]
        >>> model = NoiseAwareClassifier().fit(release(x, y, plan, out="classes"))
        >>> model.predict(np.eye(2))
        array(['a', 'b'], dtype='<U1')

    """

    def fit(self, release: ReleaseOrFolder, y: None = None) -> Self:
        """Learn from a release.

        Args:
            release: A release, or its folder, of any design.
            y: Nothing: the labels are the release's.

        Returns:
            self

        Raises:
            InvalidInputError: An unknown design, ``poisson``, ``uniform``, ``transposed`` or
                ``hierarchical`` rows that hold every record (sampling probability 1), a prior
                that is none, or one that the release does not show.

        """
        release = as_release(release)
        refuse_numbers(release)
        pull = pull_towards(release, self.class_vectors)
        if release.design == "adaptive":
            learnt = learn_rounds(release, self.class_prior, self.class_weight, pull)
            self.class_prior_ = learnt.class_prior
            self._keep(release, learnt.coef, learnt.intercept, learnt.logit_scale)
            return self
        if target_of(release) == "multilabel":
            if (self.class_prior, self.class_weight, pull) != (None, None, no_pull):
                names = "class_prior, class_weight, class_vectors"
                _validate.fail(names, "None for several labels", "others")
            self.class_prior_ = None
            self._keep(release, *learn_labels(release))
            return self
        learn = _RULES[_validate.one_of("release.design", release.design, _RULES)]
        found = [
            (rule, calibrate(rule, judged, rule.shares)) for rule, judged in learn(release, pull)
        ]
        rule, calibration = min(found, key=lambda pair: pair[1].loss)
        prior = prediction_prior(
            self.class_prior, self.class_weight, rule.shares, rule.class_sizes, release
        )
        scale, coef = calibration.scale, rule.weights
        intercept = calibration.attenuation * rule.intercept - rule.weights @ rule.center
        self.class_prior_ = prior
        if prior is not None:
            coef, intercept = scale * coef, scale * intercept + np.log(prior)
            scale = 1.0
        self._keep(release, coef, intercept, scale)
        return self
