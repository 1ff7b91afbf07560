"""Private training of records that owners have several of, and of records with weights as labels."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from privmix import InvalidInputError, Schema
from privmix.accounting import GroupEvent, account
from privmix.cli import app
from privmix.dpsgd import (
    AugmentationPlan,
    DPMixClassifier,
    LinearHead,
    TrainingPlan,
    fit,
    plan_training,
    verify_model,
)
from privmix.dpsgd.model_certificate import read_certificate
from privmix.dpsgd.private_views import PrivateViews
from privmix.dpsgd.trainer import Steps
from privmix.dpsgd.training_records import TrainingRecords, check_records
from privmix.planning.plan import PrivacyUnit
from privmix.rng import MasterKey
from privmix.running.ledger import Ledger
from privmix.spending import read_spent
from training_cases import Pooled, make_config, make_images

KEY = MasterKey.for_test(4, b"owners")
UNIT = PrivacyUnit("patient", 3)
PLAIN = {"augmentation": AugmentationPlan.plain(), "input_shape": (6,)}


def make_vectors(count: int = 60, seed: int = 0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(3, size=count)
    vectors = generator.standard_normal((count, 6)).astype(np.float32)
    return vectors + 2 * np.eye(6, dtype=np.float32)[labels], labels


def patients(count: int = 60, owners: int = 20) -> np.ndarray:
    """Owners in no order; the last records are one large owner's."""
    ids = np.random.default_rng(3).integers(owners, size=count)
    ids[-8:] = owners
    return ids


def sums(config, x, y, ids=None) -> tuple[np.ndarray, float]:
    records = check_records(x, y, config, units=ids)
    if ids is not None:
        records = records.sampled(KEY.stream("units"), UNIT.max_records)
    head = LinearHead(Pooled() if len(config.input_shape) == 3 else None)
    parameters = head.initial_parameters(config)
    source = head.bind(PrivateViews(records, config, KEY, None, "cpu"), parameters.size)
    steps = Steps(config, records, source, KEY)
    found = [steps.noiseless_sum(step, parameters) for step in range(config.num_steps)]
    return np.array(found), source.grid.sensitivity


class TestNeighbours:
    """Two inputs that differ by all records of an owner, under the same keys."""

    @pytest.mark.parametrize("kind", ["vectors", "images"])
    def test_an_owner_moves_a_step_by_no_more_than_its_records_may(self, kind):
        x, y = make_vectors() if kind == "vectors" else make_images(60)
        shape = PLAIN if kind == "vectors" else {}
        config = make_config(batch_size=60, clip_norm=0.1, **shape)
        ids = patients()
        x[-8:], y[-8:] = x[-1], y[-1]  # the worst: all of one direction and one class
        stays = ids != ids[-1]
        everybody, sensitivity = sums(config, x, y, ids)
        others, _ = sums(config, x[stays], y[stays], ids[stays])
        moved = np.linalg.norm((everybody - others).astype(float), axis=1)
        # Every record is in every step here, and their gradients point one way.
        assert (moved <= 3 * sensitivity).all()
        assert (moved > 2.5 * sensitivity).all()

    def test_which_of_the_others_take_part_does_not_change_by_a_bit(self):
        """Wherever the owner's records stand."""
        x, y = make_vectors()
        config, ids = make_config(**PLAIN), patients()
        taking_part = check_records(x, y, config, units=ids).units.chosen(KEY.stream("units"), 3)
        for gone in np.unique(ids):
            stays = ids != gone
            rest = check_records(x[stays], y[stays], config, units=ids[stays])
            rest = rest.sampled(KEY.stream("units"), 3)
            due = taking_part[stays[taking_part]]
            assert np.array_equal(rest.inputs, x[due])
            assert np.array_equal(rest.labels, y[due])

    def test_nothing_is_used_of_records_whose_owner_has_not_been_sampled(self):
        x, y = make_vectors()
        config = make_config(**PLAIN)
        records = check_records(x, y, config, units=patients())
        with pytest.raises(ValueError, match="a sample must be taken"):
            PrivateViews(records, config, KEY, None, "cpu")
        with pytest.raises(ValueError, match="a sample must be taken"):
            Steps(config, records, None, KEY)
        with pytest.raises(ValueError, match="have no units"):
            TrainingRecords(x, y).sampled(KEY.stream("units"), 3)

    def test_the_noise_is_what_the_group_costs(self):
        settings = {"classes": (0, 1, 2), "num_records": 60, "batch_size": 15, **PLAIN}
        target = {"target_epsilon": 2.0, "target_delta": 1e-5}
        unit = {"unit_column": "patient", "max_records_per_unit": 3}
        plan = plan_training(epochs=2, **target, **unit, **settings)
        assert plan.event == GroupEvent(unit="patient", group_size=3, event=plan.config.event)
        assert 1.9 <= plan.epsilon == account(plan.event, 1e-5).epsilon <= 2.0
        alone = plan_training(epochs=2, **target, **settings)
        assert plan.config.noise_multiplier > 2 * alone.config.noise_multiplier
        assert TrainingPlan.from_json(plan.to_json()) == plan
        assert plan.digest() != plan.model_copy(update={"max_records_per_unit": 2}).digest()
        steps = plan_training(noise_multiplier=8.0, **target, **unit, **settings)
        more = steps.event_after(steps.config.num_steps + 1)
        assert steps.epsilon <= 2.0 < account(more, 1e-5).epsilon


