"""Design ``adaptive``: what a record can change, what is published, what is resumed and verified."""

from __future__ import annotations

import math
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import privmix.backends.parts
from builders import make_data, make_plan, make_schema
from privmix import (
    AdaptiveClassifier,
    InvalidInputError,
    NoiseAwareClassifier,
    Release,
    Schema,
    bound_records,
    plan_release,
    release,
    verify,
)
from privmix.accounting import ComposedEvent, GaussianEvent, account
from privmix.planning.plan import PrivacyUnit
from privmix.preprocess import Center, ClassCounts, Intercept, UnitNorm
from privmix.publishing.folder import file_digests, part_layout
from privmix.rng import MasterKey
from privmix.rounds import residuals
from privmix.rounds.public_model import PublicModel, same_weights, weight_exponent
from privmix.rounds.residuals import Rounds, add_residuals

KEY = MasterKey.for_test(4, b"rounds")
OPTIONS = {"mix_size": 20, "num_mixtures": 60, "num_rounds": 4}
# Releases here have a test seed, and learners say so.
pytestmark = pytest.mark.filterwarnings("ignore::privmix.accounting.guarantee.NotPrivateWarning")


def plan_for(noise_multiplier: float = 0.05, **sizes):
    return make_plan(make_schema(**sizes), "adaptive", noise_multiplier, **OPTIONS)


def rounds_of(plan, x, y, policy="error") -> Rounds:
    records = bound_records(x, y, plan.data_schema, policy)
    return Rounds(plan.mechanism.components[1], records, KEY)


def weights_for(plan, scale: float, seed: int = 0) -> np.ndarray:
    mechanism = plan.mechanism
    shape = mechanism.num_classes, mechanism.num_features
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


class TestNeighbours:
    """One record less changes a round's integer sums by that record's own integers alone."""

    @pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1e6])
    @pytest.mark.parametrize("length", [1.0, 50.0, 1e-3, 0.0])
    def test_one_more_record(self, scale, length):
        plan = plan_for(num_classes=7)
        x, y = make_data(plan.data_schema, 61)
        x[-1] *= length
        weights = weights_for(plan, scale)
        moved = rounds_of(plan, x, y).sums(weights) - rounds_of(plan, x[:-1], y[:-1]).sums(weights)
        alone = rounds_of(plan, x[-1:], y[-1:]).sums(weights)
        assert np.array_equal(moved, alone)
        features = bound_records(x, y, plan.data_schema).feature_grid
        grid = plan.mechanism.components[1].residual_grid
        square = sum(int(value) ** 2 for value in moved.flat)
        assert square <= features.largest_square * grid.largest_square
        # The noise is the multiple of this bound that the event states.
        rounds = plan.mechanism.components[1]
        bound = features.sensitivity * grid.sensitivity
        assert math.sqrt(square) <= bound
        assert rounds.noise_stddev(features.sensitivity) >= rounds.noise_multiplier * bound

    def test_the_bound_is_reached(self):
        """A wrong label far from a sure model: nothing smaller would do."""
        plan = plan_for(num_classes=2, num_features=1)
        weights = np.array([[100.0], [-100.0]], dtype=np.float32)
        moved = rounds_of(plan, np.ones((1, 1)), [1]).sums(weights)
        grid = plan.mechanism.components[1].residual_grid
        largest = bound_records(np.ones((1, 1)), [1], plan.data_schema).feature_grid.sensitivity
        assert np.linalg.norm(moved) > 0.999 * grid.sensitivity * largest

    def test_a_bad_record_adds_nothing(self):
        plan = plan_for()
        x, y = make_data(plan.data_schema, 30)
        weights = weights_for(plan, 1.0)
        due = rounds_of(plan, x[:-1], y[:-1]).sums(weights)
        x[-1, 0] = np.nan
        assert np.array_equal(rounds_of(plan, x, y, "zero").sums(weights), due)


def test_a_residual_depends_on_no_other_record():
    plan = plan_for(num_classes=5, num_features=37)
    x, y = make_data(plan.data_schema, 300)
    records = bound_records(x, y, plan.data_schema)
    weights, unit = weights_for(plan, 3.0), 1 / records.feature_grid.sensitivity
    config, shape = plan.mechanism.components[1], (5, 37)

    def total(runs) -> np.ndarray:
        found = np.zeros(shape, dtype=np.int64)
        for run in runs:
            add_residuals(records.features[run], records.labels[run], weights, unit, config, found)
        return found

    whole = total([slice(None)])
    assert np.array_equal(total([[i] for i in range(300)]), whole)
    assert np.array_equal(total([slice(7, None), slice(0, 7)]), whole)
    assert np.array_equal(total([np.random.default_rng(0).permutation(300)]), whole)


