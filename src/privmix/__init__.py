"""privmix: private data release and private learning by random mixup.

The main job::

    schema = privmix.Schema(classes=[...], num_features=384, num_records=10_003,
                            feature_clip_norm=1.0)
    plan = privmix.plan_release(schema, target_epsilon=1.0, target_delta=1e-5)   # no data
    release = privmix.release(x, y, plan, out="release/")                        # spends the budget
    model = privmix.NoiseAwareClassifier().fit(release)
    X, y = privmix.synthesize(release, 10_000)             # records for any other learner

Names and modules are loaded when they are first used, so that ``import privmix`` takes no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privmix import (
        accounting,
        attacks,
        auditing,
        backends,
        baselines,
        datasets,
        dpsgd,
        features,
        inputs,
        learners,
        planning,
        plotting,
        preprocess,
        synthesis,
        theory,
    )
    from privmix._validate import InvalidInputError
    from privmix.dpsgd.opening import load_model
    from privmix.engine import release
    from privmix.learners import (
        AdaptiveClassifier,
        BiasCorrectedSGDClassifier,
        BiasCorrectedSGDRegressor,
        FisherClassifier,
        KLSoftmaxClassifier,
        NoiseAwareClassifier,
        NoiseAwareRegressor,
        TorchNetworkClassifier,
        save_model,
    )
    from privmix.mechanism import AdaptiveConfig, HybridConfig, MixtureConfig, ResidualConfig
    from privmix.planning.plan import ReleasePlan
    from privmix.planning.solve import plan_release
    from privmix.publishing.certificate import Certificate
    from privmix.publishing.release import Release
    from privmix.publishing.verification import Verification, verify
    from privmix.records.binding import bound_records
    from privmix.records.bounded import BoundedRecords
    from privmix.schema import Schema
    from privmix.synthesis import synthesize

    __version__: str

# The module that each public name comes from.
_HOMES = {
    "AdaptiveClassifier": "learners",
    "AdaptiveConfig": "mechanism",
    "BiasCorrectedSGDClassifier": "learners",
    "BiasCorrectedSGDRegressor": "learners",
    "BoundedRecords": "records.bounded",
    "Certificate": "publishing.certificate",
    "FisherClassifier": "learners",
    "HybridConfig": "mechanism",
    "InvalidInputError": "_validate",
    "KLSoftmaxClassifier": "learners",
    "MixtureConfig": "mechanism",
    "NoiseAwareClassifier": "learners",
    "NoiseAwareRegressor": "learners",
    "Release": "publishing.release",
    "ReleasePlan": "planning.plan",
    "ResidualConfig": "mechanism",
    "Schema": "schema",
    "TorchNetworkClassifier": "learners",
    "Verification": "publishing.verification",
    "bound_records": "records.binding",
    "load_model": "dpsgd.opening",
    "plan_release": "planning.solve",
    "release": "engine",
    "save_model": "learners",
    "synthesize": "synthesis",
    "verify": "publishing.verification",
}
_MODULES = (
    "accounting",
    "attacks",
    "auditing",
    "backends",
    "baselines",
    "datasets",
    "dpsgd",
    "features",
    "inputs",
    "learners",
    "planning",
    "plotting",
    "preprocess",
    "synthesis",
    "theory",
)

__all__ = [
    "AdaptiveClassifier",
    "AdaptiveConfig",
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
    "ResidualConfig",
    "Schema",
    "TorchNetworkClassifier",
    "Verification",
    "accounting",
    "attacks",
    "auditing",
    "backends",
    "baselines",
    "bound_records",
    "datasets",
    "dpsgd",
    "features",
    "inputs",
    "learners",
    "load_model",
    "plan_release",
    "planning",
    "plotting",
    "preprocess",
    "release",
    "save_model",
    "synthesis",
    "synthesize",
    "theory",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Load a public name or module when it is first asked for."""
    value: Any
    if name in _MODULES:
        return import_module(f"privmix.{name}")
    if name == "__version__":
        from importlib.metadata import version

        value = version("privmix")
    elif name in _HOMES:
        value = getattr(import_module(f"privmix.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
