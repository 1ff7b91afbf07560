from __future__ import annotations

import json
import threading

import numpy as np
import pytest
from scipy import stats

from builders import make_data, make_plan, make_schema
from privmix import (
    Certificate,
    InvalidInputError,
    MixtureConfig,
    Release,
    ReleasePlan,
    bound_records,
    release,
    verify,
)
from privmix import mixer as mixer_module
from privmix.accounting import GaussianEvent, account
from privmix.mixer import Mixer
from privmix.rng import MasterKey
from privmix.running.ledger import Ledger
from privmix.sampling import WEIGHT_SCALE, row_blocks

OPTIONS: dict[str, dict] = {
    "poisson": {"mix_size": 6, "num_mixtures": 60},
    "poisson-all": {"mix_size": 60, "num_mixtures": 7},
    "signed": {"mix_size": 20, "num_mixtures": 60},
    "signed-all": {"mix_size": 60, "num_mixtures": 7},
    "stratified": {"sampling_prob": 0.5, "rows_per_class": 20},
    "stratified-all": {"sampling_prob": 1.0, "rows_per_class": 1},
    "hybrid": {"mix_size": 20, "num_mixtures": 60},
    "hierarchical": {"mix_size": 6, "num_mixtures": 61, "class_prob": 0.37},
    "hierarchical-random": {
        "mix_size": 6,
        "num_mixtures": 60,
        "class_prob": 0.4,
        "eligibility": "random",
    },
    "hierarchical-classes": {
        "mix_size": 6,
        "num_mixtures": 60,
        "class_prob": (0.2, 0.7, 1.0),
    },
    "uniform": {"mix_size": 6, "num_mixtures": 60},
    "uniform-most": {"mix_size": 50, "num_mixtures": 20},
    "uniform-weighted": {
        "mix_size": 6,
        "num_mixtures": 60,
        "weight_alpha": 0.7,
        "weight_clip": 0.3,
    },
    "transposed": {"rows_per_record": 4, "num_mixtures": 40},
    "transposed-replace": {
        "rows_per_record": 30,
        "num_mixtures": 40,
        "neighboring_relation": "replace_one",
    },
}
ADD_OR_REMOVE = [name for name in OPTIONS if "uniform" not in name and "replace" not in name]
REPLACE = [name for name in OPTIONS if name not in ADD_OR_REMOVE]


def plan_for(name: str, noise_multiplier: float = 5.0, **sizes: int) -> ReleasePlan:
    options = dict(OPTIONS[name])
    return make_plan(make_schema(**sizes), name.split("-")[0], noise_multiplier, **options)


def mixers(plan: ReleasePlan, x, y, key) -> list[Mixer]:
    records = bound_records(x, y, plan.data_schema, "zero", max_bad_share=1.0)
    parts = plan.mechanism.components
    return [Mixer(part, records, key, table) for table, part in enumerate(parts)]


def sums(mixer: Mixer) -> tuple[np.ndarray, np.ndarray]:
    parts = [mixer.sums(block) for block in mixer.config.blocks]
    features = np.concatenate([part.features for part in parts]).astype(np.int64)
    return features, np.concatenate([part.labels for part in parts])


def vector(length: float, seed: int) -> np.ndarray:
    direction = np.random.default_rng(seed).standard_normal(5)
    return length * direction / np.linalg.norm(direction)


def most_rows(mixer: Mixer) -> int:
    """The largest number of rows that the event lets one record move."""
    config = mixer.config
    return config.rows_per_record or config.rows_per_class or config.eligible_rows or 10**9


