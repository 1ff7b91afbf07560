from __future__ import annotations

import gc
import logging
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import privmix
from builders import make_data, make_plan, make_schema
from privmix import InvalidInputError, bound_records, release
from privmix.engine import release_records
from privmix.mixer import make_mixers
from privmix.mixing import BlockSums
from privmix.publishing import folder as store
from privmix.rng import MasterKey, guessable_secret
from privmix.running import shared_store
from privmix.running.journal import RunTerms
from privmix.running.ledger import Ledger
from privmix.sampling import RowBlock

distributed = pytest.importorskip("distributed")

import dask  # noqa: E402
import psutil  # noqa: E402
from distributed import LocalCluster  # noqa: E402
from distributed.security import Security  # noqa: E402

from privmix import _validate  # noqa: E402
from privmix.backends import dask as backend_module  # noqa: E402
from privmix.backends import dask_cluster as cluster_module  # noqa: E402
from privmix.backends import dask_run as run_module  # noqa: E402
from privmix.backends import dask_worker as worker_module  # noqa: E402
from privmix.backends.dask import DaskBackend  # noqa: E402

# Ends of connections and event loops that a cluster leaves to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@contextmanager
def threads_cluster(workers: int, **options) -> Iterator[LocalCluster]:
    """Workers that are threads of this process."""
    settings = {"memory_limit": 0, "dashboard_address": ":0", "silence_logs": "CRITICAL"} | options
    with LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=False, **settings
    ) as cluster:
        yield cluster
    gc.collect()


@pytest.fixture(autouse=True)
def no_held_shares() -> Iterator[None]:
    """Workers that a test stopped are threads that keep what they held."""
    yield
    for share in worker_module._held.values():
        share.end_lease()
    worker_module._held.clear()


@pytest.fixture(autouse=True)
def divided(monkeypatch) -> None:
    """Divide the records, however small, over all workers."""
    monkeypatch.setattr(run_module, "_SHARE_BYTES", 1)


@pytest.fixture(scope="module")
def four() -> Iterator[LocalCluster]:
    with threads_cluster(4) as cluster:
        yield cluster


def test_bits_are_those_of_the_threads(tmp_path, task, four):
    """Four workers, four shards; local with one thread and with two."""
    x, y, plan = task
    scheduler = four.scheduler_address
    one = release(x, y, plan, out=tmp_path / "one", test_seed=1, threads=1)
    two = release(x, y, plan, out=tmp_path / "two", test_seed=1, threads=2)
    spread = release(
        x, y, plan, out=tmp_path / "spread", test_seed=1, backend="dask", scheduler=scheduler
    )
    assert one.certificate_digest == two.certificate_digest == spread.certificate_digest


def test_units_and_labels_that_are_vectors(tmp_path, owned, four):
    x, y, units, plan = owned
    here = release(x, y, plan, out=tmp_path / "here", units=units, test_seed=1)
    spread = release(
        x,
        y,
        plan,
        out=tmp_path / "spread",
        units=units,
        test_seed=1,
        backend="dask",
        scheduler=four.scheduler_address,
    )
    assert spread.certificate_digest == here.certificate_digest


@pytest.mark.parametrize("task", ["signed", "hybrid"], indirect=True)
def test_records_that_are_read_in_runs(tmp_path, task, four):
    x, y, plan = task
    here = release(x, y, plan, out=tmp_path / "here", test_seed=1)
    streamed = bound_records(x, y, plan.data_schema, in_memory=False)
    with DaskBackend(four.scheduler_address) as backend:
        there = release_records(
            streamed, plan, RunTerms(tmp_path / "there", test_seed=1), backend=backend
        )
    assert there.certificate_digest == here.certificate_digest


