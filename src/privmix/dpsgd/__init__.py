"""Private training with mixup: DP-SGD, Self-Aug, DP-Mix-Self and DP-Mix-Diff.

For those who need a model rather than a data set::

    plan = dpsgd.plan_training(target_epsilon=1.0, target_delta=1e-5, epochs=10, batch_size=1000,
                               num_records=50_000, classes=range(10), input_shape=(3, 32, 32),
                               augmentation=dpsgd.AugmentationPlan.dp_mix_self())   # no data
    model = dpsgd.fit(images, labels, plan, model=dpsgd.LinearHead(backbone), out="model/")

``torch`` is needed to train, and imported then: ``pip install 'privmix[dpsgd]'``.

Names are loaded when they are first used: who verifies a model needs no learner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privmix.dpsgd.augmentation import AugmentationPlan
    from privmix.dpsgd.classifier import DPMixClassifier
    from privmix.dpsgd.head import LinearHead
    from privmix.dpsgd.model_certificate import ModelCertificate, is_model_folder, verify_model
    from privmix.dpsgd.models import make_model
    from privmix.dpsgd.network import Network
    from privmix.dpsgd.research import frechet_distance
    from privmix.dpsgd.synthetic import read_synthetic
    from privmix.dpsgd.trainer import TrainedModel, check_training, fit
    from privmix.dpsgd.training_plan import TrainingConfig, TrainingPlan, plan_training

# The module that each public name comes from.
_HOMES = {
    "AugmentationPlan": "augmentation",
    "DPMixClassifier": "classifier",
    "LinearHead": "head",
    "ModelCertificate": "model_certificate",
    "Network": "network",
    "TrainedModel": "trainer",
    "TrainingConfig": "training_plan",
    "TrainingPlan": "training_plan",
    "check_training": "trainer",
    "fit": "trainer",
    "frechet_distance": "research",
    "is_model_folder": "model_certificate",
    "make_model": "models",
    "plan_training": "training_plan",
    "read_synthetic": "synthetic",
    "verify_model": "model_certificate",
}

__all__ = [
    "AugmentationPlan",
    "DPMixClassifier",
    "LinearHead",
    "ModelCertificate",
    "Network",
    "TrainedModel",
    "TrainingConfig",
    "TrainingPlan",
    "check_training",
    "fit",
    "frechet_distance",
    "is_model_folder",
    "make_model",
    "plan_training",
    "read_synthetic",
    "verify_model",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
