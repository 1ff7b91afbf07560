"""Membership by what models say: the papers' metrics, shadows, and distances to synthetic records."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from builders import make_data, make_plan, make_schema
from memorising import CHANCE, memorise, noise_records
from privmix import InvalidInputError, KLSoftmaxClassifier, release
from privmix.attacks import (
    MembershipScores,
    accuracy,
    log_odds,
    loss_scores,
)


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


@pytest.mark.parametrize(("epsilon", "found"), [(1e4, True), (0.5, False)])
def test_models_of_private_training(rng, epsilon, found):
    """Weak privacy lets a model learn by heart, strong privacy does not, whatever the seed: an AUC
    beyond chance at epsilon 0.5, where it is at most 0.55, has a probability below 1e-3.
    """
    pytest.importorskip("torch")
    from privmix.dpsgd import DPMixClassifier

    x, y = noise_records(rng, width=190)
    model = DPMixClassifier(
        None,
        epsilon,
        classes=[0, 1],
        num_records=200,
        batch_size=200,
        epochs=60,
        learning_rate=2.0,
        clip_norm=5.0,
    ).fit(x[:200], y[:200])
    scores = MembershipScores(
        loss_scores(model, x[:200], y[:200]), loss_scores(model, x[200:], y[200:])
    )
    assert (scores.auc > 0.5 + CHANCE) == found


def test_losses_far_from_one_keep_their_digits():
    class Certain:
        classes_ = np.array(["a", "b"])

        def predict_proba(self, features):
            return np.array([[1.0, 1e-30], [1.0, 0.0]])[: len(features)]

    found = log_odds(Certain(), np.zeros((2, 1)), ["a", "b"])
    assert found[0] == pytest.approx(-np.log(1e-30))
    assert np.isfinite(found).all()
    assert loss_scores(Certain(), np.zeros((1, 1)), ["b"]) == pytest.approx(np.log(1e-30))


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
