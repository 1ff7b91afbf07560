"""Records of an ``adaptive`` release: class means after the classifier that its rounds have trained."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from privmix.learners.adaptive import Rounds
from privmix.learners.base import Matrix, ReleaseLike, Vector, facts_of
from privmix.learners.mean_record import mean_record
from privmix.learners.moments import RowMoments
from privmix.learners.record_norm import common_norm
from privmix.publishing.release import Release
from privmix.synthesis.model import ClassModel, scaled_to_trace
from privmix.synthesis.round_boundary import boundary_model
from privmix.synthesis.round_means import Spread, matched_offsets
from privmix.theory.spectrum import signal_variances

_TINY = np.finfo(float).tiny
# Rounds that show how far apart classes are: as few as tell the share to this standard error, at most five.
# Their weights are small, so that a softmax is nearly linear in the scores.
_SHARE_ERROR = 0.02
_MOST_ROUNDS = 5
# Share of the records near boundaries where class means are known: of more, forests on images lose a point.
_MOST_NEAR = 0.6
# No population has more of its variance between classes, or less, however the noise falls.
_SHARES = (0.02, 0.9)


class _ClassSums(NamedTuple):
    """Class means less the mean record, (K, d), as early rounds show them, through noise.

    ``noise`` is (K,), the variance of each coordinate of a class's; ``num_rounds`` that of the rounds.
    """

    offsets: Matrix
    noise: Vector
    num_rounds: int

    def between(self, prior: Vector) -> float:
        """Variance of the records between their classes, without the noise's share."""
        num_classes, width = self.offsets.shape
        left = width * (1 - 1 / num_classes) * self.noise
        return float(prior @ ((self.offsets**2).sum(axis=1) - left))


class _Population(NamedTuple):
    """What signed rows show of the records: mean, (d,), covariance, variances along a basis, and common norm.

    The covariance has ``noise`` on its diagonal; the variances have not.
    """

    mean: Vector
    covariance: Matrix
    noise: float
    variances: Vector
    basis: Matrix
    norm: float | None

    @classmethod
    def of(cls, release: Release) -> _Population:
        table: Any = release.tables[0]
        rows = RowMoments.of(table)
        noise = table.mix_size * table.feature_noise_stddev**2
        mean, norm = mean_record(release), common_norm(release)
        width = len(mean)
        gram = table.mix_size / rows.count * rows.gram
        covariance = gram[:width, :width] - np.outer(mean, mean)
        eigenvalues, basis = np.linalg.eigh(covariance)
        variances = signal_variances(eigenvalues, noise, rows.count)
        if norm is not None:
            variances = scaled_to_trace(variances, norm**2 - float(mean @ mean))
        return cls(mean, covariance, noise, variances, basis, norm)


def all_records(release: ReleaseLike) -> ClassModel:
    """Return the records as one class, as the signed rows show them: labels are for the classifier to give."""
    seen = _Population.of(cast(Release, release))
    stddevs = np.sqrt(seen.variances)
    return ClassModel(np.ones(1), seen.mean[None], stddevs, seen.basis, seen.norm)


