"""Undo public preprocessing: from what was mixed back to feature vectors as they were given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privmix.clipping import clipped, rescaled
from privmix.preprocess.preprocessor import Preprocessor
from privmix.preprocess.steps import (
    Center,
    ClassCounts,
    Intercept,
    PublicStatistics,
    Step,
    UnitNorm,
    step_facts,
)

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

_UNDONE = (Center, ClassCounts, Intercept, PublicStatistics, UnitNorm)


@dataclass(frozen=True)
class Stretch:
    """Steps between two scalings to one norm: x = ``offset`` + ``scale`` z, z what they made.

    Attributes:
        offset: (d,).
        scale: (d,), above 0.
        is_direction: Whether z was then scaled to the clip norm, so that only its direction is left.
        constant: What stood behind z before it was scaled, if anything: it has shrunk as z has, so
            that the length is not lost.

    """

    offset: Vector
    scale: Vector
    is_direction: bool
    constant: float | None = None


@dataclass(frozen=True)
class Inverse:
    """What undoes a release's preprocessing, last stretch first.

    Clipping within the steps is not undone: nothing says what it cut off.

    Attributes:
        stretches: The affine stretches, in the order of undoing.
        clip_norm: L2 bound of a record at every step.

    """

    stretches: tuple[Stretch, ...]
    clip_norm: float

    @classmethod
    def of(cls, preprocessor: Preprocessor) -> Self | None:
        """Return the inverse, or None where a step drops directions: a projection or a selection."""
        if not all(isinstance(step, _UNDONE) for step in preprocessor.steps):
            return None
        steps, facts = preprocessor.steps, preprocessor.facts
        widths = [seen.num_features for seen in step_facts(steps, facts)]
        after = _next_steps(steps)
        found = []
        current = Stretch(np.zeros(widths[-1]), np.ones(widths[-1]), is_direction=False)
        for number in reversed(range(len(steps))):
            step, width = steps[number], widths[number]
            if isinstance(step, UnitNorm):
                found.append(current)
                current = Stretch(np.zeros(width), np.ones(width), is_direction=True)
            elif isinstance(step, Intercept):
                is_scaled = isinstance(after[number], UnitNorm)
                if not is_scaled and after[number] is not None:
                    return None
                constant = np.sqrt(step.share) * facts.clip_norm if is_scaled else None
                scale = current.scale[:width] / np.sqrt(1 - step.share)
                current = replace(
                    current, offset=current.offset[:width], scale=scale, constant=constant
                )
            else:
                current = _before(step, preprocessor.results[number], current)
        found.append(current)
        return cls(tuple(found), facts.clip_norm)

    @property
    def loses_lengths(self) -> bool:
        """Whether records were scaled to one norm, so that their lengths before it are unknown."""
        return self.stretches[-1].is_direction and self.stretches[-1].constant is None

    def undo(self, rows: Matrix, radius: float | None = None) -> Matrix:
        """Return the vectors that the steps make ``rows`` of.

        Args:
            rows: (count, d) vectors as they were mixed, with or without the constant of an
                intercept that comes last.
            radius: Length of a record less its centre, for the first stretch, where lengths are
                lost. None: records are taken to have the clip norm before the steps as well, as
                those of most extractors have. Then undoing is exact for records that do.

        Returns:
            (count, d) vectors, none longer than the clip norm.

        """
        last = self.stretches[-1]
        if self.loses_lengths and radius is not None:
            return clipped(last.offset + radius * self.directions(rows), self.clip_norm)
        for stretch in self.stretches:
            rows = self._before(stretch, rows)
        return clipped(rows, self.clip_norm)

    def directions(self, rows: Matrix) -> Matrix:
        """Return (count, d) directions from the first stretch's offset, where lengths are lost."""
        for stretch in self.stretches[:-1]:
            rows = self._before(stretch, rows)
        return self.stretches[-1].scale * rescaled(rows, 1.0)

    def _before(self, stretch: Stretch, rows: Matrix) -> Matrix:
        """Undo a stretch; a constant that came last is no part of it."""
        if stretch.constant is not None:
            return self._with_length(stretch, rescaled(rows, self.clip_norm))
        rows = rows[:, : len(stretch.offset)]
        if stretch.is_direction:
            return self._on_sphere(stretch, rescaled(rows, 1.0))
        return np.asarray(stretch.offset + stretch.scale * rows)

    def _with_length(self, stretch: Stretch, rows: Matrix) -> Matrix:
        """Undo a scaling by what has become of the constant.

        Vectors were no longer than the clip norm with the constant among them, so that it has not shrunk.
        """
        assert stretch.constant is not None
        growth = np.maximum(rows[:, -1:] / stretch.constant, 1.0)
        return np.asarray(stretch.offset + stretch.scale * rows[:, :-1] / growth)

    def _on_sphere(self, stretch: Stretch, directions: Matrix) -> Matrix:
        """Go from the offset along a direction until the clip norm is reached.

        |a + r b|^2 = C^2 has one positive root if |a| < C. An offset that noise has moved outside may
        have none; then the nearest point of the line is scaled to the sphere.
        """
        return rescaled(
            stretch.offset
            + radii(stretch.offset, stretch.scale * directions, self.clip_norm)[:, None]
            * stretch.scale
            * directions,
            self.clip_norm,
        )


def _next_steps(steps: Sequence[Step]) -> list[Step | None]:
    """Return the step that follows each of ``steps``, those left out that change no record."""
    found: list[Step | None] = []
    following: Step | None = None
    for step in reversed(steps):
        found.append(following)
        following = following if isinstance(step, ClassCounts) else step
    return found[::-1]


def _before(step: Step, result: Mapping[str, Any], stretch: Stretch) -> Stretch:
    """Return a stretch with one more step in front that moves or scales coordinates."""
    if isinstance(step, Center):
        return replace(stretch, offset=stretch.offset + result["mean"])
    if isinstance(step, PublicStatistics):
        stddev = np.array(step.stddev or 1.0)
        offset = np.array(step.mean) + stddev * stretch.offset
        return replace(stretch, offset=offset, scale=stddev * stretch.scale)
    return stretch


def radii(offset: Vector, directions: Matrix, norm: float) -> Vector:
    """Return r >= 0 with |offset + r direction| = ``norm`` for each of the (count, d) directions."""
    square = np.maximum((directions**2).sum(axis=1), np.finfo(float).tiny)
    half = directions @ offset
    rest = norm**2 - float(offset @ offset)
    found = (np.sqrt(np.maximum(half**2 + square * rest, 0)) - half) / square
    return np.asarray(np.maximum(found, 0.0))