def test_scores_are_exact_and_residuals_are_those_of_a_softmax():
    plan = plan_for(num_classes=4, num_features=6)
    x, y = make_data(plan.data_schema, 200)
    weights = weights_for(plan, 2.0)
    weights = np.ldexp(np.rint(np.ldexp(weights, 20)), -20)
    assert np.array_equal(np.rint(np.ldexp(weights, weight_exponent(weights))).dtype, weights.dtype)
    records = bound_records(x, y, plan.data_schema)
    features = records.features / records.feature_grid.scale
    scores = features @ weights.T.astype(np.float64)
    left = np.eye(4)[y] - np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    lengths = np.linalg.norm(left, axis=1, keepdims=True)
    due = (left * np.minimum(1, 0.5 / lengths)).T @ features
    rounds = rounds_of(plan, x, y)
    found = rounds.sums(weights) / (records.feature_grid.scale * rounds.config.weight_unit)
    assert np.abs(found - due).max() < 200 * 2 / rounds.config.weight_unit


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_and_streams_give_the_same_sums(threads, tmp_path):
    plan = plan_for(num_features=200)
    x, y = make_data(plan.data_schema, 20_000)
    np.save(tmp_path / "x.npy", x.astype(np.float32))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    weights = weights_for(plan, 1.0)
    due = rounds_of(plan, x, y).sums(weights, 1)
    assert np.array_equal(rounds_of(plan, x, y).sums(weights, threads), due)
    streamed = bound_records(x, y, plan.data_schema, in_memory=False)
    found = Rounds(plan.mechanism.components[1], streamed, KEY).sums(weights, threads)
    assert np.array_equal(found, due)


class TestNoise:
    def test_it_has_the_planned_scale(self):
        """False alarm 1e-9; a scale wrong by a factor of 1.5 is rejected."""
        plan = plan_for(num_classes=40, num_features=500, noise_multiplier=2.0)
        rounds = rounds_of(plan, np.zeros((1, 500)), [0])
        config = rounds.config
        rows = rounds.publish(0, weights_for(plan, 1.0), np.zeros((40, 500), dtype=np.int64))
        stddev = config.published_stddev(plan.data_schema.feature_clip_norm, "feature")
        assert stddev == config.noise_multiplier * 0.5 / plan.mechanism.num_records
        statistic = float((rows.features.astype(np.float64) ** 2).sum()) / stddev**2
        low, high = stats.chi2.ppf([5e-10, 1 - 5e-10], rows.features.size)
        assert low < statistic < high
        assert not low < statistic / 1.5**2 < high and not low < statistic * 1.5**2 < high

    def test_every_round_draws_its_own(self):
        plan = plan_for()
        rounds = rounds_of(plan, np.zeros((1, 5)), [0])
        zero = np.zeros((3, 5), dtype=np.int64)
        made = [rounds.publish(t, weights_for(plan, 1.0), zero).features for t in (0, 0, 1)]
        assert np.array_equal(made[0], made[1]) and not np.array_equal(made[0], made[2])


@pytest.mark.parametrize("noise_multiplier", [0.3, 1.0, 17.0])
@pytest.mark.parametrize("num_rounds", [1, 30])
def test_one_configuration_is_what_is_drawn_and_accounted_for(noise_multiplier, num_rounds):
    options = OPTIONS | {"num_rounds": num_rounds, "feature_budget": 0.2}
    plan = make_plan(make_schema(), "adaptive", noise_multiplier, **options)
    rows, rounds = plan.mechanism.components
    event = plan.mechanism.event
    assert isinstance(event, ComposedEvent) and event.events == (rows.event, rounds.event)
    assert rounds.event == GaussianEvent(
        noise_multiplier=rounds.noise_multiplier, count=len(rounds.blocks)
    )
    # Together the rounds are one Gaussian mechanism with 0.8 of the squared parameter.
    assert rounds.round_multiplier == pytest.approx(noise_multiplier / math.sqrt(0.8))
    together = account(GaussianEvent(noise_multiplier=rounds.round_multiplier), 1e-5).epsilon
    assert account(rounds.event, 1e-5).epsilon == pytest.approx(together, rel=1e-3)
    assert [block.num_rows for block in rounds.blocks] == [3] * num_rounds
    assert len(part_layout(plan.mechanism)) == 1 + num_rounds