class TestNeighbours:
    """Two inputs that differ by one record, under the same keys, move within the sensitivity."""

    @pytest.mark.parametrize("name", ADD_OR_REMOVE)
    @pytest.mark.parametrize("length", [1.0, 50.0, 1e-3, 0.0])
    def test_one_more_record(self, name, length, key):
        plan = plan_for(name)
        x, y = make_data(plan.data_schema, 61)
        x[-1] = vector(length, 0)
        records = bound_records(x, y, plan.data_schema)
        own = records.features[-1].astype(np.int64)
        pairs = zip(mixers(plan, x, y, key), mixers(plan, x[:-1], y[:-1], key), strict=True)
        for with_it, without in pairs:
            moved, labels_moved = (a - b for a, b in zip(sums(with_it), sums(without), strict=True))
            assert np.linalg.norm(moved, axis=1).max() <= records.feature_grid.sensitivity
            assert np.linalg.norm(labels_moved, axis=1).max() <= records.label_grid.sensitivity
            # A row moves by the record, its negative under signs, or not at all.
            touched = moved[moved.any(axis=1)]
            signs = (1, -1) if with_it.config.design == "signed" else (1,)
            assert all(any(np.array_equal(row, s * own) for s in signs) for row in touched)
            assert len(touched) <= most_rows(with_it)
            if with_it.config.design == "stratified":
                other = np.arange(len(moved)) // with_it.config.rows_per_class != y[-1]
                assert not moved[other].any()

    @pytest.mark.parametrize("name", REPLACE)
    def test_another_record_in_its_place(self, name, key):
        plan = plan_for(name)
        x, y = make_data(plan.data_schema, 60)
        x[-1], y[-1] = vector(1.0, 0), 0
        other_x, other_y = x.copy(), y.copy()
        other_x[-1], other_y[-1] = -x[-1], 1  # as far away as can be
        records = bound_records(x, y, plan.data_schema)
        (one,), (two,) = mixers(plan, x, y, key), mixers(plan, other_x, other_y, key)
        moved, labels_moved = (a - b for a, b in zip(sums(one), sums(two), strict=True))
        unit = 1.0
        if one.config.weight_clip is not None:
            unit = one.config.weight_bound * WEIGHT_SCALE
        lengths = np.linalg.norm(moved, axis=1) / (records.feature_grid.sensitivity * unit)
        label_lengths = np.linalg.norm(labels_moved, axis=1) / (records.label_one * unit)
        assert lengths.max() <= 2.0
        assert label_lengths.max() <= np.sqrt(2) * (1 + 1e-12)
        assert np.count_nonzero(lengths) <= most_rows(one)
        if "weighted" not in name:
            assert lengths.max() > 1.99

    @pytest.mark.parametrize("name", OPTIONS)
    def test_the_noise_covers_the_joint_movement(self, name):
        """In units of the noise, one record moves each row that it enters by at most one over the
        event's noise multiplier.

        That is what every event says of *one* row: how many rows a record may enter is said beside
        it. Of random allocation ("transposed") that is rows_per_record of num_rows, which the
        accountants compose (see the next test). Its multiplier must not be divided by
        sqrt(rows_per_record) as well: so it was when the event was one Gaussian mechanism over all
        rows of a record, whose choices were taken for known. Under replace_one its event states two
        movements, that of another record in the same rows, and that of a record that comes or goes.
        """
        plan = plan_for(name, noise_multiplier=2.5)
        for part in plan.mechanism.components:

            def covered(feature_change, label_change, part=part):
                lengths = 16384 * part.weight_bound
                moved = (lengths * feature_change / part.noise_stddev(16384, "feature")) ** 2
                if part.labels == "mixed":
                    moved += (lengths * label_change / part.noise_stddev(16384, "label")) ** 2
                return 1 / np.sqrt(moved)

            event = part.event
            replaced = part.neighboring_relation == "replace_one"
            change = (2.0, np.sqrt(2)) if replaced else (1.0, 1.0)
            assert covered(*change) >= event.noise_multiplier * (1 - 1e-15)
            assert event.neighboring_relation == part.neighboring_relation
            if name.startswith("transposed"):
                rows = (event.num_rows, event.rows_per_record, event.count)
                assert rows == (part.num_mixtures, part.rows_per_record, 1)
                presence = event.presence_noise_multiplier
                assert (presence is not None) == replaced
                if presence is not None:
                    assert covered(1.0, 1.0) >= presence * (1 - 1e-15)

    def test_the_event_of_all_rows_is_charged_for_every_row_a_record_enters(self):
        """Where a record enters all rows nothing is random, and the rows together are one Gaussian
        mechanism with sqrt(rows_per_record) times the movement of one: a noise multiplier that the
        accountants took for that of all rows together would show here as a factor of 2.
        """
        for relation in ("add_or_remove_one", "replace_one"):
            options = {"rows_per_record": 4, "num_mixtures": 4, "neighboring_relation": relation}
            plan = make_plan(make_schema(), "transposed", 2.5, **options)
            event = plan.mechanism.event
            together = GaussianEvent(
                noise_multiplier=event.noise_multiplier / 2, neighboring_relation=relation
            )
            due = account(together, plan.delta).accountants["pld"]
            found = account(event, plan.delta).accountants["pld"]
            assert found.upper == pytest.approx(due.upper, rel=1e-3)
            assert found.upper >= due.lower

    def test_shapes_and_scale_do_not_depend_on_the_count(self, tmp_path):
        for name in OPTIONS:
            plan = plan_for(name)
            if name.startswith("uniform"):
                continue  # their number of records is public
            x, y = make_data(plan.data_schema, 61)
            full = release(x, y, plan, out=tmp_path / f"{name}-full")
            less = release(x[:-1], y[:-1], plan, out=tmp_path / f"{name}-less")
            one = release(x[:1], y[:1], plan, out=tmp_path / f"{name}-one")
            for other in (less, one):
                shapes = [[t.features.shape for t in made.tables] for made in (other, full)]
                assert shapes[0] == shapes[1]
                assert other.feature_noise_stddev == full.feature_noise_stddev
                assert other.mix_size == full.mix_size
                assert [t.num_mixtures for t in other.tables] == [
                    t.num_mixtures for t in full.tables
                ]


