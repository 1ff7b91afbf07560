"""Fisher's independence rule, from what a private feature selection published."""

from __future__ import annotations

from typing import Self

import numpy as np

from privmix import _validate
from privmix.learners.base import (
    LinearClassifier,
    Matrix,
    ReleaseOrFolder,
    Vector,
    as_release,
)
from privmix.preprocess import Preprocessor, SelectFeatures


class FisherClassifier(LinearClassifier):
    """Naive Bayes with Gaussian features of one variance for all classes; no parameters.

    The DFS paper's classifier: a record is scored by its distance to each class mean, every feature
    in units of its own variance, after the features were selected. Means and variances are those
    that the release's :class:`privmix.preprocess.SelectFeatures` (``with_squares``) published, so
    that the rows of the release are not used. Log shares of the classes are added where an earlier
    :class:`privmix.preprocess.ClassCounts` counted them. Records to classify go through the steps
    up to the selection and no further.

    A feature's variance is the mean square less that of the class means, whose noise is known and
    added back; it is at least one standard deviation of its own noise.

    Attributes: those of ``LinearClassifier``.

    """

    def fit(self, release: ReleaseOrFolder) -> Self:
        """Learn from a release.

        Args:
            release: A release, or its folder, of any design whose preprocessing selected features
                with squares.

        Returns:
            self

        Raises:
            InvalidInputError: No such step.

        """
        release = as_release(release)
        preprocessor: Preprocessor | None = getattr(release, "preprocessor", None)
        steps = () if preprocessor is None else preprocessor.steps
        found = [n for n, s in enumerate(steps) if isinstance(s, SelectFeatures) and s.with_squares]
        if preprocessor is None or not found:
            allowed = "a selection of features with squares among its steps"
            _validate.fail("release.preprocessing", allowed, [step.step for step in steps])
        number = found[-1]
        means, variances = _moments(preprocessor, number)
        coef = means / variances
        counted = preprocessor.before(number).class_sizes
        intercept = np.log(counted / counted.sum()) - 0.5 * (means * coef).sum(axis=1)
        self._keep(release, coef, intercept)
        self.preprocessor_ = preprocessor.before(number + 1)
        return self


def _moments(preprocessor: Preprocessor, number: int) -> tuple[Matrix, Vector]:
    """Return (K, m) class means and (m,) variances within classes of the selected features."""
    found = preprocessor.feature_statistics(number)
    assert found.squares is not None and found.square_noise is not None
    columns = preprocessor.results[number]["columns"]
    means = found.means[:, columns]
    sizes = preprocessor.before(number).class_sizes
    shares = sizes / preprocessor.facts.num_records
    between = shares @ (means**2 - found.mean_noise[:, None] ** 2)
    variances = np.maximum(found.squares[columns] - between, found.square_noise)
    return means, np.maximum(variances, np.finfo(float).tiny)