@pytest.fixture
def plan():
    settings = {"num_steps": 8, "noise_multiplier": 4.0, **PLAIN}
    return TrainingPlan.for_config(make_config(**settings), 1e-5, UNIT)


@pytest.fixture
def book(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open_dataset("people", epsilon_limit=20.0, delta=1e-5)
    return ledger


def test_the_certificate_names_who_is_protected_and_is_charged_so(plan, book, tmp_path):
    x, y = make_vectors()
    charged = {"ledger": book.path, "dataset_id": "people"}
    fit(x, y, plan, model=LinearHead(), out=tmp_path / "m", units=patients(), **charged)
    certificate = read_certificate(tmp_path / "m")
    unit = (certificate.privacy_unit, certificate.unit_column, certificate.max_records_per_unit)
    assert unit == ("unit", "patient", 3)
    assert certificate.event == plan.event
    assert "'patient', of which at most 3 took part" in certificate.statement
    verified = verify_model(tmp_path / "m")
    assert verified.valid and verified.guarantee.privacy_unit == "patient"
    assert read_spent(tmp_path / "m").event == plan.event
    assert book.balance("people").epsilon_spent == pytest.approx(plan.epsilon, rel=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_records_per_unit": 2},
        {"unit_column": "visit"},
        {"privacy_unit": "record"},
        {"privacy_unit": "record", "unit_column": None, "max_records_per_unit": None},
    ],
)
def test_a_certificate_with_another_unit_is_rejected(plan, tmp_path, changes):
    x, y = make_vectors()
    fit(x, y, plan, model=LinearHead(), out=tmp_path / "m", units=patients())
    path = tmp_path / "m" / "certificate.json"
    facts = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({k: v for k, v in facts.items() if v is not None}, indent=2) + "\n")
    assert not verify_model(tmp_path / "m").valid
    if "max_records_per_unit" in changes:
        with pytest.raises(InvalidInputError, match="event"):
            read_spent(tmp_path / "m")


@pytest.mark.parametrize(
    "ids, place",
    [
        (None, "units: required: the 'patient' of each record"),
        ([*range(59), None], r"units\[59\]: expected an identifier, got nothing"),
        (range(59), "units: expected .*60 records"),
        (np.arange(60.0), "units: expected integers or strings"),
    ],
)
def test_owners_that_do_not_fit_spend_nothing(plan, book, tmp_path, ids, place):
    x, y = make_vectors()
    owners = list(ids) if isinstance(ids, range) else ids
    charged = {"ledger": book.path, "dataset_id": "people"}
    with pytest.raises(InvalidInputError, match=place):
        fit(x, y, plan, model=LinearHead(), out=tmp_path / "m", units=owners, **charged)
    assert not list(tmp_path.glob("*m*")) and book.balance("people").epsilon_spent == 0


