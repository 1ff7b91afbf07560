"""Membership by what models say: the papers' metrics, shadows, and distances to synthetic records."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression

from builders import make_data, make_plan, make_schema
from privmix import InvalidInputError, KLSoftmaxClassifier, release
from privmix.attacks import (
    MembershipScores,
    Shadows,
    accuracy,
    fit_shadows,
    likelihood_ratio_scores,
    log_odds,
    loss_scores,
    nearest_record_scores,
    relative_membership_scores,
)

CHANCE = 5 * np.sqrt(
    401 / (12 * 200 * 200)
)  # of the AUC: 5 standard deviations, 200 of either kind


def noise_records(rng, count=400, width=80):
    """One feature tells the label, of some records more than of others; the rest invite to learn by heart."""
    x = rng.standard_normal((count, width))
    return x, (rng.random(count) < expit(4 * x[:, 0])).astype(int)


def memorise(x, y, _number=0):
    return LogisticRegression(C=1.0, max_iter=2000).fit(x, y)


def test_loss_and_gap_of_a_model_that_memorised(rng):
    x, y = noise_records(rng, width=190)
    model = memorise(x[:200], y[:200])
    inside, outside = (x[:200], y[:200]), (x[200:], y[200:])
    scores = MembershipScores(loss_scores(model, *inside), loss_scores(model, *outside))
    assert scores.auc > 0.5 + CHANCE
    assert accuracy(model, *inside) - accuracy(model, *outside) > 0.1
    own = model.predict_proba(x)[np.arange(400), y]
    np.testing.assert_allclose(loss_scores(model, x, y), np.log(own), rtol=1e-12)
    np.testing.assert_allclose(log_odds(model, x, y), np.log(own / (1 - own)), rtol=1e-6)


def test_no_false_alarms_on_non_members(rng):
    """The model never saw either group: at most 5 % of 100 tries, this test fails once in a million."""
    alarms = 0
    for _ in range(100):
        x, y = noise_records(rng, 300, 5)
        model = memorise(x[:60], y[:60])
        scores = MembershipScores(
            loss_scores(model, x[60:180], y[60:180]), loss_scores(model, x[180:], y[180:])
        )
        alarms += scores.detection(0.05).leaks
    assert alarms <= binom.isf(1e-6, 100, 0.05)


def test_losses_far_from_one_keep_their_digits():
    class Certain:
        classes_ = np.array(["a", "b"])

        def predict_proba(self, features):
            return np.array([[1.0, 1e-30], [1.0, 0.0]])[: len(features)]

    found = log_odds(Certain(), np.zeros((2, 1)), ["a", "b"])
    assert found[0] == pytest.approx(-np.log(1e-30))
    assert np.isfinite(found).all()
    assert loss_scores(Certain(), np.zeros((1, 1)), ["b"]) == pytest.approx(np.log(1e-30))


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


def test_a_learner_of_a_release_is_a_model(tmp_path):
    schema = make_schema()
    x, y = make_data(schema, 60)
    made = release(
        x, y, make_plan(schema, "poisson", mix_size=6), out=tmp_path / "release", test_seed=1
    )
    with pytest.warns(UserWarning, match="protects nobody"):
        model = KLSoftmaxClassifier(epochs=2).fit(made)
    assert loss_scores(model, x, y).shape == (60,)
    with pytest.raises(InvalidInputError, match="labels"):
        loss_scores(model, x, y + 9)
    assert loss_scores(model, x[:2], [0, 9])[1] == loss_scores(model, x, [9] * 59 + [0])[0] < -600
    assert accuracy(model, x[:2], [9, model.predict(x)[1]]) == 0.5


def test_copies_among_synthetic_records_are_found(rng):
    x, other = rng.random((50, 4)), rng.random((50, 4))
    made = np.concatenate([x + 1e-6, rng.random((30, 4))])
    scores = MembershipScores(nearest_record_scores(x, made), nearest_record_scores(other, made))
    assert scores.auc == 1.0
    assert nearest_record_scores([[0.0, 0.0]], [[3.0, 4.0]]).tolist() == [-5.0]
    with pytest.raises(InvalidInputError, match="synthetic: expected records as wide as"):
        nearest_record_scores(x, made[:, :3])
