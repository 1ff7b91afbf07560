"""Preprocessing as a part of a release: composed, kept, resumed, verified, applied by learners."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from builders import make_data, make_schema
from privmix import (
    Certificate,
    InvalidInputError,
    NoiseAwareClassifier,
    Release,
    ReleasePlan,
    bound_records,
    engine,
    load_model,
    plan_release,
    release,
    save_model,
    verify,
)
from privmix.accounting import ComposedEvent, account
from privmix.preprocess import (
    Center,
    ClassCounts,
    Preprocessor,
    PublicStatistics,
    RandomProjection,
    SelectFeatures,
    Subspace,
    UnitNorm,
)
from privmix.preprocess.statistics import exact_sums
from privmix.publishing.folder import file_digests
from privmix.publishing.release import empty_preprocessor

SCHEMA = make_schema(num_features=6)
STEPS = (
    PublicStatistics(dataset="a public set, version 1", mean=(0.1,) * 6, stddev=(0.9,) * 6),
    Center(budget_share=0.1),
    UnitNorm(),
    ClassCounts(budget_share=0.05),
    SelectFeatures(num_selected=5, budget_share=0.1, with_squares=True),
    Subspace(num_directions=4, budget_share=0.1),
    RandomProjection(num_directions=3, seed=7),
)


def plan(steps=STEPS, design="signed", epsilon=5.0, **options) -> ReleasePlan:
    sizes = {} if design == "stratified" else {"num_mixtures": 60, "mix_size": 20}
    return plan_release(
        SCHEMA,
        target_epsilon=epsilon,
        target_delta=1e-5,
        design=design,
        preprocessing=steps,
        **sizes | options,
    )


@pytest.fixture(scope="module")
def data():
    return make_data(SCHEMA, 60)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("preprocess") / "r"
    return release(*data, plan(), out=folder)


class TestAccounting:
    @pytest.mark.parametrize("design", ["poisson", "signed", "stratified", "hybrid", "uniform"])
    def test_steps_and_mechanism_cost_the_target_together(self, design):
        made = plan(design=design)
        steps = [step for step in made.preprocessing if step.is_charged]
        relation = made.mechanism.neighboring_relation
        events = (*(step.event(relation) for step in steps), made.mechanism.event)
        assert made.event == ComposedEvent(events=events)
        assert made.event.neighboring_relation == relation
        assert 0.99 * 5 <= made.epsilon <= 5
        assert account(made.event, 1e-5).epsilon == pytest.approx(made.epsilon, rel=1e-9)
        assert account(made.mechanism.event, 1e-5).epsilon < made.epsilon
        again = ReleasePlan.from_json(made.to_json())
        assert again == made and again.digest() == made.digest()

    def test_public_steps_cost_nothing(self):
        free = plan((UnitNorm(), RandomProjection(num_directions=3)))
        bare = plan(())
        assert free.event == free.mechanism.event
        assert free.mechanism.noise_multiplier == bare.mechanism.noise_multiplier
        assert free.mechanism.num_features == 3

    def test_less_noise_than_planned_is_refused(self, data, tmp_path):
        document = json.loads(plan().to_json())
        document["preprocessing"][1]["noise_multiplier"] /= 2
        cheap = ReleasePlan.from_json(json.dumps(document))
        with pytest.raises(InvalidInputError, match=r"plan\.epsilon"):
            release(*data, cheap, out=tmp_path / "r")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("steps", "words"),
        [
            ([Center(budget_share=0.6), ClassCounts(budget_share=0.5)], "budget_share.*below 1"),
            ([SelectFeatures(num_selected=7)], "num_selected.*at most 6"),
            ([RandomProjection(num_directions=2), Subspace(num_directions=3)], "at most 2"),
            ([PublicStatistics(dataset="x", mean=(0.0, 1.0))], "mean.*6 numbers"),
        ],
    )
    def test_steps_that_cannot_be(self, steps, words):
        with pytest.raises(InvalidInputError, match=words):
            plan(steps)

    @pytest.mark.parametrize(
        "make",
        [
            lambda: Center(budget_share=float("nan")),
            lambda: Center(budget_share=0.0),
            lambda: Center(noise_multiplier=float("nan")),
            lambda: SelectFeatures(num_selected=0),
            lambda: Subspace(num_directions=-1),
            lambda: RandomProjection(num_directions=3, seed=-1),
            lambda: PublicStatistics(dataset=" ", mean=(0.0,)),
            lambda: PublicStatistics(dataset="x", mean=(float("nan"),)),
            lambda: PublicStatistics(dataset="x", mean=(0.0,), stddev=(0.0,)),
            lambda: PublicStatistics(dataset="x", mean=(0.0,), stddev=(1.0, 1.0)),
        ],
    )
    def test_bad_configs(self, make):
        with pytest.raises(InvalidInputError):
            make()


class TestNeighbours:
    """Given the same published results, both neighbours' records go through the same function."""

    def test_a_record_changes_no_other_record_by_a_bit(self, sealed, data):
        preprocessor = sealed.preprocessor
        together = preprocessor.transform(data[0])
        for start, stop in ((0, 1), (3, 10), (1, 60)):
            alone = preprocessor.transform(data[0][start:stop])
            assert np.array_equal(alone, together[start:stop])
        assert np.array_equal(preprocessor.transform(data[0][::-1]), together[::-1])
        fortran = np.asfortranarray(data[0])
        assert np.array_equal(preprocessor.transform(fortran), together)

    def test_the_sums_of_later_steps_move_by_one_bounded_record(self, sealed, data):
        """Adaptive composition: fix the outcomes so far, then compare neighbours at each step."""
        x, y = np.vstack([data[0], 40 * np.ones((1, 6))]), np.append(data[1], 2)
        full, less = bound_records(x, y, SCHEMA), bound_records(x[:-1], y[:-1], SCHEMA)
        for number, step in enumerate(sealed.preprocessor.steps):
            before = sealed.preprocessor.before(number)
            seen, seen_less = before.transform_records(full), before.transform_records(less)
            assert np.array_equal(seen.features[:-1], seen_less.features)
            norms = np.linalg.norm(seen.features.astype(float), axis=1)
            assert norms.max() <= seen.feature_grid.sensitivity
            facts = sealed.preprocessor.facts.model_copy(
                update={"num_features": seen.features.shape[1]}
            )
            for part in step.statistics(facts):
                moved = exact_sums(part.kind, seen, 3) - exact_sums(part.kind, seen_less, 3)
                assert np.linalg.norm(moved.astype(float)) <= part.sensitivity * (1 + 1e-12)

    def test_noise_outcomes_decide_and_nothing_else(self, data, key, monkeypatch):
        """Where the noise makes the neighbours' sums equal, they go through equal functions."""
        start = empty_preprocessor(plan((Center(noise_multiplier=3.0), UnitNorm())))
        x, y = data
        full, less = (bound_records(*part, SCHEMA) for part in ((x, y), (x[:-1], y[:-1])))
        moved = full.features[-1].astype(np.int64)
        done = start.run_next(full, key)._with_result({})
        published = done.tensors()["0.center.feature_sums"]
        monkeypatch.setattr(  # the neighbour's noise makes up for the record
            "privmix.preprocess.statistics.rounded_gaussian",
            lambda stream, extra, stddev, size: published - less.features.sum(axis=0, dtype=int),
        )
        other = start.run_next(less, key)._with_result({})
        assert moved.any()
        assert np.array_equal(done.transform(x), other.transform(x))

    def test_blanked_records_stay_blank(self, data, tmp_path):
        x = data[0].copy()
        x[5] = np.nan
        made = release(
            x,
            data[1],
            plan((Center(),)),
            out=tmp_path / "r",
            on_bad_record="zero",
            max_bad_share=1.0,
        )
        records = bound_records(x, data[1], SCHEMA, "zero", max_bad_share=1.0)
        assert not made.preprocessor.transform_records(records).features[5].any()