@pytest.mark.parametrize("task", ["poisson", "hierarchical"], indirect=True)
def test_small_records_lie_with_every_worker(tmp_path, task, four, monkeypatch):
    x, y, plan = task
    monkeypatch.setattr(run_module, "_SHARE_BYTES", 1 << 30)
    monkeypatch.setattr(run_module, "add_sums_of_share", None)  # no partial sums are asked for
    here = release(x, y, plan, out=tmp_path / "here", test_seed=1)
    address = four.scheduler_address
    there = release(
        x, y, plan, out=tmp_path / "there", test_seed=1, backend="dask", scheduler=address
    )
    assert there.certificate_digest == here.certificate_digest


def test_one_worker_and_more_classes_than_records(tmp_path, small_runs):
    """Parts without a record, and a class without one."""
    plan = make_plan(make_schema(7), "stratified", 5.0, sampling_prob=0.5, rows_per_class=3)
    x, y = make_data(plan.data_schema, 2)
    here = release(x, y, plan, out=tmp_path / "here", test_seed=1)
    for workers in (1, 3):
        with threads_cluster(workers) as cluster:
            there = release(
                x,
                y,
                plan,
                out=tmp_path / f"there{workers}",
                test_seed=1,
                backend="dask",
                scheduler=cluster.scheduler_address,
            )
        assert there.certificate_digest == here.certificate_digest


def test_a_killed_worker_changes_nothing(tmp_path):
    """Two processes, SIGKILL to one in the middle; its part goes to the other, then to its heir.

    Several shards and blocks without a patch, which other processes would not see.
    """
    schema = make_schema(num_features=50, num_records=140_000)
    plan = make_plan(schema, "signed", 5.0, mix_size=10, num_mixtures=40_000)
    assert len(plan.mechanism.blocks) > 9
    records = bound_records(*make_data(schema, 140_000), schema)
    here = release_records(records, plan, RunTerms(tmp_path / "here", test_seed=1))
    killed = []

    def kill(done: int, total: int) -> None:
        if done > total / 4 and not killed:
            killed.append(min(client.run(os.getpid).values()))
            os.kill(killed[0], signal.SIGKILL)

    with DaskBackend(None, 2, 2) as backend:
        client = backend._client
        terms = RunTerms(tmp_path / "there", test_seed=1)
        there = release_records(records, plan, terms, progress=kill, backend=backend)
        assert killed
        client.wait_for_workers(2, timeout=60)
        terms = RunTerms(tmp_path / "again", test_seed=1)
        again = release_records(records, plan, terms, backend=backend)
        assert killed[0] not in client.run(os.getpid).values()
    assert here.certificate_digest == there.certificate_digest == again.certificate_digest


def sorted_files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


@pytest.fixture
def small_parts(monkeypatch) -> None:
    """A part of one or two blocks."""
    monkeypatch.setattr(store, "_PART_BYTES", 600)


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("place", ["folder", "memory"])
def test_workers_write_the_parts(tmp_path, task, four, monkeypatch, small_parts, divided, place):
    x, y, plan = task
    if not divided:
        monkeypatch.setattr(run_module, "_SHARE_BYTES", 1 << 30)
    here = release(x, y, plan, out=tmp_path / "here", test_seed=1)
    where = tmp_path / "store" if place == "folder" else f"memory://{tmp_path.name}"
    monkeypatch.setattr(DaskBackend, "rows", None)  # none come back
    options = {"backend": "dask", "scheduler": four.scheduler_address, "test_seed": 1}
    there = release(x, y, plan, out=tmp_path / "there", store=where, **options)
    assert there.certificate_digest == here.certificate_digest
    assert not list(there.folder.rglob("*.parquet"))
    if place == "folder":
        assert sorted_files(where) == sorted_files(here.folder)


@pytest.mark.parametrize("task", ["poisson"], indirect=True)
def test_a_part_written_twice_is_the_same(tmp_path, task, four, monkeypatch, small_parts):
    """Each part is written by two tasks, and the second stands."""
    x, y, plan = task
    honest, sent = run_module.Run.submit_part, []

    def twice(run, part):
        sent.append(honest(run, part).result())
        again = honest(run, part)
        assert again.result() == sent[-1]
        return again

    monkeypatch.setattr(run_module.Run, "submit_part", twice)
    here = release(x, y, plan, out=tmp_path / "here", test_seed=1)
    options = {"backend": "dask", "scheduler": four.scheduler_address, "test_seed": 1}
    release(x, y, plan, out=tmp_path / "there", store=tmp_path / "store", **options)
    assert len(sent) == len(list(here.folder.rglob("*.parquet"))) > 1
    assert sorted_files(tmp_path / "store") == sorted_files(here.folder)