def test_half_a_unit_and_owners_that_nothing_protects_are_refused(tmp_path):
    x, y = make_vectors()
    config = make_config(**PLAIN)
    with pytest.raises(InvalidInputError, match="max_records_per_unit"):
        TrainingPlan.for_config(config, 1e-5, PrivacyUnit("patient", None))
    with pytest.raises(InvalidInputError, match="unit_column: not accepted in microbatches"):
        pairs = make_config(microbatch_size=2)
        TrainingPlan.for_config(pairs, 1e-5, UNIT)
    plan = TrainingPlan.for_config(config, 1e-5)
    with pytest.raises(InvalidInputError, match="units: "):
        fit(x, y, plan, model=LinearHead(), out=tmp_path / "m", units=patients())


def test_the_classifier_is_told_the_owners():
    x, y = make_vectors()
    unit = {"unit_column": "patient", "max_records_per_unit": 3}
    public = {"classes": (0, 1, 2), "num_records": 50, "batch_size": 25, "epochs": 2}
    classifier = DPMixClassifier(None, 4.0, **unit, **public)
    with pytest.raises(InvalidInputError, match="units"):
        classifier.fit(x, y)
    classifier.fit(x, y, units=patients())
    assert classifier.certificate_.unit_column == "patient"
    assert classifier.certificate_.epsilon <= 4.0


class TestWeights:
    """A weight for each class in place of one class."""

    def test_weights_of_one_class_are_that_class(self):
        x, y = make_images(40)
        found = sums(make_config(), x, y)[0]
        soft = sums(make_config(target="soft"), x, np.eye(3)[y])[0]
        assert np.array_equal(found, soft)

    def test_a_record_moves_a_step_by_the_clip_norm_at_most(self):
        x, _ = make_images(40)
        weights = np.random.default_rng(0).dirichlet([0.3] * 3, size=40)
        config = make_config(target="soft", batch_size=60, clip_norm=0.05)
        everybody, sensitivity = sums(config, x, weights)
        others, _ = sums(config, x[:-1], weights[:-1])
        moved = np.linalg.norm((everybody - others).astype(float), axis=1)
        assert (moved <= sensitivity).all() and (moved > 0.5 * sensitivity).all()
        turned = [weights[:, ::-1] if k else weights for k in range(2)]
        assert not np.array_equal(*(sums(config, x, w)[0] for w in turned))

    def test_views_are_kept_for_the_same_weights_only(self):
        """They must not be told apart by what a few digits of the weights show."""
        x, _ = make_images(2)
        x[1] = x[0]
        weights = np.array([[0.5, 0.25, 0.25], [0.5, 0.25 + 1e-7, 0.25 - 1e-7]])
        config = make_config(target="soft")
        views = PrivateViews(check_records(x, weights, config), config, KEY, None, "cpu")
        assert views.name(0) != views.name(1)

    @pytest.mark.parametrize(
        "weights, place",
        [
            (np.full((60, 3), 0.2), r"labels\[0\]: expected weights .* add up to 1"),
            (np.full((60, 3), np.nan), r"labels\[0\]"),
            (np.tile([1.5, -0.5, 0.0], (60, 1)), r"labels\[0\]"),
            (np.full((60, 2), 0.5), r"labels: expected shape \(records, 3\)"),
            (np.zeros(60), "labels: expected shape"),
            (np.full((60, 3), "a"), "labels: expected an array of weights"),
            (np.full((59, 3), 1 / 3), "labels: expected one label"),
        ],
    )
    def test_other_numbers_are_refused(self, weights, place):
        x, _ = make_vectors()
        with pytest.raises(InvalidInputError, match=place):
            check_records(x, weights, make_config(target="soft", **PLAIN))

    def test_a_model_of_weights_verifies(self, tmp_path):
        x, y = make_vectors()
        plan = TrainingPlan.for_config(make_config(target="soft", **PLAIN), 1e-5)
        fit(x, np.eye(3)[y], plan, model=LinearHead(), out=tmp_path / "m")
        assert verify_model(tmp_path / "m").valid
        assert read_certificate(tmp_path / "m").config.target == "soft"