def round_model(release: ReleaseLike, prior: Vector, rounds: Rounds) -> ClassModel:
    """Fit Gaussian classes to the classifier that the rounds have trained, and to the rounds themselves.

    For classes of covariance S the best linear classifier has weights S^-1 d_k, with d_k the class means
    less their mean. The signed rows show S through much noise, and S w_k would show little else; of w_k,
    S^(1/2) w_k and S w_k, the second was nearest to class means and served learners best, on training
    records set aside. Means with which records would have left the rounds' rows (``round_means``) are somewhat
    nearer, and the average of both, at one length, served learners better than either. Early rounds, whose
    weights are near 0, are class sums: they show how far apart classes are without bias, and where records are
    many, their means too. An offset is the mean of both kinds, by the noise of the sums and by how far the other
    kind is off beyond that noise. The intercept's coordinate shows the mean record and is left out.

    Of the offsets' square a share k is known, between / (between + noise of all rounds' sums). The likeliest
    means are k times as far apart, in squares, as classes are, and what is not known of them is scatter within
    classes. Networks learn best from those, forests from classes that are as far apart as true ones: the
    geometric mean of both is drawn, sqrt(k).

    Within a class, records have what class means leave of S, as far as these are known. Means that follow noise
    explain nothing; to subtract their scatter would make classes too easy to tell apart, and networks learn
    that noise. So (2k - 1)^2 of it is subtracted.

    Records of a table are all drawn so, as its columns have few values and shapes to be kept; the classifier labels
    them (``labels``). Of others, as many as class means are known, up to three in five, are of classes that
    the classifier tells apart best (``round_boundary``), near their boundaries.
    """
    published = cast(Release, release)
    mechanism: Any = published.certificate.mechanism
    mean, covariance, noise, variances, basis, norm = _Population.of(published)
    width = len(mean)
    weights = rounds.weights[:, :width] / release.feature_clip_norm
    weights = weights - prior @ weights
    trace = float(variances.sum())
    sums = _class_sums(published, prior, mean, covariance - noise * np.eye(width), trace)
    between = float(np.clip(sums.between(prior) / trace, *_SHARES)) * trace if trace > 0 else 0.0
    offsets = _scaled((weights @ basis * np.sqrt(variances)) @ basis.T, prior, between)
    matched = matched_offsets(published, prior, Spread(mean, variances, basis, between))
    offsets = _scaled(offsets + _scaled(matched, prior, between), prior, between)
    # What the sums are off beyond their noise is the error of the classifier's.
    error = ((sums.offsets - offsets) ** 2).mean(axis=1) - sums.noise
    spread = max(float(prior @ error), 0.0)
    gain = spread / np.maximum(spread + sums.noise, _TINY)
    offsets = _scaled(offsets + gain[:, None] * (sums.offsets - offsets), prior, between)
    lost = width * float(prior @ sums.noise) * sums.num_rounds / mechanism.components[1].num_rounds
    known = between / (between + lost) if between > 0 else 0.0
    between *= np.sqrt(known)
    offsets = _scaled(offsets, prior, between)
    along = offsets @ basis
    explained = max(2 * known - 1, 0.0) ** 2
    rest, axes = np.linalg.eigh(np.diag(variances) - explained * (along.T * prior) @ along)
    stddevs = np.sqrt(scaled_to_trace(np.maximum(rest, 0.0), trace - between))
    model = ClassModel(prior, mean + offsets, stddevs, basis @ axes, norm)
    if getattr(facts_of(release), "table", None) is not None:
        return model
    near = boundary_model(model, rounds.scale * weights, Spread(mean, variances, basis, between))
    return replace(model, boundary=near, boundary_share=_MOST_NEAR * explained)


def _scaled(offsets: Matrix, prior: Vector, between: float) -> Matrix:
    """Centre offsets, and scale them to a mean square."""
    offsets = offsets - prior @ offsets
    square = float(prior @ (offsets**2).sum(axis=1))
    return offsets * np.sqrt(between / square) if square > 0 else offsets


def _class_sums(
    release: Release, prior: Vector, mean: Vector, covariance: Matrix, trace: float
) -> _ClassSums:
    """Read class means off the first rounds.

    With weights of zero all residuals e_y - 1/K are clipped alike, by a factor c, and row k is c times
    p_k m_k - m/K, with p_k the class's share, m_k its mean and m that of all. Small weights W take
    S (W_k - mean of W) / K more from it.
    """
    num_classes, width = len(prior), len(mean)
    mechanism: Any = release.certificate.mechanism
    factor = min(1.0, mechanism.components[1].residual_clip_norm / np.sqrt(1 - 1 / num_classes))
    # A class that hardly any record has is read as if it had more: its noise is divided by its share.
    shares = np.maximum(prior, 0.1 / num_classes)
    noise = (release.tables[1].feature_noise_stddev / (factor * shares)) ** 2
    total, count = np.zeros((num_classes, width)), 0
    for rows in itertools.islice(release.iter_rounds(), _MOST_ROUNDS):
        assert rows.weights is not None
        weights = rows.weights[:, :width].astype(np.float64) / release.feature_clip_norm
        weights -= weights.mean(axis=0)
        total += rows.features[:, :width] / factor + weights @ covariance / num_classes
        count += 1
        error = float(prior @ noise) / count * np.sqrt(2 * width / num_classes)
        if error < _SHARE_ERROR * trace:
            break
    offsets = (total / count + mean * (1 / num_classes - prior[:, None])) / shares[:, None]
    return _ClassSums(offsets, noise / count, count)