@pytest.mark.parametrize("name", OPTIONS)
def test_rows_are_the_sums_over_the_public_divisor(name, key):
    plan = plan_for(name)
    for mixer in mixers(plan, *make_data(plan.data_schema, 60), key):
        quiet = {"feature_noise_multiplier": 1e-9}
        if mixer.config.labels == "mixed":
            quiet["label_noise_multiplier"] = 1e-9
        mixer.config = mixer.config.model_copy(update=quiet)
        rows = mixer.rows(mixer.config.blocks[0])
        whole = mixer.sums(mixer.config.blocks[0])
        exact, label_sums = whole.features, whole.labels
        assert exact.any()
        # The noise rounds to zero: the row is the sum over (2^14 * divisor) exactly.
        divisor = mixer.config.divisor * (1 if "weighted" not in name else WEIGHT_SCALE)
        assert np.array_equal(rows.features, (exact / (16384 * divisor)).astype(np.float32))
        if mixer.config.labels == "mixed":
            expected = (label_sums / (16384 * divisor)).astype(np.float32)
            assert np.array_equal(rows.label_weights, expected)


def test_sampling_everybody_sums_everybody(key):
    plan = plan_for("stratified-all")
    x, y = make_data(plan.data_schema, 60)
    records = bound_records(x, y, plan.data_schema)
    (mixer,) = mixers(plan, x, y, key)
    features, _ = sums(mixer)
    for k in range(3):
        own = records.features[y == k].astype(np.int64).sum(axis=0)
        assert np.array_equal(features[k], own)


@pytest.mark.parametrize("name", ["uniform", "uniform-most"])
def test_uniform_rows_have_exactly_their_size(name, key):
    plan = plan_for(name)
    (mixer,) = mixers(plan, *make_data(plan.data_schema, 60), key)
    assert (sums(mixer)[1].sum(axis=1) == 16384 * OPTIONS[name]["mix_size"]).all()


