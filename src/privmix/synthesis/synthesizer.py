"""Draw synthetic records from a release: labelled records that any learner can be fitted to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix import _validate
from privmix.features.decoding import (
    TableDecoder,
    cannot_decode,
    constant_weights,
    exact_coordinates,
)
from privmix.features.tabular import TabularExtractor
from privmix.learners.adaptive import AdaptiveClassifier, read_rounds
from privmix.learners.base import (
    LinearClassifier,
    Matrix,
    ReleaseOrFolder,
    as_release,
    is_checked,
    target_of,
)
from privmix.learners.noise_aware import NoiseAwareClassifier
from privmix.learners.record_norm import intercept_of
from privmix.learners.regression import REGRESSION_DESIGNS
from privmix.preprocess import Preprocessor
from privmix.preprocess.inverse import Inverse, radii
from privmix.running.resources import one_blas_thread
from privmix.schema import TableSchema, Target
from privmix.synthesis.labels import OwnLabels, draw_several
from privmix.synthesis.model import (
    DESIGNS,
    ClassModel,
    TargetModel,
    class_prior,
    draw_classes,
)
from privmix.synthesis.records import (
    Chunk,
    Lengths,
    Space,
    SyntheticFacts,
    SyntheticRecords,
)
from privmix.synthesis.round_model import all_records, round_model

_CHUNK = 4096
_PILOT = 4096
_PILOT_PER_CLASS = 256
# With more classes than this, a table's shares are matched for all of them together.
_MOST_GROUPS = 16
_PILOT_STREAM = 2**40
# Rows that the classifier labels are drawn until classes have their shares, but not of a class that would take more
# stretches than these: one that half of the rows are to be of, and fewer than one record in 800 is.
_MOST_STRETCHES = 400
_MORE_ROWS = 1.2
_LEAST_SHARE = 1e-9
# One word of the generator's: of longer seeds some would share their words with a later stretch of others.
_SEEDS = 2**32 - 1
# Numbers whose spread nothing shows are spread until this share of them leaves the bounds.
_BEYOND_BOUNDS = 0.05

_ROUNDS_NOTE = (
    "the rounds of an adaptive release tell classes apart better than they show them: for records that "
    "any learner can use, plan a release with design hybrid"
)

_UNIFORM_NOTE = "the release does not tell the classes' shares: they are drawn equally often, unless class_prior states others"

Prior = ArrayLike | Literal["counts", "estimated", "uniform"] | None


def synthesize(
    release: ReleaseOrFolder,
    num_records: int,
    *,
    seed: int = 0,
    class_prior: Prior = None,
    label: str = "label",
) -> SyntheticRecords:
    """Draw labelled records from the population that a release describes.

    They are post-processing of published rows: they cost no budget and read no private record.
    Class means, the records' covariance and the classes' shares are the noise-aware learners'
    estimates; see ``privmix.synthesis.model``. Rows of a table get their labels from the release's own classifier
    (``privmix.synthesis.labels``), unless a step before mixing cannot be undone, the design is ``stratified`` or the
    classifier has learnt nothing; and so do, of an ``adaptive`` release, all records with several labels (each by
    its own probability) or weights of classes (the probabilities). A record drawn resembles the records, it is none
    of them, and it is no better protected or worse than the release.

    Args:
        release: A release, or its folder, of any design.
        num_records: How many records to draw; nothing to do with how many there were.
        seed: An integer from 0 to 2^32 - 1. The same release, number and seed give the same bits on one machine.
        class_prior: Shares of the classes among the records drawn: K numbers; ``counts`` that the release has paid for;
            ``estimated`` from label weights or rounds; ``uniform``; None takes the first of these that
            the release allows, and the schema's ``class_balance``, if it states shares, before estimates. Where
            the release tells the records' own shares, other ones change how many of each class are drawn, and
            nothing in a class; where it does not, they are taken for the records' own.
        label: Name of the label column, where there is one.

    Returns:
        Records in memory. :class:`Synthesizer` yields them in stretches.

    Raises:
        InvalidInputError: Another design or prior, rows that hold every record, rounds of numbers, or rounds
            of several or soft labels after a step that cannot be undone.

    """
    source = Synthesizer(release, seed=seed, class_prior=class_prior, label=label)
    drawn = Chunk.concatenated(list(source.chunks(num_records)))
    return SyntheticRecords(
        labels=drawn.labels,
        facts=source.facts(len(drawn.labels)),
        names=source.names,
        feature_names=source.feature_names,
        table=drawn.table,
        vectors=drawn.features if drawn.table is None else None,
        schema=source.table_schema,
    )


class Synthesizer:
    """A source of synthetic records, stretch by stretch; arguments as :func:`synthesize` has them.

    Attributes:
        release: The release.
        names: Names of the label columns.
        table_schema: Columns of the rows, where they are decoded; else None.
        image_shape: (channels, height, width) of features that are pixels; else None.

    """

    _classifier: LinearClassifier | None = None  # the release's own, where it gives the labels
    _prior_source: str | None = None

    def __init__(
        self,
        release: ReleaseOrFolder,
        *,
        seed: int = 0,
        class_prior: ArrayLike | str | None = None,
        label: str = "label",
    ) -> None:
        self.release = as_release(release)
        self.seed = _validate.integer("seed", seed, at_least=0, at_most=_SEEDS)
        label = _validate.name("label", label)
        self._target: Target = target_of(self.release)
        self._table = getattr(getattr(self.release, "schema", None), "table", None)
        self._classes = np.array(self.release.classes)
        self._prior = np.empty(0)
        self._inverse, self._is_preprocessed = self._undoing()
        with one_blas_thread():  # so that bits do not depend on how many there are
            self._model = self._estimated(class_prior)
        several = self._target in ("multilabel", "soft") or len(self.release.classes) > 1
        outputs = tuple(map(str, self.release.classes))
        self.names = (label,) if self._target == "class" else outputs if several else (label,)
        reason = None if self._table is None else cannot_decode(self._table)
        decodes = self._table is not None and reason is None and not self._is_preprocessed
        self.table_schema = self._table if decodes else None
        self._notes: tuple[str, ...] = ()
        if reason is not None:
            self._notes += (f"features, no table: {reason}",)
        if self.release.design == "adaptive" and self._table is None and self._target == "class":
            self._notes += (_ROUNDS_NOTE,)
        if class_prior is None and self._prior_source == "uniform":
            self._notes += (_UNIFORM_NOTE,)
        extractor = getattr(getattr(self.release, "certificate", None), "extractor", None)
        self.image_shape: tuple[int, int, int] | None = None
        pixels = extractor is not None and extractor.name == "pixels"
        if extractor is not None and pixels and not self._is_preprocessed:
            size = int(extractor.parameters["size"])
            self.image_shape = (int(extractor.parameters["channels"]), size, size)
        self._radius: float | None = None
        self._lengths: Lengths = "known"
        self._thresholds: NDArray[np.float64] | None = None
        self._decoder: TableDecoder | None = None
        self._own_labels: OwnLabels | None = None
        with one_blas_thread():
            self._prepare()

    def _estimated(self, prior: ArrayLike | str | None) -> ClassModel | TargetModel:
        release = self.release
        if self._target == "class":
            return self._classes_of(prior)
        if prior is not None:
            _validate.fail("class_prior", f"nothing for target {self._target}", "one")
        if release.design == "adaptive" and self._target != "regression":
            if self._is_preprocessed:
                allowed = "steps that can be undone, for labels that the rounds' classifier gives"
                _validate.fail("release.preprocessor", allowed, "one that cannot")
            self._classifier, self._prior = AdaptiveClassifier().fit(release), np.ones(1)
            return all_records(release)
        if release.design not in REGRESSION_DESIGNS:
            designs = ", ".join(REGRESSION_DESIGNS)
            allowed = f"one of {designs} for target {self._target}: plan with --design signed"
            _validate.fail("release.design", allowed, repr(release.design))
        plain = getattr(release, "preprocessor", None) is None
        table: TableSchema | None = self._table if plain else None
        return TargetModel.of(release, None if table is None else constant_weights(table))

    def _classes_of(self, prior: ArrayLike | str | None) -> ClassModel:
        """Estimate classes, and find the classifier that labels a table's rows, if there is one."""
        release = self.release
        _validate.one_of("release.design", release.design, (*DESIGNS, "adaptive"))
        given = prior if prior is None or isinstance(prior, str) else _numbers(prior)
        rounds = cache(partial(read_rounds, release))  # minutes for thousands of features
        shares, source = class_prior(release, given, rounds)
        self._prior, self._prior_source = shares, source
        if given is not None:
            shares, source = class_prior(release, None, rounds)
        if source == "uniform":  # nothing tells: those asked for are the records'
            shares = self._prior
        labels_rows = self._table is not None and not self._is_preprocessed
        if release.design == "adaptive":
            if labels_rows:
                self._classifier = AdaptiveClassifier.of_rounds(release, rounds())
            return round_model(release, shares, rounds())
        if labels_rows and release.design != "stratified":  # whose sums do not show how rows vary
            known = NoiseAwareClassifier().fit(release)
            self._classifier = known if known.coef_.any() else None  # else it has learnt nothing
        return ClassModel.of(release, shares)

    def _undoing(self) -> tuple[Inverse | None, bool]:
        preprocessor: Preprocessor | None = getattr(self.release, "preprocessor", None)
        if preprocessor is None:
            return None, False
        inverse = Inverse.of(preprocessor)
        return inverse, inverse is None

    def _prepare(self) -> None:
        """Find lengths, shares of categories and thresholds of labels on a draw of their own."""
        random = np.random.Generator(np.random.PCG64([self.seed, _PILOT_STREAM]))
        model, groups, count = self._model, 1, _PILOT
        if isinstance(model, ClassModel):
            if len(model.prior) <= _MOST_GROUPS:
                groups = len(model.prior)
            count = max(_PILOT, _PILOT_PER_CLASS * groups)
            model = replace(model, prior=np.full(len(model.prior), 1 / len(model.prior)))
        mixed, labels = model.draw(count, random)
        self._find_lengths(mixed)
        self._num_groups = groups
        if self.table_schema is not None:
            members = self._groups(labels)
            vectors = self._undo(mixed)
            weights = np.full(count, 1 / count)
            if isinstance(self._model, ClassModel):
                weights = self._model.prior[labels] / self._model.prior[labels].sum()
            self._decoder = TableDecoder.fit(self.table_schema, vectors, members, groups, weights)
        if self._target == "multilabel" and isinstance(model, TargetModel):
            shares = np.clip(model.targets_mean, 0.0, 1.0)
            found = self._stretch(mixed, labels).labels
            self._thresholds = np.array(
                [np.quantile(y, 1 - s) for y, s in zip(found.T, shares, strict=True)]
            )
        if self._target == "class" and self._classifier is not None:
            assert isinstance(self._model, ClassModel)
            some = self._stretch(*self._model.draw(count, random))
            self._own_labels = OwnLabels.fit(
                self._classifier, self.features_of(some), self._model.prior
            )

    def _groups(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        return labels if self._num_groups > 1 else np.zeros(len(labels), dtype=np.int64)

    def _find_lengths(self, mixed: Matrix) -> None:
        """Find the radius at which public facts about the vectors hold, where a step has lost it."""
        inverse = self._inverse
        if inverse is None or not inverse.loses_lengths:
            return
        self._lengths = "clip norm"
        last, directions = inverse.stretches[-1], inverse.directions(mixed)
        if self.table_schema is not None:
            exact = exact_coordinates(self.table_schema)
            if exact.any():
                # Columns with a part of norm 1 show how far a record is from the mean.
                norm = float(np.sqrt(self._exact_columns()))
                found = radii(last.offset[exact], directions[:, exact], norm)
                self._radius, self._lengths = float(np.median(found)), "known"
            else:
                self._radius, self._lengths = _within(last.offset, directions), "bounds"
        elif self.image_shape is not None:
            # Values in [0, 1] of mean c have a variance of at most c (1 - c).
            mean = np.clip(last.offset, 0.0, 1.0)
            self._radius, self._lengths = float(np.sqrt((mean * (1 - mean)).sum())), "bounds"

    def _exact_columns(self) -> int:
        assert self.table_schema is not None
        exact, start, count = exact_coordinates(self.table_schema), 0, 0
        for column in self.table_schema.columns:
            count += bool(exact[start])
            start += column.width
        return count + int(self.table_schema.constant)

    def _undo(self, mixed: Matrix) -> Matrix:
        vectors = mixed if self._inverse is None else self._inverse.undo(mixed, self._radius)
        if vectors.shape[1] < self.num_features:  # what was mixed had a constant at its end
            constant = np.full((len(vectors), 1), intercept_of(self.release) or 0.0)
            vectors = np.hstack([vectors, constant])
        return np.clip(vectors, 0.0, 1.0) if self.image_shape is not None else vectors

    def chunks(self, num_records: int) -> Iterator[Chunk]:
        """Yield stretches of records, at most 4,096 at a time, ``num_records`` in all."""
        num_records = _validate.size("num_records", num_records)
        for number, start in enumerate(range(0, num_records, _CHUNK)):
            with one_blas_thread():
                chunk = self._chunk(number, min(_CHUNK, num_records - start))
            yield chunk

    def _chunk(self, number: int, count: int) -> Chunk:
        random = np.random.Generator(np.random.PCG64([self.seed, number]))
        if self._own_labels is not None:
            chunk = self._labelled_by_classifier(count, random)
            return chunk._replace(labels=self._labelled(chunk.labels))
        model = self._model
        if isinstance(model, ClassModel):
            model = replace(model, prior=self._prior)
        chunk = self._stretch(*model.draw(count, random))
        if self._target == "class" or self._classifier is None:
            return chunk._replace(labels=self._labelled(chunk.labels))
        given = self._classifier.predict_proba(self.features_of(chunk))
        if self._target == "soft":
            return chunk._replace(labels=given)
        most = self.release.schema.max_labels  # type: ignore[attr-defined]
        return chunk._replace(labels=draw_several(given, most, random))

    def _stretch(self, mixed: Matrix, labels: NDArray[Any]) -> Chunk:
        """Return records as mixed in the form that they had; labels are class indices, or values."""
        vectors = self._undo(mixed)
        if self._decoder is None:
            return Chunk(vectors.astype(np.float32), labels, None)
        table = self._decoder.decode(vectors, self._groups(labels))
        chunk = Chunk(vectors.astype(np.float32), labels, table)
        if isinstance(self._model, TargetModel):
            # Targets follow the row that a vector has become: its numbers lie as their bins say, and no category is half.
            moved = self._mixed(self.features_of(chunk)) - mixed
            chunk = chunk._replace(labels=labels + moved @ self._model.coef.T)
        return chunk

    def _mixed(self, features: NDArray[np.float32]) -> Matrix:
        """Return features as they are mixed."""
        preprocessor: Preprocessor | None = getattr(self.release, "preprocessor", None)
        found = features if preprocessor is None else preprocessor.transform(features)
        return np.asarray(found, dtype=np.float64)

    def _labelled_by_classifier(self, count: int, random: np.random.Generator) -> Chunk:
        """Draw rows, and labels of the release's classifier, until there are as many of each class as there should be.

        So of a class rows are drawn as the classifier has them, whatever the classes' shares. Of a class that
        is too rare for that (``_MOST_STRETCHES``) all are as its Gaussian has them.
        """
        assert isinstance(self._model, ClassModel) and self._own_labels is not None
        model, due = self._model, draw_classes(self._prior, count, random)
        left = np.bincount(due, minlength=len(self._prior))
        often = left <= _MOST_STRETCHES * _CHUNK * model.prior
        rare, left = np.where(often, 0, left), np.where(often, left, 0)
        parts = []
        for _ in range(2 * _MOST_STRETCHES):
            if not left.any():
                break
            wanted = _MORE_ROWS * float((left / np.maximum(model.prior, _LEAST_SHARE)).max())
            stretch = self._stretch(*model.draw(int(min(wanted + 1, _CHUNK)), random))
            labels = self._own_labels.draw(self.features_of(stretch), random)
            kept = np.flatnonzero(_places(labels) < left[labels])
            left -= np.bincount(labels[kept], minlength=len(left))
            parts.append(stretch._replace(labels=labels).take(kept))
        rest = np.repeat(np.arange(len(left)), left + rare)
        parts.append(self._stretch(model.members(rest, random), rest))
        drawn = Chunk.concatenated(parts)
        order = np.empty(count, dtype=np.int64)
        order[np.argsort(due, kind="stable")] = np.argsort(drawn.labels, kind="stable")
        return drawn.take(order)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of features: those that the schema states for records as given, or else numbered."""
        stated = getattr(getattr(self.release, "schema", None), "feature_names", None)
        if stated is not None and len(stated) == self.num_features:
            return tuple(stated)
        return tuple(f"x{i}" for i in range(self.num_features))

    @property
    def num_features(self) -> int:
        """Width of a feature vector."""
        if self._inverse is not None:
            return len(self._inverse.stretches[-1].offset)
        return self.release.num_features

    def features_of(self, chunk: Chunk) -> NDArray[np.float32]:
        """Return a stretch's feature vectors; of a table's rows, those of the ``tabular`` extractor."""
        if chunk.table is None:
            return chunk.features
        assert self.table_schema is not None
        return TabularExtractor(self.table_schema).transform(chunk.table)

    def images_of(self, chunk: Chunk) -> NDArray[np.uint8]:
        """Return a stretch's images, (count, height, width) or, of colour, (count, height, width, 3)."""
        assert self.image_shape is not None
        pixels = np.rint(255 * chunk.features).astype(np.uint8).reshape(-1, *self.image_shape)
        return pixels[:, 0] if self.image_shape[0] == 1 else pixels.transpose(0, 2, 3, 1)

    def _labelled(self, drawn: NDArray[Any]) -> NDArray[Any]:
        if self._target == "class":
            return np.asarray(self._classes[drawn])
        if self._target == "multilabel":
            return np.asarray(drawn >= self._thresholds, dtype=np.int64)
        if self._target == "soft":
            weights = np.maximum(drawn, 0.0)
            total = weights.sum(axis=1, keepdims=True)
            even = 1 / drawn.shape[1]
            return np.asarray(np.where(total > 0, weights / np.where(total > 0, total, 1.0), even))
        bounds = np.array(self.release.schema.target_bounds)  # type: ignore[attr-defined]
        low, high = bounds.T
        numbers = low + (np.clip(drawn, -1.0, 1.0) + 1) / 2 * (high - low)
        numbers = np.clip(numbers, low, high)
        return np.asarray(numbers[:, 0] if numbers.shape[1] == 1 else numbers)

    def facts(self, num_records: int) -> SyntheticFacts:
        """Return what to say beside ``num_records`` records."""
        release = self.release
        certificate = getattr(release, "certificate", None)
        folder = getattr(release, "folder", None)
        space: Space = "preprocessed" if self._is_preprocessed else "features"
        return SyntheticFacts(
            release=None if folder is None else folder.resolve().name,
            certificate_digest=getattr(release, "certificate_digest", None),
            guarantee=None if certificate is None else certificate.guarantee.statement,
            private=certificate is not None and certificate.private,
            verified=is_checked(release),
            target=self._target,
            label_columns=self.names,
            num_records=num_records,
            seed=self.seed,
            class_prior=self._prior_source,
            space="table" if self.table_schema is not None else space,
            lengths=self._lengths,
            notes=self._notes,
            extractor=None if certificate is None else certificate.extractor,
            privmix_version=version("privmix"),
        )


def _numbers(prior: ArrayLike) -> NDArray[np.float64]:
    try:
        return np.asarray(prior, dtype=np.float64)
    except (TypeError, ValueError):
        _validate.fail("class_prior", "numbers, one a class", type(prior).__name__)


def _places(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many of the same label come before each."""
    order = np.argsort(labels, kind="stable")
    places = np.empty(len(labels), dtype=np.int64)
    places[order] = np.arange(len(labels)) - np.searchsorted(labels[order], labels[order])
    return places


def _within(offset: Matrix, directions: Matrix) -> float:
    """Return the radius at which a share of ``_BEYOND_BOUNDS`` of all values is beyond [-1, 1]."""
    room = np.where(directions > 0, 1 - offset, 1 + offset)
    steps = np.abs(directions)
    reach = np.maximum(room, 0.0) / np.maximum(steps, np.finfo(float).tiny)
    return float(np.quantile(reach, _BEYOND_BOUNDS))
