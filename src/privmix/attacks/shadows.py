"""Shadow models: what the attacker trains herself, with and without each record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from privmix import _validate
from privmix.attacks.membership import Classifier, log_odds

Array = NDArray[np.float64]

# With fewer shadows of either kind the variance of a single record is noise: one for all records.
_FEW = 32
_LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class Shadows:
    """Signals of models of which it is known who took part.

    Attributes:
        signals: (models, candidates) log odds of each candidate's label.
        took_part: (models, candidates) booleans. Each model's are drawn independently of other
            models', so that the number of shadows with a record says nothing about the model under attack.

    """

    signals: Array
    took_part: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if self.signals.ndim != 2 or self.signals.shape != self.took_part.shape:
            _validate.fail("took_part", f"shape {self.signals.shape}", self.took_part.shape)
        if len(self.signals) < 2:
            _validate.fail("signals", "at least two models", len(self.signals))

    def without(self, model: int) -> Shadows:
        """Return all models but one: that one is under attack."""
        return Shadows(
            np.delete(self.signals, model, axis=0), np.delete(self.took_part, model, axis=0)
        )

    def moments(self, took_part: bool) -> tuple[Array, Array]:
        """Return (candidates,) means and standard deviations of the signals with, or without.

        A record that all shadows have, or none, has the mean of the other kind, moved by what the kinds differ
        in on average.
        """
        mask = self.took_part == took_part
        count = mask.sum(axis=0)
        if not count.any():
            kind = "with" if took_part else "without"
            _validate.fail("took_part", f"at least one model {kind} some record", "none")
        means = np.where(mask, self.signals, 0.0).sum(axis=0) / np.maximum(count, 1)
        other = np.where(mask, 0.0, self.signals).sum(axis=0) / np.maximum(len(mask) - count, 1)
        both = (count > 0) & (count < len(mask))
        shift = float((means - other)[both].mean()) if both.any() else 0.0
        means = np.where(count > 0, means, other + shift)
        squares = np.where(mask, (self.signals - means) ** 2, 0.0)
        if count.min() >= _FEW:
            variances = squares.sum(axis=0) / (count - 1)
        else:
            freedom = max(1, int(np.maximum(count - 1, 0).sum()))
            variances = np.full(len(count), squares.sum() / freedom)
        return means, np.sqrt(np.maximum(variances, _LEAST))


def fit_shadows(
    fit: Callable[[NDArray[Any], NDArray[Any], int], Classifier],
    features: NDArray[Any],
    labels: NDArray[Any],
    num_models: int,
    *,
    seed: int,
) -> tuple[Shadows, list[Classifier]]:
    """Train models on random halves of the candidates.

    The attacker knows how the model under attack was made and has records of the same population,
    the candidates among them. Each of the models can serve as the one under attack, by
    ``Shadows.without``.

    Args:
        fit: Makes a model of (features, labels, number of the model): releases and learns, say.
        features: (candidates, d).
        labels: (candidates,).
        num_models: How many.
        seed: Of the halves.

    """
    _validate.integer("num_models", num_models, at_least=2)
    random = np.random.default_rng(seed)
    took_part = np.zeros((num_models, len(features)), dtype=np.bool_)
    models = []
    for number, mask in enumerate(took_part):
        mask[random.permutation(len(features))[: len(features) // 2]] = True
        models.append(fit(features[mask], labels[mask], number))
    signals = np.stack([log_odds(model, features, labels) for model in models])
    return Shadows(signals, took_part), models


def likelihood_ratio_scores(signals: ArrayLike, shadows: Shadows, *, online: bool = True) -> Array:
    """Score candidates by how much likelier their signal is under models with them.

    Signals are taken as normal, with the shadows' means and standard deviations. ``online`` uses
    shadows with and without each candidate; otherwise those without alone, as for an attacker who
    trained them before she knew the candidates.

    Args:
        signals: (candidates,) log odds under the model under attack.
        shadows: Models with the same candidates.
        online: See above.

    Source: Carlini et al. 2022 (LiRA), algorithm 1 and equation 4.

    """
    found = np.asarray(signals, dtype=np.float64)
    mean, stddev = shadows.moments(False)
    without = (found - mean) / stddev
    if not online:
        return np.asarray(without)
    own_mean, own_stddev = shadows.moments(True)
    own = (found - own_mean) / own_stddev
    return np.asarray((without**2 - own**2) / 2 + np.log(stddev / own_stddev))


def relative_membership_scores(
    signals: ArrayLike,
    shadows: Shadows,
    population_signals: ArrayLike,
    population_shadows: ArrayLike,
    *,
    gamma: float = 1.0,
) -> Array:
    """Score candidates by the share of a population that they are likelier than, relatively.

    A record's ratio is its label's probability under the model under attack over its mean
    probability under models with it and without it, in equal parts. The score is the share of
    population records whose ratio the candidate's exceeds ``gamma`` times.

    Args:
        signals: (candidates,) log odds under the model under attack.
        shadows: Models with the same candidates.
        population_signals: (records,) log odds of records that took part nowhere.
        population_shadows: (models, records) theirs under the shadows.
        gamma: At least 1.

    Source: Zarifzadeh, Liu & Shokri 2024 (RMIA), equation 2, online.

    """
    _validate.real("gamma", gamma, at_least=1.0)
    probabilities = expit(shadows.signals)
    means = []
    for kind in (True, False):
        mask = shadows.took_part == kind
        total = np.where(mask, probabilities, 0.0).sum(axis=0)
        means.append(np.where(mask.any(axis=0), total / np.maximum(mask.sum(axis=0), 1), np.nan))
    base = np.nanmean(means, axis=0)
    ratios = expit(np.asarray(signals, dtype=np.float64)) / np.maximum(base, _LEAST)
    others = expit(np.asarray(population_signals, dtype=np.float64)) / np.maximum(
        expit(np.asarray(population_shadows, dtype=np.float64)).mean(axis=0), _LEAST
    )
    beaten = np.searchsorted(np.sort(others), ratios / gamma, side="right")
    return np.asarray(beaten / len(others))