def test_uniform_needs_the_planned_number_of_records(tmp_path):
    plan = plan_for("uniform")
    with pytest.raises(InvalidInputError, match="exactly num_records = 60, got 59"):
        release(*make_data(plan.data_schema, 59), plan, out=tmp_path / "r")
    assert list(tmp_path.iterdir()) == []


def test_transposed_records_enter_exactly_their_rows(key):
    plan = plan_for("transposed")
    (mixer,) = mixers(plan, *make_data(plan.data_schema, 60), key)
    assert sums(mixer)[1].sum() == 60 * 4 * 16384


def test_signs_cancel_the_mean(key):
    """Sums of signed labels are odd: positive and negative alike (false alarm 1e-7)."""
    plan = plan_for("signed", num_records=1000)
    x, y = make_data(plan.data_schema, 1000)
    (mixer,) = mixers(plan, x, y, key)
    _, labels = sums(mixer)
    scores = labels.sum(axis=1) / 16384 / np.sqrt(20)
    assert abs(scores.mean()) * np.sqrt(scores.size) < 5.4
    assert 0.5 < np.square(scores).mean() < 2.0


def test_each_class_is_sampled_by_its_own_probabilities(key, monkeypatch):
    plan = plan_for("hierarchical-classes")
    coins, entering = [], []

    def eligibility(stream, extra, prob, num_mixtures, num_classes):
        coins.append((prob, num_mixtures, num_classes))
        return np.ones((num_mixtures, num_classes), dtype=bool)

    def nobody(stream, extra, prob, num_rows, num_records, *, signed):
        entering.append((prob, num_records))
        return mixer_module.Inclusions(np.zeros(num_rows + 1, np.int64), np.empty(0, np.int32))

    monkeypatch.setattr(mixer_module, "random_eligibility", eligibility)
    monkeypatch.setattr(mixer_module, "bernoulli_inclusions", nobody)
    y = np.array([0, 1, 1, 2, 2, 2])
    (mixer,) = mixers(plan, np.zeros((6, 5)), y, key)
    mixer.sums(mixer.config.blocks[0])
    assert coins == [(0.2, 60, 1), (0.7, 60, 1), (1.0, 60, 1)]
    assert entering == [(0.1 / 0.2, 1), (0.1 / 0.7, 2), (0.1 / 1.0, 3)]
    assert max(entering)[0] == plan.mechanism.event.sampling_prob


def test_a_release_of_classes_with_their_own_probabilities_is_verified(tmp_path):
    plan = plan_for("hierarchical-classes")
    x, y = make_data(plan.data_schema, 60)
    made = release(x, y, plan, out=tmp_path / "release")
    again = Release(tmp_path / "release")
    assert again.config.class_prob == (0.2, 0.7, 1.0)
    assert again.certificate == made.certificate
    found = verify(tmp_path / "release")
    assert found.valid
    assert found.epsilon == pytest.approx(plan.epsilon, rel=1e-4)
    known = plan.mechanism.model_copy(update={"class_prob": 0.2})
    assert account(known.event, plan.delta).epsilon == pytest.approx(plan.epsilon, rel=1e-3)
    # Another share than the smallest costs nothing, but learners read it: the card states all.
    certificate = tmp_path / "release" / "certificate.json"
    text = certificate.read_text()
    assert text.count(" 0.7,\n") == 1
    certificate.write_text(text.replace(" 0.7,\n", " 0.8,\n"))
    assert not verify(tmp_path / "release").valid


def test_classes_are_open_as_often_as_they_are_to_be(key):
    """Two-sided, at a false-alarm probability of 1e-6 for each class; classes are independent."""
    (mixer,) = mixers(plan_for("hierarchical-classes"), np.zeros((3, 5)), np.arange(3), key)
    config = mixer.config.model_copy(update={"num_mixtures": 4000})
    opened = Mixer(config, mixer._records, key)._eligible
    assert opened.shape == (4000, 3)
    for prob, count in zip(config.class_prob, opened.sum(axis=0), strict=True):
        low, high = stats.binom.interval(1 - 1e-6, 4000, prob)
        assert low <= count <= high
    both = (opened[:, 0] & opened[:, 1]).sum()
    low, high = stats.binom.interval(1 - 1e-6, 4000, 0.2 * 0.7)
    assert low <= both <= high


