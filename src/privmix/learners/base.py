"""What all learners share: the view of a release, and a linear decision."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from privmix import _validate
from privmix.accounting.guarantee import NOT_PRIVATE, NotPrivateWarning
from privmix.clipping import clipped
from privmix.features.applying import apply_extractor
from privmix.inputs.extractor import ExtractorIdentity
from privmix.inputs.feature_names import check_names, names_of
from privmix.inputs.labels import refuse_missing
from privmix.markup import facts_html
from privmix.preprocess import Preprocessor
from privmix.publishing.release import Release, Table
from privmix.schema import Target

_LEAST_PRIOR = 1e-12

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
        """Yield (features, label indices or label weights) of successive stretches of rows."""


class HybridLike(ReleaseLike, Protocol):
    """A ``hybrid`` release: class sums with public labels, and signed rows without labels."""

    @property
    def tables(self) -> tuple[ReleaseLike, ReleaseLike]:
        """The class sums and the signed rows."""


@dataclass(frozen=True)
class LinearRule:
    """Scores are ``(x - center) @ weights.T``, with what the rule takes to be true of them.

    Attributes:
        weights: (K, d).
        center: (d,).
        means: (K, K) mean score k of the records of class l, at [k, l]; without ``shares``, times
            the class's size over the planned one.
        covariance: (K, K) covariance of the scores of a class's records.
        class_sizes: (K,) the classes' sizes up to a factor, through noise.
        shares: (K,) the classes' shares of the records, which add up to 1; None where the rule
            does without.
        intercept: (K,) what is added to scores before classes are compared, all of them alike.
        largest_scale: Factor from scores to logits by the rule's own lights. What held-out rows show
            can make it smaller; larger only an assumption could.

    """

    weights: Matrix
    center: Vector
    means: Matrix
    covariance: Matrix
    class_sizes: Vector
    shares: Vector | None = None
    intercept: Vector | float = 0.0
    largest_scale: float = np.inf

    @property
    def class_weights(self) -> Vector:
        """(K,) what each class's ``means`` count for in an average over records."""
        return np.full(len(self.means), 1 / len(self.means)) if self.shares is None else self.shares


ReleaseOrFolder = ReleaseLike | str | PathLike[str]


def as_release(release: ReleaseOrFolder) -> ReleaseLike:
    """Open a release's folder; return anything that reads like a release as it is.

    Of a release that protects nobody it warns.

    Raises:
        InvalidInputError: No release; or a certificate that says more of its rows than its parts hold,
            by which a learner would take memory.

    """
    if isinstance(release, str | PathLike):
        release = Release(Path(release))
    if isinstance(release, Table):
        _ = release.parts.layout
    if not hasattr(release, "iter_blocks"):
        allowed = "a privmix.Release or its folder: learners see no records"
        _validate.fail("release", allowed, type(release).__name__)
    if is_private(release) is False:
        words = f"{NOT_PRIVATE}: this release protects nobody, and nor does what is learnt from it"
        warnings.warn(words, NotPrivateWarning, stacklevel=3)
    return release


def is_private(release: ReleaseLike) -> bool | None:
    """Whether a release protects anybody, by its certificate; None where there is none."""
    private: bool | None = getattr(getattr(release, "certificate", None), "private", None)
    return private


def is_checked(release: ReleaseLike) -> bool:
    """Whether its certificate was found to state what its parameters give; see ``Release.checked``."""
    return bool(getattr(release, "checked", False))


def class_prob(release: ReleaseLike) -> float | Vector:
    """Share of the rows that a class is eligible for (``hierarchical``); 1 for other designs.

    (K,) of them where classes differ.
    """
    value = getattr(getattr(release, "config", None), "class_prob", None)
    if isinstance(value, tuple):
        return np.array(value, dtype=np.float64)
    return 1.0 if value is None else float(value)


