"""Units of privacy from the plan to the release: bounded contributions, group charges, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest

from builders import make_data, make_plan, make_schema
from privmix import (
    Certificate,
    InvalidInputError,
    Release,
    ReleasePlan,
    Schema,
    bound_records,
    plan_release,
    release,
    verify,
)
from privmix.accounting import ComposedEvent, GroupEvent, account, gdp_mu_from
from privmix.engine import release_records
from privmix.inputs.owners import match_units
from privmix.mechanism import admits
from privmix.mixer import Mixer
from privmix.planning.plan import PrivacyUnit
from privmix.preprocess import Center, Preprocessor, UnitNorm
from privmix.rng import MasterKey
from privmix.running.journal import RunFolder, RunTerms
from privmix.running.ledger import Ledger
from privmix.spending import read_spent, together

UNIT = PrivacyUnit("patient", 3)
DESIGNS: dict[str, dict] = {
    "poisson": {"mix_size": 20, "num_mixtures": 40},
    "signed": {"mix_size": 20, "num_mixtures": 40},
    "stratified": {"sampling_prob": 0.5, "rows_per_class": 10},
    "hybrid": {"mix_size": 20, "num_mixtures": 40},
    "hierarchical": {"mix_size": 10, "num_mixtures": 40, "class_prob": 0.5},
    "transposed": {"rows_per_record": 4, "num_mixtures": 40},
}
REPLACING = {
    "uniform": {"mix_size": 6, "num_mixtures": 20},
    "transposed": {"rows_per_record": 4, "num_mixtures": 40, "neighboring_relation": "replace_one"},
}


def patients(count: int = 60, owners: int = 9) -> np.ndarray:
    """Owners in no order; the last records are one large owner's."""
    ids = np.random.default_rng(3).integers(owners, size=count)
    ids[-8:] = owners
    return ids


def sums(plan: ReleasePlan, x, y, ids, key) -> list[tuple[np.ndarray, np.ndarray]]:
    records = bound_records(x, y, plan.data_schema, "zero", max_bad_share=1.0, units=ids)
    sampled = records.sampled(key.stream("units"), plan.max_records_per_unit)
    found = []
    for table, config in enumerate(plan.mechanism.components):
        parts = [Mixer(config, sampled, key, table).sums(block) for block in config.blocks]
        features = np.concatenate([part.features for part in parts]).astype(np.int64)
        found.append((features, np.concatenate([part.labels for part in parts])))
    return found


