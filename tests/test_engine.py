from __future__ import annotations

import threading

import numpy as np
import pytest
from scipy import stats

from builders import make_data, make_plan, make_schema
from privmix import InvalidInputError, Release, ReleasePlan, bound_records, engine, release
from privmix.engine import Mixer

OPTIONS = {
    "poisson": {"mix_size": 6, "num_mixtures": 60},
    "poisson-all": {"mix_size": 60, "num_mixtures": 7},
    "stratified": {"sampling_prob": 0.5, "rows_per_class": 20},
    "stratified-all": {"sampling_prob": 1.0, "rows_per_class": 1},
}


def plan_for(name: str, noise_multiplier: float = 1.0, **sizes: int) -> ReleasePlan:
    options = dict(OPTIONS[name])
    return make_plan(make_schema(**sizes), name.split("-")[0], noise_multiplier, **options)


def sums(plan: ReleasePlan, x, y, key) -> tuple[np.ndarray, np.ndarray]:
    mixer = Mixer(plan, bound_records(x, y, plan.data_schema, "zero"), key)
    parts = [mixer.sums(block) for block in plan.blocks]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))  # type: ignore[return-value]


class TestNeighbours:
    """Two inputs that differ by one record, under the same keys, move within the sensitivity."""

    @pytest.mark.parametrize("name", OPTIONS)
    @pytest.mark.parametrize("length", [1.0, 50.0, 1e-3, 0.0])
    def test_one_record_moves_each_row_within_the_declared_sensitivity(
        self, name, length, key, rng
    ):
        plan = plan_for(name)
        x, y = make_data(plan.data_schema, 61)
        direction = rng.standard_normal(5)
        x[-1] = length * direction / np.linalg.norm(direction)
        with_it, without = sums(plan, x, y, key), sums(plan, x[:-1], y[:-1], key)
        moved = with_it[0] - without[0]
        records = bound_records(x, y, plan.data_schema)
        assert np.linalg.norm(moved, axis=1).max() <= records.feature_grid.sensitivity
        labels_moved = np.linalg.norm(with_it[1] - without[1], axis=1)
        assert labels_moved.max() <= records.label_grid.sensitivity
        # It moves by the record or not at all, and only rows that the event counts.
        own = records.features[-1].astype(np.int64)
        rows = np.flatnonzero(labels_moved) if name.startswith("poisson") else moved.any(axis=1)
        assert all(np.array_equal(row, own) for row in moved[moved.any(axis=1)])
        if name.startswith("stratified"):
            assert np.count_nonzero(rows) <= plan.event.count
            assert not moved[np.arange(len(moved)) // plan.rows_per_class != y[-1]].any()

    @pytest.mark.parametrize("name", OPTIONS)
    def test_the_noise_covers_the_joint_movement(self, name):
        plan = plan_for(name, noise_multiplier=2.5)
        records = bound_records(*make_data(plan.data_schema, 5), plan.data_schema)
        moved = (
            records.feature_grid.sensitivity / plan.feature_noise(records.feature_grid.sensitivity)
        ) ** 2
        label = plan.label_noise(records.label_grid.sensitivity)
        if label is not None:
            moved += (records.label_grid.sensitivity / label) ** 2
        assert 1 / np.sqrt(moved) >= plan.event.noise_multiplier

    def test_shapes_and_scale_do_not_depend_on_the_count(self, tmp_path):
        for name in OPTIONS:
            plan = plan_for(name)
            x, y = make_data(plan.data_schema, 61)
            full = release(x, y, plan, out=tmp_path / f"{name}-full")
            less = release(x[:-1], y[:-1], plan, out=tmp_path / f"{name}-less")
            one = release(x[:1], y[:1], plan, out=tmp_path / f"{name}-one")
            for other in (less, one):
                assert other.features.shape == full.features.shape
                assert other.feature_noise_stddev == full.feature_noise_stddev
                assert other.mix_size == full.mix_size


def test_rows_are_the_sums_over_the_public_divisor(key):
    plan = plan_for("poisson").model_copy(
        update={"feature_noise_multiplier": 1e-9, "label_noise_multiplier": 1e-9}
    )
    x, y = make_data(plan.data_schema, 60)
    records = bound_records(x, y, plan.data_schema)
    mixer = Mixer(plan, records, key)
    features, labels = mixer.rows(plan.blocks[0])
    exact, label_sums = mixer.sums(plan.blocks[0])
    # The noise rounds to zero: the row is the sum over (2^14 * mix_size) exactly.
    assert np.array_equal(features, (exact / (16384 * 6)).astype(np.float32))
    assert np.array_equal(labels, (label_sums / (16384 * 6)).astype(np.float32))


def test_sampling_everybody_sums_everybody(key):
    plan = plan_for("stratified-all")
    x, y = make_data(plan.data_schema, 60)
    records = bound_records(x, y, plan.data_schema)
    features, _ = sums(plan, x, y, key)
    for k in range(3):
        own = records.features[y == k].astype(np.int64).sum(axis=0)
        assert np.array_equal(features[k], own)


def noise_fits(rows: np.ndarray, stddev: float) -> bool:
    """Normality and scale of pure noise; a true one fails once in 10^7."""
    z = rows.ravel() / stddev
    low, high = stats.chi2.interval(1 - 5e-8, z.size)
    return bool(low < np.square(z).sum() < high and stats.kstest(z, "norm").pvalue > 5e-8)


@pytest.mark.parametrize("name", OPTIONS)
def test_noise_has_the_stated_scale(name, key):
    """Empty records leave pure noise: every row, labels too, has the certificate's stddev."""
    plan = make_plan(
        make_schema(num_features=300),
        name.split("-")[0],
        3.0,
        **(OPTIONS[name] | ({"rows_per_class": 20} if name == "stratified-all" else {})),
    )
    records = bound_records(np.full((60, 300), np.nan), np.zeros(60), plan.data_schema, "zero")
    mixer = Mixer(plan, records, key)
    blocks = [mixer.rows(block) for block in plan.blocks]
    features = np.concatenate([block[0] for block in blocks])
    stddev = plan.feature_noise_multiplier / plan.mix_size
    assert noise_fits(features, stddev)
    assert not noise_fits(features, stddev * 1.5)
    assert not noise_fits(features, stddev / 1.5)
    if plan.label_noise_multiplier is not None:
        labels = np.concatenate([block[1] for block in blocks])
        assert noise_fits(labels, plan.label_noise_multiplier / plan.mix_size)


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
        assert (a.features != b.features).any(axis=1).all()
        if a.label_weights is not None:
            assert (a.label_weights != b.label_weights).any(axis=1).all()


def test_rows_do_not_depend_on_the_number_of_threads(tmp_path):
    plan = make_plan(make_schema(num_features=3000), "poisson", mix_size=6, num_mixtures=900)
    assert len(plan.blocks) > 2
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


def test_many_shards_sample_like_one(key, monkeypatch):
    plan = make_plan(make_schema(num_records=1000), "poisson", mix_size=500, num_mixtures=50)
    monkeypatch.setattr(type(plan), "shard_records", property(lambda self: 128))
    x, y = make_data(plan.data_schema, 1000)
    _, labels = sums(plan, x, y, key)
    counts = labels.sum(axis=1) / 16384
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

    def test_out_must_be_free(self, tmp_path):
        plan = plan_for("poisson")
        data = make_data(plan.data_schema, 60)
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "x").touch()
        (tmp_path / "file").touch()
        for name in ("full", "file", "no/such"):
            with pytest.raises(InvalidInputError, match="out .*allowed"):
                release(*data, plan, out=tmp_path / name)
        (tmp_path / "empty").mkdir()
        assert release(*data, plan, out=tmp_path / "empty").num_mixtures == 60

    def test_a_failure_half_way_leaves_no_folder(self, tmp_path):
        plan = plan_for("poisson")

        def stop(done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            release(*make_data(plan.data_schema, 60), plan, out=tmp_path / "r", progress=stop)
        assert list(tmp_path.iterdir()) == []

    def test_an_unsealed_folder_is_no_release(self, tmp_path, monkeypatch):
        """What a kill would leave: rows without a certificate, under another name."""
        plan = plan_for("poisson")
        monkeypatch.setattr(engine.shutil, "rmtree", lambda *a, **k: None)
        monkeypatch.setattr(engine, "_seal", lambda *a: (_ for _ in ()).throw(OSError("killed")))
        monkeypatch.setattr(engine, "FILE_NAME", "certificate.json.partial")
        with pytest.raises(OSError, match="killed"):
            release(*make_data(plan.data_schema, 60), plan, out=tmp_path / "r")
        (left,) = tmp_path.iterdir()
        assert left.name.startswith(".r.unsealed-")
        with pytest.raises(InvalidInputError, match="sealed"):
            Release(left)

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


def test_progress_counts_rows(tmp_path):
    plan = plan_for("stratified")
    calls: list[tuple[int, int]] = []
    data = make_data(plan.data_schema, 60)
    release(*data, plan, out=tmp_path / "r", progress=lambda *call: calls.append(call))
    assert calls == [(20, 60), (40, 60), (60, 60)]
