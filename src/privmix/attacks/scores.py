"""Scores of records that took part and of records that did not, and what they show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, norm, rankdata

from privmix import _validate

Scores = NDArray[np.float64]
CONFIDENCE = 0.95


class Interval(NamedTuple):
    """An estimate with confidence limits."""

    estimate: float
    low: float
    high: float


class Detection(NamedTuple):
    """What a test with few false positives finds.

    Attributes:
        threshold: Scores above it are called members.
        true_positive_rate: Share of the members above it.
        false_positive_rate: Share of the non-members above it, with limits that hold although the
            threshold was chosen by the same non-members.

    """

    threshold: float
    true_positive_rate: Interval
    false_positive_rate: Interval

    @property
    def leaks(self) -> bool:
        """Whether members are above the threshold more often than non-members, beyond chance.

        Where both follow the same distribution this is so with a probability of at most one less
        the confidence: one of two limits would have to fail.
        """
        return self.true_positive_rate.low > self.false_positive_rate.high


@dataclass(frozen=True, eq=False)
class MembershipScores:
    """Scores of an attack on two groups of records; larger where it believes in membership.

    Limits take the records of either group as drawn independently from a population, and the
    release or the model as given: they say how well this release's members are told from others.

    Attributes:
        members: (count,) scores of records that took part.
        non_members: (count,) scores of records that did not.

    Example:
        >>> import numpy as np
        >>> from privmix.attacks import MembershipScores
        >>> scores = MembershipScores(np.arange(5.0, 15.0), np.arange(10.0))
        >>> scores.auc
        0.875
        >>> scores.detection(0.1).true_positive_rate.estimate
        0.6

    """

    members: Scores
    non_members: Scores

    def __post_init__(self) -> None:
        for name in ("members", "non_members"):
            given = np.asarray(getattr(self, name), dtype=np.float64)
            if given.ndim != 1 or len(given) < 2:
                _validate.fail(name, "scores of at least two records", f"shape {given.shape}")
            if np.isnan(given).any():
                _validate.fail(name, "numbers", "NaN")
            object.__setattr__(self, name, given)

    @classmethod
    def split(cls, scores: ArrayLike, took_part: ArrayLike) -> Self:
        """Divide (count,) scores by whether the record took part, (count,) booleans."""
        values, mask = np.asarray(scores, dtype=np.float64), np.asarray(took_part)
        if mask.dtype != np.bool_ or mask.shape != values.shape:
            _validate.fail("took_part", f"booleans of shape {values.shape}", mask.dtype)
        return cls(values[mask], values[~mask])

    @property
    def _placements(self) -> tuple[Scores, Scores]:
        """Share of the other group below each member, and above each non-member; ties count half."""
        m, n = len(self.members), len(self.non_members)
        ranks = rankdata(np.concatenate([self.members, self.non_members]))
        below = (ranks[:m] - rankdata(self.members)) / n
        return below, 1 - (ranks[m:] - rankdata(self.non_members)) / m

    @property
    def auc(self) -> float:
        """Probability that a member scores above a non-member; ties count half. 0.5 is chance."""
        return float(self._placements[0].mean())

    def auc_interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Return the AUC with its limits by the central limit.

        Source: DeLong, DeLong & Clarke-Pearson 1988. Where the groups are completely apart the
        variance is 0, and so is the interval's length.
        """
        variance = sum(float(np.var(one, ddof=1)) / len(one) for one in self._placements)
        reach = float(norm.ppf((1 + _confidence(confidence)) / 2)) * variance**0.5
        auc = self.auc
        return Interval(auc, max(0.0, auc - reach), min(1.0, auc + reach))

    def detection(self, false_positive_rate: float, confidence: float = CONFIDENCE) -> Detection:
        """Return what a test finds that calls at most this share of the non-members members.

        The threshold is the non-members' score with that share of them above it. How much of the
        population lies above a given one of n ordered scores follows a beta distribution, whose
        quantiles are the limits of Clopper and Pearson, so that these hold as they stand. Ties
        make fewer.
        """
        _validate.real("false_positive_rate", false_positive_rate, above=0.0, below=1.0)
        tail = (1 - _confidence(confidence)) / 2
        most = int(false_positive_rate * len(self.non_members) * (1 + 1e-12))
        threshold = float(np.sort(self.non_members)[::-1][most])
        found = [int((group > threshold).sum()) for group in (self.members, self.non_members)]
        false = clopper_pearson(found[1], len(self.non_members), tail)
        # Of the ordered scores: `most` lie above the threshold but for ties.
        false = false._replace(high=clopper_pearson(most, len(self.non_members), tail).high)
        return Detection(threshold, clopper_pearson(found[0], len(self.members), tail), false)


def clopper_pearson(hits: int, trials: int, tail: float) -> Interval:
    """Return a share with limits, each of which fails with probability at most ``tail``."""
    low = beta.ppf(tail, hits, trials - hits + 1) if hits else 0.0
    high = beta.ppf(1 - tail, hits + 1, trials - hits) if hits < trials else 1.0
    return Interval(hits / trials, float(low), float(high))


def _confidence(value: float) -> float:
    return _validate.real("confidence", value, above=0.0, below=1.0)
