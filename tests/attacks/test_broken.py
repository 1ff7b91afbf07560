"""Broken on purpose: what each safeguard keeps from an attacker, and that the public API keeps it up.

Each class puts a broken variant together from private parts and lets an attack succeed on it, then
tries to get there through what users can call. Attacks that are certain when they work need no
statistics; the others state their false-alarm rate.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA

from builders import make_data, make_plan, make_schema
from privmix import (
    InvalidInputError,
    MixtureConfig,
    NoiseAwareClassifier,
    Schema,
    bound_records,
    plan_release,
    release,
    verify,
)
from privmix.accounting.guarantee import NotPrivateWarning
from privmix.accounting.stated import statements
from privmix.attacks import MembershipScores
from privmix.mixer import Mixer
from privmix.noise import rounded_gaussian
from privmix.rng import MasterKey, fresh_secret
from privmix.running.journal import Journal
from privmix.running.ledger import Ledger
from privmix.running.unrecorded import UnrecordedSpendingWarning

SCHEMA = make_schema()
X, Y = make_data(SCHEMA, 60)
POISSON = {"mix_size": 6.0, "num_mixtures": 40}


def fresh_key(context=b"attack"):
    return MasterKey(fresh_secret(), context)


def all_rows(plan, records, key):
    mixer = Mixer(plan.mechanism, records, key)
    return np.concatenate([mixer.rows(block).features for block in plan.mechanism.blocks])


class TestKnownSeed:
    """Who knows the seed makes both releases herself, with the record and without, and compares."""

    def test_the_attack(self, tmp_path):
        plan = make_plan(SCHEMA, "poisson", **POISSON)
        worlds = {"in": (X, Y), "out": (X[:-1], Y[:-1])}
        for truth in worlds:
            made = release(*worlds[truth], plan, out=tmp_path / truth, test_seed=11)
            guesses = [
                name
                for name, records in worlds.items()
                if np.array_equal(
                    release(
                        *records, plan, out=tmp_path / f"{truth}-{name}", test_seed=11
                    ).features,
                    made.features,
                )
            ]
            assert guesses == [truth]

    def test_such_a_release_says_that_it_protects_nobody(self, tmp_path):
        made = release(
            X, Y, make_plan(SCHEMA, "poisson", **POISSON), out=tmp_path / "r", test_seed=11
        )
        assert not made.certificate.private
        assert not verify(tmp_path / "r").valid
        with pytest.warns(NotPrivateWarning):
            NoiseAwareClassifier().fit(made)

    def test_without_a_seed_nothing_repeats(self, tmp_path):
        plan = make_plan(SCHEMA, "poisson", **POISSON)
        one, other = (release(X, Y, plan, out=tmp_path / name) for name in "ab")
        assert (one.features != other.features).mean() > 0.99


class TestLabelWithoutNoise:
    """The label weights of mixtures, published without noise, count the records of a class."""

    @staticmethod
    def exact_labels(x, y):
        plan = make_plan(SCHEMA, "poisson", **POISSON)
        mixer = Mixer(plan.mechanism, bound_records(x, y, SCHEMA), fresh_key())
        return np.concatenate([mixer.sums(block).labels for block in plan.mechanism.blocks])

    def test_the_attack(self):
        """The only record of class 2: one row in ten holds it, so that 40 rows miss it with 1.5 %."""
        y = np.minimum(Y, 1)
        alone = np.append(y[:-1], 2)
        told = [self.exact_labels(X, alone)[:, 2].any() for _ in range(20)]
        assert sum(told) >= 14  # fewer with a probability of 1e-8
        assert not self.exact_labels(X[:-1], y[:-1])[:, 2].any()

    def test_it_is_refused(self):
        for value in (0.0, -1.0, float("nan")):
            with pytest.raises(InvalidInputError, match="label_balance"):
                make_plan(SCHEMA, "poisson", label_balance=value, **POISSON)
        fields = make_plan(SCHEMA, "poisson", **POISSON).mechanism.model_dump()
        with pytest.raises(InvalidInputError, match="label_noise_multiplier"):
            MixtureConfig(**{**fields, "label_noise_multiplier": 0.0})

    def test_without_label_noise_there_are_no_labels(self):
        """No noise multiplier means that labels are public by construction, or are not there."""
        stratified = make_plan(SCHEMA, "stratified", rows_per_class=4, sampling_prob=0.5)
        assert stratified.mechanism.labels == "public"
        rows = make_plan(SCHEMA, "hybrid", mix_size=6.0, num_mixtures=40).mechanism.components[1]
        assert rows.label_noise_multiplier is None
        assert rows.labels == "absent"


class TestKeyOfNeighbouringData:
    """Two releases under one key differ by the record that one of them lacks, and by nothing else."""

    def test_the_attack(self):
        plan = make_plan(SCHEMA, "poisson", noise_multiplier=50.0, **POISSON)
        key = fresh_key()
        with_it, without = (
            all_rows(plan, bound_records(X[:n], Y[:n], SCHEMA), key) for n in (60, 59)
        )
        difference = (with_it - without).astype(np.float64) * plan.mechanism.mix_size
        there = np.abs(difference).max(axis=1) > 0.01
        assert 0 < there.sum() < 40
        np.testing.assert_allclose(difference[there], np.tile(X[59], (there.sum(), 1)), atol=1e-3)

    def test_other_records_have_another_key(self, tmp_path):
        """Even of one seed: the key is bound to plan and records. Not one row without a change of
        noise, whose smallest of 200 values is below a hundredth of its scale once in 10,000 tries.
        """
        plan = make_plan(SCHEMA, "poisson", noise_multiplier=50.0, **POISSON)
        one = release(X, Y, plan, out=tmp_path / "a", test_seed=3)
        other = release(X[:59], Y[:59], plan, out=tmp_path / "b", test_seed=3)
        difference = np.abs(one.features - other.features)
        assert np.median(difference) > one.feature_noise_stddev / 2

    def test_a_run_does_not_go_on_with_other_records(self, tmp_path, monkeypatch):
        plan = make_plan(SCHEMA, "poisson", **POISSON)
        monkeypatch.setattr("privmix.engine._seal", cut_off)
        with pytest.raises(KeyboardInterrupt):
            release(X, Y, plan, out=tmp_path / "r")
        monkeypatch.undo()
        with pytest.raises(InvalidInputError, match="same"):
            release(X[:59], Y[:59], plan, out=tmp_path / "r", resume=True)

    def test_the_key_is_gone_with_the_run(self, tmp_path):
        release(X, Y, make_plan(SCHEMA, "poisson", **POISSON), out=tmp_path / "r")
        assert [path.name for path in tmp_path.iterdir()] == ["r"]


def cut_off(*_arguments):
    raise KeyboardInterrupt


class TestSecondCopyOfTheSameRows:
    """Noise drawn anew for sums that are published already averages out."""

    def test_the_attack(self):
        """30 copies of one row: its noise falls by 5.5, and more members are found than the
        certificate allows; limits at 99.9999 %.
        """
        schema = make_schema(num_classes=2, num_features=400, num_records=200)
        plan = make_plan(schema, "stratified", 1.0, sampling_prob=1.0, rows_per_class=1)
        x = np.eye(400)
        records = bound_records(x[:200], np.zeros(200, dtype=int), schema)
        block = plan.mechanism.blocks[0]
        sums = Mixer(plan.mechanism, records, fresh_key()).sums(block).features[0]
        stddev = plan.mechanism.noise_stddev(records.feature_grid.sensitivity, "feature")
        copies = []
        for _ in range(30):
            key = fresh_key()
            copies.append(
                sums + rounded_gaussian(key.stream("n"), key.stream("e"), stddev, sums.size)
            )
        curve = next(iter(statements(plan.event, 1e-5))).tradeoff_curve
        for seen, breaks in ((copies[:1], False), (copies, True)):
            scores = np.mean(seen, axis=0)
            found = MembershipScores(scores[:200], scores[200:]).detection(0.05, 1 - 1e-6)
            most = curve.true_positive_rate(found.false_positive_rate.high)
            assert (found.true_positive_rate.low > most) == breaks

    def test_a_run_that_goes_on_draws_the_same(self, tmp_path, monkeypatch):
        """Rows are made again from the journal's key, bit for bit: there is no second copy."""
        plan = make_plan(SCHEMA, "poisson", **POISSON)
        kept = []
        monkeypatch.setattr("privmix.engine._seal", cut_off)
        opened = Journal.key.fget
        monkeypatch.setattr(
            Journal, "key", property(lambda self: kept.append(opened(self)) or kept[-1])
        )
        with pytest.raises(KeyboardInterrupt):
            release(X, Y, plan, out=tmp_path / "r")
        monkeypatch.undo()
        made = release(X, Y, plan, out=tmp_path / "r", resume=True)
        due = all_rows(plan, bound_records(X, Y, SCHEMA), kept[0])
        assert np.array_equal(made.features, due)

    def test_a_second_release_is_counted(self, tmp_path):
        plan = plan_release(SCHEMA, target_epsilon=1.0, target_delta=1e-5, design="stratified")
        release(X, Y, plan, out=tmp_path / "a")
        with pytest.warns(UnrecordedSpendingWarning, match="2 times cost epsilon"):
            release(X, Y, plan, out=tmp_path / "b")
        Ledger(tmp_path / "ledger.db").open_dataset("people", epsilon_limit=1.4, delta=1e-5)
        account = {"ledger": tmp_path / "ledger.db", "dataset_id": "people"}
        release(X, Y, plan, out=tmp_path / "c", **account)
        with pytest.raises(InvalidInputError, match="people"):
            release(X, Y, plan, out=tmp_path / "d", **account)
        assert not (tmp_path / "d").exists()


