"""The mean record of an ``adaptive`` release: what its signed rows say of it, through much noise."""

from __future__ import annotations

from typing import Any

import numpy as np

from privmix.learners.base import Vector
from privmix.learners.moments import RowMoments
from privmix.learners.record_norm import intercept_of, length_coordinate
from privmix.publishing.release import Release

_TINY = float(np.finfo(float).tiny)
# Records' lengths vary by about this share of their mean.
_LENGTHS_VARIATION = 0.2
# And are correlated by about this much with a coordinate: numbers with long tails make records long.
_SKEWNESS = 0.3


def mean_record(release: Release) -> Vector:
    """Return the mean of records as they were mixed, (d,), without their intercept.

    Their products with the intercept, a constant, show it.

    A constant from before they were scaled, at ``length_coordinate``, is larger as a rule, and shows means with
    less noise, though of records weighed by how much they were scaled. Its own mean is near its root mean
    square, since it varies little. Estimates are weighed by their errors.

    Records are centred before they are scaled, as a rule, so that their mean is short and its noise may be
    longer: it is shrunk by what its square has beyond that noise (James and Stein 1961).
    """
    constant, lengths = intercept_of(release), length_coordinate(release)
    assert constant is not None
    table: Any = release.tables[0]
    rows = RowMoments.of(table)
    gram = table.mix_size / rows.count * rows.gram
    noise = table.mix_size * table.feature_noise_stddev**2
    diagonal = np.diag(gram)
    mean = gram[-1, :-1] / constant
    errors = diagonal[:-1] * diagonal[-1] / (rows.count * constant**2)
    centred = np.arange(len(mean)) != lengths
    if lengths is not None:
        signal = np.maximum(diagonal[:-1] - noise, 0.0)
        root = np.sqrt(max(signal[lengths], _TINY) / (1 + _LENGTHS_VARIATION**2))
        error = (
            diagonal[lengths] ** 2 / (2 * rows.count * root**2)
            + (_LENGTHS_VARIATION**2 * root) ** 2
        )
        share = error / (error + errors[lengths])
        mean[lengths] = share * mean[lengths] + (1 - share) * root
        others = gram[lengths, :-1] / mean[lengths]
        more = diagonal[:-1] * diagonal[lengths] / (rows.count * mean[lengths] ** 2)
        more += (_SKEWNESS * _LENGTHS_VARIATION) ** 2 * signal
        share = more / (more + errors)
        mean = np.where(centred, share * mean + (1 - share) * others, mean)
        errors = share * errors
    square = float((mean[centred] ** 2).sum())
    gain = max(1 - float(errors[centred].sum()) / max(square, _TINY), 0.0)
    return np.where(centred, gain * mean, mean)