class TestCommand:
    """privmix fit --unit-column, and a schema with the target soft."""

    SPENT = ("--epsilon", "8", "--delta", "1e-5", "--batch-size", "20", "--epochs", "2")

    def run(self, *arguments, catch=False):
        words = list(map(str, arguments))
        return CliRunner().invoke(app, words, catch_exceptions=catch)

    def data(self, folder, **arrays):
        x, y = make_vectors()
        np.savez(folder / "t.npz", **{"x": x, "y": y, "who": patients()} | arrays)
        facts = {"classes": [0, 1, 2], "num_features": 6, "num_records": 50}
        schema = Schema(**facts, feature_clip_norm=1.0)
        (folder / "schema.json").write_text(schema.to_json())
        keys = ("--features-key", "x", "--label-key", "y", "--schema", folder / "schema.json")
        return ("fit", folder / "t.npz", *keys, *self.SPENT, "--out", folder / "m")

    def test_owners_are_protected_charged_and_accounted_for(self, tmp_path):
        unit = ("--unit-column", "who", "--max-records-per-unit", 3)
        result = self.run(*self.data(tmp_path), *unit)
        assert result.exit_code == 0, result.output
        assert "60 records of 21 owners, of which" in result.stderr.replace("\n", " ")
        verified = self.run("verify", tmp_path / "m", "--json")
        assert verified.exit_code == 0
        assert json.loads(verified.stdout)["guarantee"]["privacy_unit"] == "who"
        told = json.loads(
            self.run("account", "--release", tmp_path / "m", "--delta", 1e-5, "--json").stdout
        )
        assert told["epsilon"] == pytest.approx(read_certificate(tmp_path / "m").epsilon, rel=1e-4)

    @pytest.mark.parametrize(
        "options, place",
        [
            (("--unit-column", "who"), "max_records_per_unit"),
            (("--max-records-per-unit", "3"), "unit_column"),
            (("--unit-column", "nobody", "--max-records-per-unit", "3"), "nobody"),
        ],
    )
    def test_half_a_unit_is_refused(self, tmp_path, options, place):
        with pytest.raises(InvalidInputError, match=place):
            self.run(*self.data(tmp_path), *options)
        assert not (tmp_path / "m").exists()

    def test_weights_by_a_schema(self, tmp_path):
        _, y = make_vectors()
        arguments = self.data(tmp_path, y=0.1 / 3 + 0.9 * np.eye(3)[y])
        facts = {"classes": [0, 1, 2], "num_features": 6, "num_records": 60, "target": "soft"}
        (tmp_path / "schema.json").write_text(Schema(**facts, feature_clip_norm=1.0).to_json())
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        assert self.run("verify", tmp_path / "m").exit_code == 0
        assert read_certificate(tmp_path / "m").config.target == "soft"
        assert math.isfinite(read_certificate(tmp_path / "m").epsilon)
        keys = ("--features-key", "x", "--label-key", "y")
        scored = self.run("evaluate", tmp_path / "m", tmp_path / "t.npz", *keys, "--json")
        assert scored.exit_code == 0, scored.output
        assert json.loads(scored.stdout)["cross_entropy"] > 0

    def test_other_targets_are_refused_by_name(self, tmp_path):
        arguments = self.data(tmp_path)
        facts = {"classes": ["a", "b"], "num_features": 6, "num_records": 60, "max_labels": 1}
        schema = Schema(**facts, target="multilabel", feature_clip_norm=1.0)
        (tmp_path / "schema.json").write_text(schema.to_json())
        with pytest.raises(InvalidInputError, match="schema.target.*multilabel"):
            self.run(*arguments)
