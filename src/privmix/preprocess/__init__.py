"""Preprocessing of records on the way to a release: charged steps on private data, and public ones.

Give steps to ``privmix.plan_release(..., preprocessing=[...])``. Charged steps (``Center``,
``ClassCounts``, ``SelectFeatures``, ``Subspace``) spend a share of the release's budget, and the
certificate composes their events with the mechanism's. Public ones (``RandomProjection``,
``PublicStatistics``, ``UnitNorm``, ``Intercept``) cost nothing.
"""

from privmix.preprocess.preprocessor import FILE_NAME, FeatureStatistics, Preprocessor
from privmix.preprocess.steps import (
    Center,
    ClassCounts,
    Intercept,
    PublicStatistics,
    RandomProjection,
    RecordFacts,
    SelectFeatures,
    Statistic,
    Step,
    Subspace,
    UnitNorm,
    charged,
    plan_steps,
    step_facts,
)

__all__ = [
    "FILE_NAME",
    "Center",
    "ClassCounts",
    "FeatureStatistics",
    "Intercept",
    "Preprocessor",
    "PublicStatistics",
    "RandomProjection",
    "RecordFacts",
    "SelectFeatures",
    "Statistic",
    "Step",
    "Subspace",
    "UnitNorm",
    "charged",
    "plan_steps",
    "step_facts",
]