class TestNeighbours:
    """Two inputs that differ by all records of a unit, under the same keys."""

    @pytest.mark.parametrize("design", DESIGNS)
    def test_a_unit_moves_a_row_by_no_more_than_its_records_may(self, design, key):
        plan = make_plan(make_schema(), design, 5.0, UNIT, **DESIGNS[design])
        x, y = make_data(plan.data_schema, 60)
        ids = patients()
        x[-8:], y[-8:] = x[-1], y[-1]  # the worst: all of one direction and one class
        stays = ids != ids[-1]
        pairs = zip(
            sums(plan, x, y, ids, key),
            sums(plan, x[stays], y[stays], ids[stays], key),
            plan.mechanism.components,
            strict=True,
        )
        for (features, labels), (fewer, fewer_labels), config in pairs:
            moved = np.linalg.norm(features - fewer, axis=1) / 16384
            assert 1.9 < moved.max() <= 3.0
            assert np.linalg.norm(labels - fewer_labels, axis=1).max() <= 3 * 16384
            rows = config.rows_per_record or config.rows_per_class or config.eligible_rows or 10**9
            assert np.count_nonzero(moved) <= rows * (3 if design == "transposed" else 1)

    @pytest.mark.parametrize("policy", ["error", "zero"])
    def test_what_is_made_of_the_others_does_not_change_by_a_bit(self, policy, key):
        """Wherever the unit's records stand, bad ones among them too."""
        schema = make_schema()
        x, y = make_data(schema, 60)
        ids = np.array([f"p{i}" for i in patients()], dtype=object)
        if policy == "zero":
            x[::7] = np.nan
            y[3] = 99
            ids[[5, 11]] = None
        everybody = bound_records(x, y, schema, policy, max_bad_share=1.0, units=ids)
        everybody = everybody.sampled(key.stream("units"), 3)
        taking_part = np.zeros(60, dtype=bool)
        taking_part[match_units(ids, strict=False).chosen(key.stream("units"), 3)] = True
        assert not everybody.features[~taking_part].any()
        assert (everybody.labels[~taking_part] == -1).all()
        for gone in sorted({name for name in ids if name is not None}):
            stays = ids != gone
            data = x[stays], y[stays], schema, policy
            rest = bound_records(*data, max_bad_share=1.0, units=ids[stays])
            rest = rest.sampled(key.stream("units"), 3)
            assert np.array_equal(everybody.features[stays], rest.features)
            assert np.array_equal(everybody.labels[stays], rest.labels)

    def test_streamed_records_are_the_same(self, key):
        schema = make_schema()
        x, y = make_data(schema, 60)
        x[7] = np.nan
        found = []
        for in_memory in (True, False):
            records = bound_records(
                x, y, schema, "zero", units=patients(), in_memory=in_memory
            ).sampled(key.stream("units"), 3)
            assert records.in_memory == in_memory
            found.append((records.read(0, 60), records.labels, records.blank))
        for one, other in zip(*found, strict=True):
            assert np.array_equal(one, other)
        assert np.count_nonzero(~found[0][2]) > 20

    def test_records_without_an_owner_add_nothing(self, key):
        plan = make_plan(make_schema(), "poisson", 5.0, UNIT, **DESIGNS["poisson"])
        x, y = make_data(plan.data_schema, 60)
        ids = np.array([None] * 60, dtype=object)
        records = bound_records(x, y, plan.data_schema, "zero", max_bad_share=1.0, units=ids)
        assert records.num_replaced == 60
        assert not records.features.any()
        ((features, labels),) = sums(plan, x, y, ids, key)
        assert not features.any()
        assert not labels.any()

    def test_the_sample_is_the_same_for_all_tables(self, key, monkeypatch, tmp_path):
        """Else a unit would have more records in the release than it is charged for."""
        seen = []
        honest = Mixer.__init__

        def recording(self, config, records, *others):
            seen.append(records.features[~records.blank])
            honest(self, config, records, *others)

        monkeypatch.setattr(Mixer, "__init__", recording)
        plan = make_plan(make_schema(), "hybrid", 5.0, UNIT, **DESIGNS["hybrid"])
        data = make_data(plan.data_schema, 60)
        release(*data, plan, out=tmp_path / "r", units=patients())
        assert len(seen) == 2
        assert np.array_equal(seen[0], seen[1])
        assert len(seen[0]) == sum(min(3, n) for n in np.bincount(patients()))

    def test_records_with_owners_are_never_mixed_whole(self, key):
        plan = make_plan(make_schema(), "poisson", 5.0, UNIT, **DESIGNS["poisson"])
        records = bound_records(
            *make_data(plan.data_schema, 60), plan.data_schema, units=patients()
        )
        with pytest.raises(ValueError, match="sample"):
            Mixer(plan.mechanism, records, key)

    def test_preprocessing_sees_the_same_sample(self, monkeypatch, tmp_path):
        seen = []
        honest = Preprocessor.run_next

        def recording(self, records, key):
            seen.append(records.features[~records.blank])
            return honest(self, records, key)

        monkeypatch.setattr(Preprocessor, "run_next", recording)
        plan = plan_release(
            make_schema(),
            target_epsilon=8.0,
            target_delta=1e-5,
            design="signed",
            preprocessing=[Center(), UnitNorm()],
            unit_column="patient",
            max_records_per_unit=3,
            **DESIGNS["signed"],
        )
        data = make_data(plan.data_schema, 60)
        made = release(*data, plan, out=tmp_path / "r", units=patients())
        assert verify(made.folder).reasons == ()
        assert [len(features) for features in seen] == 2 * [
            sum(min(3, n) for n in np.bincount(patients()))
        ]
        records = bound_records(*data, plan.data_schema, units=patients())
        with pytest.raises(ValueError, match="sample"):
            honest(made.preprocessor.with_results(None), records, MasterKey.for_test(0, b""))