class TestFolder:
    def test_a_sound_release_is_valid(self, sealed):
        assert verify(sealed.folder).reasons == ()
        assert sealed.num_features == 3
        assert sealed.certificate.preprocessing == plan().preprocessing
        assert "`center`" in (sealed.folder / "README.md").read_text()
        assert Release(sealed.folder).preprocessor.class_counts.shape == (3,)

    def test_no_charged_step_no_file(self, data, tmp_path):
        made = release(*data, plan((UnitNorm(),)), out=tmp_path / "r")
        assert not (tmp_path / "r" / "preprocessing.safetensors").exists()
        assert verify(tmp_path / "r").valid
        assert np.allclose(np.linalg.norm(made.preprocessor.transform(data[0]), axis=1), 1)

    @pytest.mark.parametrize(
        ("name", "change", "words"),
        [
            ("1.center.mean", lambda t: t + 1e-9, "1.center.mean does not follow"),
            ("4.select_features.columns", lambda t: np.roll(t, 1), "increasing numbers"),
            ("4.select_features.columns", lambda t: t + 1, "below 6|does not follow"),
            ("5.subspace.basis", lambda t: t[::-1] * 1.01, "5.subspace.basis does not follow"),
            ("5.subspace.basis", lambda t: t * np.nan, "finite"),
            ("1.center.feature_sums", lambda t: t[:-1], "1.center"),
            ("3.class_counts.class_counts", lambda t: t.astype(np.float64), "3.class_counts"),
            ("1.center.feature_sums", lambda t: 0 * t, "does not follow|varies less"),
        ],
    )
    def test_edited_results(self, sealed, tmp_path, name, change, words):
        folder = tmp_path / "r"
        shutil.copytree(sealed.folder, folder)
        path = folder / "preprocessing.safetensors"
        tensors = load_file(path)
        tensors[name] = np.ascontiguousarray(change(tensors[name]))
        save_file(tensors, path)
        self.rehash(folder)
        outcome = verify(folder)
        assert not outcome.valid
        assert re.search(words, " ".join(outcome.reasons)), outcome.reasons

    def test_results_without_noise_are_noticed(self, tmp_path):
        """All-zero sums under the stated noise: the test of their squares fails them."""
        made = release(
            np.zeros((60, 6)), np.zeros(60, dtype=int), plan((Center(),)), out=tmp_path / "r"
        )
        empty = empty_preprocessor(plan((Center(),)))
        quiet = empty._with_result({"feature_sums": np.zeros(6, dtype=np.int64)})
        (made.folder / "preprocessing.safetensors").write_bytes(quiet.to_bytes())
        self.rehash(made.folder)
        assert "varies less than the stated noise" in " ".join(verify(made.folder).reasons)

    def rehash(self, folder) -> None:
        path = folder / "certificate.json"
        certificate = Certificate.from_json(path.read_bytes())
        forged = certificate.model_copy(update={"files": file_digests(folder)})
        path.write_bytes(forged.to_bytes())

    def test_a_missing_file(self, sealed, tmp_path):
        shutil.copytree(sealed.folder, tmp_path / "r")
        (tmp_path / "r" / "preprocessing.safetensors").unlink()
        assert "preprocessing.safetensors: missing" in verify(tmp_path / "r").reasons
        with pytest.raises(InvalidInputError, match="results of preprocessing"):
            NoiseAwareClassifier().fit(Release(tmp_path / "r"))