@pytest.mark.parametrize("task", ["poisson"], indirect=True)
def test_a_store_that_fills_up(tmp_path, task, four, monkeypatch, small_parts):
    """A worker's failure is told, whatever its kind; nothing is sealed; the run goes on later."""
    x, y, plan = task
    honest = shared_store.Folder.put

    def full(self, name, content):
        if name == "data/part-00001.parquet":
            raise TimeoutError("the store is slow")
        honest(self, name, content)

    options = {"backend": "dask", "scheduler": four.scheduler_address, "test_seed": 1}
    options |= {"out": tmp_path / "r", "store": tmp_path / "store"}
    with monkeypatch.context() as patch, pytest.raises(OSError, match="part-00001.*is slow"):
        patch.setattr(shared_store.Folder, "put", full)
        release(x, y, plan, **options)
    assert not list(tmp_path.rglob("certificate.json"))
    release(x, y, plan, **options | {"backend": "local", "scheduler": None, "resume": True})
    here = release(x, y, plan, out=tmp_path / "here", test_seed=1)
    assert sorted_files(tmp_path / "store") == sorted_files(here.folder)


def test_a_worker_killed_while_parts_are_written(tmp_path, monkeypatch):
    """Two processes, SIGKILL to one when a part is there: the store ends as the local release."""
    schema = make_schema(num_features=50, num_records=70_000)
    plan = make_plan(schema, "signed", 5.0, mix_size=10, num_mixtures=40_000)
    monkeypatch.setattr(store, "_PART_BYTES", 1 << 20)  # the holder lays parts out
    records = bound_records(*make_data(schema, 70_000), schema)
    here = release_records(records, plan, RunTerms(tmp_path / "here", test_seed=1))
    killed = []

    def kill(done: int, total: int) -> None:
        if not killed:
            killed.append(min(client.run(os.getpid).values()))
            os.kill(killed[0], signal.SIGKILL)

    with DaskBackend(None, 2, 2) as backend:
        client = backend._client
        release_records(
            records,
            plan,
            RunTerms(tmp_path / "there", test_seed=1),
            store=str(tmp_path / "store"),
            progress=kill,
            backend=backend,
        )
    assert killed
    assert len(list(here.folder.rglob("*.parquet"))) > 3
    assert sorted_files(tmp_path / "store") == sorted_files(here.folder)


def within(seconds: float, function, *arguments):
    """Call a function, and fail if it takes longer, instead of waiting for it."""
    results: list = []
    thread = threading.Thread(target=lambda: results.append(function(*arguments)), daemon=True)
    thread.start()
    thread.join(seconds)
    assert results, f"{function.__name__} did not return within {seconds} seconds"
    return results[0]


def release_while(change, tmp_path, task, scheduler) -> tuple[str, str]:
    """Release with and without a change to the cluster after some rows; the two digests."""
    x, y, plan = task
    here = release(x, y, plan, out=tmp_path / "here", test_seed=1)
    changed = []

    def progress(done: int, total: int) -> None:
        if not changed:
            changed.append(change())

    there = release(
        x,
        y,
        plan,
        out=tmp_path / "there",
        test_seed=1,
        backend="dask",
        scheduler=scheduler,
        progress=progress,
    )
    assert changed
    return here.certificate_digest, there.certificate_digest


@pytest.fixture
def slow(monkeypatch) -> None:
    """Few blocks ahead, so that most are still to be asked for when something happens."""
    monkeypatch.setattr(run_module, "_POLL_SECONDS", 0.05)
    honest = run_module.Run.__init__

    def begin(self, *arguments):
        honest(self, *arguments)
        self.ahead = 1

    monkeypatch.setattr(run_module.Run, "__init__", begin)


