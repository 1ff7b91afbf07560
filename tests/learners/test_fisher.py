from __future__ import annotations

import numpy as np
import pytest

from privmix import (
    FisherClassifier,
    InvalidInputError,
    Schema,
    load_model,
    plan_release,
    release,
    save_model,
)
from privmix.preprocess import Center, ClassCounts, SelectFeatures, UnitNorm

SIZES = np.array([4000, 1000, 3000])


def gaussians(rng: np.random.Generator, sizes=SIZES, num_features=30):
    """Three classes that differ in the first five features, of unequal variances."""
    y = np.repeat(np.arange(3), sizes)
    means = np.zeros((3, num_features))
    means[:, :5] = np.array([[0.15], [-0.15], [0.0]]) * [1, 1, 1, 1, -1]
    means[2, :5] = [0.2, -0.2, 0.2, -0.2, 0.0]
    scale = np.where(np.arange(num_features) % 2, 0.15, 0.08)
    return means[y] + scale * rng.standard_normal((len(y), num_features)), y, means, scale


def publish(x, y, out, *, steps, epsilon=100.0):
    schema = Schema(classes=range(3), num_features=30, num_records=8000, feature_clip_norm=1.5)
    plan = plan_release(
        schema,
        target_epsilon=epsilon,
        target_delta=1e-5,
        design="stratified",
        rows_per_class=1,
        preprocessing=steps,
    )
    return release(x, y, plan, out=out)


STEPS = (
    ClassCounts(budget_share=0.1),
    SelectFeatures(num_selected=5, with_squares=True, budget_share=0.8),
)


def test_it_is_the_independence_rule_on_the_selected_features(tmp_path, rng):
    """At a large budget: support, means, variances and priors are those of the population."""
    x, y, means, scale = gaussians(rng)
    made = publish(x, y, tmp_path / "r", steps=STEPS, epsilon=500.0)
    model = FisherClassifier().fit(made)
    assert made.preprocessor.results[1]["columns"].tolist() == [0, 1, 2, 3, 4]
    assert np.allclose(model.coef_, means[:, :5] / scale[:5] ** 2, rtol=0.15, atol=1.5)
    shares = np.array(SIZES) / SIZES.sum()
    offsets = model.intercept_ + 0.5 * (means[:, :5] ** 2 / scale[:5] ** 2).sum(axis=1)
    assert np.allclose(offsets, np.log(shares), atol=0.7)
    probe, truth, *_ = gaussians(np.random.default_rng(5))
    exact = (probe[:, :5] / scale[:5] ** 2) @ means[:, :5].T + np.log(shares)
    exact -= 0.5 * (means[:, :5] ** 2 / scale[:5] ** 2).sum(axis=1)
    best = (exact.argmax(axis=1) == truth).mean()
    assert model.score(probe, truth) > best - 0.01


def test_noise_costs_accuracy_gracefully(tmp_path, rng):
    x, y, *_ = gaussians(rng)
    model = FisherClassifier().fit(publish(x, y, tmp_path / "r", steps=STEPS, epsilon=2.0))
    assert model.score(x, y) > 0.8  # the largest class alone is half


def test_steps_before_the_selection_apply_and_later_ones_do_not(tmp_path, rng):
    x, y, *_ = gaussians(rng)
    steps = (Center(budget_share=0.05), *STEPS, UnitNorm())
    made = publish(x, y, tmp_path / "r", steps=steps)
    model = FisherClassifier().fit(made)
    assert [step.step for step in model.preprocessor_.steps] == [
        "center",
        "class_counts",
        "select_features",
    ]
    assert model.n_features_in_ == 30 and model.coef_.shape == (3, 5)
    save_model(model, tmp_path / "m.safetensors")
    again = load_model(tmp_path / "m.safetensors")
    assert isinstance(again, FisherClassifier)
    assert np.array_equal(again.predict(x[:50]), model.predict(x[:50]))


@pytest.mark.parametrize("steps", [(), (UnitNorm(),), (SelectFeatures(num_selected=2),)])
def test_it_needs_a_selection_with_squares(tmp_path, rng, steps):
    x, y, *_ = gaussians(rng)
    made = publish(x, y, tmp_path / "r", steps=steps)
    with pytest.raises(InvalidInputError, match="selection of features with squares"):
        FisherClassifier().fit(made)