def test_closed_classes_stay_out(key):
    """hierarchical: a row holds records of its eligible classes only, each class in R rows."""
    plan = plan_for("hierarchical")
    (mixer,) = mixers(plan, *make_data(plan.data_schema, 60), key)
    _, labels = sums(mixer)
    assert mixer._eligible.sum(axis=0).tolist() == [mixer.config.eligible_rows] * 3
    assert not labels[~mixer._eligible].any()


def noise_fits(rows: np.ndarray, stddev: float) -> bool:
    """Normality and scale of pure noise; a true one fails once in 10^7."""
    z = rows.ravel() / stddev
    low, high = stats.chi2.interval(1 - 5e-8, z.size)
    return bool(low < np.square(z).sum() < high and stats.kstest(z, "norm").pvalue > 5e-8)


@pytest.mark.parametrize("name", OPTIONS)
def test_noise_has_the_stated_scale(name, key):
    """Empty records leave pure noise: every row, labels too, has the certificate's stddev."""
    plan = plan_for(name, 3.0, num_features=1000)
    mixer = mixers(plan, np.full((60, 1000), np.nan), np.zeros(60), key)[-1]
    blocks = [mixer.rows(block) for block in mixer.config.blocks]
    features = np.concatenate([block.features for block in blocks])
    facts = Certificate.for_plan(plan, private=False, files={}).tables[-1]
    stddev = facts.feature_noise_stddev
    assert noise_fits(features, stddev)
    assert not noise_fits(features, stddev * 1.5)
    assert not noise_fits(features, stddev / 1.5)
    if facts.label_noise_stddev is not None:
        labels = np.concatenate([block.label_weights for block in blocks])
        assert noise_fits(labels, facts.label_noise_stddev)


def test_an_empty_row_is_pure_noise_and_is_published(tmp_path):
    plan = make_plan(make_schema(), "poisson", mix_size=0.01, num_mixtures=30)
    published = release(*make_data(plan.data_schema, 60), plan, out=tmp_path / "r")
    assert published.features.shape == (30, 5)
    assert (published.features != 0).all(axis=1).all()


def test_two_runs_differ_in_every_row(tmp_path):
    for name in OPTIONS:
        plan = plan_for(name)
        x, y = make_data(plan.data_schema, 60)
        a = release(x, y, plan, out=tmp_path / f"{name}-a")
        b = release(x, y, plan, out=tmp_path / f"{name}-b")
        for one, other in zip(a.tables, b.tables, strict=True):
            assert (one.features != other.features).any(axis=1).all()
            if one.label_weights is not None:
                assert (one.label_weights != other.label_weights).any(axis=1).all()


def test_rows_do_not_depend_on_the_number_of_threads(tmp_path):
    plan = make_plan(make_schema(num_features=3000), "poisson", mix_size=6, num_mixtures=900)
    assert len(plan.mechanism.blocks) > 2
    x, y = make_data(plan.data_schema, 60)
    one = release(x, y, plan, out=tmp_path / "one", test_seed=1, threads=1)
    three = release(x, y, plan, out=tmp_path / "three", test_seed=1, threads=3)
    assert one.certificate_digest == three.certificate_digest


def test_keys_depend_on_plan_and_input(tmp_path):
    """Even under one seed, another plan or one changed record gives unrelated noise."""
    plan = plan_for("poisson")
    x, y = make_data(plan.data_schema, 60)
    base = release(x, y, plan, out=tmp_path / "a", test_seed=1).features
    changed = x.copy()
    changed[0, 0] /= 2
    other = release(changed, y, plan, out=tmp_path / "b", test_seed=1).features
    longer = release(x, y, plan_for("poisson", 1.0001), out=tmp_path / "c", test_seed=1).features
    assert (base != other).any(axis=1).all()
    assert (base != longer).any(axis=1).all()