@pytest.mark.parametrize("task", ["poisson", "stratified"], indirect=True)
class TestChangesInTheMiddle:
    def test_a_worker_that_lost_everything_is_equipped_again(self, tmp_path, task, four, slow):
        here, there = release_while(
            worker_module._held.clear, tmp_path, task, four.scheduler_address
        )
        assert here == there

    def test_workers_that_come_and_go(self, tmp_path, task, slow):
        with threads_cluster(2) as cluster:

            def swap() -> None:
                old = list(cluster.scheduler.workers)
                cluster.scale(4)
                cluster.sync(cluster._correct_state)
                cluster.sync(cluster.scheduler.retire_workers, workers=old[:1])
                cluster.sync(cluster.scheduler.remove_worker, old[1], stimulus_id="test")
                # The next task is asked for after the loss could have been seen: tasks that wait
                # for those who left are to be asked for again then, too.
                time.sleep(0.1)

            scheduler = cluster.scheduler_address
            here, there = within(60, release_while, swap, tmp_path, task, scheduler)
        assert here == there

    def test_nobody_is_left(self, tmp_path, task, slow, monkeypatch):
        monkeypatch.setattr(run_module, "_RETURN_SECONDS", 0.3)
        with threads_cluster(2) as cluster:

            def leave() -> None:
                for worker in list(cluster.scheduler.workers):
                    cluster.sync(cluster.scheduler.remove_worker, worker, stimulus_id="test")

            scheduler = cluster.scheduler_address
            with pytest.raises(OSError, match=r"none came; the run can be resumed"):
                release_while(leave, tmp_path, task, scheduler)
        x, y, plan = task
        there = release(x, y, plan, out=tmp_path / "there", test_seed=1, resume=True)
        here = release(x, y, plan, out=tmp_path / "again", test_seed=1)
        assert there.certificate_digest == here.certificate_digest


@pytest.mark.parametrize("task", ["poisson"], indirect=True)
def test_a_lease_runs_out(tmp_path, task, four, slow, monkeypatch):
    """Workers forget by themselves, and are asked to remember again."""
    monkeypatch.setattr(worker_module, "_LEASE_SECONDS", 0.2)

    def wait() -> None:
        deadline = time.monotonic() + 20
        while worker_module._held and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not worker_module._held

    here, there = release_while(wait, tmp_path, task, four.scheduler_address)
    assert here == there


