"""Learners that see a release and nothing else, with scikit-learn's interface."""

from privmix.learners.base import LinearClassifier, ReleaseLike
from privmix.learners.fisher import FisherClassifier
from privmix.learners.model_file import LEARNERS, load_model, save_model
from privmix.learners.noise_aware import NoiseAwareClassifier
from privmix.learners.softmax import KLSoftmaxClassifier

__all__ = [
    "LEARNERS",
    "FisherClassifier",
    "KLSoftmaxClassifier",
    "LinearClassifier",
    "NoiseAwareClassifier",
    "ReleaseLike",
    "load_model",
    "save_model",
]
