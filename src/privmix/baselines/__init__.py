"""Other ways to publish labelled records under differential privacy, to compare releases with.

    from privmix.baselines import ClassMeans
    published = ClassMeans(num_classes=10).release(x, y, target_epsilon=1.0, target_delta=1e-5)
    x_new, y_new = published.records()

Every method is behind one Protocol, :class:`Baseline`, accounted for by :mod:`privmix.accounting`,
with noise from :mod:`privmix.noise`. Where a paper's own guarantee is wrong or protects less than a
record, the method is made sound, and its docstring says what was changed.
"""

from __future__ import annotations

from privmix.baselines.base import Baseline, BaselineRelease
from privmix.baselines.embedding import MeanEmbedding
from privmix.baselines.feature_maps import FourierFeatures, HermiteFeatures
from privmix.baselines.linear_probe import LinearProbe
from privmix.baselines.p3gm import P3GM
from privmix.baselines.perturbation import LocalPerturbation, RandomProjection, kenthapadi_stddev
from privmix.baselines.prototypes import ClassMeans
from privmix.baselines.public_prototypes import PublicPrototypes
from privmix.baselines.second_moments import SecondMoments
from privmix.baselines.stratified import ClassMixtures
from privmix.baselines.tree_marginals import TreeMarginals

__all__ = [
    "P3GM",
    "Baseline",
    "BaselineRelease",
    "ClassMeans",
    "ClassMixtures",
    "FourierFeatures",
    "HermiteFeatures",
    "LinearProbe",
    "LocalPerturbation",
    "MeanEmbedding",
    "PublicPrototypes",
    "RandomProjection",
    "SecondMoments",
    "TreeMarginals",
    "kenthapadi_stddev",
]