class Everything(logging.Handler):
    """Collects what a logger says."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(self.format(record))


@pytest.mark.parametrize("task", ["poisson"], indirect=True)
def test_no_key_and_no_record_in_graphs_or_logs(tmp_path, task, four, monkeypatch):
    x, y, plan = task
    secret = guessable_secret(1)
    row = bound_records(x, y, plan.data_schema).features[7].tobytes()
    graphs: list[bytes] = []
    honest = four.scheduler.update_graph

    async def update_graph(*arguments, **options):
        graphs.append(pickle.dumps(arguments[1:]) + pickle.dumps(options))
        return await honest(*arguments, **options)

    monkeypatch.setitem(four.scheduler.stream_handlers, "update-graph", update_graph)
    log, logger = Everything(), logging.getLogger("distributed")
    children = [logger, *(logging.getLogger(f"distributed.{n}") for n in ("core", "worker"))]
    levels = [child.level for child in children]
    for child in children:
        child.setLevel(logging.DEBUG)
        child.addHandler(log)
    try:
        release(
            x,
            y,
            plan,
            out=tmp_path / "r",
            test_seed=1,
            backend="dask",
            scheduler=four.scheduler_address,
        )
    finally:
        for child, level in zip(children, levels, strict=True):
            child.removeHandler(log)
            child.setLevel(level)
    said = "\n".join(log.said)
    assert len(graphs) > 4
    assert "'op': 'run'" in said  # the message that hands over the key was logged
    for private in (secret, row):
        assert all(private not in graph for graph in graphs)
        for shown in (repr(private)[2:-1], private.hex()):
            assert shown not in said
    assert not worker_module._held  # nothing stays behind


def test_failing_tasks_show_no_sums(four):
    """A worker logs the arguments of a task that fails."""
    some = BlockSums(2, 2, 0)
    some.features[:] = 123456
    sums = worker_module.PartialSums([some])
    log, logger = Everything(), logging.getLogger("distributed.worker")
    logger.addHandler(log)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with distributed.Client(four.scheduler_address, set_as_default=False) as client:
            pieces = [(0, RowBlock(0, 0, 2, None))]
            future = client.submit(worker_module.publish_rows, "nobody", pieces, 0, 2, sums)
            with pytest.raises(worker_module.MissingShare):
                future.result(timeout=10)
    finally:
        logger.removeHandler(log)
        logger.setLevel(level)
    said = "\n".join(log.said)
    assert "Compute Failed" in said
    assert "123456" not in said + repr(sums)
    assert sums.__sizeof__() == 16


@pytest.mark.parametrize("task", ["poisson"], indirect=True)
def test_a_task_done_twice_gives_the_same(task, monkeypatch):
    """Publishing changes nothing in its arguments, which another task may use again."""
    x, y, plan = task
    records = bound_records(x, y, plan.data_schema)
    key = MasterKey.for_test(1, b"")
    (whole,) = make_mixers(plan.mechanism, records, key)
    assert len(whole.shards) == 4
    monkeypatch.setattr(worker_module, "_held_share", lambda run, part: (None, [whole]))
    pieces = [(0, block) for block in plan.mechanism.blocks]
    one, other = (worker_module.add_sums_of_share("run", pieces, part, 3) for part in (0, 1))
    before = pickle.dumps(one)
    for _ in range(2):
        made = worker_module.publish_rows("run", pieces, 2, 3, one, other)
        for (_, block), rows in zip(pieces, made, strict=True):
            expected = whole.rows(block)
            assert np.array_equal(rows.features, expected.features)
            assert np.array_equal(rows.label_weights, expected.label_weights)
        assert pickle.dumps(one) == before
        assert one.sums[0].features.any()


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("shards", [1, 4, 7, 100])
def test_every_shard_is_in_one_part(parts, shards):
    runs = [worker_module.shards_of(part, parts, shards) for part in range(parts)]
    assert [shard for run in runs for shard in run] == list(range(shards))
    assert max(map(len, runs)) - min(map(len, runs)) <= 1


def test_a_worker_has_no_other_records(task):
    x, y, plan = task
    records = bound_records(x, y, plan.data_schema)
    some = worker_module.HeldRecords(
        labels=records.labels,
        blank=records.blank,
        feature_grid=records.feature_grid,
        label_grid=records.label_grid,
        num_clipped=0,
        num_replaced=0,
        features=records.features[16:48],
        first=16,
    )
    assert np.array_equal(some.read(32, 48), records.features[32:48])
    for run in ((0, 16), (48, 60)):
        with pytest.raises(ValueError, match="not here"):
            some.read(*run)


class TestRefusals:
    """Before anything is charged or written."""

    plan = make_plan(make_schema(), "poisson", 5.0, mix_size=6, num_mixtures=20)

    def refuse(self, tmp_path, words: str, **options) -> None:
        book = Ledger(tmp_path / "l.db").open_dataset("d", epsilon_limit=9.0, delta=1e-6)
        with pytest.raises(InvalidInputError, match=words):
            release(
                *make_data(self.plan.data_schema, 60),
                self.plan,
                out=tmp_path / "r",
                backend="dask",
                ledger=book.path,
                dataset_id="d",
                **options,
            )
        assert book.balance("d").charges == ()
        assert [path.name for path in tmp_path.iterdir()] == ["l.db"]

    def test_workers_that_spill(self, tmp_path):
        with threads_cluster(1, memory_limit="1GiB") as cluster:
            self.refuse(
                tmp_path, "spilling to disk switched off", scheduler=cluster.scheduler_address
            )

    def test_spilling_switched_off_by_hand(self, tmp_path):
        settings = {f"distributed.worker.memory.{name}": False for name in ("target", "spill")}
        with (
            dask.config.set(settings),
            threads_cluster(1, memory_limit="1GiB") as cluster,
            DaskBackend(cluster.scheduler_address),
        ):
            pass

    def test_workers_of_another_version(self, tmp_path, four, monkeypatch):
        codes = iter(["0.0.9"])  # the first worker's
        monkeypatch.setattr(worker_module, "code_version", lambda: next(codes))
        monkeypatch.setattr(cluster_module, "code_version", lambda: "0.1.0")
        self.refuse(tmp_path, "0.1.0, as here, got 0.0.9", scheduler=four.scheduler_address)

    def test_what_other_code_is(self, tmp_path, monkeypatch):
        """Files of the library in another state, under the same version; another NumPy."""
        code = worker_module.code_version.__wrapped__  # without its cache
        here, copy = code(), tmp_path / "privmix"
        shutil.copytree(Path(privmix.__file__).parent, copy)
        monkeypatch.setattr(_validate, "__file__", str(copy / "_validate.py"))
        assert code() == here
        (copy / "designs.py").write_text("# another state")
        changed = code()
        monkeypatch.setattr(np, "__version__", "1.0")
        assert len({here, changed, code()}) == 3

    def test_workers_that_do_not_see_the_store(self, tmp_path):
        """Other processes have another memory."""
        words = "a store that worker tls.* can read and write, got another store"
        self.refuse(tmp_path, words, workers=1, threads=1, store="memory://release")
        assert shared_store.Objects("memory://release").names() == []

    def test_workers_with_another_pyarrow(self, tmp_path, four, monkeypatch):
        """They would write other bytes."""
        monkeypatch.setattr(cluster_module, "version", lambda name: "1.0")
        options = {"scheduler": four.scheduler_address, "store": "memory://refused"}
        self.refuse(tmp_path, "pyarrow .* where privmix release runs", **options)

    def test_nobody_there(self, tmp_path, monkeypatch):
        monkeypatch.setattr(backend_module, "_CONNECT_SECONDS", 0.3)
        with dask.config.set(client_credentials(Security.temporary())):
            words = "can be reached and has workers"
            self.refuse(tmp_path, words, scheduler="tls://127.0.0.1:1")

    def test_no_certificates(self, tmp_path):
        self.refuse(tmp_path, "certificates in Dask's configuration", scheduler="tls://h:1")
        with dask.config.set(
            {f"distributed.comm.tls.{n}": "/no/file" for n in ("ca-file", "client.cert")}
        ):
            self.refuse(tmp_path, "readable certificates.*No such file", scheduler="tls://h:1")

    @pytest.mark.parametrize(
        "host", ["10.0.0.1:1", "host:1", "127.0.0.1:1", "localhost:1", "[::1]:1"]
    )
    @pytest.mark.parametrize("scheme", ["tcp://", "", "ws://", "ucx://"])
    def test_plain_tcp(self, tmp_path, scheme, host):
        """On this machine too, which has other users."""
        self.refuse(tmp_path, "a tls:// address", scheduler=scheme + host)

    def test_workers_that_listen_in_the_clear(self, tmp_path, four, monkeypatch):
        """Under TLS towards the scheduler, and a nanny or a second address beside it."""
        monkeypatch.setattr(
            worker_module, "worker_addresses", lambda w: [w.address, "tcp://127.0.0.1:9"]
        )
        self.refuse(tmp_path, "worker inproc.*a tls:// address", scheduler=four.scheduler_address)

    def test_a_scheduler_that_listens_in_the_clear(self, tmp_path, four, monkeypatch):
        addresses = ["tls://h:1", "tcp://127.0.0.1:9"]
        monkeypatch.setattr(cluster_module, "scheduler_addresses", lambda: addresses)
        self.refuse(tmp_path, "scheduler: .*a tls:// address", scheduler=four.scheduler_address)

    def test_a_scheduler_and_workers(self, tmp_path):
        self.refuse(tmp_path, "not accepted beside a scheduler", scheduler="tls://h:1", workers=2)


def client_credentials(security: Security) -> dict[str, str]:
    """Settings of Dask with which a client has some credentials."""
    settings = {
        "ca-file": security.tls_ca_file,
        "client.cert": security.tls_client_cert,
        "client.key": security.tls_client_key,
    }
    return {f"distributed.comm.tls.{name}": value for name, value in settings.items()}


@pytest.mark.parametrize("task", ["poisson"], indirect=True)
def test_tls(tmp_path, task):
    x, y, plan = task
    here = release(x, y, plan, out=tmp_path / "here", test_seed=1)
    security = Security.temporary()
    with (
        threads_cluster(2, security=security, protocol="tls://", host="127.0.0.1") as cluster,
        dask.config.set(client_credentials(security)),
    ):
        assert cluster.scheduler_address.startswith("tls://")
        there = release(
            x,
            y,
            plan,
            out=tmp_path / "there",
            test_seed=1,
            backend="dask",
            scheduler=cluster.scheduler_address,
        )
    assert there.certificate_digest == here.certificate_digest


# Becomes another user, then tries every port of the cluster's processes, in the clear, under TLS without
# and with credentials of its own, and over HTTP; prints how it got in. A server of Dask speaks first, to
# whomever it has admitted.
INTRUDER = """
import os, socket, ssl, sys
from concurrent.futures import ThreadPoolExecutor
from distributed.security import Security

