import math

import numpy as np
import pytest

from privmix import InvalidInputError, Schema, plan_release
from privmix.planning.rule import (
    _center_share,
    _multiclass_error,
    _Noise,
    _seen_metric,
    predicted_error,
    recommend_design,
)

SIZES = {"num_records": 10_000, "num_classes": 20, "num_features": 100}


def test_alternatives_are_ranked_and_can_be_planned():
    found = recommend_design(**SIZES, epsilon=1.0, delta=1e-5)
    designs = sorted(a.design for a in found)
    assert designs == sorted(2 * ["adaptive", "hybrid", "poisson", "signed", "stratified"])
    assert sum(a.center_share is None for a in found) == 5
    errors = [a.predicted_error for a in found]
    assert errors == sorted(errors) and 0 < errors[0] < errors[-1] < 1
    schema = Schema(classes=range(20), num_features=100, num_records=10_000, feature_clip_norm=1.0)
    for alternative in found:
        plan = plan_release(
            schema,
            target_epsilon=1.0,
            target_delta=1e-5,
            design=alternative.design,
            preprocessing=alternative.preprocessing,
            **alternative.options,
        )
        assert 0.99 < plan.epsilon <= 1
        for part in plan.mechanism.components:
            if part.design == "signed":  # what the formula took for granted
                assert part.noise_multiplier == pytest.approx(1.2, rel=0.1)


def test_the_share_for_centring_leaves_the_least_noise():
    n, d, gdp_mu = 1000, 400, 0.3
    noise = d / (n * gdp_mu) ** 2
    shares = np.linspace(1e-3, 0.5, 5000)
    best = shares[np.argmin((0.75 + noise / shares) / (1 - shares))]
    assert _center_share(n, d, gdp_mu) == pytest.approx(best, abs=2e-4)


def test_centring_is_for_those_who_can_afford_it():
    rich = recommend_design(**SIZES, epsilon=1.0, delta=1e-5)[0]
    assert rich.center_share is not None and rich.center_share < 0.05
    poor = {"num_records": 200, "num_classes": 2, "num_features": 5000}
    assert recommend_design(**poor, epsilon=0.5, delta=1e-5)[0].center_share is None


def test_the_label_balance_follows_from_the_sizes():
    """Many classes and few records want good labels; many records want good features."""

    def balance(**task: int) -> float:
        found = recommend_design(**task, epsilon=1.0, delta=1e-5)
        return next(a.label_balance for a in found if a.design == "signed")

    many = balance(num_records=10_003, num_classes=77, num_features=384)
    few = balance(num_records=50_000, num_classes=10, num_features=1280)
    assert many <= 1.0 and few >= 1.4


def test_what_other_steps_spend_is_gone():
    whole = recommend_design(**SIZES, epsilon=1.0, delta=1e-5)[0]
    half = recommend_design(**SIZES, epsilon=1.0, delta=1e-5, budget_share=0.5)[0]
    assert half.predicted_error > whole.predicted_error


@pytest.mark.parametrize("name", ["epsilon", "num_records"])
def test_more_budget_or_more_records_predict_less_error(name):
    arguments = {**SIZES, "epsilon": 0.5, "delta": 1e-5}
    small = {a.design: a for a in recommend_design(**arguments)}
    large = {a.design: a for a in recommend_design(**{**arguments, name: arguments[name] * 4})}
    for design, alternative in small.items():
        assert large[design].predicted_error < alternative.predicted_error


def test_many_classes_and_little_data_leave_nothing_for_the_covariance():
    hard = {"num_records": 1000, "num_classes": 100, "num_features": 500}
    found = recommend_design(**hard, epsilon=1.0, delta=1e-5)
    others = [a for a in found if a.design not in ("adaptive", "stratified")]
    best = next(a for a in found if a.design == "stratified")
    assert best.predicted_error < min(a.predicted_error for a in others)
    easy = {"num_records": 60_000, "num_classes": 10, "num_features": 1000}
    best = recommend_design(**easy, epsilon=1.0, delta=1e-5)
    assert best[0].design == "adaptive"
    hybrid = next(a for a in best if a.design == "hybrid")
    assert hybrid.feature_budget >= 0.4


