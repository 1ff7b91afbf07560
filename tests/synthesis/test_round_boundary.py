from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from builders import make_schema
from privmix import plan_release, release
from privmix.learners.adaptive import read_rounds
from privmix.synthesis.model import ClassModel
from privmix.synthesis.round_boundary import _SURENESS, boundary_model
from privmix.synthesis.round_means import Spread
from privmix.synthesis.round_model import round_model

PRIOR = np.array([0.5, 0.3, 0.2])


@pytest.fixture
def spread(rng) -> Spread:
    basis, _ = np.linalg.qr(rng.standard_normal((6, 6)))
    return Spread(rng.standard_normal(6), np.geomspace(0.01, 3, 6), basis, 1.0)


def made(
    spread: Spread, weights: np.ndarray, prior: np.ndarray = PRIOR, wide: float = 0.0
) -> ClassModel:
    typical = ClassModel(prior, np.zeros((3, 6)), np.full(6, wide), np.eye(6), None)
    return boundary_model(typical, weights, spread)


def scatter(model: ClassModel) -> np.ndarray:
    root = model.basis * model.stddevs
    return root @ root.T


def total(model: ClassModel) -> np.ndarray:
    offsets = model.means - PRIOR @ model.means
    return scatter(model) + (offsets.T * PRIOR) @ offsets


@pytest.mark.parametrize("wide", [0.0, 9.0])
def test_the_weights_are_the_best_rule_of_its_classes(spread, rng, wide):
    weights = rng.standard_normal((3, 6))
    model = made(spread, weights, wide=wide)
    best = np.linalg.solve(scatter(model), (model.means - PRIOR @ model.means).T).T
    np.testing.assert_allclose(best, _SURENESS * (weights - PRIOR @ weights), rtol=1e-6)


def test_its_records_vary_as_the_records_do(spread, rng):
    model = made(spread, 3 * rng.standard_normal((3, 6)))
    due = (spread.basis * spread.variances) @ spread.basis.T
    np.testing.assert_allclose(total(model), due, atol=1e-12)
    np.testing.assert_allclose(PRIOR @ model.means, spread.mean, atol=1e-12)


def test_scores_vary_as_those_of_typical_records(spread, rng):
    weights = rng.standard_normal((3, 6))
    weights -= PRIOR @ weights
    typical = replace(made(spread, weights), means=3 * weights, stddevs=np.linspace(1, 2, 6))
    before = (spread.basis * spread.variances) @ spread.basis.T
    after = total(boundary_model(typical, weights, spread))
    # But for a factor that leaves the variance of all as it was.
    span = np.linalg.svd(weights)[2]
    factor = span[-1] @ after @ span[-1] / (span[-1] @ before @ span[-1])
    assert np.trace(after) == pytest.approx(spread.trace)
    due = np.trace(weights @ total(typical) @ weights.T)
    assert np.trace(weights @ after @ weights.T) / factor == pytest.approx(due)
    assert due > 1.5 * np.trace(weights @ before @ weights.T)
    across = span[2:] @ (after / factor - before)  # beside the span nothing is changed
    np.testing.assert_allclose(across, 0, atol=1e-9)


def test_longer_weights_put_classes_farther_apart(spread, rng):
    weights = rng.standard_normal((3, 6))
    squares = [float(((made(spread, c * weights).means - spread.mean) ** 2).sum()) for c in (1, 3)]
    assert squares[0] < squares[1]


@pytest.mark.parametrize("weights", [np.zeros((3, 6)), np.tile(np.arange(6.0), (3, 1))])
def test_weights_that_tell_nothing_leave_one_class(spread, weights):
    model = made(spread, weights)
    np.testing.assert_allclose(model.means, np.tile(spread.mean, (3, 1)), atol=1e-12)


def test_a_class_that_no_record_has_is_not_far_away(spread, rng):
    model = made(spread, rng.standard_normal((3, 6)), np.array([0.6, 0.4, 0.0]))
    assert np.isfinite(model.means).all()
    assert np.abs(model.means - spread.mean).max() < 100


def test_three_in_five_records_are_drawn_near_boundaries(rng):
    typical = ClassModel(PRIOR, np.zeros((3, 6)), np.ones(6), np.eye(6), None)
    near = replace(typical, means=np.full((3, 6), 100.0))
    features, labels = replace(typical, boundary=near, boundary_share=0.6).draw(10_000, rng)
    drawn = features[:, 0] > 50
    # Seven standard deviations.
    assert abs(drawn.mean() - 0.6) < 7 * np.sqrt(0.24 / 10_000)
    assert {int(label) for label in labels[drawn]} == {0, 1, 2}


def test_records_come_in_pairs_about_the_mean_of_their_class(rng):
    means = rng.standard_normal((3, 6))
    model = ClassModel(np.array([0.5, 0.25, 0.25]), means, np.geomspace(1, 3, 6), np.eye(6), None)
    features, labels = model.draw(800, rng)
    found = np.array([features[labels == k].mean(axis=0) for k in range(3)])
    np.testing.assert_allclose(found, means, atol=1e-12)
    np.testing.assert_allclose(features[labels == 0].std(axis=0), model.stddevs, rtol=0.3)


def test_records_near_boundaries_are_pairs_among_themselves(rng):
    near = ClassModel(PRIOR, np.zeros((3, 6)), np.ones(6), np.eye(6), None)
    model = replace(near, boundary=near, boundary_share=0.6)
    features, labels = model.draw(800, rng)
    # Of either kind one of a class may be left over.
    sums = np.array([np.abs(features[labels == k].sum(axis=0)) for k in range(3)])
    assert sums.max() < 10
    alone = np.random.default_rng(1).standard_normal((800, 6))[labels == 0]
    assert np.abs(alone.sum(axis=0)).max() > 10


@pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")
@pytest.mark.parametrize("epsilon", [0.05, 300.0])
def test_as_many_records_are_near_boundaries_as_class_means_are_known(tmp_path, rng, epsilon):
    means = np.linalg.qr(rng.standard_normal((8, 8)))[0][:4]
    y = rng.integers(0, 4, 1000)
    x = means[y] + rng.normal(0, 0.1, (1000, 8))
    schema = make_schema(4, 8, 1000)
    plan = plan_release(schema, target_epsilon=epsilon, target_delta=1e-5, design="adaptive")
    made = release(x, y, plan, out=tmp_path / "release", test_seed=1)
    model = round_model(made, np.full(4, 0.25), read_rounds(made))
    assert model.boundary is not None
    assert model.boundary_share > 0.5 if epsilon > 100 else model.boundary_share < 0.2