class ReleaseModel(BaseEstimator):  # type: ignore[misc]
    """What every learner keeps of its release; records are clipped as the release's were.

    Attributes:
        target_: What the release's labels are; see ``Schema``.
        n_features_in_: Width of a record to classify: d, or what preprocessing takes.
        feature_names_in_: Names of a record's features, where the release's schema states them.
            Frames (pandas, polars, Arrow) with other columns, or in another order, are refused.
        feature_clip_norm_: The release's clip norm.
        certificate_digest_: Digest of the release's certificate, or None.
        private_: Whether the release protects anybody; None if it has no certificate.
        verified_: Whether that certificate was checked before the learner was fitted: see
            ``Release.checked``.
        extractor_: Identity of the release's feature extractor, or None.
        preprocessor_: What the release's records went through, or None; records to classify go
            through the same.

    """

    target_: Target
    n_features_in_: int
    feature_clip_norm_: float
    certificate_digest_: str | None
    private_: bool | None
    verified_: bool
    extractor_: ExtractorIdentity | None
    preprocessor_: Preprocessor | None

    def _remember(self, release: ReleaseLike) -> None:
        self.target_ = target_of(release)
        self.preprocessor_ = getattr(release, "preprocessor", None)
        self.n_features_in_ = release.num_features
        self._remember_names(getattr(facts_of(release), "feature_names", None))
        if self.preprocessor_ is not None:
            self.n_features_in_ = self.preprocessor_.num_inputs
        self.feature_clip_norm_ = release.feature_clip_norm
        self.certificate_digest_ = getattr(release, "certificate_digest", None)
        self.private_, self.verified_ = is_private(release), is_checked(release)
        self.extractor_ = getattr(getattr(release, "certificate", None), "extractor", None)

    def _remember_names(self, names: tuple[str, ...] | None) -> None:
        """Keep the features' names as scikit-learn does: where there are none, no attribute."""
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        told = super().__repr__(N_CHAR_MAX)
        if getattr(self, "private_", None) is not False:
            return str(told)
        return f"<{told}, {NOT_PRIVATE}: learnt from a release that protects nobody>"

    def _repr_html_(self) -> str:
        """Show the model in a notebook: its settings, and what it learnt from."""
        facts: dict[str, object] = {"model": repr(self)}
        if hasattr(self, "n_features_in_"):
            facts["features"] = self.n_features_in_
            facts["certificate"] = self.certificate_digest_ or "none"
            facts["extractor"] = self.extractor_ or "none"
        return facts_html(f"privmix {type(self).__name__}", facts)

    def _records(self, features: ArrayLike) -> Matrix:
        """Check records and treat them as the release's were."""
        check_is_fitted(self, "n_features_in_")
        features = apply_extractor(features, getattr(self, "extractor_", None))
        names = getattr(self, "feature_names_in_", None)
        due = None if names is None else tuple(names)
        check_names("features", names_of(features), due, "the release")
        matrix = check_features(features, self.n_features_in_)
        if self.preprocessor_ is not None:
            matrix = self.preprocessor_.transform(matrix)
        return clipped(matrix, self.feature_clip_norm_)