class TestPlans:
    def test_preprocessing_is_within_the_units_target(self):
        plan = plan_release(
            make_schema(),
            target_epsilon=2.0,
            target_delta=1e-5,
            design="signed",
            preprocessing=[Center(budget_share=0.2), UnitNorm()],
            unit_column="patient",
            max_records_per_unit=4,
            **DESIGNS["signed"],
        )
        center = plan.preprocessing[0].event("add_or_remove_one")
        inner = ComposedEvent(events=(center, plan.mechanism.event))
        assert plan.event == GroupEvent(unit="patient", group_size=4, event=inner)
        assert 1.98 <= account(plan.event, 1e-5).epsilon == plan.epsilon <= 2.0
        # The mean has its share of what a record is left: a fifth of (mu / 4)^2.
        alone = gdp_mu_from(2.0, 1e-5) / 4 * np.sqrt(0.2)
        assert 1 / center.noise_multiplier == pytest.approx(alone)

    def test_auto_plans_for_units_too(self):
        options = {"target_epsilon": 2.0, "target_delta": 1e-5}
        schema = make_schema(num_classes=10, num_features=50, num_records=20_000)
        plan = plan_release(schema, unit_column="patient", max_records_per_unit=4, **options)
        assert 1.98 <= plan.epsilon <= 2.0
        assert isinstance(plan.event, GroupEvent)

    @pytest.mark.parametrize("design", DESIGNS)
    def test_the_units_epsilon_is_at_or_below_the_target(self, design):
        options = {"unit_column": "patient", "max_records_per_unit": 3, **DESIGNS[design]}
        options["preprocessing"] = ()
        plan = plan_release(
            make_schema(), target_epsilon=2.0, target_delta=1e-5, design=design, **options
        )
        event = GroupEvent(unit="patient", group_size=3, event=plan.mechanism.event)
        assert plan.event == event
        assert 1.98 <= plan.epsilon <= 2.0
        assert plan.epsilon == account(event, 1e-5).epsilon
        one = account(plan.mechanism.event, 1e-5).epsilon
        assert one < plan.epsilon / 2.5  # a record of a unit is better protected
        assert ReleasePlan.from_json(plan.to_json()) == plan

    def test_a_single_record_of_each_unit_costs_what_a_record_costs(self):
        records = make_plan(make_schema(), "poisson", 2.0, **DESIGNS["poisson"])
        units = make_plan(
            make_schema(), "poisson", 2.0, PrivacyUnit("patient", 1), **DESIGNS["poisson"]
        )
        assert units.epsilon == records.epsilon
        assert units.digest() != records.digest()

    @pytest.mark.parametrize("design", REPLACING)
    def test_replacing_says_nothing_of_units(self, design):
        options = {"unit_column": "patient", "max_records_per_unit": 2, **REPLACING[design]}
        with pytest.raises(InvalidInputError, match="unit_column: not accepted"):
            plan_release(
                make_schema(), target_epsilon=2.0, target_delta=1e-5, design=design, **options
            )

    @pytest.mark.parametrize(
        ("unit", "words"),
        [
            (("patient", None), "max_records_per_unit: required: a value"),
            ((None, 3), "unit_column: required: a value"),
            (("patient", 0), "at least 1"),
            (("patient", 1.5), "an integer"),
            (("", 2), "a name"),
            (("record", 2), "other than 'record'"),
        ],
    )
    def test_half_a_unit_is_refused(self, unit, words):
        with pytest.raises(InvalidInputError, match=words):
            make_plan(make_schema(), "poisson", 5.0, PrivacyUnit(*unit), **DESIGNS["poisson"])

    def test_a_plan_of_records_is_written_as_before(self):
        plan = make_plan(make_schema(), "poisson", 5.0, **DESIGNS["poisson"])
        assert not {"unit_column", "max_records_per_unit", "target"} & set(plan.to_dict())


@pytest.fixture
def published(tmp_path) -> Release:
    plan = make_plan(make_schema(), "poisson", 5.0, UNIT, **DESIGNS["poisson"])
    return release(*make_data(plan.data_schema, 60), plan, out=tmp_path / "r", units=patients())


