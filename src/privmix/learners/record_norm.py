"""What public steps say of every record as it was mixed: its norm, and its constant."""

from __future__ import annotations

from typing import Any

import numpy as np

from privmix.learners.base import ReleaseLike
from privmix.preprocess import Intercept, UnitNorm


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


def intercept_of(release: ReleaseLike) -> float | None:
    """Return the constant that is the last coordinate of records as mixed, or None."""
    preprocessor = getattr(release, "preprocessor", None)
    last: Any = preprocessor.steps[-1] if preprocessor is not None and preprocessor.steps else None
    if last is None or last.step != "intercept":
        return None
    return float(np.sqrt(last.share) * release.feature_clip_norm)


def length_coordinate(release: ReleaseLike) -> int | None:
    """Return the position of the constant that shows how much a record was scaled, or None.

    It stood behind all records alike before they were scaled to one norm.
    """
    preprocessor = getattr(release, "preprocessor", None)
    steps = () if preprocessor is None else preprocessor.steps
    names = [step.step for step in steps if step.step != "class_counts"]
    last = release.num_features - 1
    if names[-1:] == ["intercept"]:
        names, last = names[:-1], last - 1
    return last if names[-2:] == ["intercept", "unit_norm"] else None
