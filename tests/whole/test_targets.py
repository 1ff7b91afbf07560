"""Soft, multi-label and regression targets from the schema to the release."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from builders import make_plan
from privmix import (
    InvalidInputError,
    ReleasePlan,
    Schema,
    bound_records,
    plan_release,
    release,
    verify,
)
from privmix.mechanism import joint_noise_multiplier, split_noise_multiplier, squared_change
from privmix.mixer import Mixer
from privmix.preprocess import Center, ClassCounts, SelectFeatures, UnitNorm
from privmix.sampling import WEIGHT_SCALE

FACTS = {"num_features": 5, "num_records": 60, "feature_clip_norm": 1.0}
TARGETS: dict[str, dict] = {
    "soft": {"classes": ["a", "b", "c"]},
    "multilabel": {"classes": ["a", "b", "c"], "max_labels": 2},
    "regression": {"classes": ["u", "v"], "target_bounds": [(0, 10), (-1, 1)]},
    "regression-one": {"classes": ["u"], "target_bounds": [(0, 10)]},
}
DESIGNS: dict[str, dict] = {
    "poisson": {"mix_size": 20, "num_mixtures": 40},
    "signed": {"mix_size": 20, "num_mixtures": 40},
    "transposed": {"rows_per_record": 4, "num_mixtures": 40},
    "transposed-replace": {
        "rows_per_record": 30,
        "num_mixtures": 40,
        "neighboring_relation": "replace_one",
    },
    "uniform": {"mix_size": 6, "num_mixtures": 60},
    "uniform-weighted": {
        "mix_size": 6,
        "num_mixtures": 60,
        "weight_alpha": 0.7,
        "weight_clip": 0.3,
    },
}
# Labels as far apart as can be, and one that goes beyond every bound.
EXTREMES: dict[str, tuple[list[float], list[float], list[float]]] = {
    "soft": ([1, 0, 0], [0, 1, 0], [0, 0, 1]),
    "multilabel": ([1, 1, 0], [0, 0, 1], [1, 1, 1]),
    "regression": ([10, 1], [0, -1], [1e300, -1e9]),
    "regression-one": ([10], [0], [-1e300]),
}


def schema_for(target: str, **more) -> Schema:
    return Schema(target=target.split("-")[0], **{**TARGETS[target], **FACTS, **more})


def labels_for(target: str, count: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    width = len(TARGETS[target]["classes"])
    if target == "soft":
        return rng.dirichlet(np.ones(width), size=count)
    if target == "multilabel":
        return (rng.random((count, width)) < 0.4).astype(int)
    return rng.uniform(-2, 12, size=(count, width))


def features_for(count: int) -> np.ndarray:
    x = np.random.default_rng(0).standard_normal((count, 5))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def plan_for(target: str, name: str, noise_multiplier: float = 5.0, **more) -> ReleasePlan:
    design = name.split("-")[0]
    return make_plan(schema_for(target, **more), design, noise_multiplier, **DESIGNS[name])


def sums(plan: ReleasePlan, x, y, key) -> tuple[Mixer, np.ndarray, np.ndarray]:
    (config,) = plan.mechanism.components
    mixer = Mixer(config, bound_records(x, y, plan.data_schema), key)
    parts = [mixer.sums(block) for block in config.blocks]
    features = np.concatenate([part.features for part in parts]).astype(np.int64)
    return mixer, features, np.concatenate([part.labels for part in parts])


class TestSchemas:
    @pytest.mark.parametrize("target", TARGETS)
    def test_json_and_back(self, target):
        schema = schema_for(target)
        assert Schema.from_json(schema.to_json()) == schema

    def test_a_schema_of_classes_is_written_as_before(self):
        schema = Schema(classes=[0, 1], **FACTS)
        assert list(json.loads(schema.to_json())) == [
            "classes",
            "num_features",
            "num_records",
            "feature_clip_norm",
            "label_clip_norm",
        ]

    def test_the_label_norm_follows_from_the_target(self):
        norms = {target: schema_for(target).label_clip_norm for target in TARGETS}
        root = np.sqrt(2)
        assert norms == {
            "soft": 1.0,
            "multilabel": root,
            "regression": root,
            "regression-one": 1.0,
        }
        assert schema_for("regression", label_clip_norm=0.5).label_clip_norm == 0.5
        chosen = {"max_labels": None, "label_clip_norm": 1.2}
        assert schema_for("multilabel", **chosen).label_clip_norm == 1.2

    @pytest.mark.parametrize(
        ("target", "more", "words"),
        [
            ("soft", {"classes": ["a"]}, "at least two"),
            ("soft", {"label_clip_norm": 1.5}, "at most 1.0"),
            ("soft", {"max_labels": 1}, "not accepted for target soft"),
            ("soft", {"target_bounds": [(0, 1)] * 3}, "not accepted for target soft"),
            ("multilabel", {"max_labels": None}, "max_labels: required: a number"),
            ("multilabel", {"max_labels": 4}, "at most 3"),
            ("multilabel", {"max_labels": 0}, "at least 1"),
            ("multilabel", {"label_clip_norm": 1.5}, "at most 1.41"),
            ("regression", {"target_bounds": None}, "required: a pair .* for each of 2"),
            ("regression", {"target_bounds": [(0, 1)]}, "for each of 2, got 1"),
            ("regression", {"target_bounds": [(0, 1), (1, 1)]}, r"target_bounds\[1\].*low below"),
            ("regression", {"target_bounds": [(0, 1), (2, 1)]}, r"target_bounds\[1\].*low below"),
            ("regression", {"target_bounds": [(0, np.nan), (0, 1)]}, r"target_bounds\[0\].*finite"),
            ("regression", {"target_bounds": [(0, np.inf), (0, 1)]}, r"target_bounds\[0\].*finite"),
            ("regression", {"target_bounds": [(0, 1, 2), (0, 1)]}, r"target_bounds\[0\].*pair"),
            ("regression", {"target_bounds": "ab"}, "target_bounds.*pair"),
            ("regression", {"classes": [1, 2]}, "names of the outputs"),
            ("regression", {"label_clip_norm": 1.5}, "at most 1.41"),
            ("regression", {"label_clip_norm": 0.0}, "at least"),
        ],
    )
    def test_what_contradicts_itself_is_refused(self, target, more, words):
        with pytest.raises(InvalidInputError, match=words):
            schema_for(target, **more)

    def test_other_targets_are_refused(self):
        with pytest.raises(InvalidInputError, match="target"):
            Schema(classes=[0, 1], target="ranking", **FACTS)


class TestRecords:
    def test_soft_and_multilabel_labels_are_clipped_and_truncated(self):
        schema = schema_for("soft")
        labels = bound_records(features_for(2), [[0.5, 0.25, 0.25], [0, 0, 1]], schema).labels
        assert labels.dtype == np.int16
        assert labels.tolist() == [[8192, 4096, 4096], [0, 0, 16384]]
        schema = schema_for("multilabel")
        found = bound_records(features_for(3), [[1, 1, 1], [0, 1, 0], [0, 0, 0]], schema)
        grid = found.label_grid
        assert grid.clip_norm == np.sqrt(2)
        assert np.allclose(found.labels[0] / grid.scale, np.sqrt(2 / 3), atol=1e-3)
        assert found.labels[1:].tolist() == [[0, grid.scale, 0], [0, 0, 0]]
        assert found.num_labels_clipped == 1

    def test_regression_labels_are_clamped_and_scaled(self):
        schema = schema_for("regression")
        y = [[0, -1], [10, 1], [5, 0], [7.5, 0.5], [1e308, -1e308]]
        found = bound_records(features_for(5), y, schema)
        scaled = found.labels / found.label_grid.scale
        due = [[-1, -1], [1, 1], [0, 0], [0.5, 0.5], [1, -1]]
        assert np.abs(scaled - due).max() < 2e-4
        assert found.num_labels_clipped == 1

    @pytest.mark.parametrize("target", TARGETS)
    def test_every_label_is_within_the_norm_exactly(self, target):
        for more in ({}, {"label_clip_norm": 0.7}):
            schema = schema_for(target, **more)
            y = np.concatenate([labels_for(target, 500), [EXTREMES[target][2]]])
            found = bound_records(features_for(501), np.abs(y) if target == "soft" else y, schema)
            squares = np.square(found.labels.astype(np.int64)).sum(axis=1)
            assert squares.max() <= found.label_grid.largest_square
            if target in ("soft", "multilabel"):
                assert found.labels.min() >= 0  # what the sensitivity of replacing rests on

    @pytest.mark.parametrize("target", TARGETS)
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_a_record_does_not_change_what_is_made_of_another(self, target, order):
        schema, y = schema_for(target), np.asarray(labels_for(target, 300), order=order)
        whole = bound_records(features_for(300), y, schema).labels
        for i in (0, 7, 299):
            alone = bound_records(features_for(300)[i : i + 1], y[i : i + 1], schema).labels
            assert np.array_equal(whole[i], alone[0])
        assert np.array_equal(whole[:-1], bound_records(features_for(299), y[:-1], schema).labels)

    @pytest.mark.parametrize(
        ("target", "bad", "words"),
        [
            ("soft", [-0.1, 0.5, 0.5], r"labels\[1, 0\].*add up to at most 1.*-0.1"),
            ("soft", [0.5, 0.5, 0.5], r"labels\[1, 0\].*add up to at most 1"),
            ("soft", [0.5, np.nan, 0.5], r"labels\[1, .\].*at least 0"),
            ("multilabel", [0, 1, 0.5], r"labels\[1, 2\]: expected 0 or 1.*0.5"),
            ("multilabel", [0, 1, 2], r"labels\[1, 2\]: expected 0 or 1.*2"),
            ("multilabel", [0, np.nan, 0], r"labels\[1, 1\]: expected 0 or 1.*nan"),
            ("regression", [np.nan, 0], r"labels\[1, 0\]: expected a finite number.*nan"),
            ("regression", [0, np.inf], r"labels\[1, 1\]: expected a finite number.*inf"),
        ],
    )
    def test_bad_labels_are_refused_or_blanked(self, target, bad, words):
        schema, y = schema_for(target), labels_for(target, 3).astype(float)
        y[1] = bad
        with pytest.raises(InvalidInputError, match=words):
            bound_records(features_for(3), y, schema)
        found = bound_records(features_for(3), y, schema, "zero", max_bad_share=1.0)
        assert found.num_replaced == 1
        assert not found.labels[1].any()
        assert not found.features[1].any()
        rest = bound_records(features_for(3)[[0, 2]], y[[0, 2]], schema)
        assert np.array_equal(found.labels[[0, 2]], rest.labels)
        assert np.array_equal(found.features[[0, 2]], rest.features)

    def test_a_bad_feature_blanks_the_label_too(self):
        x, y = features_for(3), labels_for("regression", 3)
        x[1, 0] = np.nan
        found = bound_records(x, y, schema_for("regression"), "zero", max_bad_share=1.0)
        assert not found.labels[1].any()

    @pytest.mark.parametrize(
        ("target", "y", "words"),
        [
            ("regression", np.zeros((3, 3)), r"shape \(records, 2\)"),
            ("regression", np.zeros(3), r"shape \(records, 2\)"),
            ("regression", np.zeros((2, 2)), "one label for each of the 3 records"),
            ("regression", [["a", "b"]] * 3, "real numbers"),
            ("regression", np.array([["a", None]] * 3, dtype=object), "real numbers"),
            ("soft", np.zeros((3, 3), dtype=complex), "real numbers"),
            ("soft", np.ma.array(np.zeros((3, 3)), mask=np.eye(3)), "masked"),
            ("soft", [[0.5], [0.5, 0.5], [1.0]], "several lengths"),
        ],
    )
    def test_wrong_shapes(self, target, y, words):
        with pytest.raises(InvalidInputError, match=words):
            bound_records(features_for(3), y, schema_for(target))

    def test_one_output_may_come_without_an_axis(self):
        schema, y = schema_for("regression-one"), labels_for("regression-one", 4)
        flat = bound_records(features_for(4), y[:, 0], schema)
        assert np.array_equal(flat.labels, bound_records(features_for(4), y, schema).labels)


class TestSensitivity:
    def test_the_joint_multiplier_follows_the_squared_changes(self):
        for relation, target in itertools.product(
            ("add_or_remove_one", "replace_one"), ("class", "soft", "multilabel", "regression")
        ):
            x, y = squared_change(relation, target)
            assert joint_noise_multiplier(3.0, 4.0, relation, target) == pytest.approx(
                1 / np.sqrt(x / 9 + y / 16), rel=1e-12
            )
            feature, label = split_noise_multiplier(2.0, 1.5, relation, target)
            assert joint_noise_multiplier(feature, label, relation, target) == pytest.approx(2.0)
        assert squared_change("replace_one", "regression") == (4.0, 4.0)

    @pytest.mark.parametrize("target", TARGETS)
    @pytest.mark.parametrize("name", ["poisson", "signed", "transposed"])
    def test_one_more_record(self, target, name, key):
        plan = plan_for(target, name)
        x, y = features_for(61), labels_for(target, 61).astype(float)
        for label in EXTREMES[target]:
            y[-1] = label
            mixer, features, labels = sums(plan, x, y, key)
            _, fewer, fewer_labels = sums(plan, x[:-1], y[:-1], key)
            records = bound_records(x, y, plan.data_schema)
            own = records.labels[-1].astype(np.int64)
            moved = labels - fewer_labels
            length = np.linalg.norm(moved, axis=1)
            assert length.max() <= records.label_grid.sensitivity
            assert length.max() == pytest.approx(np.linalg.norm(own))
            signs = (1, -1) if name == "signed" else (1,)
            touched = moved[moved.any(axis=1)]
            assert all(any(np.array_equal(row, s * own) for s in signs) for row in touched)
            # The same rows, and for signs the same sign, as for its features.
            either = (features - fewer) @ records.features[-1].astype(np.int64)
            assert np.array_equal(np.sign(either), np.sign(moved @ own))
            assert len(touched) <= (mixer.config.rows_per_record or 10**9)

    @pytest.mark.parametrize("target", TARGETS)
    @pytest.mark.parametrize("name", ["uniform", "uniform-weighted", "transposed-replace"])
    def test_another_record_in_its_place(self, target, name, key):
        """Labels move as far as is charged for, and no farther."""
        plan = plan_for(target, name)
        x, y = features_for(60), labels_for(target, 60).astype(float)
        first, second, _ = EXTREMES[target]
        y[-1] = first
        other_x, other_y = x.copy(), y.copy()
        other_x[-1], other_y[-1] = -x[-1], second
        mixer, features, labels = sums(plan, x, y, key)
        _, others, other_labels = sums(plan, other_x, other_y, key)
        unit = 1.0 if mixer.config.weight_clip is None else mixer.config.weight_bound * WEIGHT_SCALE
        feature_change, label_change = squared_change("replace_one", plan.mechanism.target)
        moved = np.linalg.norm(features - others, axis=1) / 16384 / unit
        label_sensitivity = bound_records(x, y, plan.data_schema).label_grid.sensitivity
        labels_moved = np.linalg.norm(labels - other_labels, axis=1) / label_sensitivity / unit
        assert moved.max() <= np.sqrt(feature_change)
        assert labels_moved.max() <= np.sqrt(label_change) * (1 + 1e-12)
        if name != "uniform-weighted" and target != "multilabel":
            assert labels_moved.max() > 0.999 * np.sqrt(label_change)

    @pytest.mark.parametrize("target", TARGETS)
    @pytest.mark.parametrize("name", DESIGNS)
    def test_the_noise_covers_the_joint_movement(self, target, name):
        (part,) = plan_for(target, name, noise_multiplier=2.5).mechanism.components
        changes = squared_change(part.neighboring_relation, part.target)
        moved = sum(
            change * (1000 * part.weight_bound / part.noise_stddev(1000, kind)) ** 2
            for change, kind in zip(changes, ("feature", "label"), strict=True)
        )
        # Of one row; how many rows a record enters is said beside it (tests/test_engine.py).
        assert 1 / np.sqrt(moved) >= part.event.noise_multiplier * (1 - 1e-15)

    def test_a_target_that_is_charged_too_little_is_refused(self):
        plan = plan_for("regression", "uniform")
        for target in ("soft", "class", "multilabel"):
            told = {**plan.to_dict(), "target": target}
            with pytest.raises(InvalidInputError, match=r"noise_multiplier|schema\.target"):
                ReleasePlan.from_json(json.dumps(told))
        told = plan_for("regression", "poisson").to_dict()
        with pytest.raises(InvalidInputError, match=r"schema\.target"):
            ReleasePlan.from_json(json.dumps({**told, "target": "soft"}))


class TestDesigns:
    @pytest.mark.parametrize("target", TARGETS)
    @pytest.mark.parametrize(
        ("design", "options"),
        [
            ("stratified", {}),
            ("hybrid", {}),
            ("hierarchical", {"class_prob": 0.5}),
        ],
    )
    def test_designs_that_need_classes_refuse_other_targets(self, target, design, options):
        with pytest.raises(InvalidInputError, match=f"poisson, signed.*got {design}"):
            plan_release(
                schema_for(target), target_epsilon=1.0, target_delta=1e-5, design=design, **options
            )

    @pytest.mark.parametrize("outputs", [1, 60])
    def test_auto_chooses_none_of_them(self, outputs):
        schema = schema_for(
            "regression",
            classes=[f"o{i}" for i in range(outputs)],
            target_bounds=[(0, 1)] * outputs,
        )
        plan = plan_release(schema, target_epsilon=1.0, target_delta=1e-5)
        assert plan.design == "signed"
        assert plan.preprocessing == ()
        assert plan.epsilon <= 1.0

    @pytest.mark.parametrize("step", [ClassCounts(), SelectFeatures(num_selected=2)])
    def test_steps_that_need_classes_are_refused(self, step):
        with pytest.raises(InvalidInputError, match=f"preprocessing.*got {step.step}"):
            plan_release(
                schema_for("regression"),
                target_epsilon=1.0,
                target_delta=1e-5,
                design="signed",
                preprocessing=[step],
            )

    def test_centring_goes_with_every_target(self, tmp_path, key):
        """A blanked record stays blank: it must not turn into the mean's negative."""
        for target in TARGETS:
            plan = plan_release(
                schema_for(target),
                target_epsilon=8.0,
                target_delta=1e-5,
                design="signed",
                preprocessing=[Center(), UnitNorm()],
                **DESIGNS["signed"],
            )
            x, y = features_for(60), labels_for(target, 60).astype(float)
            y[7] = np.nan
            made = release(
                x, y, plan, out=tmp_path / target, on_bad_record="zero", max_bad_share=1.0
            )
            assert verify(made.folder).reasons == ()
            records = bound_records(x, y, plan.data_schema, "zero", max_bad_share=1.0)
            done = made.preprocessor.transform_records(records)
            assert not done.features[7].any()
            assert done.features[6].any()


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_blank_record_and_one_of_zeros_are_not_the_same_input(in_memory):
    # Centring moves the one and not the other, so that a run must not go on with the other.
    schema = schema_for("regression-one")
    x, y = features_for(10), np.full((10, 1), 5.0)  # the middle of its bounds, which becomes 0
    x[4] = 0.0
    zeros = bound_records(x, y, schema, "zero", max_bad_share=1.0, in_memory=in_memory)
    changed = x.copy()
    changed[4, 0] = np.nan
    blank = bound_records(changed, y, schema, "zero", max_bad_share=1.0, in_memory=in_memory)
    assert np.array_equal(zeros.read(0, 10), blank.read(0, 10))
    assert np.array_equal(zeros.labels, blank.labels)
    assert zeros.digest() != blank.digest()
    x[4, 0] = np.nan  # behind the back of what was read before
    assert np.array_equal(zeros.read(0, 10), blank.read(0, 10))
    assert not zeros.blank.any()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", DESIGNS)
