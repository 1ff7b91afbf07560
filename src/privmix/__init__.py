"""privmix: private data release and private learning by random mixup.

The main job::

    schema = privmix.Schema(classes=[...], num_features=384, num_records=10_003,
                            feature_clip_norm=1.0)
    plan = privmix.plan_release(schema, target_epsilon=1.0, target_delta=1e-5)   # no data
    release = privmix.release(x, y, plan, out="release/")                        # spends the budget
    model = privmix.NoiseAwareClassifier().fit(release)
    X, y = privmix.synthesize(release, 10_000)          # records for any other learner
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from privmix._validate import InvalidInputError
from privmix.engine import release
from privmix.mechanism import HybridConfig, MixtureConfig
from privmix.planning.plan import ReleasePlan
from privmix.planning.solve import plan_release
from privmix.publishing.certificate import Certificate
from privmix.publishing.release import Release
from privmix.publishing.verification import Verification, verify
from privmix.records.binding import bound_records
from privmix.records.bounded import BoundedRecords
from privmix.schema import Schema

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
        synthesize,
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
    "synthesize",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Load the learners, and scikit-learn with them, when one is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("privmix.learners"), name)
