"""What public steps say of every record as it was mixed: its norm, and its constant."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from privmix.learners.base import ReleaseLike
from privmix.preprocess import Intercept, UnitNorm

# Records' lengths, and so a constant scaled with them, vary by about this share of their mean.
LENGTHS_VARIATION = 0.2


def common_norm(release: ReleaseLike) -> float | None:
    """Return the norm that all records were mixed with, where the steps say so; else None.

    An intercept counts for nothing: what it appends is no feature.
    """
    preprocessor = getattr(release, "preprocessor", None)
    if preprocessor is not None and preprocessor.steps:
        steps = [step for step in preprocessor.steps if step.step != "class_counts"]
        rest = 1.0
        if isinstance(steps[-1:][0] if steps else None, Intercept):
            rest = 1 - steps.pop().share
        if steps and isinstance(steps[-1], UnitNorm):
            return float(np.sqrt(rest) * release.feature_clip_norm)
    return None


def mixed_norm(release: ReleaseLike) -> float | None:
    """Return the norm that all records were mixed with, a last intercept included; None for no one norm."""
    return None if common_norm(release) is None else release.feature_clip_norm


def intercept_of(release: ReleaseLike) -> float | None:
    """Return the constant that is the last coordinate of records as mixed, or None."""
    preprocessor = getattr(release, "preprocessor", None)
    last: Any = preprocessor.steps[-1] if preprocessor is not None and preprocessor.steps else None
    if last is None or last.step != "intercept":
        return None
    return float(np.sqrt(last.share) * release.feature_clip_norm)


class ScaledConstant(NamedTuple):
    """A constant that stood behind all records alike before they were scaled to one norm.

    It shows by how much each record was scaled. ``position`` is its coordinate in records as mixed, which is
    between ``least`` and ``most`` for all of them.
    """

    position: int
    least: float
    most: float


def scaled_constant(release: ReleaseLike) -> ScaledConstant | None:
    """Return the constant that shows how much a record was scaled, or None."""
    preprocessor = getattr(release, "preprocessor", None)
    steps: list[Any] = [] if preprocessor is None else list(preprocessor.steps)
    steps = [step for step in steps if step.step != "class_counts"]
    position, most = release.num_features - 1, release.feature_clip_norm
    if steps and isinstance(steps[-1], Intercept):
        most *= float(np.sqrt(1 - steps.pop().share))
        position -= 1
    if [step.step for step in steps[-2:]] != ["intercept", "unit_norm"]:
        return None
    return ScaledConstant(position, most * float(np.sqrt(steps[-2].share)), most)
