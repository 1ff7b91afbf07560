"""Design ``adaptive`` for labels that are no single class: the same guarantee under every link."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit, softmax

from builders import make_plan, make_schema
from privmix import (
    AdaptiveClassifier,
    InvalidInputError,
    NoiseAwareClassifier,
    NoiseAwareRegressor,
    Schema,
    bound_records,
    plan_release,
    release,
    verify,
)
from privmix.learners import score
from privmix.mechanism import AdaptiveConfig
from privmix.planning.plan import RECORD, PrivacyUnit
from privmix.preprocess import Center, Intercept, UnitNorm
from privmix.publishing.release import empty_preprocessor
from privmix.rng import MasterKey
from privmix.rounds.public_model import weight_exponent
from privmix.rounds.residuals import Rounds
from privmix.synthesis import Synthesizer

KEY = MasterKey.for_test(4, b"rounds")
OPTIONS = {"mix_size": 20, "num_mixtures": 60, "num_rounds": 4}
LINKS = {
    "soft": lambda scores: softmax(scores, axis=1),
    "multilabel": expit,
    "regression": lambda scores: scores,
}
SLOPES = {"soft": 3, "multilabel": 4, "regression": 1}
pytestmark = pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")


def schema_of(target: str, num_features: int = 5, num_records: int = 60) -> Schema:
    facts = {"multilabel": {"max_labels": 3}, "regression": {"target_bounds": [(0.0, 10.0)] * 3}}
    return Schema(
        classes=["a", "b", "c"],
        num_features=num_features,
        num_records=num_records,
        feature_clip_norm=1.0,
        target=target,
        **facts.get(target, {}),
    )


def data_of(schema: Schema, count: int, seed: int = 0, noise: float = 0.0):
    """Records whose labels follow from a linear model by the target's link."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, schema.num_features))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    true = np.random.default_rng(9).standard_normal((3, schema.num_features))
    scores = x @ true.T + noise * rng.standard_normal((count, 3))
    if schema.target == "soft":
        return x, softmax(4 * scores, axis=1)
    if schema.target == "multilabel":
        return x, (scores > 0).astype(int)
    return x, np.clip(5 + 1.5 * scores, 0, 10)


def plan_for(target: str, noise: float = 0.05, unit=RECORD, **sizes):
    return make_plan(schema_of(target, **sizes), "adaptive", noise, unit, **OPTIONS)


def sums_of(plan, x, y, weights, policy="error"):
    records = bound_records(x, y, plan.data_schema, policy, max_bad_share=1.0)
    return Rounds(plan.mechanism.components[1], records, KEY).sums(weights)


def weights_for(scale: float, num_features: int = 5, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal((3, num_features))
    return (scale * drawn).astype(np.float32)


@pytest.mark.parametrize("target", LINKS)
class TestNeighbours:
    @pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1e6, 1e30])
    @pytest.mark.parametrize("length", [1.0, 50.0, 1e-3, 0.0])
    def test_one_more_record(self, target, scale, length):
        """One record less changes the sums by its own integers, of the norm that the noise is for."""
        plan = plan_for(target)
        x, y = data_of(plan.data_schema, 61)
        x[-1] *= length
        weights = weights_for(scale)
        moved = sums_of(plan, x, y, weights) - sums_of(plan, x[:-1], y[:-1], weights)
        assert np.array_equal(moved, sums_of(plan, x[-1:], y[-1:], weights))
        features = bound_records(x, y, plan.data_schema).feature_grid
        rounds = plan.mechanism.components[1]
        square = sum(int(value) ** 2 for value in moved.flat)
        assert square <= features.largest_square * rounds.residual_grid.largest_square
        bound = features.sensitivity * rounds.residual_grid.sensitivity
        assert rounds.noise_stddev(features.sensitivity) >= rounds.noise_multiplier * bound

    def test_the_bound_is_reached(self, target):
        plan = plan_for(target, num_features=1)
        x, y = np.ones((1, 1)), [[0, 1, 0]] if target != "regression" else [[0.0, 10.0, 0.0]]
        weights = np.array([[100.0], [-100.0], [-100.0]], dtype=np.float32)
        moved = sums_of(plan, x, y, weights)
        grid = bound_records(x, y, plan.data_schema).feature_grid
        bound = plan.mechanism.components[1].residual_grid.sensitivity * grid.sensitivity
        assert 0.999 * bound < np.linalg.norm(moved) <= bound

    def test_a_bad_record_adds_nothing(self, target):
        plan = plan_for(target)
        x, y = data_of(plan.data_schema, 30)
        due = sums_of(plan, x[:-2], y[:-2], weights_for(1.0), "zero")
        x[-1, 0] = np.nan
        y = y.astype(float)
        y[-2, 0] = np.nan
        assert np.array_equal(sums_of(plan, x, y, weights_for(1.0), "zero"), due)

    def test_records_of_an_owner_beyond_the_most_add_nothing(self, target):
        """Also after preprocessing, which could make something of a record of zeros."""
        plan = plan_for(target, unit=PrivacyUnit("patient", 3))
        x, y = data_of(plan.data_schema, 60)
        ids = np.arange(60) // 8
        x[-8:], y[-8:] = x[-1], y[-1]  # the worst: all alike
        found = []
        for some in (np.ones(60, dtype=bool), ids != ids[-1]):
            records = bound_records(x[some], y[some], plan.data_schema, units=ids[some])
            sampled = records.sampled(KEY.stream("units"), 3)
            rounds = Rounds(plan.mechanism.components[1], sampled, KEY)
            found.append(rounds.sums(weights_for(5.0)))
        one = plan.mechanism.components[1].residual_grid.sensitivity
        one *= records.feature_grid.sensitivity
        assert np.linalg.norm(found[0] - found[1]) <= 3 * one
        assert np.any(found[0] != found[1])