def data_of(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "data").iterdir())}


class Stop(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("after", [1, 3])
def test_a_resumed_run_reads_the_rounds_that_are_there(tmp_path, monkeypatch, after):
    plan = plan_for(num_records=300)
    x, y = make_data(plan.data_schema, 300)
    whole = release(x, y, plan, out=tmp_path / "whole", test_seed=1, threads=1)
    written, drawn = [], []
    write, publish = privmix.backends.parts.write_part, Rounds.publish

    def write_some(path, *arguments) -> None:
        if len(written) == after:
            raise Stop
        write(path, *arguments)
        written.append(path.name)

    def note(self, number, *arguments):
        drawn.append(number)
        return publish(self, number, *arguments)

    monkeypatch.setattr(privmix.backends.parts, "write_part", write_some)
    monkeypatch.setattr(Rounds, "publish", note)
    with pytest.raises(Stop):
        release(x, y, plan, out=tmp_path / "cut", test_seed=1, threads=2)
    kept = data_of(tmp_path / ".cut.run" / "release")
    monkeypatch.setattr(privmix.backends.parts, "write_part", write)
    drawn.clear()
    release(x, y, plan, out=tmp_path / "cut", resume=True, test_seed=1, threads=2)
    assert data_of(tmp_path / "cut") == data_of(whole.folder)
    assert all(data_of(tmp_path / "cut")[name] == kept[name] for name in written)
    assert drawn == list(range(after - 1, 4))


@pytest.fixture(scope="module")
def sealed(tmp_path_factory) -> Release:
    plan = plan_for(num_records=300)
    x, y = make_data(plan.data_schema, 300)
    return release(x, y, plan, out=tmp_path_factory.mktemp("sealed") / "out")


def rewrite(release, out, column: str, change) -> None:
    """Change a column of the parts of rounds, piece by piece, and enter the new digests."""
    shutil.copytree(release.folder, out)
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    for number, path in enumerate(sorted((out / "data").iterdir())[1:]):
        with pq.ParquetFile(path) as file:
            pieces = [file.read_row_group(i) for i in range(file.num_row_groups)]
        with pq.ParquetWriter(path, pieces[0].schema, **options) as writer:
            for name, piece in zip(("weights", "residuals"), pieces, strict=True):
                values = change(piece.column(column).to_pylist(), number, name)
                index = piece.schema.get_field_index(column)
                field = piece.schema.field(index)
                writer.write_table(piece.set_column(index, field, pa.array(values, field.type)))
    certificate = Release(out).certificate.model_copy(update={"files": file_digests(out)})
    (out / "certificate.json").write_bytes(certificate.to_bytes())


class TestVerification:
    def test_a_sound_release_is_valid(self, sealed, tmp_path):
        assert verify(sealed.folder).reasons == ()
        rewrite(sealed, tmp_path / "out", "features", lambda vectors, *_: vectors)
        assert verify(tmp_path / "out").reasons == ()

    @pytest.mark.parametrize("number", [0, 2])
    def test_altered_weights(self, sealed, tmp_path, number):
        def change(vectors, found, name):
            if (found, name) == (number, "weights"):
                vectors[1][2] += 1e-3 * max(1.0, abs(vectors[1][2]))
            return vectors

        rewrite(sealed, tmp_path / "out", "features", change)
        (reason, *_) = verify(tmp_path / "out").reasons
        assert f"weights of round {number} do not follow" in reason

    def test_weights_that_are_no_numbers(self, sealed, tmp_path):
        def change(vectors, number, name):
            if (number, name) == (1, "weights"):
                vectors[0][0] = float("nan")
            return vectors

        rewrite(sealed, tmp_path / "out", "features", change)
        assert "expected finite numbers" in " ".join(verify(tmp_path / "out").reasons)

    def test_reordered_labels(self, sealed, tmp_path):
        rewrite(sealed, tmp_path / "out", "label", lambda labels, *_: labels[::-1])
        reasons = " ".join(verify(tmp_path / "out").reasons)
        assert "classes, or names of tables, other than those of its layout" in reasons

    def test_altered_rows(self, sealed, tmp_path):
        """Rows that are no longer those that the next weights follow from."""

        def change(rows, number, name):
            if (number, name) == (1, "residuals"):
                rows[0] = rows[1]
            return rows

        rewrite(sealed, tmp_path / "out", "features", change)
        assert "weights of round 2 do not follow" in " ".join(verify(tmp_path / "out").reasons)

    @pytest.mark.parametrize("factor", [1e-3, 1 / 1.5])
    def test_too_little_noise(self, tmp_path, monkeypatch, factor):
        plan = plan_for(num_records=300, noise_multiplier=1.0, num_classes=10, num_features=100)
        x, y = make_data(plan.data_schema, 300)
        draw = residuals.rounded_gaussian

        def scaled(stream, extra, stddev, size):
            return draw(stream, extra, factor * stddev, size)

        monkeypatch.setattr(residuals, "rounded_gaussian", scaled)
        release(0 * x, y, plan, out=tmp_path / "out")
        assert "vary less than the stated noise" in " ".join(verify(tmp_path / "out").reasons)


class TestPublicModel:
    def test_any_runs_of_rows_give_the_same_bits(self, sealed):
        rows = sealed.tables[0].features
        mechanism = sealed.certificate.mechanism
        one = PublicModel.of(mechanism, 1.0, [rows])
        other = PublicModel.of(mechanism, 1.0, [rows[:7], rows[7:40], rows[40:]])
        published = sealed.tables[1].features[:3]
        assert np.array_equal(one.after(one.first, published), other.after(other.first, published))

    def test_it_does_not_depend_on_the_units_of_the_features(self, sealed):
        mechanism, rows = sealed.certificate.mechanism, sealed.tables[0].features
        published = sealed.tables[1].features[:3]
        one, other = (PublicModel.of(mechanism, c, [c * rows]) for c in (1.0, 2.0**-40))
        found = other.after(other.first, published * np.float32(2.0**-40))
        assert same_weights(found, one.after(one.first, published))

    def test_weights_that_are_the_same_and_weights_that_are_not(self):
        due = np.array([[1.0, -2.0]], dtype=np.float32)
        assert same_weights(np.nextafter(due, 3), due)
        assert not same_weights(due * np.float32(1.001), due)
        assert not same_weights(np.full((1, 2), np.nan, dtype=np.float32), due)
        assert same_weights(0 * due, 0 * due) and not same_weights(due, 0 * due)


def blobs(count, shares, num_features=6, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(len(shares), size=count, p=shares)
    centres = np.random.default_rng(9).standard_normal((len(shares), num_features))
    return centres[y] + 0.4 * rng.standard_normal((count, num_features)), y


@pytest.fixture(scope="module")
def rare(tmp_path_factory):
    """Two classes, one in twenty in the second."""
    schema = Schema(classes=[0, 1], num_features=6, num_records=4000, feature_clip_norm=3.0)
    steps = [Center(budget_share=0.01), UnitNorm(), Intercept()]
    plan = plan_release(
        schema,
        target_epsilon=2.0,
        target_delta=1e-5,
        design="adaptive",
        preprocessing=steps,
        num_mixtures=200,
    )
    x, y = blobs(4000, [0.95, 0.05])
    return release(x, y, plan, out=tmp_path_factory.mktemp("rare") / "out", test_seed=3)


class TestLearning:
    def test_a_rare_class_is_learnt(self, rare):
        x, y = blobs(2000, [0.95, 0.05], seed=1)
        model = AdaptiveClassifier().fit(rare)
        assert model.score(x, y) > 0.985
        assert model.score(x[y == 1], y[y == 1]) > 0.8
        shares = model.predict_proba(x)
        assert np.allclose(shares.sum(axis=1), 1) and model.logit_scale_ >= 1
        assert abs(shares[:, 1].mean() - 0.05) < 0.03
        assert np.array_equal(NoiseAwareClassifier().fit(rare).predict(x), model.predict(x))

    def test_a_prior_replaces_that_of_the_records(self, rare):
        x, _ = blobs(2000, [0.95, 0.05], seed=1)
        x *= 0.3  # records that the model is not sure of
        logits = AdaptiveClassifier().fit(rare)
        own = logits.logit_scale_ * logits.decision_function(x)
        model = AdaptiveClassifier(class_prior=[1, 1]).fit(rare)
        assert model.class_prior_.tolist() == [0.5, 0.5]
        # What is added is the log of the odds that records had against: 19, through noise of two
        # points of the share of 5 %.
        moved = model.logit_scale_ * model.decision_function(x) - own
        assert np.ptp(moved) < 1e-9 * np.abs(own).max() + 1e-6
        assert 19 / 4 < np.exp(moved).mean() < 19 * 4
        never = AdaptiveClassifier(class_prior=[1, 0]).fit(rare)
        assert (never.predict(x) == 0).all()

    def test_charged_counts_serve_a_prior_without_an_intercept(self, tmp_path):
        schema = Schema(classes=[0, 1], num_features=6, num_records=4000, feature_clip_norm=3.0)
        plan = plan_release(
            schema,
            target_epsilon=2.0,
            target_delta=1e-5,
            design="adaptive",
            preprocessing=[ClassCounts(budget_share=0.02), Center(budget_share=0.02), UnitNorm()],
            num_mixtures=200,
        )
        made = release(*blobs(4000, [0.8, 0.2]), plan, out=tmp_path / "out", test_seed=3)
        x, _ = blobs(500, [0.8, 0.2], seed=1)
        plain = AdaptiveClassifier().fit(made)
        own = plain.logit_scale_ * plain.decision_function(x)
        counted = AdaptiveClassifier(class_prior="counts").fit(made)
        logits = counted.logit_scale_ * counted.decision_function(x)
        np.testing.assert_allclose(logits, own, rtol=1e-5, atol=1e-6)
        assert abs(counted.class_prior_[1] - 0.2) < 0.02
        even = NoiseAwareClassifier(class_weight="balanced").fit(made)
        moved = even.logit_scale_ * even.decision_function(x) - own
        np.testing.assert_allclose(moved, np.log(4), atol=0.15)

    def test_a_prior_needs_counts_or_an_intercept(self, sealed):
        with pytest.raises(
            InvalidInputError, match="without class counts and without an intercept"
        ):
            AdaptiveClassifier(class_prior=[1, 1, 1]).fit(sealed)
        with pytest.raises(
            InvalidInputError, match="without class counts and without an intercept"
        ):
            NoiseAwareClassifier(class_weight="balanced").fit(sealed)

    def test_other_designs_are_refused(self, tmp_path, poisson_plan):
        x, y = make_data(poisson_plan.data_schema, 60)
        made = release(x, y, poisson_plan, out=tmp_path / "out", test_seed=1)
        with pytest.raises(InvalidInputError, match="release.design: expected one of adaptive"):
            AdaptiveClassifier().fit(made)


def test_a_unit_changes_a_round_by_no_more_than_its_records_may():
    plan = make_plan(make_schema(), "adaptive", 0.05, PrivacyUnit("patient", 3), **OPTIONS)
    x, y = make_data(plan.data_schema, 60)
    ids = np.arange(60) // 8
    x[-8:], y[-8:] = x[-1], y[-1]  # the worst: all of one direction and one class
    stays = ids != ids[-1]
    found = []
    for some in (np.ones(60, dtype=bool), stays):
        records = bound_records(x[some], y[some], plan.data_schema, units=ids[some])
        sampled = records.sampled(KEY.stream("units"), 3)
        found.append(Rounds(plan.mechanism.components[1], sampled, KEY).sums(weights_for(plan, 1)))
    grid = plan.mechanism.components[1].residual_grid
    one = grid.sensitivity * records.feature_grid.sensitivity
    assert 2 * one < np.linalg.norm(found[0] - found[1]) <= 3 * one


def test_a_unit_is_protected_with_all_its_records(tmp_path):
    unit = PrivacyUnit("patient", 3)
    plan = make_plan(make_schema(), "adaptive", 0.05, unit, **OPTIONS)
    x, y = make_data(plan.data_schema, 60)
    units = np.arange(60) // 6
    made = release(x, y, plan, out=tmp_path / "out", units=units, test_seed=1)
    (reason,) = verify(made.folder).reasons
    assert "private is false" in reason
    assert made.certificate.privacy_unit == "unit"


def test_a_store_is_refused_before_anything_is_drawn(tmp_path):
    plan = plan_for()
    x, y = make_data(plan.data_schema, 60)
    with pytest.raises(InvalidInputError, match="store: not accepted for design adaptive"):
        release(x, y, plan, out=tmp_path / "out", store=tmp_path / "store")
    assert list(tmp_path.iterdir()) == []
