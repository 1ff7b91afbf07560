"""Labels of synthetic records, as the release's own classifier gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privmix.learners.base import LinearClassifier, Matrix, Vector

_STEPS = 100
_CLOSE = 1e-6  # of logarithms of shares
_LEAST = 1e-100  # of a probability: sums of inverses stay finite


@dataclass(frozen=True)
class OwnLabels:
    """Draws labels with the probabilities of a classifier, balanced to the classes' shares.

    Columns of a table are no Gaussians, and Gaussian classes say less of which class a row is of than the
    classifier: most of all that of rounds, on which nearly all of the budget was spent. So rows come from
    classes, and labels from the classifier: what a learner finds in them is what it says.

    Attributes:
        classifier: What gives the probabilities; of intercepts only what the shares ask for is left.
        balance: (K,) factors on them, with which they average the shares; 0 for a class that has none.

    """

    classifier: LinearClassifier
    balance: Vector

    @classmethod
    def fit(
        cls, classifier: LinearClassifier, features: NDArray[np.floating], shares: Vector
    ) -> Self:
        """Find the factors, by iterative scaling.

        Args:
            classifier: What gives the probabilities.
            features: (count, d) vectors as they are drawn of classes of these shares.
            shares: (K,) the classes' shares.

        """
        given = _known(classifier, features)
        balance = np.ones(len(shares))
        for _ in range(_STEPS):
            last = balance
            balance = shares / np.maximum(given.T @ (1 / (given @ last)), _LEAST) * len(features)
            balance /= balance.max()
            held = shares > 0
            if np.abs(np.log(balance[held] / last[held])).max() < _CLOSE:
                break
        return cls(classifier, balance)

    def draw(
        self, features: NDArray[np.floating], random: np.random.Generator
    ) -> NDArray[np.int64]:
        """Return the (count,) class indices drawn for vectors."""
        up_to = (_known(self.classifier, features) * self.balance).cumsum(axis=1)
        places = random.random((len(up_to), 1)) * up_to[:, -1:]
        return np.asarray((places >= up_to).sum(axis=1), dtype=np.int64)


def draw_several(given: Matrix, most: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return (count, K) indicators: each label by its own probability, and at most ``most`` of a record.

    Of too many the likeliest are kept. That labels go together is known only as far as features say so.
    """
    drawn = random.random(given.shape) < given
    order = np.argsort(-np.where(drawn, given, -1.0), axis=1, kind="stable")
    places = np.argsort(order, axis=1, kind="stable")
    return (drawn & (places < most)).astype(np.int64)


def _known(classifier: LinearClassifier, features: NDArray[np.floating]) -> Matrix:
    return np.asarray(np.maximum(classifier.predict_proba(features), _LEAST))
