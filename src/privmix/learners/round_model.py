"""Records of an ``adaptive`` release: class means after the classifier that its rounds have trained."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from privmix.learners.adaptive import learn_rounds
from privmix.learners.base import ReleaseLike, Vector
from privmix.learners.moments import RowMoments
from privmix.learners.record_model import ClassModel, common_norm, intercept_of, scaled_to_trace
from privmix.publishing.release import Release
from privmix.theory.spectrum import signal_variances

# Share of the records' variance that class means make up. Rounds show how classes are told apart, not
# how far apart they are; on training records set aside, 0.3 was better than 0.5 for logistic regression.
_BETWEEN = 0.3


def round_model(release: ReleaseLike, prior: Vector) -> ClassModel:
    """Fit Gaussian classes to the classifier that the rounds have trained.

    For classes of covariance S the best linear classifier has weights S^-1 d_k, with d_k the class means
    less their mean. The signed rows show S through much noise, and S w_k would show little else; of w_k,
    S^(1/2) w_k and S w_k, the second was nearest to class means and served learners best, on training
    records set aside. The intercept's coordinate shows the mean record and is left out.
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
    weights = learnt.coef[:, :width]
    weights = weights - prior @ weights
    eigenvalues, basis = np.linalg.eigh(gram[:width, :width] - np.outer(mean, mean))
    variances = signal_variances(eigenvalues, noise, rows.count)
    norm = common_norm(release)
    if norm is not None:
        variances = scaled_to_trace(variances, norm**2 - float(mean @ mean))
    trace = float(variances.sum())
    offsets = (weights @ basis) * np.sqrt(variances)
    square = float(prior @ (offsets**2).sum(axis=1))
    offsets *= np.sqrt(_BETWEEN * trace / square) if square > 0 else 0.0
    rest, axes = np.linalg.eigh(np.diag(variances) - (offsets.T * prior) @ offsets)
    spread = scaled_to_trace(np.maximum(rest, 0.0), (1 - _BETWEEN) * trace)
    return ClassModel(prior, mean + offsets @ basis.T, np.sqrt(spread), basis @ axes, norm)
