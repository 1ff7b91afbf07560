"""privmix: private data release and private learning by random mixup.

The main job::

    schema = privmix.Schema(classes=[...], num_features=384, num_records=10_003,
                            feature_clip_norm=1.0)
    plan = privmix.plan_release(schema, target_epsilon=1.0, target_delta=1e-5)   # no data
    release = privmix.release(x, y, plan, out="release/")                        # spends the budget
    model = privmix.NoiseAwareClassifier().fit(release)
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from privmix._validate import InvalidInputError
from privmix.certificate import Certificate
from privmix.engine import release
from privmix.mechanism import HybridConfig, MixtureConfig
from privmix.plan import ReleasePlan
from privmix.planning import plan_release
from privmix.records import BoundedRecords, bound_records
from privmix.schema import Schema
from privmix.store import Release
from privmix.verification import Verification, verify

if TYPE_CHECKING:
    from privmix.learners import (
        BiasCorrectedSGDClassifier,
        BiasCorrectedSGDRegressor,
        FisherClassifier,
        KLSoftmaxClassifier,
        NoiseAwareClassifier,
        NoiseAwareRegressor,
        TorchNetworkClassifier,
        load_model,
        save_model,
    )

__version__ = version("privmix")

__all__ = [
    "BiasCorrectedSGDClassifier",
    "BiasCorrectedSGDRegressor",
    "BoundedRecords",
    "Certificate",
    "FisherClassifier",
    "HybridConfig",
    "InvalidInputError",
    "KLSoftmaxClassifier",
    "MixtureConfig",
    "NoiseAwareClassifier",
    "NoiseAwareRegressor",
    "Release",
    "ReleasePlan",
    "Schema",
    "TorchNetworkClassifier",
    "Verification",
    "bound_records",
    "load_model",
    "plan_release",
    "release",
    "save_model",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Load the learners, and scikit-learn with them, when one is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("privmix.learners"), name)