class TestResume:
    @pytest.mark.parametrize("stop_after", [0, 1, 2, 4, 5])
    def test_bits_are_those_of_a_run_in_one_go(self, data, tmp_path, monkeypatch, stop_after):
        """Cut off after some steps; the resumed run reads what was published and goes on."""
        whole = release(*data, plan(), out=tmp_path / "whole", test_seed=3)
        run_next, calls = Preprocessor.run_next, []

        def cut_off(self, records, key):
            if len(calls) == stop_after:
                raise KeyboardInterrupt
            calls.append(len(self.results))
            return run_next(self, records, key)

        monkeypatch.setattr(Preprocessor, "run_next", cut_off)
        with pytest.raises(KeyboardInterrupt):
            release(*data, plan(), out=tmp_path / "parts", test_seed=3)
        monkeypatch.setattr(Preprocessor, "run_next", run_next)
        made = release(*data, plan(), out=tmp_path / "parts", test_seed=3, resume=True)
        for path in whole.folder.rglob("*"):
            if path.is_file():
                other = made.folder / path.relative_to(whole.folder)
                assert path.read_bytes() == other.read_bytes(), path.name

    def test_other_eigenvectors_on_another_machine_change_nothing(
        self, data, tmp_path, monkeypatch
    ):
        """Results are read, not made again: rows never meet the same noise transformed apart."""
        write_parts = engine.write_parts

        def cut_off(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(engine, "write_parts", cut_off)
        with pytest.raises(KeyboardInterrupt):
            release(*data, plan(), out=tmp_path / "r", test_seed=3)
        kept = (tmp_path / ".r.run" / "release" / "preprocessing.safetensors").read_bytes()
        monkeypatch.setattr(engine, "write_parts", write_parts)
        monkeypatch.setattr(np.linalg, "eigh", None)  # a call would fail
        made = release(*data, plan(), out=tmp_path / "r", test_seed=3, resume=True)
        assert (made.folder / "preprocessing.safetensors").read_bytes() == kept

    def test_other_steps_are_another_plan(self, data, tmp_path, monkeypatch):
        monkeypatch.setattr(engine, "write_parts", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            release(*data, plan(), out=tmp_path / "r")
        with pytest.raises(InvalidInputError, match="the plan and the records"):
            release(*data, plan(STEPS[:-1]), out=tmp_path / "r", resume=True)


class TestLearners:
    def test_records_to_classify_go_through_the_same(self, sealed, data, tmp_path):
        model = NoiseAwareClassifier().fit(sealed)
        assert model.n_features_in_ == 6
        scores = model.decision_function(data[0])
        clipped = sealed.preprocessor.transform(data[0])
        assert np.allclose(scores, clipped @ model.coef_.T + model.intercept_)
        save_model(model, tmp_path / "m.safetensors")
        again = load_model(tmp_path / "m.safetensors")
        assert np.array_equal(again.decision_function(data[0]), scores)
        with pytest.raises(InvalidInputError, match="shape"):
            model.predict(np.zeros((2, 3)))

    @pytest.mark.parametrize(
        "change", [lambda t: t[:-1], lambda t: t * np.nan], ids=["short", "not finite"]
    )
    def test_a_model_file_with_other_results(self, sealed, tmp_path, change):
        path = tmp_path / "m.safetensors"
        save_model(NoiseAwareClassifier().fit(sealed), path)
        with safe_open(path, framework="numpy") as file:
            header = file.metadata()
        tensors = load_file(path)
        name = "preprocessing.1.center.mean"
        tensors[name] = np.ascontiguousarray(change(tensors[name]))
        save_file(tensors, path, header)
        with pytest.raises(InvalidInputError, match="center"):
            load_model(path)


def test_centring_learns_more_where_the_mean_is_large(tmp_path):
    """Records around a common mean of most of their length: centring leaves the classes apart."""
    schema = make_schema(num_classes=4, num_features=20, num_records=4000)
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=6000)
    offsets, scatter = rng.standard_normal((4, 20)), rng.standard_normal((6000, 20))
    x = (2 + 0.02 * (offsets[y] + scatter)) / np.sqrt(20)
    target = {"target_epsilon": 1.0, "target_delta": 1e-5, "design": "stratified"}
    accuracy = {}
    for name, steps in (("plain", ()), ("centred", (Center(), UnitNorm()))):
        made = plan_release(schema, **target, preprocessing=steps)
        rows = release(x[:4000], y[:4000], made, out=tmp_path / name)
        accuracy[name] = NoiseAwareClassifier().fit(rows).score(x[4000:], y[4000:])
    assert accuracy["centred"] > accuracy["plain"] + 0.05