class TestReleases:
    def test_the_certificate_names_the_unit(self, published):
        told = json.loads((published.folder / "certificate.json").read_text())
        assert told["privacy_unit"] == "unit"
        assert told["unit_column"] == "patient"
        assert told["max_records_per_unit"] == 3
        assert told["event"]["mechanism"] == "group"
        assert told["epsilon"] == published.certificate.epsilon_by_delta["1e-05"]
        outcome = verify(published.folder)
        assert outcome.reasons == ()
        card = (published.folder / "README.md").read_text()
        assert "of any one 'patient', of which at most 3 took part" in " ".join(card.split())

    @pytest.mark.parametrize(
        "change",
        [
            {"max_records_per_unit": 2},
            {"max_records_per_unit": None, "unit_column": None},
            {"privacy_unit": "record"},
            {"unit_column": "household"},
        ],
    )
    def test_a_certificate_that_claims_more_is_rejected(self, published, change):
        forged = published.certificate.model_copy(update=change)
        assert forged.recheck()
        (published.folder / "certificate.json").write_bytes(forged.to_bytes())
        assert not verify(published.folder).valid

    def test_a_record_certificate_is_written_as_before(self, tmp_path):
        plan = make_plan(make_schema(), "poisson", 5.0, **DESIGNS["poisson"])
        told = json.loads(Certificate.for_plan(plan, private=True, files={}).to_bytes())
        assert told["privacy_unit"] == "record"
        assert not {"unit_column", "max_records_per_unit"} & set(told)
        assert not {"target", "target_bounds", "max_labels"} & set(told["schema"])
        assert "target" not in told["mechanism"]

    def test_nothing_published_depends_on_how_many_units_there_are(self, published, tmp_path):
        plan = make_plan(make_schema(), "poisson", 5.0, UNIT, **DESIGNS["poisson"])
        x, y = make_data(plan.data_schema, 7)
        few = release(x, y, plan, out=tmp_path / "few", units=["only"] * 7)
        names = ("certificate.json", "README.md", "data/part-00000.parquet")
        sizes = [[(r.folder / name).stat().st_size for name in names] for r in (published, few)]
        assert sizes[0] == sizes[1]

    def test_owners_must_be_given_where_they_are_protected_and_only_there(self, tmp_path):
        records = make_plan(make_schema(), "poisson", 5.0, **DESIGNS["poisson"])
        units = make_plan(make_schema(), "poisson", 5.0, UNIT, **DESIGNS["poisson"])
        data = make_data(records.data_schema, 60)
        with pytest.raises(
            InvalidInputError, match="not accepted for a plan that protects records"
        ):
            release(*data, records, out=tmp_path / "r", units=patients())
        with pytest.raises(InvalidInputError, match="'patient' of each record"):
            release(*data, units, out=tmp_path / "r")
        with pytest.raises(InvalidInputError, match="one identifier for each of the 60"):
            release(*data, units, out=tmp_path / "r", units=patients()[:-1])
        assert list(tmp_path.iterdir()) == []

    def test_resuming_takes_the_same_sample_and_other_owners_are_refused(
        self, tmp_path, monkeypatch
    ):
        plan = make_plan(make_schema(), "poisson", 5.0, UNIT, **DESIGNS["poisson"])
        data = make_data(plan.data_schema, 60)
        options = {"units": patients(), "test_seed": 1}
        whole = release(*data, plan, out=tmp_path / "whole", **options)

        class CutOff(BaseException):
            pass

        def cut_off(*arguments):
            raise CutOff

        with monkeypatch.context() as patch:
            patch.setattr(RunFolder, "destroy_journal", cut_off)
            with pytest.raises(CutOff):
                release(*data, plan, out=tmp_path / "cut", **options)
        # The rows were there: make them anew.
        (tmp_path / ".cut.run" / "release" / "data" / "part-00000.parquet").unlink()
        (tmp_path / ".cut.run" / "release" / "certificate.json").unlink()
        others = patients()
        others[0] += 1
        with pytest.raises(InvalidInputError, match="the records it was begun with"):
            release(*data, plan, out=tmp_path / "cut", resume=True, units=others)
        cut = release(*data, plan, out=tmp_path / "cut", resume=True, **options)
        assert cut.certificate_digest == whole.certificate_digest


