from __future__ import annotations

import numpy as np
import pytest

from builders import make_data, make_plan, make_schema
from privmix import InvalidInputError, bound_records, engine, release
from privmix.backends import open_backend
from privmix.clipping import FixedPoint
from privmix.mixing import BlockSums
from privmix.records.bounded import BoundedRecords
from privmix.running.journal import RunTerms
from privmix.sampling import Inclusions

torch = pytest.importorskip("torch")

from privmix.backends.cuda import CudaBackend, DeviceSums, bag_sums, records_on_device  # noqa: E402

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
def test_bits_are_those_of_the_threads(tmp_path, task, device):
    x, y, plan = task
    here = release(x, y, plan, out=tmp_path / "here", test_seed=1, threads=2)
    records = bound_records(x, y, plan.data_schema)
    with CudaBackend(2, device) as backend:
        there = engine.release_records(
            records, plan, RunTerms(tmp_path / "there", test_seed=1), backend=backend
        )
    assert there.certificate_digest == here.certificate_digest


@pytest.mark.parametrize("device", DEVICES)
def test_units_and_labels_that_are_vectors(tmp_path, owned, device):
    x, y, units, plan = owned
    here = release(x, y, plan, out=tmp_path / "here", units=units, test_seed=1, threads=2)
    records = bound_records(x, y, plan.data_schema, units=units)
    with CudaBackend(2, device) as backend:
        there = engine.release_records(
            records, plan, RunTerms(tmp_path / "there", test_seed=1), backend=backend
        )
    assert there.certificate_digest == here.certificate_digest


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [3, 511, 513, 5000])
@pytest.mark.parametrize("weight", [None, 1, 1 << 14])
def test_sums_are_exact_at_the_extremes(device, size, weight, monkeypatch, rng):
    """Up to 512 records of magnitude 32767 fit into float32's integers; more do not."""
    monkeypatch.setattr("privmix.backends.cuda._COPY_BYTES", 8 * 700 * 2)  # two columns at a time
    values = rng.integers(-32767, 32768, size=(700, 5)).astype(np.int16)
    values[:, 0], values[:, 1] = 32767, -32767
    values[0, 0] = 32766  # an odd total, which a sum past 2^24 would round
    starts = np.array([0, 0, size, size + 2])
    records = rng.integers(700, size=size + 2).astype(np.int32)
    records[0] = 0
    rows = np.array([4, 0, 2])
    weights = None
    if weight is not None:
        weights = rng.integers(-weight, weight + 1, size=size + 2).astype(np.int32)
    some = Inclusions(starts, records, weights)
    labels = rng.integers(3, size=700).astype(np.int32)
    grid = FixedPoint(1.0)
    held = BoundedRecords(
        labels=labels,
        blank=labels < 0,
        feature_grid=grid,
        label_grid=grid,
        num_clipped=0,
        num_replaced=0,
        features=values,
    )
    there = records_on_device(held, device)
    expected, got = (kind(5, 5, 3, weighted=weight == 1 << 14) for kind in (BlockSums, DeviceSums))
    for sums, features in ((expected, values), (got, there.read(0, 700))):
        for _ in range(15):  # past the 65536 records that 32 bits are enough for
            sums.add(features, labels, 16384, rows, some)
        sums.add_all(features, labels, 16384, rows[:2], np.arange(3, 600, dtype=np.int32))
    assert np.array_equal(got.features, expected.features)
    assert np.array_equal(got.labels, expected.labels)
    assert got.features.dtype == expected.features.dtype


def test_nothing_to_add():
    sums = DeviceSums(2, 3, 0)
    values = torch.ones((4, 3))
    nobody = Inclusions(np.zeros(3, dtype=np.int64), np.empty(0, dtype=np.int32))
    sums.add(values, np.zeros(4, dtype=np.int32), 1, np.arange(2), nobody)
    assert not sums.features.any()
    assert sums.features.shape == (2, 3)


def test_more_than_doubles_hold_is_refused():
    records = np.zeros(1 << 20, dtype=np.int32)
    weights = np.full(records.size, 1 << 20, dtype=np.int32)
    some = Inclusions(np.array([0, records.size]), records, weights)
    with pytest.raises(OverflowError):
        bag_sums(torch.ones((1, 1)), some)


def test_a_device_that_is_not_there(tmp_path):
    with (
        pytest.raises(InvalidInputError, match="a PyTorch device 'cuda:99'"),
        CudaBackend(1, "cuda:99"),
    ):
        pass
    if not torch.cuda.is_available():
        plan = make_plan(make_schema(), "poisson", 5.0, mix_size=6, num_mixtures=20)
        with pytest.raises(InvalidInputError, match="a PyTorch device 'cuda'"):
            release(*make_data(plan.data_schema, 60), plan, out=tmp_path / "r", backend="cuda")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("gpu", {}, "one of local, dask, cuda"),
        ("local", {"scheduler": "tls://h:1"}, "scheduler.*not accepted for backend local"),
        ("cuda", {"workers": 2}, "workers.*not accepted for backend cuda"),
    ],
)
def test_options_of_another_back_end(name, options, words):
    with pytest.raises(InvalidInputError, match=words):
        open_backend(name, 1, **options)
