"""Records read in runs: the same files as from memory, for every design and every source."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from builders import make_data, make_schema
from privmix import InvalidInputError, MixtureConfig, bound_records, plan_release, release
from privmix.engine import release_records
from privmix.inputs.arrays import ArraySource, FileSource, as_source
from privmix.inputs.readers import open_labelled
from privmix.preprocess import Center, RandomProjection, Subspace, UnitNorm
from privmix.records import bounded as records
from privmix.records.bounded import StreamedRecords
from privmix.running.journal import RunTerms
from privmix.sampling import row_blocks
from test_engine import OPTIONS, plan_for


@pytest.fixture(autouse=True)
def small_runs(monkeypatch):
    """Shards of 16 records and pieces of 8; blocks of 8 rows."""
    monkeypatch.setattr(records, "_SHARD_BYTES", 16 * 2 * 5)
    monkeypatch.setattr(records, "_BATCH_BYTES", 8 * 8 * 5)
    monkeypatch.setattr(MixtureConfig, "longest_block", 8)
    monkeypatch.setattr(
        MixtureConfig,
        "blocks",
        property(lambda self: row_blocks(self.num_mixtures, 8, self.rows_per_class)),
    )


def stream(plan, features, labels, policy="error", threads=2) -> StreamedRecords:
    made = bound_records(
        features,
        labels,
        plan.data_schema,
        policy,
        max_bad_share=1.0,
        in_memory=False,
        threads=threads,
    )
    assert isinstance(made, StreamedRecords)
    return made


@pytest.mark.parametrize("sums_bytes", [0, 1000, 10**9])
@pytest.mark.parametrize("name", OPTIONS)
def test_streamed_records_make_the_same_files(tmp_path, name, sums_bytes):
    plan = plan_for(name)
    x, y = make_data(plan.data_schema, 60)
    whole = release(x, y, plan, out=tmp_path / "whole", test_seed=1, threads=1)
    swept = release_records(
        stream(plan, x, y),
        plan,
        RunTerms(tmp_path / "swept", test_seed=1),
        sums_bytes=sums_bytes,
        threads=2,
    )
    assert whole.certificate_digest == swept.certificate_digest
    for one, other in zip(whole.tables, swept.tables, strict=True):
        assert one.features.tobytes() == other.features.tobytes()


def files(tmp_path, x, y):
    """The same records in every format: (name, options)."""
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    np.save(tmp_path / "fortran.npy", np.asfortranarray(x))
    np.savez(tmp_path / "plain.npz", x=x, y=y)
    np.savez_compressed(tmp_path / "packed.npz", x=x, y=y)
    columns = {f"c{j}": x[:, j] for j in range(x.shape[1])} | {"label": y}
    pq.write_table(pa.table(columns), tmp_path / "columns.parquet", row_group_size=7)
    lists = pa.table({"x": pa.array(x.tolist(), pa.list_(pa.float64(), x.shape[1])), "label": y})
    (tmp_path / "folder").mkdir()
    for i, start in enumerate(range(0, len(x), 25)):
        pq.write_table(lists[start : start + 25], tmp_path / "folder" / f"{i}.parquet")
    group = zarr.open_group(tmp_path / "x.zarr", mode="w")
    group.create_array("x", data=x, chunks=(11, 2))
    group.create_array("y", data=y)
    keys = {"features_key": "x", "label_key": "y"}
    return {
        "x.npy": {"labels": tmp_path / "y.npy"},
        "fortran.npy": {"labels": tmp_path / "y.npy"},
        "plain.npz": keys,
        "packed.npz": keys,
        "columns.parquet": {"label": "label"},
        "folder": {"label": "label"},
        "x.zarr": keys,
    }


FORMATS = ["x.npy", "fortran.npy", "plain.npz", "packed.npz", "columns.parquet", "folder", "x.zarr"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_source_makes_the_same_files(tmp_path, name):
    plan = plan_for("poisson")
    x, y = make_data(plan.data_schema, 60)
    options = files(tmp_path, x, y)[name]
    whole = release(x, y, plan, out=tmp_path / "whole", test_seed=1)
    opened = open_labelled(tmp_path / name, **options)
    assert np.array_equal(opened.features.read(3, 50), x[3:50])
    assert np.array_equal(opened.features.read(50, 60), x[50:])
    assert np.array_equal(opened.features.read(0, 9), x[:9])
    assert opened.labels.tolist() == y.tolist()
    swept = release_records(
        stream(plan, opened.features, opened.labels),
        plan,
        RunTerms(tmp_path / "out", test_seed=1),
        sums_bytes=1000,
        threads=2,
    )
    assert swept.certificate_digest == whole.certificate_digest


def test_what_is_read_whole_and_what_is_not(tmp_path):
    x, y = make_data(make_schema(), 60)
    options = files(tmp_path, x, y)
    resident = {
        name: open_labelled(tmp_path / name, **options[name]).features.resident_bytes
        for name in ("x.npy", "plain.npz", "packed.npz", "fortran.npy")
    }
    assert resident == {"x.npy": 0, "plain.npz": 0, "packed.npz": x.nbytes, "fortran.npy": x.nbytes}


class TestMappedArrays:
    def test_read_from_their_file(self, tmp_path):
        x, _ = make_data(make_schema(), 60)
        np.save(tmp_path / "x.npy", x)
        mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
        for view in (mapped, mapped[7:31], np.asarray(mapped)[7:], mapped[20:][3:]):
            source = as_source("x", view)
            assert isinstance(source, FileSource)
            assert np.array_equal(source.read(1, 20), np.array(view)[1:20])

    def test_other_views_are_arrays(self, tmp_path):
        np.save(tmp_path / "x.npy", np.arange(12.0).reshape(4, 3))
        mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
        changed = np.load(tmp_path / "x.npy", mmap_mode="c")
        changed[0] = 7
        for view in (mapped[::2], mapped[:, 1:], mapped.T, changed):
            source = as_source("x", view)
            assert isinstance(source, ArraySource)
            assert np.array_equal(source.read(0, 2), np.array(view)[:2])


class TestTruncatedInput:
    def refused(self, path, words, **options):
        with pytest.raises(InvalidInputError, match=words):
            source = open_labelled(path, **options).features
            source.read(0, source.shape[0])

    def test_every_format(self, tmp_path):
        x, y = make_data(make_schema(), 60)
        for name, options in files(tmp_path, x, y).items():
            path = tmp_path / name
            if path.is_dir():
                pieces = [p for p in path.rglob("*") if p.is_file() and p.name != "zarr.json"]
                path = sorted(pieces)[1]
            os.truncate(path, path.stat().st_size - 30)
            self.refused(tmp_path / name, str(tmp_path / name), **options)

    def test_npy_names_the_bytes_missing(self, tmp_path):
        np.save(tmp_path / "x.npy", np.zeros((4, 5)))
        np.save(tmp_path / "y.npy", np.zeros(4))
        os.truncate(tmp_path / "x.npy", 200)
        self.refused(
            tmp_path / "x.npy",
            "at least 288 bytes, as its header says, got 200",
            labels=tmp_path / "y.npy",
        )

    def test_a_file_that_shrinks_in_between(self, tmp_path):
        np.save(tmp_path / "x.npy", np.zeros((4, 5)))
        source = as_source("x", np.load(tmp_path / "x.npy", mmap_mode="r"))
        os.truncate(tmp_path / "x.npy", 200)
        assert source.read(0, 1).shape == (1, 5)
        with pytest.raises(InvalidInputError, match="got the end of the file"):
            source.read(0, 4)

    def test_bad_options(self, tmp_path):
        np.save(tmp_path / "x.npy", np.zeros((4, 5)))
        self.refused(tmp_path / "x.npy", "--labels: required: the .npy file")
        self.refused(tmp_path / "x.npy", "no such file", labels=tmp_path / "y.npy")
        np.savez(tmp_path / "x.npz", x=np.zeros((4, 5)))
        self.refused(
            tmp_path / "x.npz", "not accepted except for an .npy", labels=tmp_path / "x.npy"
        )
        (tmp_path / "x.zarr").mkdir()
        self.refused(tmp_path / "x.zarr", "x.zarr", features_key="x", label_key="y")
        (tmp_path / "o.npy").write_bytes(b"nothing")
        self.refused(tmp_path / "o.npy", "in .npy format", labels=tmp_path / "x.npy")
        np.save(tmp_path / "p.npy", np.array([{}]))
        self.refused(tmp_path / "p.npy", "pickled", labels=tmp_path / "x.npy")


class TestChangedInput:
    """What is read again must be what was read first."""

    def test_a_change_between_sweeps_is_noticed(self, tmp_path):
        plan = plan_for("poisson")
        x, y = make_data(plan.data_schema, 60)
        good = x.copy()
        read = stream(plan, x, y)
        x[40] = -x[40]
        with pytest.raises(InvalidInputError, match="the same as when they were first read"):
            release_records(read, plan, RunTerms(tmp_path / "r", test_seed=1), threads=2)
        assert not (tmp_path / "r").exists()
        # Resuming with the changed records is refused; with the right ones it goes on.
        with pytest.raises(InvalidInputError, match="the plan and the records it was begun with"):
            release(x, y, plan, out=tmp_path / "r", resume=True)
        made = release(good, y, plan, out=tmp_path / "r", resume=True)
        whole = release(good, y, plan, out=tmp_path / "whole", test_seed=1)
        assert made.certificate_digest == whole.certificate_digest

    def test_a_number_that_turned_bad_is_noticed(self):
        plan = plan_for("poisson")
        x, y = make_data(plan.data_schema, 60)
        read = stream(plan, x, y)
        x[40, 1] = np.nan
        with pytest.raises(InvalidInputError, match="the same as when they were first read"):
            read.read(32, 48)
        assert read.read(0, 16).shape == (16, 5)
        with pytest.raises(ValueError, match="no whole batches"):
            read.read(0, 13)

    def test_digests_agree_with_those_in_memory(self):
        plan = plan_for("poisson")
        x, y = make_data(plan.data_schema, 61)
        x[3, 0] = np.nan
        read = stream(plan, x, y, "zero")
        whole = bound_records(x, y, plan.data_schema, "zero", max_bad_share=1.0)
        assert read.digest() == whole.digest()
        assert (read.num_clipped, read.num_replaced) == (whole.num_clipped, whole.num_replaced)
        assert np.array_equal(read.read(0, 61), whole.features)
        assert repr(read) == "StreamedRecords(<private>)"

    def test_a_bad_record_is_refused_with_its_position(self):
        plan = plan_for("poisson")
        x, y = make_data(plan.data_schema, 60)
        x[37, 2] = np.inf
        with pytest.raises(InvalidInputError, match=r"features\[37, 2\]"):
            stream(plan, x, y)


@pytest.mark.parametrize("width", [2, 5])
def test_preprocessed_records_make_the_same_files(tmp_path, width):
    schema = make_schema(num_records=200)
    steps = [Center(budget_share=0.1), UnitNorm(), Subspace(num_directions=width, budget_share=0.3)]
    plan = plan_release(
        schema,
        target_epsilon=3.0,
        target_delta=1e-5,
        design="signed",
        num_mixtures=40,
        preprocessing=steps,
    )
    x, y = make_data(schema, 61)
    x[7] = np.nan
    whole = release(
        x, y, plan, out=tmp_path / "whole", test_seed=1, on_bad_record="zero", max_bad_share=1.0
    )
    swept = release_records(
        stream(plan, x, y, "zero"),
        plan,
        RunTerms(tmp_path / "swept", test_seed=1),
        sums_bytes=1000,
        threads=2,
    )
    assert whole.certificate_digest == swept.certificate_digest


def test_records_may_grow_so_wide_that_a_shard_is_no_whole_run(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "_BATCH_BYTES", 64 * 8 * 5)
    schema = make_schema(num_records=200)
    plan = plan_release(
        schema,
        target_epsilon=3.0,
        target_delta=1e-5,
        design="signed",
        num_mixtures=40,
        preprocessing=[RandomProjection(num_directions=20)],
    )
    x, y = make_data(schema, 150)
    read = stream(plan, x, y)
    assert plan.mechanism.shard_records < read.stretch_records
    whole = release(x, y, plan, out=tmp_path / "whole", test_seed=1)
    swept = release_records(read, plan, RunTerms(tmp_path / "swept", test_seed=1), sums_bytes=1000)
    assert whole.certificate_digest == swept.certificate_digest


def test_a_file_that_does_not_fit_is_swept(tmp_path, monkeypatch):
    """release() decides by --max-memory; the rows do not depend on it."""
    from privmix.planning import memory

    monkeypatch.setattr(memory, "_INTERPRETER", 0)
    monkeypatch.setattr(memory, "_ACCOUNTANT", 0)
    monkeypatch.setattr(memory, "_PER_THREAD", 0)
    plan = plan_for("poisson", num_records=4000)
    x, y = make_data(plan.data_schema, 4000)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    swept = []
    honest = StreamedRecords.load

    def load(self, start, stop):
        swept.append(start)
        return honest(self, start, stop)

    monkeypatch.setattr(StreamedRecords, "load", load)
    whole = release(mapped, y, plan, out=tmp_path / "whole", test_seed=1)
    assert swept == []
    streamed = release(
        mapped, y, plan, out=tmp_path / "s", test_seed=1, max_memory="80kB", threads=1
    )
    assert swept.count(0) >= 1
    assert streamed.certificate_digest == whole.certificate_digest
    with pytest.raises(InvalidInputError, match="max_memory: expected at least .*MB"):
        release(mapped, y, plan, out=tmp_path / "t", max_memory=1000)
    assert not (tmp_path / "t").exists()
