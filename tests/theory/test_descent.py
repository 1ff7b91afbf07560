import math

import numpy as np
import pytest

from privmix._validate import InvalidInputError
from privmix.theory.descent import descent_error_bound, mixed_squared_gradient

FACTS = {
    "num_features": 3,
    "num_classes": 2,
    "weight_norm": 1.5,
    "feature_clip_norm": 1.0,
    "label_clip_norm": 1.0,
    "feature_noise_stddev": 0.4,
    "label_noise_stddev": 0.3,
}


def gradients(rng, weights, x, y, mix_size, x_noise, y_noise, draws=200_000):
    """Draw DPMix's corrected gradient of a row whose mean record is (x, y): (draws, K, d)."""
    rows = x + x_noise * rng.standard_normal((draws, len(x)))
    labels = y + y_noise * rng.standard_normal((draws, len(y)))
    residuals = rows @ weights.T - labels
    return mix_size * (residuals[:, :, None] * rows[:, None, :] - x_noise**2 * weights)


def test_the_bound_is_met_in_one_dimension_by_records_on_their_bounds(rng):
    one = np.ones(1)
    found = gradients(rng, np.full((1, 1), 1.5), one, -one, 4, 0.4, 0.3)
    squared = (found**2).sum(axis=(1, 2))
    facts = FACTS | {"num_features": 1, "num_classes": 1}
    bound = mixed_squared_gradient(4, **facts)
    # Ten standard errors: the false-alarm probability is below 1e-20.
    assert abs(squared.mean() - bound) < 10 * squared.std() / math.sqrt(len(squared))
    assert squared.std() / math.sqrt(len(squared)) < 0.01 * bound


def test_the_bound_holds_in_more_dimensions(rng):
    bound = mixed_squared_gradient(4, **FACTS)
    for _ in range(5):
        weights, x, y = rng.standard_normal((2, 3)), rng.standard_normal(3), rng.standard_normal(2)
        weights *= 1.5 / np.linalg.norm(weights)
        x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
        found = gradients(rng, weights, x, y, 4, 0.4, 0.3, 20_000)
        assert (found**2).sum(axis=(1, 2)).mean() < bound


def test_the_bound_rises_with_either_noise_and_with_the_square_of_the_mix_size():
    bound = mixed_squared_gradient(4, **FACTS)
    for name in ("feature_noise_stddev", "label_noise_stddev"):
        assert mixed_squared_gradient(4, **FACTS | {name: 0.5}) > bound
    assert mixed_squared_gradient(8, **FACTS) == pytest.approx(4 * bound)


def test_a_descent_ends_within_the_bound(rng):
    convexity, steps, runs = 0.5, 400, 500
    ends = np.full(runs, 1.0)
    for t in range(1, steps + 1):  # loss w^2 / 4 on [-1, 1], gradients with noise of variance 1
        gradient = convexity * ends + rng.standard_normal(runs)
        ends = np.clip(ends - gradient / (convexity * t), -1, 1)
    loss = float((convexity * ends**2 / 2).mean())
    bound = descent_error_bound(
        steps, squared_gradient=convexity**2 + 1, strong_convexity=convexity
    )
    assert bound == pytest.approx(17 * 1.25 * (1 + math.log(400)) / 200)
    assert bound / 1000 < loss < bound


@pytest.mark.parametrize(
    ("name", "value"), [("squared_gradient", math.nan), ("strong_convexity", 0.0)]
)
def test_bad_numbers_are_refused(name, value):
    facts = {"squared_gradient": 1.0, "strong_convexity": 1.0}
    with pytest.raises(InvalidInputError, match=name):
        descent_error_bound(10, **facts | {name: value})
    with pytest.raises(InvalidInputError, match="num_steps"):
        descent_error_bound(1, **facts)
