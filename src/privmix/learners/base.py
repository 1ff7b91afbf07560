"""What all learners share: the view of a release, and a linear decision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from privmix import _validate
from privmix.extractor import ExtractorIdentity

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Block = tuple[NDArray[np.float32], NDArray[np.float32] | NDArray[np.int64]]


class ReleaseLike(Protocol):
    """The public facts and rows that a learner reads from a release.

    A published row is (sum of the included records' clipped features + noise) / ``mix_size``;
    the stddevs are those of the noise in one published number.
    """

    @property
    def design(self) -> str:
        """How records entered rows."""

    @property
    def classes(self) -> tuple[int, ...] | tuple[str, ...]:
        """The K classes, in the order of the label weights."""

    @property
    def num_classes(self) -> int:
        """Number of classes K."""

    @property
    def num_features(self) -> int:
        """Width d of a feature vector."""

    @property
    def num_mixtures(self) -> int:
        """Number of rows T."""

    @property
    def mix_size(self) -> float:
        """Public divisor of a row."""

    @property
    def sampling_prob(self) -> float:
        """Probability that a record entered a row."""

    @property
    def feature_clip_norm(self) -> float:
        """L2 bound of a record's features."""

    @property
    def feature_noise_stddev(self) -> float:
        """Noise stddev of a published feature value."""

    @property
    def label_noise_stddev(self) -> float | None:
        """Noise stddev of a published label weight; None for public labels."""

    def iter_blocks(self) -> Iterator[Block]:
        """Yield (features, label indices or label weights) of successive runs of rows."""


class HybridLike(ReleaseLike, Protocol):
    """A ``hybrid`` release: class sums with public labels, and signed rows without labels."""

    @property
    def tables(self) -> tuple[ReleaseLike, ReleaseLike]:
        """The class sums and the signed rows."""


@dataclass(frozen=True)
class LinearRule:
    """Scores are ``(x - center) @ weights.T``; ``logit_scale`` turns them into logits."""

    weights: Matrix
    center: Vector
    logit_scale: float


def class_prob(release: ReleaseLike) -> float:
    """Share of the rows that a class is eligible for (``hierarchical``); 1 for other designs."""
    value = getattr(getattr(release, "config", None), "class_prob", None)
    return 1.0 if value is None else float(value)


class LinearClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier on clipped features; base of the learners.

    Records to classify are treated as the release's were: clipped to ``feature_clip_norm_``.

    Attributes:
        coef_: (K, d) weights.
        intercept_: (K,) intercepts.
        logit_scale_: Factor from decision values to logits, at least 0.
        classes_: (K,) classes, in the release's order.
        n_features_in_: d.
        feature_clip_norm_: The release's clip norm.
        certificate_digest_: Digest of the release's certificate, or None.
        extractor_: Identity of the release's feature extractor, or None.

    """

    coef_: Matrix
    intercept_: Vector
    logit_scale_: float
    classes_: NDArray[Any]
    n_features_in_: int
    feature_clip_norm_: float
    certificate_digest_: str | None
    extractor_: ExtractorIdentity | None

    def _keep(
        self, release: ReleaseLike, coef: Matrix, intercept: Vector, logit_scale: float = 1.0
    ) -> None:
        self.coef_, self.intercept_, self.logit_scale_ = coef, intercept, logit_scale
        self.classes_ = np.array(release.classes)
        self.n_features_in_ = release.num_features
        self.feature_clip_norm_ = release.feature_clip_norm
        self.certificate_digest_ = getattr(release, "certificate_digest", None)
        self.extractor_ = getattr(getattr(release, "certificate", None), "extractor", None)

    def decision_function(self, features: ArrayLike) -> Vector:
        """Score every class.

        Args:
            features: (count, d) finite real numbers.

        Returns:
            (count, K) scores; for two classes (count,), the second's minus the first's, as in
            scikit-learn.

        Raises:
            InvalidInputError: Another shape, or a value that is not finite (names the row).

        """
        scores = self._scores(features)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, features: ArrayLike) -> NDArray[Any]:
        """Return the (count,) classes of highest score; arguments as ``decision_function``."""
        scores = self._scores(features)
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def predict_proba(self, features: ArrayLike) -> Matrix:
        """Return (count, K) probabilities: the softmax of ``logit_scale_`` times the scores.

        They order records sensibly but are not calibrated. Arguments as ``decision_function``.
        """
        scores = self._scores(features)
        return np.asarray(softmax(self.logit_scale_ * scores, axis=1))

    def _scores(self, features: ArrayLike) -> Matrix:
        check_is_fitted(self, "coef_")
        matrix = check_features(features, self.n_features_in_)
        scores = clip_rows(matrix, self.feature_clip_norm_) @ self.coef_.T
        return np.asarray(scores + self.intercept_)


def check_features(features: ArrayLike, num_features: int) -> Matrix:
    """Return features as a float64 matrix of the given width, or fail naming the first bad row."""
    try:
        matrix = np.asarray(features)
    except ValueError:
        _validate.fail("features", f"shape (records, {num_features})", "rows of several lengths")
    if matrix.dtype.kind not in "fiub":
        _validate.fail("features", "an array of real numbers", f"an array of {matrix.dtype}")
    if matrix.ndim != 2 or matrix.shape[1] != num_features:
        _validate.fail("features", f"shape (records, {num_features})", f"shape {matrix.shape}")
    matrix = matrix.astype(np.float64, copy=False)
    bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if bad.size:
        row = int(bad[0])
        column = int(np.flatnonzero(~np.isfinite(matrix[row]))[0])
        _validate.fail(f"features[{row}, {column}]", "a finite number", matrix[row, column])
    return matrix


def clip_rows(features: Matrix, clip_norm: float) -> Matrix:
    """Scale rows longer than ``clip_norm`` down to it."""
    largest = np.abs(features).max(axis=1, initial=0.0, keepdims=True)
    # Squares of huge values would overflow; a unit largest value cannot.
    unit = features / np.where(largest > 0, largest, 1.0)
    norms = np.linalg.norm(unit, axis=1, keepdims=True)
    too_long = largest > clip_norm / np.maximum(norms, 1.0)
    return np.where(too_long, unit * (clip_norm / np.maximum(norms, 1.0)), features)
