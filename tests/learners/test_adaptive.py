"""The last step of an ``adaptive`` release's model: lengths."""

import numpy as np

from privmix import ResidualConfig
from privmix.learners.adaptive import _without_noisy_lengths, weight_noise
from privmix.rounds.public_model import PublicModel


def model_of(variances: np.ndarray, num_rounds: int = 20, num_classes: int = 50) -> PublicModel:
    config = ResidualConfig(
        num_records=1000,
        num_classes=num_classes,
        num_features=len(variances),
        num_rounds=num_rounds,
        residual_clip_norm=0.5,
        noise_multiplier=10.0,
        learning_rate=30.0,
    )
    return PublicModel(config, 1.0, variances, np.eye(len(variances)))


def test_the_noise_of_weights_is_that_of_the_steps_simulated():
    """False alarm below 1e-9: 200 rows of 3 numbers each; a scale wrong by 1.5 is far outside."""
    model = model_of(np.array([0.0, 0.5, 5.0]))
    config, rng = model.config, np.random.default_rng(0)
    curvature = model.variances / config.num_classes
    weights = np.zeros((2000, 3))
    for _ in range(config.num_rounds):
        noise = config.published_stddev(1.0, "feature") * rng.standard_normal(weights.shape)
        weights += (noise - curvature * weights) / (curvature + 1 / config.learning_rate)
    np.testing.assert_allclose(weights.std(axis=0), weight_noise(model), rtol=0.12)


class TestLengths:
    def test_what_noise_alone_has_made_unequal_becomes_equal(self):
        model = model_of(np.zeros(40))
        weights = 5 + weight_noise(model) * np.random.default_rng(1).standard_normal((50, 40))
        before, after = (np.linalg.norm(w, axis=1) for w in (weights, equal(model, weights)))
        assert np.std(after) < 0.5 * np.std(before)
        # Directions stay.
        cosine = (weights * equal(model, weights)).sum(axis=1) / before / after
        np.testing.assert_allclose(cosine, 1)

    def test_what_records_have_made_unequal_stays(self):
        model = model_of(np.zeros(40))
        weights = np.linspace(100, 1000, 50)[:, None] * np.ones((50, 40))
        np.testing.assert_allclose(equal(model, weights), weights, rtol=1e-3)

    def test_noisy_intercepts_become_equal_and_others_stay(self):
        model = model_of(np.zeros(40))
        weights = np.linspace(100, 1000, 50)[:, None] * np.ones((50, 40))
        weights[:, -1] = (
            0.5 * weight_noise(model)[-1] * np.random.default_rng(2).standard_normal(50)
        )
        found = _without_noisy_lengths(model, weights, intercept=True)
        assert np.ptp(found[:, -1]) < 0.1 * np.ptp(weights[:, -1])
        weights[:, -1] *= 1e4
        found = _without_noisy_lengths(model, weights, intercept=True)
        np.testing.assert_allclose(found[:, -1], weights[:, -1], rtol=1e-2, atol=1)

    def test_no_weights_at_all(self):
        assert not equal(model_of(np.zeros(3)), np.zeros((50, 3))).any()


def equal(model: PublicModel, weights: np.ndarray) -> np.ndarray:
    return _without_noisy_lengths(model, weights, intercept=False)