@pytest.mark.parametrize("name", OPTIONS)
def test_no_stream_is_used_twice(name, key, monkeypatch):
    """Two uses of one stream would cancel each other's noise, or tie inclusions together."""
    monkeypatch.setattr(MixtureConfig, "shard_records", property(lambda self: 16))
    monkeypatch.setattr(
        MixtureConfig,
        "blocks",
        property(lambda self: row_blocks(self.num_mixtures, 8, self.rows_per_class)),
    )
    used = []
    honest = MasterKey.stream

    def recording(self, purpose, *, shard=0, block=0):
        used.append((purpose, shard, block))
        return honest(self, purpose, shard=shard, block=block)

    monkeypatch.setattr(MasterKey, "stream", recording)
    plan = plan_for(name)
    for mixer in mixers(plan, *make_data(plan.data_schema, 60), key):
        for block in mixer.config.blocks:
            mixer.rows(block)
    assert len(used) == len(set(used))
    noise = [purpose for purpose, _, _ in used if purpose.endswith("feature-noise")]
    assert len(noise) == sum(len(part.blocks) for part in plan.mechanism.components)


def test_many_shards_sample_like_one(key, monkeypatch):
    plan = make_plan(make_schema(num_records=1000), "poisson", mix_size=500, num_mixtures=50)
    monkeypatch.setattr(MixtureConfig, "shard_records", property(lambda self: 128))
    (mixer,) = mixers(plan, *make_data(plan.data_schema, 1000), key)
    counts = sums(mixer)[1].sum(axis=1) / 16384
    low, high = stats.chi2.interval(1 - 1e-7, 50)
    assert low < np.square((counts - 500) / np.sqrt(250)).sum() < high