stranger = Security.temporary().get_connection_args("client")["ssl_context"]
nobody = ssl.create_default_context()
for context in (stranger, nobody):
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
os.setgroups([])
os.setgid(65534)
os.setuid(65534)

def answer(port, context, words):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            if context is not None:
                connection = context.wrap_socket(connection)
            connection.sendall(words)
            return connection.recv(1000)
    except OSError:
        return b""

def get_in(port):
    for context in (None, nobody, stranger):
        said = answer(port, context, b"")
        if said:
            print(f"into {port} with {context}: {said}")
    for page in ("/", "/info/main/workers.html", "/json/counts.json", "/metrics", "/health"):
        said = answer(port, None, f"GET {page} HTTP/1.0\\r\\n\\r\\n".encode())
        if b" 200 " in said:
            print(f"page {page} of {port}: {said}")

*ports, folder = sys.argv[1:]
with ThreadPoolExecutor(len(ports)) as pool:
    list(pool.map(get_in, map(int, ports)))
try:
    print(f"folder: {os.listdir(folder)}")
except PermissionError:
    print("tried", len(ports))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can become another user")
def test_another_user_of_the_machine_cannot_connect():
    """The scheduler's port, the workers', the nannies' and those of HTTP servers; the folder."""

    def listening() -> set[int]:
        me = psutil.Process()
        ours = [me, *me.children(recursive=True)]
        found = [socket for one in ours for socket in one.net_connections(kind="inet")]
        return {socket.laddr.port for socket in found if socket.status == "LISTEN"}

    before = listening()  # other tests' clusters, in the clear
    with DaskBackend(None, 2, 2) as backend:
        ports = listening() - before
        assert len(ports) >= 5  # of a scheduler, two workers and two nannies
        (folder,) = {
            w["local_directory"]
            for w in [*backend._client.scheduler_info()["workers"].values()][:1]
        }
        told = subprocess.run(
            [sys.executable, "-c", INTRUDER, *map(str, ports), folder],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert told.stdout == f"tried {len(ports)}\n", told.stdout
        base = Path(folder).parents[1]
        assert base.name.startswith("privmix-")
        assert base.stat().st_mode & 0o777 == 0o700
    assert not base.exists()
