"""The noise-aware linear classifier."""

from __future__ import annotations

from typing import Self

from privmix import _validate
from privmix.learners.base import LinearClassifier, ReleaseLike
from privmix.learners.class_means import learn_class_means
from privmix.learners.errors_in_variables import learn_errors_in_variables

_RULES = {"poisson": learn_errors_in_variables, "stratified": learn_class_means}


class NoiseAwareClassifier(LinearClassifier):
    """Linear classifier that uses the public noise level of a release; no parameters.

    Every choice is a function of the release. Multiplying features and clip norm by a constant
    changes no prediction. Scores carry no class prior: classes count alike however rare.

    ``poisson`` (errors in variables; the closed form of the bias correction of DPMix, Theorem 5).
    The rows' covariances, less the known noise, estimate the records' second moments A = E[x x']
    and S = E[y x'], centred by the rows' means. The expected squared error of weights w given the
    rows is linear in both, so the best weights solve E[A | rows] w = E[S | rows]. For A the
    posterior mean is approached by nonlinear shrinkage in the sample eigenbasis, for S by the same
    shrinkage applied to the rows' regression. A ridge r, chosen by what it explains on a held-out
    fifth of the rows, stands for what the moments do not show; all rows then refit. Class k scores
    (x - mean).w_k / sqrt(w_k.S_k), the cosine in the metric (A + r)^-1, which needs no class
    sizes. d x d float64 matrices are held: memory is quadratic in d, constant in the rows.

    ``stratified``. Rows of a class are averaged. A class's unknown size scales its mean; it is
    estimated from the mean's length, and the size times the overall mean is subtracted. The
    offsets are shrunk by an empirical-Bayes Gaussian prior whose covariance is the offsets' own,
    linearly shrunk (Ledoit & Wolf 2004), less the known noise; a record's covariance within its
    class is taken as isotropic, with what is left of clip norm^2 as trace, plus the posterior
    covariance of the offset. Class k scores the cosine of x - mean to its offset in that metric.
    Scatter of the rows within a class is not used: at q = 1/2 its signal is about n/(4 K d) clip
    norms squared per direction against a squared noise multiplier of a few to hundreds.

    Edge cases: more features than rows or records, a class without records (its offset is noise
    and rarely wins), all-zero rows (everything is the first class), one row per class, and an
    inclusion probability of 1 with public labels.

    Attributes: those of ``LinearClassifier``. ``predict_proba`` follows from the discriminant
    analysis behind each rule and is not calibrated.

    """

    def fit(self, release: ReleaseLike) -> Self:
        """Learn from a release.

        Args:
            release: A release of design ``poisson`` or ``stratified``.

        Returns:
            self

        Raises:
            InvalidInputError: Another design, or ``poisson`` with sampling probability 1.

        """
        rule = _RULES[_validate.one_of("release.design", release.design, _RULES)](release)
        self._keep(release, rule.weights, -rule.weights @ rule.center, rule.logit_scale)
        return self