@pytest.mark.parametrize("target", LINKS)
def test_residuals_are_those_of_the_link(target):
    plan = plan_for(target)
    x, y = data_of(plan.data_schema, 200)
    weights = np.ldexp(np.rint(np.ldexp(weights_for(2.0), 18)), -18).astype(np.float32)
    assert np.array_equal(np.ldexp(weights, weight_exponent(weights)) % 1, 0 * weights)
    records = bound_records(x, y, plan.data_schema)
    features = records.features / records.feature_grid.scale
    scaled = y / 5 - 1 if target == "regression" else y
    left = scaled - LINKS[target](features @ weights.T.astype(np.float64))
    lengths = np.linalg.norm(left, axis=1, keepdims=True)
    due = (left * np.minimum(1, 0.5 / lengths)).T @ features
    config = plan.mechanism.components[1]
    found = sums_of(plan, x, y, weights) / (records.feature_grid.scale * config.weight_unit)
    assert np.abs(found - due).max() < 200 * 3 / config.weight_unit
    assert config.curvature_divisor == SLOPES[target]


@pytest.mark.parametrize("target", LINKS)
def test_threads_and_streams_give_the_same_sums(target):
    plan = plan_for(target, num_features=200)
    x, y = data_of(plan.data_schema, 6000)
    weights, config = weights_for(1.0, 200), plan.mechanism.components[1]
    due = sums_of(plan, x, y, weights)
    records = bound_records(x, y, plan.data_schema, in_memory=False)
    assert np.array_equal(Rounds(config, records, KEY).sums(weights, 3), due)


class TestCertificates:
    @pytest.mark.parametrize("target", LINKS)
    def test_the_target_is_stated_and_decides_the_link(self, target):
        plan = plan_for(target)
        stated = plan.mechanism.model_dump()
        assert [one["target"] for one in stated["components"]] == [target, target]
        assert type(plan).from_json(plan.to_json()) == plan
        stated["components"][1]["target"] = "class"
        with pytest.raises(InvalidInputError, match="target"):
            AdaptiveConfig(**stated)

    def test_those_of_classes_do_not_state_it(self):
        plan = make_plan(make_schema(), "adaptive", 0.05, **OPTIONS)
        assert '"target"' not in plan.mechanism.model_dump_json()
        assert plan.mechanism.components[1].link == "softmax"

    @pytest.mark.parametrize("target", LINKS)
    def test_auto_takes_it_where_it_was_measured_to_be_better(self, target):
        schema = schema_of(target, num_records=30_000)
        plan = plan_release(schema, target_epsilon=1, target_delta=1e-5)
        assert (plan.design == "adaptive") == (target != "regression")


@pytest.fixture(scope="module", params=LINKS)
def made(request, tmp_path_factory):
    schema = schema_of(request.param, num_records=3000)
    steps = [Center(budget_share=0.01), UnitNorm(), Intercept()]
    plan = plan_release(
        schema,
        target_epsilon=8.0,
        target_delta=1e-5,
        design="adaptive",
        preprocessing=[Intercept()] if request.param == "regression" else steps,
        num_mixtures=200,
    )
    return release(*data_of(schema, 3000), plan, out=tmp_path_factory.mktemp("made") / "out")


def test_it_is_valid_and_its_model_is_good(made):
    assert verify(made.folder).reasons == ()
    x, y = data_of(made.schema, 1000, seed=1)
    if made.schema.target == "regression":
        model = NoiseAwareRegressor().fit(made)
        assert model.coef_stderr_.shape == model.coef_.shape and (model.coef_stderr_ > 0).all()
        assert score(model, x, y)["r2"] > 0.9
        with pytest.raises(InvalidInputError, match="regressor"):
            AdaptiveClassifier().fit(made)
        return
    model = NoiseAwareClassifier().fit(made)
    assert np.array_equal(AdaptiveClassifier().fit(made).predict(x), model.predict(x))
    found = score(model, x, y)
    if made.schema.target == "soft":
        assert found["accuracy"] > 0.9
    else:
        assert found["mean_average_precision"] > 0.95
        assert set(np.unique(model.predict(x))) == {0, 1}
    assert math.isclose(model.predict_proba(x).mean(), y.mean(), abs_tol=0.05)
    with pytest.raises(InvalidInputError, match="class_prior"):
        NoiseAwareClassifier(class_prior=[1, 1, 1]).fit(made)


def test_records_are_drawn_from_rounds_of_other_targets_but_numbers(made):
    if made.schema.target == "regression":
        with pytest.raises(
            InvalidInputError, match="poisson, signed, uniform, transposed.*adaptive"
        ):
            Synthesizer(made)
    else:
        drawn = next(Synthesizer(made).chunks(20))
        assert drawn.labels.shape == (20, made.num_classes)


@pytest.mark.parametrize("target", LINKS)
def test_a_blank_record_stays_blank_after_preprocessing(target):
    """The intercept of a bad record, or of one beyond an owner's most, would count residuals."""
    plan = plan_release(
        schema_of(target),
        target_epsilon=8.0,
        target_delta=1e-5,
        design="adaptive",
        preprocessing=[Intercept()],
        **OPTIONS,
    )
    x, y = data_of(plan.data_schema, 5)
    preprocessor = empty_preprocessor(plan)
    found = []
    for bad in (x, np.full_like(x, np.nan)):
        records = bound_records(bad, y, plan.data_schema, "zero", max_bad_share=1.0)
        mixed = preprocessor.run_next(records, KEY).transform_records(records)
        rounds = Rounds(plan.mechanism.components[1], mixed, KEY)
        found.append(rounds.sums(weights_for(1.0, 6)))
    assert found[0][:, -1].any() and not found[1].any()
