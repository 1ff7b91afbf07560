"""Membership with shadow models: likelihood ratios, and relative membership."""

from __future__ import annotations

import numpy as np
import pytest

from memorising import CHANCE, memorise, noise_records
from privmix import InvalidInputError
from privmix.attacks import (
    MembershipScores,
    Shadows,
    fit_shadows,
    likelihood_ratio_scores,
    log_odds,
    relative_membership_scores,
)


@pytest.fixture(scope="module")
def shadowed():
    rng = np.random.default_rng(3)
    x, y = noise_records(rng)
    population = noise_records(rng, 300)
    shadows, models = fit_shadows(memorise, x, y, 16, seed=1)
    others = np.stack([log_odds(model, *population) for model in models])
    return shadows, others


ATTACKS = {
    "online": lambda own, rest, z, others: likelihood_ratio_scores(own, rest),
    "offline": lambda own, rest, z, others: likelihood_ratio_scores(own, rest, online=False),
    "relative": relative_membership_scores,
}


@pytest.mark.parametrize("name", ATTACKS)
def test_shadows_find_members_and_beat_the_loss(name, shadowed):
    """Over 16 models under attack: what is hard for all models is no sign of membership."""
    shadows, others = shadowed
    found, plain = [], []
    for target in range(16):
        own, took_part = shadows.signals[target], shadows.took_part[target]
        rest = shadows.without(target)
        z = np.delete(others, target, axis=0)
        scores = ATTACKS[name](own, rest, others[target], z)
        found.append(MembershipScores.split(scores, took_part).auc)
        plain.append(MembershipScores.split(own, took_part).auc)
    assert np.mean(found) > np.mean(plain) + 0.02


@pytest.mark.parametrize("name", ATTACKS)
def test_shadows_find_nothing_in_a_model_that_saw_none(name, shadowed):
    """Another model, of other records: each AUC is beyond its bound once in a million."""
    shadows, others = shadowed
    rng = np.random.default_rng(5)
    x, y = noise_records(rng)
    split = shadows.took_part[0]
    # Signals of candidates under a model of other records of the same population.
    random = np.random.default_rng(3)
    candidates = noise_records(random)
    model = memorise(x[:200], y[:200])
    scores = ATTACKS[name](
        log_odds(model, *candidates),
        shadows.without(0),
        log_odds(model, *noise_records(random, 300)),
        others[1:],
    )
    assert abs(MembershipScores.split(scores, split).auc - 0.5) < CHANCE


def test_halves_are_drawn_anew_for_each_model(shadowed):
    shadows, _ = shadowed
    assert (shadows.took_part.sum(axis=1) == 200).all()
    together = np.corrcoef(shadows.took_part.astype(float))[~np.eye(16, dtype=bool)]
    assert np.abs(together).max() < 5 / np.sqrt(400)


def test_records_that_every_shadow_has(rng):
    """The mean without them is that with them, moved by what others differ in."""
    signals = np.array([[3.0, 3.0], [3.0, 1.0], [3.0, 3.0]])
    took_part = np.array([[True, True], [True, False], [True, True]])
    means, stddevs = Shadows(signals, took_part).moments(False)
    assert means.tolist() == [1.0, 1.0]
    assert (stddevs > 0).all()
    with pytest.raises(InvalidInputError, match="at least one model without some record"):
        Shadows(signals, np.ones_like(took_part)).moments(False)
    with pytest.raises(InvalidInputError, match="at least two models"):
        Shadows(signals[:1], took_part[:1])
    with pytest.raises(InvalidInputError, match="took_part: expected shape"):
        Shadows(signals, took_part[:, :1])


def test_many_shadows_have_a_variance_for_each_record(rng):
    took_part = np.repeat([[True], [False]], 40, axis=0).repeat(3, axis=1)
    signals = rng.standard_normal((80, 3)) * [1.0, 5.0, 25.0]
    _, stddevs = Shadows(signals, took_part).moments(True)
    np.testing.assert_allclose(stddevs, signals[:40].std(axis=0, ddof=1), rtol=1e-12)
