"""One public record a class, chosen by the private records."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.accounting import bounded_range_from
from privmix.baselines.base import BaselineRelease, Budget, Method, Records, prototype_rows
from privmix.clipping import rescaled
from privmix.compiling import kernel
from privmix.noise import exponential_choice

_POINTS = 1 << 16  # points of the grid that a record's utility for a candidate spans at most


@dataclass(frozen=True)
class PublicPrototypes(Method):
    """The public record that is most like each class, as its prototype.

    A class's utility for a candidate is the sum over its records of the cosine similarity, clipped to
    [``least``, ``most``] and shifted to start at 0: an integer from 0 to D = 65536 on the grid. A record adds
    to its own class's utilities alone, and takes from none: chosen with probability proportional to
    exp(r u / D), the privacy loss has a range of r under ``add_or_remove_one``, and the classes' choices
    together cost what one does. They are exact draws. The event is the Gaussian mechanism that implies
    that range (:func:`privmix.accounting.bounded_range_from`): at epsilon 1 and delta 1e-5 the range is
    0.43, where pure differential privacy would allow 1.

    After DPPL-Public (Wahdany et al., arXiv 2406.08039).

    Attributes:
        num_classes: Number of classes.
        candidates: (candidates, features) public records. They must owe nothing to the private ones.
        least: Smallest similarity that counts.
        most: Largest.

    """

    num_classes: int
    candidates: NDArray[Any] = field(repr=False)
    least: float = 0.0
    most: float = 1.0

    def _publish(
        self, features: NDArray[np.float64], classes: NDArray[np.int64], budget: Budget
    ) -> BaselineRelease:
        """Publish one candidate a class."""
        candidates = self._checked(features.shape[1])
        event, epsilon = budget.gaussian("add_or_remove_one")
        loss_range = bounded_range_from(1 / event.noise_multiplier)
        # Rounded down to a fraction: the choice is a little more private than what is accounted for.
        rate = Fraction(int(loss_range * 2**32), 2**32 * _POINTS)
        key = budget.make_key(event)
        utilities = self._utilities(features, classes, candidates)
        chosen = [
            exponential_choice(row.tolist(), rate, key.stream("choice", block=k))
            for k, row in enumerate(utilities)
        ]
        prototypes = np.asarray(candidates[chosen], dtype=np.float32)

        def draw(num_records: int | None, seed: int) -> Records:
            return prototype_rows(prototypes, num_records)

        statistics = {"chosen": np.array(chosen, dtype=np.float64)}
        return budget.release(event, epsilon, draw, statistics)

    def _checked(self, num_features: int) -> NDArray[np.float64]:
        least = _validate.real("least", self.least, at_least=-1.0)
        _validate.real("most", self.most, above=least, at_most=1.0)
        candidates = np.asarray(self.candidates)
        shape = candidates.shape
        if len(shape) != 2 or shape[1] != num_features or not shape[0]:
            _validate.fail("candidates", f"shape (candidates, {num_features})", shape)
        if candidates.dtype.kind not in "biuf":
            _validate.fail("candidates", "numbers", candidates.dtype)
        candidates = candidates.astype(np.float64)
        if not np.isfinite(candidates).all():
            _validate.fail("candidates", "finite numbers", "NaN or infinity")
        return rescaled(candidates, 1.0)

    def _utilities(
        self,
        features: NDArray[np.float64],
        classes: NDArray[np.int64],
        candidates: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        """Return integers, (num_classes, candidates), to which a record adds 0 to ``_POINTS`` in one row."""
        utilities = np.zeros((self.num_classes, len(candidates)), dtype=np.int64)
        span = self.most - self.least
        _add_similarities(
            rescaled(features, 1.0), classes, candidates, self.least, span, _POINTS, utilities
        )
        return utilities


@kernel(nogil=True)
def _add_similarities(
    records: NDArray[np.float64],
    classes: NDArray[np.int64],
    candidates: NDArray[np.float64],
    least: float,
    span: float,
    points: int,
    utilities: NDArray[np.int64],
) -> None:  # pragma: no cover - compiled
    """Add each record's integers, found record by record."""
    for i in range(records.shape[0]):
        record, sums = records[i], utilities[classes[i]]
        for j in range(candidates.shape[0]):
            candidate, total = candidates[j], 0.0
            for d in range(len(record)):
                total += record[d] * candidate[d]
            share = min(max((total - least) / span, 0.0), 1.0)
            sums[j] += np.int64(share * points)
