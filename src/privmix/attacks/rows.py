"""Membership by the published rows: the likelihood ratio of each record, by the release's design.

Letters as in docs/theory/notation.md: z a row times its divisor, v a record's bounded features and its
label, q the probability that it entered a row, D the covariance of the noise. Other records are
unknown, or their coins are: what they add is taken as normal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import softmax

from privmix import _validate
from privmix.clipping import clipped
from privmix.inputs.labels import match_labels
from privmix.mechanism import MixtureConfig, ResidualConfig
from privmix.publishing.release import Release, Table

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

_CANDIDATES = 256  # scored together: their products with all rows are in memory
# Designs of which the mean row holds all that matters: a record adds its share to it.
_LINEAR = ("poisson", "hierarchical", "uniform", "transposed")


@dataclass(frozen=True, eq=False)
class Background:
    """What the attacker knows of the other records.

    Attributes:
        features: (count, d) records as they were given to the release, before preprocessing.
        labels: (count,) theirs.
        num_records: How many records took part beside the candidate. None: the records above are
            they, known one by one, the strongest attacker that differential privacy allows for. With a number:
            they are others, of the same population.

    """

    features: NDArray[np.floating]
    labels: NDArray[np.generic]
    num_records: float | None = None

    @property
    def scale(self) -> float:
        """Others that took part for each record that is known."""
        return 1.0 if self.num_records is None else self.num_records / len(self.features)

    @property
    def spread(self) -> float:
        """How often the variance of one record counts in what is not known of the others' sum.

        It is their number, and as much again for each time that a known record stands for another.
        """
        return 0.0 if self.num_records is None else self.num_records * (1 + self.scale)


class _Records(NamedTuple):
    """Records as they were mixed: (count, d) features, and (count,) class indices."""

    features: Matrix
    labels: NDArray[np.int32]

    def joint(self, table: Table) -> Matrix:
        """Return the vectors that a record adds to a row: features, and its label where that is mixed."""
        if table.config.labels != "mixed":
            return self.features
        one_hot = np.eye(table.num_classes)[self.labels] * table.schema.label_clip_norm
        return np.hstack([self.features, one_hot])


def row_scores(
    release: Release, features: ArrayLike, labels: ArrayLike, background: Background
) -> Vector:
    """Score records by the likelihood ratio of the rows with them and without.

    The attacker knows the release, its certificate, the candidate with its label, and ``background``. She does not
    know who entered which row. Scores of the tables of a release add up. By design:

    - ``signed``: rows are independent, and each has the ratio 1 - q + q exp(-a/2) cosh(u), with
      u = v' B^-1 z, a = v' B^-1 v and B = D + q sum_j v_j v_j', the others' part taken as normal: for
      weak signals a chi-square statistic. What unknown records' squares add to all rows alike makes it
      count for less.
    - ``poisson`` with all others known: 1 - q + q exp(u - a/2), z less what is expected of them.
    - ``stratified``, and ``poisson``, ``hierarchical``, ``uniform`` and ``transposed`` otherwise: the
      mean row (``stratified``: of the record's class), which holds q v of the record. Its covariance
      is that of the noise, the others' coins and the others' values: a linear statistic.
    - ``adaptive``: each round's rows hold r v', with the residual r that the round's public weights
      give the record: a linear statistic against the noise; of unknown records in the mean of all rounds,
      against what their values add to it as well.

    What charged preprocessing published is used to treat the records, not as evidence.

    Args:
        release: A release of classes.
        features: (count, d) candidates, as they would be given to the release.
        labels: (count,) their labels.
        background: The other records, or others like them.

    Returns:
        (count,) log-likelihood ratios.

    """
    if release.schema.target != "class":
        _validate.fail("release.target", "class", repr(release.schema.target))
    candidates = _as_mixed(release, features, labels)
    others = _as_mixed(release, background.features, background.labels)
    total = np.zeros(len(candidates.features))
    for table in release.tables:
        if isinstance(table.config, ResidualConfig):
            total += _rounds(release, table.config, candidates, others, background)
        elif table.config.design == "stratified":
            total += _by_class(table, candidates, others, background)
        elif table.config.design == "signed" or (
            table.config.design == "poisson" and background.num_records is None
        ):
            total += _row_by_row(table, candidates, others, background)
        else:
            _validate.one_of("release.design", table.config.design, _LINEAR)
            total += _mean_row(
                table,
                candidates.joint(table),
                others.joint(table),
                _sums(table).mean(axis=0),
                background,
            )
    return total


def _as_mixed(release: Release, features: ArrayLike, labels: ArrayLike) -> _Records:
    rows, steps = np.asarray(features, dtype=np.float64), release.preprocessor
    width = release.num_features if steps is None else steps.num_inputs
    if rows.ndim != 2 or rows.shape[1] != width:
        _validate.fail("features", f"shape (records, {width})", rows.shape)
    if steps is not None:
        rows = steps.transform(rows)
    places = match_labels(labels, release.classes)
    return _Records(clipped(rows, release.feature_clip_norm), places)


def _sums(table: Table) -> Matrix:
    """Return rows times their divisor: noisy sums of records, (rows, width)."""
    rows = table.features.astype(np.float64)
    if table.label_weights is not None:
        rows = np.hstack([rows, table.label_weights])
    return np.asarray(rows * table.config.divisor)


def _noise_variances(table: Table) -> Vector:
    widths = [(table.feature_noise_stddev, table.num_features)]
    if table.label_noise_stddev is not None:
        widths.append((table.label_noise_stddev, table.num_classes))
    return np.concatenate([np.full(k, (s * table.config.divisor) ** 2) for s, k in widths])


def _row_by_row(
    table: Table, candidates: _Records, others: _Records, background: Background
) -> Vector:
    assert isinstance(table.config, MixtureConfig)
    q, known = table.config.inclusion_prob, others.joint(table)
    signed = table.config.design == "signed"
    spread = q if signed else q * (1 - q)
    covariance = np.diag(_noise_variances(table)) + spread * background.scale * known.T @ known
    factor = cho_factor(covariance)
    sums = _sums(table)
    if not signed:
        sums -= q * known.sum(axis=0)
    vectors = candidates.joint(table)
    scores = np.empty(len(vectors))
    with np.errstate(divide="ignore"):  # q = 1: the record is in every row
        log_out, log_in = np.log1p(-q), np.log(q)
    for run in _runs(len(vectors)):
        solved = cho_solve(factor, vectors[run].T)
        u = sums @ solved
        half = np.einsum("ij,ji->i", vectors[run], solved) / 2
        ratio = np.logaddexp(u, -u) - np.log(2) if signed else u
        scores[run] = np.logaddexp(log_out, log_in + ratio - half).sum(axis=0)
        if background.spread:
            # The others' own squares are in all rows alike: per row u^2 varies by 2 a^2, and all
            # rows together by q^2 times the variance of (v_j' B^-1 v)^2 for each unknown record.
            alike = q**2 * background.spread * ((known @ solved) ** 2).var(axis=0)
            scores[run] /= 1 + len(sums) * alike / np.maximum(8 * half**2, 1e-300)
    return scores


def _mean_row(
    table: Table,
    vectors: Matrix,
    known: Matrix,
    mean: Vector,
    background: Background,
    *,
    num_rows: int | None = None,
    within: Matrix | None = None,
) -> Vector:
    """Score vectors by the mean of rows that each of them, and each of the others, enters alike.

    Args:
        table: The table.
        vectors: (count, width) candidates.
        known: (records, width) of the background.
        mean: (width,) the mean of the rows' sums.
        background: Of the other records.
        num_rows: How many rows the mean is of; all of the table's by default.
        within: (width, width) covariance of records; that of ``known`` by default.

    """
    rows = table.num_mixtures if num_rows is None else num_rows
    q = table.config.sampling_prob
    center = known.mean(axis=0) if len(known) else np.zeros(vectors.shape[1])
    if within is None:
        within = _covariance(known - center)
    expected_count = len(known) * background.scale
    moment = expected_count * (within + np.outer(center, center))
    covariance = (np.diag(_noise_variances(table)) + q * (1 - q) * moment) / rows
    share = len(known) / max(len(background.features), 1)
    covariance += q**2 * background.spread * share * within
    solved = cho_solve(cho_factor(covariance), q * vectors.T)
    half = np.einsum("ij,ji->i", q * vectors, solved) / 2
    return np.asarray((mean - q * expected_count * center) @ solved - half)


def _by_class(
    table: Table, candidates: _Records, others: _Records, background: Background
) -> Vector:
    assert table.labels is not None
    sums = _sums(table)
    centred = others.features.copy()
    for k in np.unique(others.labels):
        centred[others.labels == k] -= centred[others.labels == k].mean(axis=0)
    # Of all classes together: one class's records are too few for a covariance of their own.
    within = _covariance(centred)
    scores = np.zeros(len(candidates.labels))
    for k in np.unique(candidates.labels):
        own = candidates.labels == k
        scores[own] = _mean_row(
            table,
            candidates.features[own],
            others.features[others.labels == k],
            sums[table.labels == k].mean(axis=0),
            background,
            num_rows=table.config.rows_per_class,
            within=within,
        )
    return scores


def _rounds(
    release: Release,
    config: ResidualConfig,
    candidates: _Records,
    others: _Records,
    background: Background,
) -> Vector:
    clip_norm = release.feature_clip_norm
    variance = (config.published_stddev(clip_norm, "feature") * config.divisor) ** 2
    squares = (candidates.features**2).sum(axis=1)
    total = np.zeros(len(squares))
    left, own, theirs = [], [], []
    for rows in release.iter_rounds():
        assert rows.weights is not None
        weights = rows.weights.astype(np.float64) / clip_norm
        theirs.append(_residuals(others, weights, config.residual_clip_norm))
        expected = background.scale * theirs[-1].T @ others.features
        own.append(_residuals(candidates, weights, config.residual_clip_norm))
        left.append(rows.features * config.divisor - expected)
        if background.num_records is None:
            u = np.einsum("ik,kj,ij->i", own[-1], left[-1], candidates.features, optimize=True)
            total += (u - (own[-1] ** 2).sum(axis=1) * squares / 2) / variance
    if background.num_records is None:
        return total
    return _mean_round(
        others,
        np.mean(theirs, axis=0),
        candidates,
        np.mean(own, axis=0),
        np.mean(left, axis=0),
        variance / config.num_rounds,
        background.spread,
    )


def _mean_round(
    others: _Records,
    theirs: Matrix,
    candidates: _Records,
    own: Matrix,
    left: Matrix,
    variance: float,
    spread: float,
) -> Vector:
    """Score candidates by the mean of all rounds, which others' values move alike in every round.

    The covariance of r v' is taken as that of r times that of v, entry by entry.
    """
    scales, directions = np.linalg.eigh(theirs.T @ theirs / len(theirs))
    lengths, basis = np.linalg.eigh(others.features.T @ others.features / len(theirs))
    precision = 1 / (variance + spread * np.outer(scales.clip(0), lengths.clip(0)))
    weighed = (directions.T @ left @ basis) * precision
    r, v = own @ directions, candidates.features @ basis
    u = np.einsum("ik,kj,ij->i", r, weighed, v, optimize=True)
    return np.asarray(u - np.einsum("ik,kj,ij->i", r**2, precision, v**2, optimize=True) / 2)


def _residuals(records: _Records, weights: Matrix, clip_norm: float) -> Matrix:
    truth = np.eye(len(weights))[records.labels]
    return clipped(truth - softmax(records.features @ weights.T, axis=1), clip_norm)


def _covariance(centred: Matrix) -> Matrix:
    return np.asarray(centred.T @ centred / max(len(centred), 1))


def _runs(count: int) -> Iterator[slice]:
    for start in range(0, count, _CANDIDATES):
        yield slice(start, min(start + _CANDIDATES, count))
