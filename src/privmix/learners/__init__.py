"""Learners that see a release and nothing else, with scikit-learn's interface."""

from privmix.learners.adaptive import AdaptiveClassifier
from privmix.learners.base import LinearClassifier, LinearRegressor, ReleaseLike
from privmix.learners.bias_corrected_sgd import (
    BiasCorrectedSGDClassifier,
    BiasCorrectedSGDRegressor,
)
from privmix.learners.fisher import FisherClassifier
from privmix.learners.model_file import LEARNERS, Learner, load_model, save_model
from privmix.learners.network import TorchNetworkClassifier, dpmix_network
from privmix.learners.noise_aware import NoiseAwareClassifier
from privmix.learners.regression import NoiseAwareRegressor
from privmix.learners.scores import score
from privmix.learners.softmax import KLSoftmaxClassifier

__all__ = [
    "LEARNERS",
    "AdaptiveClassifier",
    "BiasCorrectedSGDClassifier",
    "BiasCorrectedSGDRegressor",
    "FisherClassifier",
    "KLSoftmaxClassifier",
    "Learner",
    "LinearClassifier",
    "LinearRegressor",
    "NoiseAwareClassifier",
    "NoiseAwareRegressor",
    "ReleaseLike",
    "TorchNetworkClassifier",
    "dpmix_network",
    "load_model",
    "save_model",
    "score",
]