@pytest.mark.parametrize(
    ("sizes", "epsilon", "expected"),
    [
        ((10_003, 77, 384), 0.5, True),
        ((10_003, 77, 384), 8.0, True),
        ((15_000, 150, 384), 0.5, True),
        ((15_000, 150, 384), 1.0, True),
        ((30_000, 1000, 128), 1.0, False),
        ((500, 10, 100), 1.0, True),
        ((30_000, 1000, 128), 8.0, True),
        ((2_000, 10, 384), 1.0, True),
        ((500, 2, 50), 1.0, True),
        ((50_000, 10, 2_048), 1.0, True),
    ],
)
def test_rounds_are_for_classes_that_stand_out_of_their_noise(sizes, epsilon, expected):
    names = ("num_records", "num_classes", "num_features")
    found = recommend_design(**dict(zip(names, sizes, strict=True)), epsilon=epsilon, delta=1e-5)
    assert (found[0].design == "adaptive") == expected


def test_what_somebody_else_has_chosen_stays():
    schema = Schema(classes=range(20), num_features=100, num_records=10_000, feature_clip_norm=1.0)
    budget = {"target_epsilon": 1.0, "target_delta": 1e-5}
    assert plan_release(schema, **budget).preprocessing[-1].step == "intercept"
    assert plan_release(schema, **budget, preprocessing=[]).preprocessing == ()


def test_multiclass_error_equals_simulation():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((100_000, 5))
    scores[:, 0] += 1.5
    wrong = (scores.argmax(axis=1) != 0).mean()
    assert _multiclass_error(1.5, 5) == pytest.approx(wrong, abs=5 * math.sqrt(0.25 / 100_000))
    assert _multiclass_error(0.0, 10) == pytest.approx(0.9, abs=1e-6)
    assert _multiclass_error(40.0, 1000) == pytest.approx(0.0, abs=1e-12)


def test_separation_equals_simulation():
    """One class against another in the reference population, without noise on the covariance."""
    rng = np.random.default_rng(1)
    shape = 1 / np.arange(1, 51)
    within = 0.5 * shape / shape.sum()
    between = 0.25 * shape**2 / (shape**2).sum()
    noise, wrong = 0.002, []
    for _ in range(400):
        offsets = rng.standard_normal((2, 50)) * np.sqrt(between)
        weights = offsets + rng.standard_normal((2, 50)) * math.sqrt(noise)
        weights /= np.linalg.norm(weights, axis=1, keepdims=True)
        records = offsets[0] + rng.standard_normal((200, 50)) * np.sqrt(within)
        scores = records @ weights.T
        wrong.append((scores[:, 1] > scores[:, 0]).mean())
    # The formula takes offsets of one length, orthogonal: near, not equal.
    assert predicted_error(2, 50, _Noise(noise)) == pytest.approx(np.mean(wrong), abs=0.05)


def test_seen_metric_between_its_limits():
    within = np.array([0.3, 0.1, 0.05, 0.05])
    exact = _seen_metric(within, _Noise(0.0, 0.0, 1e-20))
    np.testing.assert_allclose(exact, within, rtol=1e-3)  # a ridge of no size
    blind = _seen_metric(within, _Noise(0.0, 1e6, 0.1))
    assert np.ptp(blind) == 0
    np.testing.assert_allclose(_seen_metric(within, _Noise(0.0)), within.mean())


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_records", 0), ("num_classes", 1), ("num_features", 0), ("epsilon", 0.0), ("delta", 1.0)],
)
def test_bad_arguments_are_named(name, value):
    with pytest.raises(InvalidInputError, match=name):
        recommend_design(**{**SIZES, "epsilon": 1.0, "delta": 1e-5, name: value})


def test_rounds_whose_noise_cannot_be_drawn_are_no_alternative():
    """Owners of many records: auto takes what can be planned."""
    sizes = {"num_records": 10**6, "num_classes": 10, "num_features": 64}
    for epsilon, has_rounds in ((1.0, True), (1e-3, False)):
        found = recommend_design(**sizes, epsilon=epsilon, delta=1e-5)
        assert ("adaptive" in {one.design for one in found}) == has_rounds
    schema = Schema(classes=range(10), num_features=64, num_records=10**6, feature_clip_norm=1.0)
    plan = plan_release(
        schema,
        target_epsilon=1.0,
        target_delta=1e-5,
        unit_column="owner",
        max_records_per_unit=1000,
    )
    assert plan.design != "adaptive" and 0.99 < plan.epsilon <= 1