class TestExtractorFittedOnTheData:
    """Features scaled by the data's largest norm: one record changes those of all others."""

    def test_the_attack(self):
        """With a record of norm 50 everybody's features shrink by it: 30 releases of either kind are
        told apart without a miss, where the certificate allows to find 1 in 12 at a like rate.
        """
        schema = make_schema(num_classes=2, num_features=5, num_records=400)
        plan = plan_release(
            schema,
            target_epsilon=1.0,
            target_delta=1e-5,
            design="stratified",
            sampling_prob=1.0,
            rows_per_class=1,
            preprocessing=(),
        )
        x, y = np.tile([1.0, 0, 0, 0, 0], (400, 1)), np.arange(400) % 2
        outlier = np.vstack([x, [0, 50.0, 0, 0, 0]]), np.append(y, 0)
        lengths = []
        for features, labels in (outlier, (x, y)):
            fitted = features / np.linalg.norm(features, axis=1).max()
            records = bound_records(fitted, labels, schema)
            runs = [all_rows(plan, records, fresh_key())[:, 0].sum() for _ in range(30)]
            lengths.append(-np.array(runs))
        found = MembershipScores(*lengths).detection(0.01, confidence=1 - 1e-4)
        assert found.true_positive_rate.estimate == 1.0
        curve = next(iter(statements(plan.event, 1e-5))).tradeoff_curve
        most = curve.true_positive_rate(found.false_positive_rate.high)
        assert found.true_positive_rate.low > most

    def test_a_fitted_transformer_is_no_extractor(self, tmp_path):
        plan = make_plan(SCHEMA, "poisson", **POISSON)
        with pytest.raises(InvalidInputError, match="extractor: expected an extractor"):
            release(X, Y, plan, out=tmp_path / "r", extractor=PCA(5).fit(X))
        assert not (tmp_path / "r").exists()
        # Nothing counts as spent: a release after it does not warn.
        release(X, Y, plan, out=tmp_path / "r")

    def test_features_of_unknown_origin_are_stamped_so(self, tmp_path):
        made = release(X, Y, make_plan(SCHEMA, "poisson", **POISSON), out=tmp_path / "r")
        assert made.certificate.extractor is None

    def test_clip_norms_are_stated_before_records_are_seen(self):
        with pytest.raises(InvalidInputError, match="feature_clip_norm"):
            Schema(classes=[0, 1], num_features=3, num_records=10)