@pytest.mark.parametrize(
    ("design", "target"),
    [(d, t) for d in DESIGNS for t in ("class", "regression") if admits(d, t)],
)
def test_memory_changes_no_bit(design, target, tmp_path):
    """Records that are read again for every few rows, with preprocessing and without."""
    schema = make_schema()
    x, y = make_data(schema, 60)
    if target == "regression":
        facts = {"num_features": 5, "num_records": 60, "feature_clip_norm": 1.0}
        schema = Schema(classes=["u"], target=target, target_bounds=[(-1, 1)], **facts)
        y = x[:, 0] * 1.5
    x[5] = np.nan
    for number, steps in enumerate(((), (Center(), UnitNorm()))):
        plan = plan_release(
            schema,
            target_epsilon=8.0,
            target_delta=1e-5,
            design=design,
            preprocessing=steps,
            unit_column="patient",
            max_records_per_unit=3,
            **DESIGNS[design],
        )
        made = []
        for in_memory in (True, False):
            records = bound_records(
                x, y, schema, "zero", max_bad_share=1.0, units=patients(), in_memory=in_memory
            )
            out = tmp_path / f"{number}-{in_memory}"
            made.append(
                release_records(
                    records, plan, RunTerms(out, test_seed=1), sums_bytes=1000, threads=2
                )
            )
        assert made[0].certificate_digest == made[1].certificate_digest


class TestLedgers:
    def test_the_unit_is_charged(self, tmp_path):
        plan = make_plan(make_schema(), "poisson", 5.0, UNIT, **DESIGNS["poisson"])
        limit = 1.05 * account(ComposedEvent(events=(plan.event,) * 2), 1e-5).epsilon
        book = Ledger(tmp_path / "l.db").open_dataset("d", epsilon_limit=limit, delta=1e-5)
        options = {"units": patients(), "ledger": book.path, "dataset_id": "d"}
        data = make_data(plan.data_schema, 60)
        release(*data, plan, out=tmp_path / "a", **options)
        assert book.balance("d").epsilon_spent == pytest.approx(plan.epsilon, rel=1e-6)
        release(*data, plan, out=tmp_path / "b", **options)
        both = together([read_spent(tmp_path / "a"), read_spent(tmp_path / "b")])
        balance = book.balance("d")
        assert balance.epsilon_planned == account(both, 1e-5).epsilon <= balance.epsilon_spent
        with pytest.raises(InvalidInputError, match="is spent"):
            release(*data, plan, out=tmp_path / "c", **options)

    def test_records_and_units_have_no_common_account(self, tmp_path):
        """A release that protects records has all of a unit's: no bound for the unit follows."""
        units = make_plan(make_schema(), "poisson", 50.0, UNIT, **DESIGNS["poisson"])
        records = make_plan(make_schema(), "poisson", 50.0, **DESIGNS["poisson"])
        other = make_plan(
            make_schema(), "poisson", 50.0, PrivacyUnit("household", 3), **DESIGNS["poisson"]
        )
        book = Ledger(tmp_path / "l.db").open_dataset("d", epsilon_limit=50, delta=1e-5)
        book.charge("d", units.event)
        before = book.balance("d")
        for plan in (records, other):
            with pytest.raises(InvalidInputError, match="one kind of unit"):
                book.charge("d", plan.event)
        assert book.balance("d") == before

    def test_the_largest_number_of_records_counts(self, tmp_path):
        events = [
            make_plan(
                make_schema(), "poisson", 9.0, PrivacyUnit("patient", k), **DESIGNS["poisson"]
            ).event
            for k in (2, 5, 3)
        ]
        book = Ledger(tmp_path / "l.db").open_dataset("d", epsilon_limit=50, delta=1e-5)
        for event in events:
            book.charge("d", event)
        simple = make_plan(make_schema(), "poisson", 9.0, **DESIGNS["poisson"]).event
        thrice = simple.model_copy(update={"count": 3 * simple.count})
        due = account(GroupEvent(unit="patient", group_size=5, event=thrice), 1e-5).epsilon
        assert book.balance("d").epsilon_planned == pytest.approx(due, rel=1e-9)
