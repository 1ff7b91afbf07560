"""Labels of synthetic records that the classifier gives them which the rounds have trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privmix.learners.adaptive import AdaptiveClassifier
from privmix.learners.base import Matrix, Vector

_STEPS = 100
_CLOSE = 1e-6  # of logarithms of shares
_TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class RoundLabels:
    """Draws labels with the probabilities of a classifier, balanced to shares of the classes.

    Class means that are read off the rounds, and how records vary, which has little of the budget, may say less of which
    class a record is of than the classifier, on which nearly all was spent. Then records come from Gaussian
    classes, and labels from the classifier: what a learner finds in them is what it says.

    Attributes:
        classifier: What gives the probabilities.
        balance: (K,) factors on them, with which they average the shares; 0 for a class that has none.
        share: Which part of the records gets such labels.

    """

    classifier: AdaptiveClassifier
    balance: Vector
    share: float

    @classmethod
    def fit(
        cls,
        classifier: AdaptiveClassifier,
        features: NDArray[np.floating],
        weights: Vector,
        prior: Vector,
        share: float = 1.0,
    ) -> Self:
        """Find the factors.

        Args:
            classifier: What gives the probabilities.
            features: (count, d) vectors of the kind to be labelled.
            weights: (count,) what each counts, adding up to 1.
            prior: (K,) the classes' shares.
            share: Which part of the records is to get labels.

        """
        given = classifier.predict_proba(features)
        balance = np.ones(len(prior))
        for _ in range(_STEPS):
            found = weights @ _balanced(given, balance)
            change = np.where(prior > 0, prior / np.maximum(found, _TINY), 0.0)
            balance = balance * change
            balance /= balance.max()
            if np.abs(np.log(change[prior > 0])).max() < _CLOSE:
                break
        return cls(classifier, balance, share)

    def put(
        self,
        labels: NDArray[Any],
        features: NDArray[np.floating],
        random: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Return the (count,) class indices of vectors: some of ``labels``, and others drawn."""
        some = np.flatnonzero(random.random(len(labels)) < self.share)
        labels = labels.copy()
        if some.size:
            given = _balanced(self.classifier.predict_proba(features[some]), self.balance)
            up_to = given.cumsum(axis=1)
            # What rounding leaves above the last sum is of no class.
            places = random.random((len(some), 1)) * up_to[:, -1:]
            labels[some] = (places >= up_to).sum(axis=1)
        return labels


def _balanced(given: Matrix, balance: Vector) -> Matrix:
    weighed = np.maximum(given, _TINY) * balance
    return np.asarray(weighed / weighed.sum(axis=1, keepdims=True))
