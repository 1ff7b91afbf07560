"""What many rows show is tested with the classifier; here, rows that show nothing."""

import numpy as np
import pytest

from privmix.learners.discriminant import learn_discriminant, learn_gaussian
from privmix.learners.population import PopulationMoments

SHARES = np.array([0.5, 0.3, 0.2])


def blind_moments(noise):
    """Classes differ, and the covariance is below its noise: a fold of few rows can look so."""
    rng = np.random.default_rng(0)
    return PopulationMoments(
        mean=np.zeros(5),
        covariance=0.9 * noise * np.eye(5),
        noise=noise,
        num_rows=12,
        offsets=rng.standard_normal((3, 5)),
        offset_noise=0.1,
        class_sizes=np.ones(3),
    )


@pytest.mark.parametrize("noise", [0.0, 1e-200, 2.0])
@pytest.mark.parametrize("learn", [learn_discriminant, learn_gaussian])
def test_rows_without_any_variance_still_make_a_rule(learn, noise):
    """The nearest class mean, with weights whose squares and products are finite."""
    moments = blind_moments(noise)
    rule = learn(moments, SHARES)
    assert np.isfinite(rule.covariance).all()
    assert np.isfinite((rule.weights**2).sum() * 1e6)
    means = moments.offsets / (3 * SHARES)[:, None]
    scores = means @ rule.weights.T + rule.intercept
    assert (scores.argmax(axis=1) == np.arange(3)).all()


def test_weights_are_those_of_records_that_vary_by_a_share_of_the_noise():
    """And not of what rounding leaves of a variance, which would be some 1e5 times as large."""
    assert np.abs(learn_gaussian(blind_moments(2.0), SHARES).weights).max() < 1e4