def test_release_and_verify(target, name, tmp_path):
    plan = plan_for(target, name)
    made = release(features_for(60), labels_for(target, 60), plan, out=tmp_path / "r")
    assert verify(made.folder).reasons == ()
    schema = plan.data_schema
    assert made.label_weights.shape == (plan.num_mixtures, schema.num_classes)
    assert made.schema == schema
    card = (made.folder / "README.md").read_text()
    if schema.target == "regression":
        assert "scaled to [-1, 1]" in card
        assert 'Outputs: ["u"' in card
        assert "[0, 10]" in card
    else:
        assert 'Classes: ["a"' in card


def test_published_labels_are_the_sums_over_the_divisor(key):
    plan = plan_for("regression", "poisson")
    mixer, _, labels = sums(plan, features_for(60), labels_for("regression", 60), key)
    quiet = {"feature_noise_multiplier": 1e-9, "label_noise_multiplier": 1e-9}
    mixer.config = mixer.config.model_copy(update=quiet)
    rows = mixer.rows(mixer.config.blocks[0])
    scale = bound_records(
        features_for(1), labels_for("regression", 1), plan.data_schema
    ).label_grid.scale
    expected = labels[: len(rows.features)] / (scale * plan.mechanism.mix_size)
    assert np.array_equal(rows.label_weights, expected.astype(np.float32))
