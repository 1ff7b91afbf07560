"""Private training with mixup: DP-SGD, Self-Aug, DP-Mix-Self and DP-Mix-Diff.

For those who need a model rather than a data set::

    plan = dpsgd.plan_training(target_epsilon=1.0, target_delta=1e-5, epochs=10, batch_size=1000,
                               num_records=50_000, classes=range(10), input_shape=(3, 32, 32),
                               augmentation=dpsgd.AugmentationPlan.dp_mix_self())   # no data
    model = dpsgd.fit(images, labels, plan, model=dpsgd.LinearHead(backbone), out="model/")

``torch`` is needed to train, and imported then: ``pip install 'privmix[dpsgd]'``.
"""

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
