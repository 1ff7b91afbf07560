"""Membership by what a model says of a record: its loss, and what it gets right."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix import _validate
from privmix.inputs.labels import match_labels

_LEAST = 1e-300


class Classifier(Protocol):
    """A model under attack: a learner of releases, a model of ``fit``, or scikit-learn's."""

    @property
    def classes_(self) -> NDArray[Any]:
        """The (K,) classes."""

    def predict_proba(self, features: ArrayLike, /) -> NDArray[np.float64]:
        """Return (count, K) probabilities."""


def label_probabilities(
    model: Classifier, features: ArrayLike, labels: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return, for each record, the probability of its label and that of all other classes.

    Args:
        model: Anything with ``predict_proba`` and the classes in ``classes_``; ``privmix.load_model``
            gives one for each kind of file.
        features: (count, d) records.
        labels: (count,) classes. One that the model does not know, having seen no record of it, has
            the probability 0; they may not all be such.

    """
    classes = np.asarray(model.classes_).tolist()
    places = _places(labels, classes)
    shares = np.array(model.predict_proba(features), dtype=np.float64)
    if shares.shape != (len(places), len(classes)):
        _validate.fail("predict_proba", f"shape {(len(places), len(classes))}", shares.shape)
    rows = np.arange(len(places))
    own = np.where(places < 0, 0.0, shares[rows, places])
    shares[rows, places] -= own  # not 1 - own, which loses all digits near 1
    return own, np.asarray(shares.sum(axis=1))


def loss_scores(model: Classifier, features: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """Score records by minus their loss, the logarithm of their label's probability.

    The attacker knows the model, the candidate record and its label, and nothing else. The AUC of
    these scores is the papers' metric (DPFMix, Table 4; NeuroMixGDP, Tables 4 and 9).

    Source: Yeom et al. 2018. Arguments as for :func:`label_probabilities`.
    """
    own, _ = label_probabilities(model, features, labels)
    return np.log(np.maximum(own, _LEAST))


def log_odds(model: Classifier, features: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """Return the log odds of each record's label: a signal that is nearly normal over models.

    Source: Carlini et al. 2022, section V-A. Arguments as for :func:`label_probabilities`.
    """
    own, others = label_probabilities(model, features, labels)
    return np.asarray(np.log(np.maximum(own, _LEAST)) - np.log(np.maximum(others, _LEAST)))


def accuracy(model: Classifier, features: ArrayLike, labels: ArrayLike) -> float:
    """Return the share of records whose likeliest class is their label.

    The accuracy of members less that of non-members is the papers' generalisation gap.
    """
    classes = np.asarray(model.classes_).tolist()
    found = np.argmax(model.predict_proba(features), axis=1)
    return float((found == _places(labels, classes)).mean())


def _places(labels: ArrayLike, classes: list[Any]) -> NDArray[np.int32]:
    places = match_labels(labels, classes, strict=False)
    if (places < 0).all():
        match_labels(labels, classes)  # which says what is wrong
    return places
