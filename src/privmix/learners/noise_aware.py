"""The noise-aware linear classifier."""

from __future__ import annotations

from typing import Self, cast

from privmix import _validate
from privmix.learners.base import HybridLike, LinearClassifier, LinearRule, ReleaseLike
from privmix.learners.class_means import learn_class_means
from privmix.learners.discriminant import learn_discriminant
from privmix.learners.population import hybrid_moments, mixed_moments


def _learn_mixed(release: ReleaseLike) -> LinearRule:
    return learn_discriminant(mixed_moments(release))


def _learn_hybrid(release: ReleaseLike) -> LinearRule:
    return learn_discriminant(hybrid_moments(*cast(HybridLike, release).tables))


_RULES = {
    "poisson": _learn_mixed,
    "signed": _learn_mixed,
    "stratified": learn_class_means,
    "hybrid": _learn_hybrid,
    "hierarchical": _learn_mixed,
    "uniform": _learn_mixed,
    "transposed": _learn_mixed,
}


class NoiseAwareClassifier(LinearClassifier):
    """Linear classifier that uses the public noise level of a release; no parameters.

    Every choice is a function of the release. Multiplying features and clip norm by a constant
    changes no prediction. Scores carry no class prior: classes count alike however rare.

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

    Edge cases: more features than rows or records, a class without records (its offset is noise
    and rarely wins), all-zero rows (everything is the first class), one row in all, and an
    inclusion probability of 1 with public labels or signs.

    Attributes: those of ``LinearClassifier``. ``predict_proba`` follows from the discriminant
    analysis behind the rule and is not calibrated.

    """

    def fit(self, release: ReleaseLike) -> Self:
        """Learn from a release.

        Args:
            release: A release of any design.

        Returns:
            self

        Raises:
            InvalidInputError: An unknown design, or ``poisson``, ``uniform``, ``transposed`` or
                ``hierarchical`` rows that hold every record (sampling probability 1).

        """
        rule = _RULES[_validate.one_of("release.design", release.design, _RULES)](release)
        self._keep(release, rule.weights, -rule.weights @ rule.center, rule.logit_scale)
        return self
