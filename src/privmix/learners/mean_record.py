"""The mean record of an ``adaptive`` release: what its signed rows say of it, through much noise."""

from __future__ import annotations

from typing import Any

import numpy as np

from privmix.learners.base import Vector
from privmix.learners.moments import RowMoments
from privmix.learners.record_norm import LENGTHS_VARIATION, intercept_of, scaled_constant
from privmix.publishing.release import Release

_TINY = float(np.finfo(float).tiny)
# Lengths are correlated by about this much with a coordinate: numbers with long tails make records long.
_SKEWNESS = 0.3


def mean_record(release: Release) -> Vector:
    """Return the mean of records as they were mixed, (d,), without their intercept.

    Their products with the intercept, a constant, show it. Without one and without a scaled constant
    nothing does, and it is 0.

    A constant from before they were scaled, at ``scaled_constant``, is larger as a rule, and shows means with
    less noise, though of records weighed by how much they were scaled. Its own mean is near its root mean
    square, since it varies little. Estimates are weighed by their errors.

    Records are centred before they are scaled, as a rule, so that their mean is short and its noise may be
    longer: it is shrunk by what its square has beyond that noise (James and Stein 1961).
    """
    constant, scaled = intercept_of(release), scaled_constant(release)
    table: Any = release.tables[0]
    rows = RowMoments.of(table)
    gram = table.mix_size / rows.count * rows.gram
    noise = table.mix_size * table.feature_noise_stddev**2
    diagonal = np.diag(gram)
    width = release.num_features - (constant is not None)
    if constant is None:
        mean, errors = np.zeros(width), np.full(width, release.feature_clip_norm**2)
    else:
        mean = gram[-1, :width] / constant
        errors = diagonal[:width] * diagonal[-1] / (rows.count * constant**2)
    centred = np.ones(len(mean), dtype=bool)
    if scaled is not None:
        at = scaled.position
        centred[at] = False
        signal = np.maximum(diagonal[:width] - noise, 0.0)
        bounds = scaled.least, scaled.most
        root = float(np.clip(np.sqrt(signal[at] / (1 + LENGTHS_VARIATION**2)), *bounds))
        error = diagonal[at] ** 2 / (2 * rows.count * root**2) + (LENGTHS_VARIATION**2 * root) ** 2
        mean[at] = np.clip(_weighed(mean[at], errors[at], root, error), *bounds)
        others = gram[at, :width] / mean[at]
        more = diagonal[:width] * diagonal[at] / (rows.count * mean[at] ** 2)
        more += (_SKEWNESS * LENGTHS_VARIATION) ** 2 * signal
        mean = np.where(centred, _weighed(mean, errors, others, more), mean)
        errors = errors * more / (errors + more)
    square = float((mean[centred] ** 2).sum())
    gain = max(1 - float(errors[centred].sum()) / max(square, _TINY), 0.0)
    return np.asarray(np.where(centred, gain * mean, mean))


def _weighed(one: Any, error: Any, other: Any, other_error: Any) -> Any:
    """Return the mean of two estimates by the variances of their errors."""
    return (other_error * one + error * other) / (error + other_error)