class Scored:
    """scikit-learn's ``score``, once no label is missing; stands before the mixin that has it."""

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy, or of numbers R2, on labelled records, as scikit-learn does.

        Raises:
            InvalidInputError: A missing label (names the record), or records that cannot be predicted.

        """
        refuse_missing(y)
        return float(super().score(X, y, sample_weight))  # type: ignore[misc]


class LinearClassifier(Scored, ClassifierMixin, ReleaseModel):  # type: ignore[misc]
    """A linear classifier on clipped features; base of the learners.

    Attributes:
        coef_: (K, d) weights.
        intercept_: (K,) intercepts.
        logit_scale_: Factor from decision values to logits, at least 0.
        classes_: (K,) classes, in the release's order.

    And those of ``ReleaseModel``.

    """

    coef_: Matrix
    intercept_: Vector
    logit_scale_: float
    classes_: NDArray[Any]

    def _keep(
        self, release: ReleaseLike, coef: Matrix, intercept: Vector, logit_scale: float = 1.0
    ) -> None:
        refuse_numbers(release)
        self._remember(release)
        self.coef_, self.intercept_, self.logit_scale_ = coef, intercept, logit_scale
        self.classes_ = np.array(release.classes)

    def decision_function(self, features: ArrayLike) -> Vector:
        """Score every class.

        Args:
            features: (count, d) finite real numbers; or raw records (a frame of the extractor's table,
                a list of texts or of images), to which the extractor that the release names is applied.

        Returns:
            (count, K) scores; for two classes (count,), the second's minus the first's, as in
            scikit-learn. Of several labels the (count, K) logits of each.

        Raises:
            InvalidInputError: Another shape, or a value that is not finite (names the row).

        """
        scores = self._scores(features)
        two = scores.shape[1] == 2 and self.target_ != "multilabel"
        return scores[:, 1] - scores[:, 0] if two else scores

    def predict(self, features: ArrayLike) -> NDArray[Any]:
        """Return the (count,) classes of highest score; arguments as ``decision_function``.

        Of several labels: (count, K) integers, 1 for each label that is likelier than not, of which a
        record may have any number. ``score`` is then the share of the records whose labels are all
        right, as in scikit-learn.
        """
        scores = self._scores(features)
        if self.target_ == "multilabel":
            return np.asarray(scores > 0, dtype=np.int64)
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def predict_proba(self, features: ArrayLike) -> Matrix:
        """Return (count, K) probabilities: the softmax of ``logit_scale_`` times the scores.

        ``NoiseAwareClassifier`` finds ``logit_scale_`` from the release, so that they are calibrated
        as far as the release allows; for the other learners it is 1, and nothing calibrates them.
        Of several labels: the probability of each. Arguments as ``decision_function``.
        """
        scores = self._scores(features)
        if self.target_ == "multilabel":
            return np.asarray(expit(scores))
        return np.asarray(softmax(self.logit_scale_ * scores, axis=1))

    def _scores(self, features: ArrayLike) -> Matrix:
        return np.asarray(self._records(features) @ self.coef_.T + self.intercept_)


class LinearRegressor(Scored, RegressorMixin, ReleaseModel):  # type: ignore[misc]
    """A linear model of numbers; base of the learners of regression.

    Attributes:
        coef_: (J, d) coefficients, in the targets' units.
        intercept_: (J,) intercepts.
        target_bounds_: (J, 2) public bounds of the targets; predictions are clamped to them.
        output_names_: J names, as the release gives them.

    And those of ``ReleaseModel``.

    """

    coef_: Matrix
    intercept_: Vector
    target_bounds_: Matrix
    output_names_: tuple[int, ...] | tuple[str, ...]

    def _keep(self, release: ReleaseLike, coef: Matrix, intercept: Vector) -> None:
        """Keep coefficients of targets scaled to [-1, 1], in the targets' units."""
        self._remember(release)
        self.target_bounds_ = target_bounds(release)
        self.output_names_ = release.classes
        half = self.target_bounds_ @ [-0.5, 0.5]
        self.coef_ = half[:, None] * coef
        self.intercept_ = half * intercept + self.target_bounds_ @ [0.5, 0.5]

    def predict(self, features: ArrayLike) -> Matrix:
        """Predict the targets.

        Args:
            features: (count, d) finite real numbers.

        Returns:
            (count, J) targets, or (count,) for one output, within their public bounds.

        Raises:
            InvalidInputError: Another shape, or a value that is not finite (names the row).

        """
        raw = self._records(features) @ self.coef_.T + self.intercept_
        found = np.clip(raw, self.target_bounds_[:, 0], self.target_bounds_[:, 1])
        return found[:, 0] if found.shape[1] == 1 else found


def target_of(release: ReleaseLike) -> Target:
    """Return what a release's labels are: ``class`` unless its schema says otherwise."""
    target: Target = getattr(facts_of(release), "target", "class")
    return target


def refuse_numbers(release: ReleaseLike) -> None:
    """Refuse a release of regression targets, for learners of classes and their weights."""
    if (target := target_of(release)) == "regression":
        allowed = "classes or weights of classes, or a regressor (--learner noise-aware-regression)"
        _validate.fail("release.target", allowed, target)


def target_bounds(release: ReleaseLike) -> Matrix:
    """Return the (J, 2) public bounds of a regression's targets, or fail."""
    if target_of(release) != "regression":
        _validate.fail("release.target", "regression", repr(target_of(release)))
    return np.array(facts_of(release).target_bounds, dtype=np.float64)


def facts_of(release: ReleaseLike) -> Any:
    """Return whatever holds the target: a release's schema, or a release-like object itself."""
    return getattr(getattr(release, "certificate", None), "data_schema", release)


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


def check_prior(given: ArrayLike | None, num_classes: int) -> Vector | None:
    """Return a class prior that adds up to 1, or None for none."""
    if given is None:
        return None
    allowed = f"uniform, counts, estimated, or {num_classes} numbers, none negative and not all 0"
    try:
        prior = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        _validate.fail("class_prior", allowed, repr(given))
    if prior.shape != (num_classes,) or not ((prior >= 0).all() and 0 < prior.sum() < np.inf):
        _validate.fail("class_prior", allowed, prior)
    # A class of prior 0 is never predicted, with finite numbers.
    return np.asarray(np.maximum(prior / prior.sum(), _LEAST_PRIOR))
