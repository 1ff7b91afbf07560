"""The papers' rows: Poisson and hierarchical, at the noise that they claim, or that is sound."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from experiments.mixing import DELTA, published

import privmix
from privmix.accounting import PoissonGaussianEvent, calibrate_noise_multiplier, gdp_mu_from
from privmix.theory import central_limit_noise_multiplier
from utility import DataSet

MIX_SIZE = 64  # the papers' choice where nothing is tuned


def noise_at(
    epsilon: float, num_records: int, mix_size: float, class_prob: float = 1.0, *, sound: bool
) -> float:
    """Return the joint noise multiplier of T = n rows.

    ``sound`` rows cost at most epsilon by privacy-loss distributions, with known open classes (every
    class is open to the same number of rows). Others have the papers' noise: the central limit, with
    inclusions taken for independent (NeuroMixGDP, Theorem 3.1).
    """
    share = mix_size / num_records
    if not sound:
        return central_limit_noise_multiplier(share, num_records, gdp_mu_from(epsilon, DELTA))
    rows = max(1, round(class_prob * num_records))
    inside = min(1.0, share * num_records / rows)

    def event(noise: float) -> PoissonGaussianEvent:
        return PoissonGaussianEvent(sampling_prob=inside, noise_multiplier=noise, count=rows)

    return calibrate_noise_multiplier(event, epsilon, DELTA)


def rows(
    data: DataSet,
    epsilon: float,
    *,
    mix_size: float = MIX_SIZE,
    class_prob: float = 1.0,
    label_balance: float = 1.0,
    sound: bool = False,
) -> AbstractContextManager[privmix.Release]:
    """Release as many rows as records: ``poisson``, or ``hierarchical`` for a class_prob below 1."""
    noise = noise_at(epsilon, len(data.x_train), mix_size, class_prob, sound=sound)
    layout: dict[str, Any] = {"design": "poisson", "mix_size": float(mix_size)}
    if class_prob < 1:
        layout |= {"design": "hierarchical", "class_prob": class_prob, "eligibility": "balanced"}
    return published(data, noise, label_balance=label_balance, **layout)


def accuracy(release: privmix.Release, learner: Any, data: DataSet) -> float:
    """Train on a release; return the test accuracy."""
    return float(learner.fit(release).score(data.x_test, data.y_test))
