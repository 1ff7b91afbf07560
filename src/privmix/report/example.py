"""What a row of a release looks like beside a record: a published row, and a record that is made up."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privmix._validate import FrozenModel
from privmix.publishing.release import Release

_MOST_SHOWN = 64


class RowExample(FrozenModel):
    """A made-up record, its part in a row, and a row that was published. No private record.

    Attributes:
        num_features: Width of a row; the first of its numbers are shown.
        record: A made-up record of the greatest length allowed.
        share: What that record adds to a row.
        row: The first published row.
        share_length: Length of ``share`` over all features: the most that any record adds.
        noise_stddev: Standard deviation of the noise in a single number of the row.
        noise_length: Typical length of the noise over all features.

    """

    num_features: int
    record: tuple[float, ...]
    share: tuple[float, ...]
    row: tuple[float, ...]
    share_length: float
    noise_stddev: float
    noise_length: float


def row_example(release: Release) -> RowExample:
    """Take the first published row, and make a record up beside it."""
    table = release.tables[0]
    width, norm = table.num_features, table.feature_clip_norm
    record = norm * _made_up(width)
    first = next(iter(table.iter_rows())).features[0]
    return RowExample(
        num_features=width,
        record=_shown(record),
        share=_shown(record / table.config.divisor),
        row=_shown(first),
        share_length=norm / table.config.divisor,
        noise_stddev=table.feature_noise_stddev,
        noise_length=table.feature_noise_stddev * math.sqrt(width),
    )


def _made_up(width: int) -> NDArray[np.float64]:
    """Return a vector of length 1 that looks like features and comes from no data: a sum of waves."""
    place = np.arange(width, dtype=np.float64)
    waves = np.sin(1.9 * place) + 0.6 * np.cos(0.37 * place + 1.0) + 0.4 * np.sin(5.3 * place + 0.5)
    return np.asarray(waves / np.linalg.norm(waves))


def _shown(values: NDArray[np.floating]) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values[:_MOST_SHOWN])
