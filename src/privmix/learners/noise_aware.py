"""The noise-aware linear classifier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Self, cast

import numpy as np
from numpy.typing import ArrayLike

from privmix import _validate
from privmix.learners.adaptive import learn_rounds
from privmix.learners.base import (
    HybridLike,
    LinearClassifier,
    LinearRule,
    Matrix,
    ReleaseLike,
    ReleaseOrFolder,
    Vector,
    as_release,
    check_prior,
)
from privmix.learners.calibration import HeldOut, logit_scale
from privmix.learners.class_means import learn_class_means, relative_class_sizes
from privmix.learners.discriminant import learn_discriminant
from privmix.learners.moments import RowMoments, class_means
from privmix.learners.population import hybrid_moments, mixed_moments

_FOLDS = 5

Learnt = tuple[LinearRule, list[HeldOut]]
Means = tuple[Matrix, float]


def _learn_mixed(release: ReleaseLike) -> Learnt:
    """Fit to all rows, and to all but each fold to judge the fits by the fold."""
    folds = RowMoments.folds(release, _FOLDS if release.num_mixtures >= 2 * _FOLDS else 1)
    rows = sum(folds[1:], folds[0])
    rule = learn_discriminant(mixed_moments(release, rows))
    judged = []
    for fold in folds if len(folds) > 1 else []:
        rest = learn_discriminant(mixed_moments(release, rows - fold))
        judged.append(HeldOut.of(rest, mixed_moments(release, fold)))
    return rule, judged


def _learn_hierarchical(release: ReleaseLike) -> Learnt:
    """As above, but few rows would not do for the regression on labels that finds the offsets."""
    moments = mixed_moments(release)
    judged = []
    for (rest, noise), (held, held_noise) in _thinned(moments.offsets, moments.offset_noise):
        trained = learn_discriminant(replace(moments, offsets=rest, offset_noise=noise))
        judged.append(HeldOut.of_offsets(trained, held, held_noise))
    return learn_discriminant(moments), judged


def _learn_hybrid(release: ReleaseLike) -> Learnt:
    sums, mixtures = cast(HybridLike, release).tables
    means = class_means(sums)
    folds = RowMoments.folds(mixtures, _FOLDS if mixtures.num_mixtures >= 2 * _FOLDS else 1)
    rows = sum(folds[1:], folds[0])
    rule = learn_discriminant(hybrid_moments(sums, mixtures, means, rows))
    judged = []
    for fold, (rest, held) in zip(folds if len(folds) > 1 else [], _thinned(*means), strict=False):
        trained = learn_discriminant(hybrid_moments(sums, mixtures, rest, rows - fold))
        judged.append(HeldOut.of(trained, hybrid_moments(sums, mixtures, held, fold)))
    return rule, judged


def _learn_stratified(release: ReleaseLike) -> Learnt:
    means = class_means(release)
    rule = learn_class_means(*means, release.feature_clip_norm)
    judged = []
    for rest, (held, noise) in _thinned(*means):
        trained = learn_class_means(*rest, release.feature_clip_norm)
        offsets = held - np.outer(relative_class_sizes(*rest), held.mean(axis=0))
        judged.append(HeldOut.of_offsets(trained, offsets, noise))
    return rule, judged


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


class NoiseAwareClassifier(LinearClassifier):
    """Linear classifier that uses the public noise level of a release; no parameters.

    Every choice is a function of the release. Multiplying features and clip norm by a constant
    changes no prediction. Without a class prior no class's share enters a score; but a rare class's
    direction is known less well and shrunk more, and records are centred by the mean of all of them,
    in which large classes count for more. So rare classes are not found as well as large ones.

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

    ``adaptive``. The rounds have trained a model themselves: as ``AdaptiveClassifier``.

    Edge cases: more features than rows or records, a class without records (its offset is noise
    and rarely wins), all-zero rows (everything is the first class), one row in all, and an
    inclusion probability of 1 with public labels or signs.

    **Probabilities.** ``logit_scale_`` is fitted to what rows say about rules that did not see them
    (``privmix.learners.calibration``): five folds of the rows, or class sums split in five by added
    noise. It is 0, and all classes equally likely, where nothing shows that the rule knows
    anything. With a class prior, log prior is added to the logits, so that ``decision_function``
    returns logits and ``logit_scale_`` is 1.

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

    class_prior_: Vector | None

    def fit(self, release: ReleaseOrFolder, *, class_prior: ArrayLike | str | None = None) -> Self:
        """Learn from a release.

        Args:
            release: A release, or its folder, of any design.
            class_prior: Prior of the classes at prediction: K numbers, none negative, of any
                positive sum (counts will do); ``counts``, the noisy ones that the release's
                preprocessing has paid for; ``estimated`` from the rows' label weights or the
                lengths of class means, less their noise; or None, no prior. The last serves
                balanced accuracy and rare classes better, a prior serves accuracy.

        Returns:
            self

        Raises:
            InvalidInputError: An unknown design, ``poisson``, ``uniform``, ``transposed`` or
                ``hierarchical`` rows that hold every record (sampling probability 1), a prior
                that is none, or ``counts`` where none were charged.

        """
        release = as_release(release)
        if release.design == "adaptive":
            if isinstance(class_prior, str):
                _validate.fail("class_prior", "numbers, for design adaptive", class_prior)
            learnt = learn_rounds(release, class_prior)
            self.class_prior_ = learnt.class_prior
            self._keep(release, learnt.coef, learnt.intercept, learnt.logit_scale)
            return self
        learn = _RULES[_validate.one_of("release.design", release.design, _RULES)]
        rule, judged = learn(release)
        scale = logit_scale(rule, judged)
        coef, intercept = rule.weights, -rule.weights @ rule.center
        if isinstance(class_prior, str):
            class_prior = _named_prior(class_prior, rule, release)
        self.class_prior_ = check_prior(class_prior, release.num_classes)
        if self.class_prior_ is not None:
            coef, intercept = scale * coef, scale * intercept + np.log(self.class_prior_)
            scale = 1.0
        self._keep(release, coef, intercept, scale)
        return self


def _named_prior(name: str, rule: LinearRule, release: ReleaseLike) -> Vector:
    _validate.one_of("class_prior", name, ("counts", "estimated"))
    sizes = rule.class_sizes
    if name == "counts":
        preprocessor = getattr(release, "preprocessor", None)
        counts = None if preprocessor is None else preprocessor.class_counts
        if counts is None:
            _validate.fail("class_prior", "a release whose preprocessing has class counts", "none")
        sizes = np.asarray(counts, dtype=np.float64)
    sizes = np.maximum(sizes, 0.0)
    return sizes if sizes.any() else np.ones(len(sizes))
