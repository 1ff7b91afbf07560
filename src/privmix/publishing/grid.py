"""Which numbers a release can hold: the grid of its integers, and how large its rows can be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from privmix.clipping import FixedPoint
from privmix.mechanism import TableConfig
from privmix.schema import Schema

# A release may have been made of more records than were planned, and nobody is to know how many;
# of more than this many times as many it was not.
_MOST_RECORDS = 100


@dataclass(frozen=True)
class PublishedGrid:
    """The numbers of one side of a table, features or label weights.

    Attributes:
        divisor: Each number is an integer over this, rounded to float32.
        stddev: Noise stddev of a number.
        clip_norm: L2 bound of a record.
        most_records: Records in a row, in terms of ``mix_size``, but for ``false_alarm`` over all rows.
        one_hot: Whether the numbers of a record add up to at most 1, none negative.
        signed: Whether records enter with random signs.

    """

    divisor: float
    stddev: float
    clip_norm: float
    most_records: float
    one_hot: bool
    signed: bool

    @classmethod
    def of(
        cls,
        config: TableConfig,
        schema: Schema,
        part: Literal["feature", "label"],
        false_alarm: float,
    ) -> Self:
        """Derive the grid from what a certificate states."""
        clip_norm = schema.feature_clip_norm if part == "feature" else schema.label_clip_norm
        return cls(
            divisor=FixedPoint(clip_norm).scale * config.weight_unit * config.divisor,
            stddev=config.published_stddev(clip_norm, part),
            clip_norm=clip_norm,
            most_records=_most_records(config, false_alarm / config.num_mixtures),
            one_hot=part == "label" and schema.target in ("class", "soft"),
            signed=config.design == "signed",
        )

    def holds(self, values: NDArray[np.float32]) -> bool:
        """Whether each value is an integer over the divisor, rounded to float32, bit for bit."""
        scaled = values.astype(np.float64) * self.divisor
        if not np.abs(scaled).max(initial=0.0) < 2.0**63:  # infinite or no number, too
            return False
        integers = np.rint(scaled)
        wrong = self._published(integers) != values.view(np.int32)
        # Where values lie as far apart as integers, two of these are equally near.
        for step in (-1, 1):
            beside = self._published(integers[wrong] + step) != values[wrong].view(np.int32)
            wrong[wrong] = beside
        return not wrong.any()

    def _published(self, integers: NDArray[np.float64]) -> NDArray[np.int32]:
        # An integer's zero has no sign.
        return (integers / self.divisor + 0.0).astype(np.float32).view(np.int32)

    def too_large(self, values: NDArray[np.float32], false_alarm: float) -> int:
        """Count the rows that are longer than records and noise make them.

        A row's vector is at most the clip norm for each of its records, plus noise and half a step
        of rounding in each number. Labels of classes add up to the number of records besides, so
        that their sum is bounded either way. A sound table of any number of records up to a hundred
        times the planned one has such a row with probability at most ``false_alarm``.

        Args:
            values: (rows, width) published numbers.
            false_alarm: Probability, for these rows, that a sound row is counted.

        """
        rows, width = values.shape
        share, exact = false_alarm / (2 * rows), values.astype(np.float64)
        step = 1 / self.divisor
        noise = self.stddev * math.sqrt(chi2.isf(share, width)) + step * math.sqrt(width)
        most = (self.most_records * self.clip_norm + noise) * (1 + 1e-5)
        large: NDArray[np.bool_] = np.sqrt(np.square(exact).sum(axis=1)) > most
        if self.one_hot:
            spread = self.stddev * math.sqrt(width) * norm.isf(share / 2) + step * width
            sums, bound = exact.sum(axis=1), (self.most_records + spread) * (1 + 1e-5)
            least = -bound if self.signed else -spread * (1 + 1e-5)
            large |= (sums > bound) | (sums < least)
        return int(large.sum())


def _most_records(config: TableConfig, false_alarm: float) -> float:
    """Bound on a row's records over ``mix_size``, by Bernstein's inequality for their number."""
    if config.weight_clip is not None:
        return 1.0  # weights of a row add up to one
    if config.design == "uniform":
        return 1.0
    mean = _MOST_RECORDS * config.num_records * config.inclusion_prob
    if config.inclusion_prob == 1.0:
        return mean / config.mix_size
    log = -math.log(false_alarm)
    return (mean + math.sqrt(2 * mean * log) + log) / config.mix_size