class TestNothingIsLost:
    """Bad input and failures leave nothing behind."""

    def test_bad_records_stop_before_anything_is_written(self, tmp_path):
        plan = plan_for("poisson")
        x, y = make_data(plan.data_schema, 60)
        x[7, 2] = np.nan
        with pytest.raises(InvalidInputError, match=r"features\[7, 2\]"):
            release(x, y, plan, out=tmp_path / "r")
        assert list(tmp_path.iterdir()) == []

    def test_no_file_tells_when_it_was_written(self, tmp_path):
        """How long a part took depends on the records in it."""
        plan = plan_for("poisson")
        made = release(*make_data(plan.data_schema, 60), plan, out=tmp_path / "r")
        paths = [made.folder, *made.folder.rglob("*")]
        assert len(paths) == 5
        assert {path.stat().st_mtime for path in paths} == {946684800.0}

    def test_out_must_be_free(self, tmp_path):
        plan = plan_for("poisson")
        data = make_data(plan.data_schema, 60)
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "x").touch()
        (tmp_path / "file").touch()
        for name in ("full", "file", "no/such"):
            with pytest.raises(InvalidInputError, match="out=.*expected"):
                release(*data, plan, out=tmp_path / name)
        (tmp_path / "link").symlink_to(tmp_path / "nowhere")
        with pytest.raises(InvalidInputError, match="a symbolic link"):
            release(*data, plan, out=tmp_path / "link")
        (tmp_path / "empty").mkdir()
        assert release(*data, plan, out=tmp_path / "empty").num_mixtures == 60

    def test_a_failure_half_way_is_no_release_and_is_resumed(self, tmp_path):
        plan = plan_for("stratified")
        data = make_data(plan.data_schema, 60)

        def stop(done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            release(*data, plan, out=tmp_path / "r", progress=stop)
        (left,) = tmp_path.iterdir()
        assert left.name == ".r.run"
        assert left.stat().st_mode & 0o077 == 0
        assert (left / "journal.json").stat().st_mode & 0o777 == 0o600
        with pytest.raises(InvalidInputError, match="sealed"):
            Release(left / "release")
        with pytest.raises(InvalidInputError, match="--resume"):
            release(*data, plan, out=tmp_path / "r")
        assert release(*data, plan, out=tmp_path / "r", resume=True).num_mixtures == 60
        assert [path.name for path in tmp_path.iterdir()] == ["r"]

    def test_two_releases_into_one_folder(self, tmp_path):
        plan = plan_for("poisson")
        data = make_data(plan.data_schema, 60)
        outcomes: list[object] = []

        def run() -> None:
            try:
                outcomes.append(release(*data, plan, out=tmp_path / "r", threads=1))
            except (OSError, InvalidInputError) as error:
                outcomes.append(error)

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(isinstance(outcome, Release) for outcome in outcomes) == 1
        assert [path.name for path in tmp_path.iterdir()] == ["r"]

    def test_a_plan_without_a_schema_is_refused(self, tmp_path):
        plan = plan_for("poisson").model_copy(update={"data_schema": None})
        with pytest.raises(InvalidInputError, match="schema"):
            release(np.zeros((1, 5)), [0], plan, out=tmp_path / "r")

    def test_a_plan_that_claims_too_little_is_refused(self, tmp_path):
        plan = plan_for("poisson")
        cheat = plan.model_copy(update={"epsilon": plan.epsilon / 2})
        with pytest.raises(InvalidInputError, match="what the mechanism costs"):
            release(*make_data(plan.data_schema, 60), cheat, out=tmp_path / "r")

    @pytest.mark.parametrize(
        "changes",
        [
            {"epsilon": 8.0},
            {"epsilon": 0.1},
            {"delta": 1e-3},
            {"delta": 1e-7},
            {"accountants": {"pld": None, "rdp": None, "gdp": None}},
        ],
    )
    def test_a_plan_that_states_another_guarantee_spends_nothing(self, tmp_path, changes):
        """More epsilon than it costs, or another delta: verify would reject what it spends."""
        plan = plan_for("poisson")
        book = Ledger(tmp_path / "l.db").open_dataset("d", epsilon_limit=50.0, delta=1e-5)
        edited = ReleasePlan.from_json(json.dumps(json.loads(plan.to_json()) | changes))
        with pytest.raises(InvalidInputError, match="what the mechanism (costs|gives) at delta"):
            release(
                *make_data(plan.data_schema, 60),
                edited,
                out=tmp_path / "r",
                ledger=book.path,
                dataset_id="d",
            )
        assert book.balance("d").charges == ()
        assert [path.name for path in tmp_path.iterdir()] == ["l.db"]


def test_progress_counts_rows(tmp_path):
    plan = plan_for("stratified")
    calls: list[tuple[int, int]] = []
    data = make_data(plan.data_schema, 60)
    release(*data, plan, out=tmp_path / "r", progress=lambda *call: calls.append(call))
    assert calls == [(20, 60), (40, 60), (60, 60)]


def test_a_plan_with_changed_fields_is_validated_before_anything_is_drawn(tmp_path):
    plan = plan_for("poisson")
    mechanism, schema = plan.mechanism, plan.data_schema
    quieter = mechanism.model_copy(
        update={"feature_noise_multiplier": mechanism.feature_noise_multiplier / 2}
    )
    bounds = ((-1.0, 1.0),) * len(schema.classes)
    names = tuple(str(name) for name in schema.classes)
    numbers = {"target": "regression", "target_bounds": bounds, "classes": names}
    x, y = make_data(schema, 40)
    for change in (
        {"mechanism": quieter},
        {"data_schema": schema.model_copy(update=numbers)},
    ):
        changed = plan.model_copy(update=change)
        with pytest.raises(InvalidInputError):
            targets = np.zeros((40, len(names))) if "data_schema" in change else y
            release(x, targets, changed, out=tmp_path / "r")
        assert not any(tmp_path.iterdir())
