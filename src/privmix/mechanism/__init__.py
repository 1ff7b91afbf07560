"""Mechanisms of releases: every number of a design, all of it public.

One configuration yields the row layout, the inclusion probabilities, the noise and the accounting
event, so that they cannot disagree.
"""

from privmix.mechanism.composite import (
    AdaptiveConfig,
    HybridConfig,
    ReleaseConfig,
    TableConfig,
    adaptive_config,
    hybrid_config,
)
from privmix.mechanism.mixtures import (
    DESIGNS,
    Design,
    MixtureConfig,
    MixtureDesign,
    admits,
    check_target,
    joint_noise_multiplier,
    mixture_config,
    split_noise_multiplier,
    squared_change,
)
from privmix.mechanism.residual import LARGEST_ROUND_NOISE, Link, ResidualConfig

__all__ = [
    "DESIGNS",
    "LARGEST_ROUND_NOISE",
    "AdaptiveConfig",
    "Design",
    "HybridConfig",
    "Link",
    "MixtureConfig",
    "MixtureDesign",
    "ReleaseConfig",
    "ResidualConfig",
    "TableConfig",
    "adaptive_config",
    "admits",
    "check_target",
    "hybrid_config",
    "joint_noise_multiplier",
    "mixture_config",
    "split_noise_multiplier",
    "squared_change",
]
