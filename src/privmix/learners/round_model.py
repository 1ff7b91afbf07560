"""Records of an ``adaptive`` release: class means that fit the classifier its rounds have trained."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from privmix.learners.adaptive import learn_rounds
from privmix.learners.base import Matrix, ReleaseLike, Vector
from privmix.learners.moments import RowMoments
from privmix.learners.record_model import ClassModel, common_norm, intercept_of, scaled_to_trace
from privmix.publishing.release import Release
from privmix.theory.spectrum import signal_variances

_ITERATIONS = 20
# Class means hold at most this share of a record's squared length.
_MOST_BETWEEN = 0.9


def round_model(release: ReleaseLike, prior: Vector) -> ClassModel:
    """Fit Gaussian classes whose best linear classifier is the one that the rounds have trained.

    Classes of covariance S and means m + d_k have logits x' S^-1 d_k + constant; so d_k = S w_k, with w_k
    the classifier's weights less their mean. The records' covariance is S + sum p_k d_k d_k', and the
    signed rows show it. The intercept's coordinate shows the mean record and is left out.
    """
    published = cast(Release, release)
    learnt = learn_rounds(release, None, None)
    rows = RowMoments.of(published.tables[0])
    table: Any = published.tables[0]
    gram = table.mix_size / rows.count * rows.gram
    noise = table.mix_size * table.feature_noise_stddev**2
    width, mean = release.num_features, np.zeros(release.num_features)
    constant = intercept_of(release)
    if constant is not None:
        width -= 1
        mean = gram[-1, :-1] / constant
    weights = learnt.logit_scale * learnt.coef[:, :width]
    weights = weights - prior @ weights
    eigenvalues, basis = np.linalg.eigh(gram[:width, :width] - np.outer(mean, mean))
    variances = signal_variances(eigenvalues, noise, rows.count)
    norm = common_norm(release)
    length = release.feature_clip_norm**2 if norm is None else norm**2
    room = max(length - float(mean @ mean), 0.0)
    if norm is not None:
        variances = scaled_to_trace(variances, room)
    offsets = _offsets(variances, weights @ basis, prior, _MOST_BETWEEN * float(variances.sum()))
    rest, axes = np.linalg.eigh(np.diag(variances) - (offsets.T * prior) @ offsets)
    left = float(variances.sum()) - float(prior @ (offsets**2).sum(axis=1))
    spread = scaled_to_trace(np.maximum(rest, 0.0), left)
    return ClassModel(prior, mean + offsets @ basis.T, np.sqrt(spread), basis @ axes, norm)


def _offsets(variances: Vector, weights: Matrix, prior: Vector, most: float) -> Matrix:
    """Solve d_k = S w_k, S = A - sum p_k d_k d_k', by steps that halve what is left.

    In the eigenbasis of A, with the variances ``variances``.
    """
    offsets = weights * variances
    for _ in range(_ITERATIONS):
        square = float(prior @ (offsets**2).sum(axis=1))
        if square > most:
            offsets = offsets * np.sqrt(most / square)
        scatter = (weights @ offsets.T * prior) @ offsets
        offsets = (offsets + weights * variances - scatter) / 2
    square = float(prior @ (offsets**2).sum(axis=1))
    shorter = np.sqrt(min(1.0, most / max(square, np.finfo(float).tiny)))
    return np.asarray(offsets * shorter)
