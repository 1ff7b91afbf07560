"""Mixing on a Dask cluster: records stay with workers, integers are added up on the way.

The records are divided into parts, runs of the plan's shards, and each worker holds a part in its own
memory. There are as few parts as let a worker hold one, so that little travels: several workers may
hold the same part, and small data lies with every worker as a whole. For a block of rows each part is
sampled and summed where it lies, the sums are joined along a tree of the parts, and the block's noise
is added once, at its root, under the block's key. Published rows come back to the data holder's
process, which writes them, or one worker gathers those of a file and writes it to a store that all
reach (``shared_store``).

**What a task graph holds** is public: a run's random name, and numbers of tables, blocks, rows and
parts. The key and the records never enter it. They are handed to workers beside it, sealed for one
worker at a time (``rng.Mailbox``), since messages pass through the scheduler and may be logged.
Noiseless sums are results of tasks: they stay in workers' memory and pass between workers, so that
these must not spill to disk (refused) and must speak TLS (plain TCP is refused but for this machine),
and they show as ``<private>`` wherever a log prints a task's arguments.

**What can go wrong changes nothing.** Every task is a function of the run's key and of public
numbers, so that one that is run twice, or elsewhere, gives the same integers. A worker that
was lost, or that came back empty, is noticed: another gets its part, and the blocks in flight start
again. Workers drop the key and the records when the run ends, or ten minutes after their last task
if the holder's process is gone.

Whoever can reach the scheduler can run code on the workers and read everything there. See
``docs/how-to/clusters.md``.
"""

from __future__ import annotations

import hashlib
import ipaddress
import pickle
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.backends import Job
from privmix.mixer import Mixer, Rows, make_mixers
from privmix.mixing import BlockSums
from privmix.publishing.folder import Part, Piece, part_bytes, part_name
from privmix.records.bounded import BoundedRecords
from privmix.rng import Mailbox, MasterKey, fresh_name, seal
from privmix.running.journal import FORMAT_VERSION
from privmix.running.shared_store import SharedStore
from privmix.sampling import RowBlock

if TYPE_CHECKING:
    from distributed import Client, Future, LocalCluster, Worker

_CONNECT_SECONDS = 20.0
_RETURN_SECONDS = 120.0  # for a worker to come when all have left
_PATIENCE_SECONDS = 1.0  # between looks at who is still there
_LEASE_SECONDS = 600.0
_MOST_LOSSES = 20  # restarts without a finished block before giving up
_PART_BYTES = 1 << 30  # features of a part, about; most of what a worker needs
_TASK_BYTES = 16 << 20  # rows of a task, about: a task costs some milliseconds by itself

_Task = tuple[Callable[[Any], "Future"], Any, int]  # how to submit what; the mixing tasks it makes


class NotEquipped(Exception):
    """A worker lacks what a task needs: it joined late, or it was started again."""


@dataclass(frozen=True, repr=False)
class PartialSums:
    """Noiseless sums of pieces on their way between workers; never shown."""

    sums: list[BlockSums]

    def __repr__(self) -> str:
        return "PartialSums(<private>)"

    def __sizeof__(self) -> int:
        return sum(one.features.nbytes + one.labels.nbytes for one in self.sums)


@dataclass(frozen=True, repr=False)
class HeldRecords(BoundedRecords):
    """The features of a run of records, and the labels of all.

    Attributes:
        first: The first record whose features are here.

    """

    first: int

    def part(self, start: int, stop: int) -> NDArray[np.int16]:
        """Return the features of a run of records that are here."""
        if not self.first <= start <= stop <= self.first + len(self.features):
            raise ValueError(f"records {start} to {stop} are not here")
        return self.features[start - self.first : stop - self.first]


class _Tenant:
    """What a worker holds for one part of one run; forgotten when it was not used for a while."""

    def __init__(self, name: tuple[str, str, int]) -> None:
        self.mailbox = Mailbox()
        self._name = name
        self._lock = threading.Lock()
        self._mixers: Sequence[Mixer] | None = None
        self._records: HeldRecords
        self._left = -1  # feature vectors that are still to come
        self._lease: threading.Timer | None = None
        self.renew()

    def renew(self) -> None:
        """Start the lease anew."""
        with self._lock:
            if self._lease is not None:
                self._lease.cancel()
            self._lease = threading.Timer(_LEASE_SECONDS, self._expire)
            self._lease.daemon = True
            self._lease.start()

    def _expire(self) -> None:
        if _tenants.get(self._name) is self:
            _tenants.pop(self._name, None)

    def leave(self) -> None:
        """End the lease."""
        with self._lock:
            if self._lease is not None:
                self._lease.cancel()

    def settle(self, sealed: bytes, key: bytes) -> None:
        """Take everything but the features."""
        content = pickle.loads(self.mailbox.open(sealed))
        self.mechanism, self.store, self._records, count = content
        self._key = MasterKey.opened(key, self.mailbox)
        features = np.empty((count, self._records.num_features), dtype=np.int16)
        self._records = replace(self._records, features=features)
        self._left = count

    def take(self, sealed: bytes) -> None:
        """Take the next feature vectors."""
        vectors = np.frombuffer(self.mailbox.open(sealed), dtype=np.int16)
        features = self._records.features
        vectors = vectors.reshape(-1, features.shape[1])
        first = len(features) - self._left
        features[first : first + len(vectors)] = vectors
        self._left -= len(vectors)

    def mixers(self) -> Sequence[Mixer] | None:
        """Return the mixers of this part, or None before everything is there."""
        self.renew()
        with self._lock:
            if self._left == 0 and self._mixers is None:
                self._mixers = make_mixers(self.mechanism, self._records, self._key)
            return self._mixers


# By (worker's address, run, part): workers may share a process.
_tenants: dict[tuple[str, str, int], _Tenant] = {}


@cache
def _code() -> str:
    """Describe what the bits under a key depend on: every file of the library, and NumPy.

    A version may stand for several states of a checkout. The same noise over sums of other index
    sets would be no noise for whoever saw both.
    """
    hasher = hashlib.sha256()
    folder = Path(_validate.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        hasher.update(f"{path.relative_to(folder).as_posix()} ".encode() + path.read_bytes())
    state = f"{hasher.hexdigest()[:16]}, bits of format {FORMAT_VERSION}"
    return f"{version('privmix')} ({state}) with NumPy {np.__version__}"


_code()  # when the files are read, and not when they may have changed under a process


# What the holder calls on workers, outside task graphs.


def _greet(run: str, part: int, dask_worker: Worker) -> dict[str, Any]:
    """Open a mailbox for a part and say what kind of worker this is."""
    name = (dask_worker.address, run, part)
    tenant = _tenants[name] = _Tenant(name)
    return {
        "mailbox": tenant.mailbox.address,
        "spills": type(dask_worker.data) is not dict,
        "code": _code(),
    }


def _settle(run: str, part: int, sealed: bytes, key: bytes, dask_worker: Worker) -> None:
    _tenants[dask_worker.address, run, part].settle(sealed, key)


def _take(run: str, part: int, sealed: bytes, dask_worker: Worker) -> None:
    _tenants[dask_worker.address, run, part].take(sealed)


def _store_problem(store: SharedStore, pyarrow: str) -> str | None:
    """Say why this worker cannot write parts to a store, or not the same bytes, if it cannot."""
    if version("pyarrow") != pyarrow:
        return f"pyarrow {version('pyarrow')} here, {pyarrow} where privmix release runs"
    return store.problem()


def _forget(run: str, dask_worker: Worker) -> None:
    for name in [name for name in _tenants if name[:2] == (dask_worker.address, run)]:
        _tenants.pop(name).leave()


# Tasks: functions of public numbers, and of what the worker holds.


def _tenant(run: str, part: int | None) -> tuple[_Tenant, Sequence[Mixer]]:
    from distributed import get_worker

    address = get_worker().address
    for name, tenant in list(_tenants.items()):
        if name[:2] == (address, run) and part in (None, name[2]):
            mixers = tenant.mixers()
            if mixers is not None:
                return tenant, mixers
    raise NotEquipped(address)


def _rows(
    run: str, pieces: Sequence[Piece], part: int, parts: int, *others: PartialSums
) -> list[Rows]:
    """Return the published rows of pieces, given the sums of all parts but one."""
    return [
        mixer.publish(block, sums)
        for mixer, block, sums in _piece_sums(run, pieces, part, parts, others)
    ]


def _sums(
    run: str, pieces: Sequence[Piece], part: int, parts: int, *others: PartialSums
) -> PartialSums:
    """Add a part's records to sums of pieces."""
    made = [sums for *_, sums in _piece_sums(run, pieces, part, parts, others)]
    for sums in made:
        sums.narrow()
    return PartialSums(made)


def _piece_sums(
    run: str, pieces: Sequence[Piece], part: int, parts: int, others: Sequence[PartialSums]
) -> Iterator[tuple[Mixer, RowBlock, BlockSums]]:
    _, mixers = _tenant(run, part)
    for number, (table, block) in enumerate(pieces):
        mixer = mixers[table]
        sums = mixer.sums(block, shards_of(part, parts, len(mixer.shards)))
        for other in others:
            sums.add_sums(other.sums[number])
        yield mixer, block, sums


def shards_of(part: int, parts: int, num_shards: int) -> range:
    """Return the shards of a part: all of them are in one, and some parts may have none."""
    return range(part * num_shards // parts, (part + 1) * num_shards // parts)


def _write(run: str, number: int, tables: Sequence[int], *rows: list[Rows]) -> tuple[str, str]:
    """Write a part of published rows to the store; return its name and its SHA-256."""
    tenant, _ = _tenant(run, None)
    content = part_bytes(tenant.mechanism, zip(tables, chain(*rows), strict=True))
    try:
        tenant.store.files.put(part_name(number), content)
    except Exception as error:  # of whatever library the store needs: one that travels
        raise OSError(f"{part_name(number)}: {type(error).__name__}: {error}") from None
    return part_name(number), hashlib.sha256(content).hexdigest()


class DaskBackend:
    """A Dask cluster: a running one, or worker processes on this machine.

    Worker processes import the program's main module: a script that uses them keeps its code under
    ``if __name__ == "__main__":``.

    Args:
        scheduler: Address of a running scheduler, ``tls://HOST:PORT``. Certificates are those of
            Dask's configuration (``distributed.comm.tls``).
        workers: Without a scheduler: number of worker processes to start here; one for each thread
            by default.
        threads: Without a scheduler: threads of all of them together.

    Raises:
        InvalidInputError: No Dask; a scheduler that cannot be reached, or not under TLS; workers
            that would spill to disk, or that have another version of privmix.

    """

    def __init__(
        self, scheduler: str | None = None, workers: int | None = None, threads: int = 1
    ) -> None:
        if scheduler is not None and workers is not None:
            _validate.fail("workers", "nothing beside a scheduler, which has its own", workers)
        if scheduler is not None:
            _check_transport("scheduler", scheduler)
        self._scheduler = scheduler
        self._workers = threads if workers is None else _validate.integer("workers", workers)
        self._threads = max(1, threads // self._workers)
        self._cluster: LocalCluster | None = None
        self._client: Client | None = None

    def __enter__(self) -> Self:
        try:
            from distributed import Client
        except ImportError:
            _validate.fail("backend", "dask with Dask: pip install 'privmix[dask]'", "no Dask")
        address = self._scheduler
        try:
            if address is None:
                self._cluster = _local_cluster(self._workers, self._threads)
                address = self._cluster.scheduler_address
            try:
                self._client = Client(
                    address,
                    timeout=_CONNECT_SECONDS,
                    set_as_default=False,
                    # Rows then do not pass through the scheduler; elsewhere it may be the only way.
                    direct_to_workers=self._cluster is not None,
                )
                self._client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
            except (OSError, ValueError, RuntimeError) as error:
                allowed = "one that can be reached and has workers"
                _validate.fail(f"scheduler {address}", allowed, f"{type(error).__name__}: {error}")
            _check_workers(self._client)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        for held in (self._client, self._cluster):
            if held is not None:
                held.close()
        self._client = self._cluster = None

    def check_store(self, store: SharedStore) -> None:
        """Refuse a store that this process or a worker cannot write to."""
        _check_store("this process", store, store.problem())
        for address in self._connected.nthreads():
            _check_store(f"worker {address}", store, _reach(self._connected, address, store))

    def rows(self, job: Job, pieces: Sequence[Piece]) -> Generator[Rows]:
        """Yield the published rows of pieces in order, whoever is lost on the way."""
        run = _Run(self._connected, job)
        for rows in self._in_order(run, [(run.submit, some, 1) for some in run.divide(pieces)]):
            yield from rows

    def parts(
        self, job: Job, parts: Sequence[Part], store: SharedStore
    ) -> Generator[tuple[str, str]]:
        """Have workers write parts; yield the (name, SHA-256) of each in their order."""
        run = _Run(self._connected, job, store)
        tasks = [(run.submit_part, part, len(run.divide(part[1]))) for part in parts]
        yield from self._in_order(run, tasks)

    @property
    def _connected(self) -> Client:
        if self._client is None:
            raise RuntimeError("a back end is entered before it is used")
        return self._client

    def _in_order(self, run: _Run, tasks: Sequence[_Task]) -> Generator[Any]:
        """Yield the results of tasks in order, with enough of them in flight for all workers."""
        from distributed import KilledWorker

        waiting, flying = deque(tasks), deque[tuple[_Task, "Future"]]()
        losses = 0
        try:
            while waiting or flying:
                # Two at least: the next part is begun before one is written.
                while waiting and (
                    len(flying) < 2 or sum(task[2] for task, _ in flying) < run.ahead
                ):
                    submit, argument, _ = task = waiting.popleft()
                    flying.append((task, submit(argument)))
                try:
                    result = flying[0][1].result(timeout=_PATIENCE_SECONDS)
                except TimeoutError:
                    lost = run.look_around()
                except (NotEquipped, KilledWorker, CancelledError) as error:
                    run.look_around(empty=error.args if isinstance(error, NotEquipped) else ())
                    lost = True
                else:
                    flying.popleft()
                    losses = 0
                    yield result
                    lost = run.look_is_due and run.look_around()
                # What was asked of a worker that left would be waited for without an end.
                if lost:
                    losses += 1
                    if losses > _MOST_LOSSES:
                        raise RuntimeError("workers are lost faster than blocks are finished")
                    waiting.extendleft(task for task, _ in reversed(flying))
                    flying.clear()
        finally:
            flying.clear()
            run.end()


def _local_cluster(workers: int, threads: int) -> LocalCluster:
    from distributed import LocalCluster

    # Without a memory limit a worker neither spills nor is stopped.
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=threads,
        processes=True,
        memory_limit=0,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs="ERROR",
    )


def _check_transport(place: str, address: str) -> None:
    """Refuse addresses that records and noiseless sums would travel to in the clear."""
    scheme, _, rest = address.rpartition("://")
    if scheme in ("tls", "inproc"):
        return
    host = rest.rpartition(":")[0].strip("[]")
    try:
        near = scheme in ("", "tcp") and ipaddress.ip_address(host).is_loopback
    except ValueError:
        near = scheme in ("", "tcp") and host == "localhost"
    if not near:
        _validate.fail(place, "a tls:// address; plain TCP on this machine only", address)


def _check_workers(client: Client) -> None:
    """Refuse, before anything is charged, workers that would spill or are of another version."""
    for address in client.nthreads():
        _check_transport(f"worker {address}", address)
        try:
            facts = client.run(_greet, "", 0, workers=[address])[address]
            client.run(_forget, "", workers=[address])
        except ImportError as error:
            _validate.fail(f"worker {address}", "privmix on every worker", error)
        _check_facts(address, facts)


def _check_facts(address: str, facts: dict[str, Any]) -> None:
    if facts["spills"]:
        allowed = (
            "spilling to disk switched off: distributed.worker.memory.target and "
            "distributed.worker.memory.spill are False, or no memory limit"
        )
        _validate.fail(f"worker {address}", allowed, "a worker that spills")
    if (code := facts.get("code", facts.get("version"))) != _code():
        _validate.fail(f"worker {address}", f"privmix {_code()}, as here", code)


def _reach(client: Client, address: str, store: SharedStore) -> str | None:
    """Ask a worker why it cannot write parts to a store, if it cannot."""
    told = client.run(_store_problem, store, version("pyarrow"), workers=[address])
    problem: str | None = told[address]
    return problem


def _check_store(who: str, store: SharedStore, problem: str | None) -> None:
    if problem is not None:
        _validate.fail(store.place, f"a place that {who} can read and write", problem)


class _Run:
    """One job on a cluster, as the holder sees it: who holds which part, and what is asked of whom.

    Args:
        client: Connection to the cluster.
        job: What to mix.
        store: Where workers write parts, if they do.

    """

    def __init__(self, client: Client, job: Job, store: SharedStore | None = None) -> None:
        self._client, self._job, self._store = client, job, store
        self._name = fresh_name()
        self._sent = 0
        self._holders: dict[str, set[int]] = {}
        live = self._live()
        # The number of parts shows in task graphs: it follows from public sizes. The tables of a
        # release have the same shards.
        config = job.mechanism.components[0]
        size = 2 * config.num_records * config.num_features
        planned = -(-config.num_records // config.shard_records)
        self._parts = min(-(-size // _PART_BYTES), len(live), planned)
        self._shard_records = config.shard_records
        self.ahead = 2 * sum(live.values()) + 2
        self._next_look = 0.0
        self.look_around()

    @property
    def look_is_due(self) -> bool:
        """Whether the last look at who is there was a while ago."""
        return monotonic() > self._next_look

    def _live(self) -> dict[str, int]:
        """Return the workers that are there, with their threads; wait for one if there is none."""
        live: dict[str, int] = self._client.nthreads()
        if not live:
            try:
                self._client.wait_for_workers(1, timeout=_RETURN_SECONDS)
            except (TimeoutError, OSError) as error:
                raise OSError(
                    "all workers have left, and none came; the run can be resumed"
                ) from error
            live = self._client.nthreads()
        return live

    def look_around(self, empty: Sequence[str] = ()) -> bool:
        """Give parts to workers that came and parts of workers that left to others.

        Args:
            empty: Workers that were found to hold nothing.

        Returns:
            Whether anybody was lost.

        """
        live = self._live()
        lost = {a for a in self._holders if a not in live or a in empty}
        for address in lost:
            del self._holders[address]
        for address in live:
            if address not in self._holders:
                self._equip(address, min(range(self._parts), key=self._times_held))
        for part in range(self._parts):
            if not self._times_held(part) and self._holders:
                least = min(self._holders, key=lambda address: len(self._holders[address]))
                self._equip(least, part)
        self._next_look = monotonic() + _PATIENCE_SECONDS
        return bool(lost)

    def _times_held(self, part: int) -> int:
        return sum(part in parts for parts in self._holders.values())

    def _equip(self, address: str, part: int) -> None:
        """Hand a part of the records and the key to a worker, sealed; nothing if it is gone."""
        _check_transport(f"worker {address}", address)
        records = self._job.records
        shards = -(-records.count // self._shard_records)
        runs = [
            (shard * self._shard_records, min((shard + 1) * self._shard_records, records.count))
            for shard in shards_of(part, self._parts, shards)
        ]
        first, stop = (runs[0][0], runs[-1][1]) if runs else (0, 0)

        def call(function: Any, *arguments: Any) -> Any:
            outcome = self._client.run(function, self._name, part, *arguments, workers=[address])
            return outcome[address]

        try:
            facts = call(_greet)
            _check_facts(address, facts)
            box = facts["mailbox"]
            rest = HeldRecords(
                labels=records.labels,
                blank=records.blank,
                feature_grid=records.feature_grid,
                label_grid=records.label_grid,
                num_clipped=0,
                num_replaced=0,
                features=np.empty((0, records.num_features), dtype=np.int16),
                first=first,
            )
            public = (self._job.mechanism, self._store)
            content = pickle.dumps((*public, rest, stop - first))
            call(_settle, seal(content, box), self._job.key.sealed(box))
            if self._store is not None:
                problem = _reach(self._client, address, self._store)
                _check_store(f"worker {address}", self._store, problem)
            for run in runs:
                vectors = np.ascontiguousarray(records.part(*run))
                call(_take, seal(vectors.tobytes(), box))
        except (OSError, KeyError):  # lost meanwhile: the next look will tell
            return
        self._holders.setdefault(address, set()).add(part)

    def divide(self, pieces: Sequence[Piece]) -> list[list[Piece]]:
        """Divide pieces into tasks: as large as costs little memory, and enough for all workers."""
        tables = self._job.mechanism.components
        sizes = [4 * block.num_rows * tables[table].row_width for table, block in pieces]
        limit = min(_TASK_BYTES, sum(sizes) // (2 * self.ahead))
        tasks: list[list[Piece]] = []
        room = 0
        for piece, size in zip(pieces, sizes, strict=True):
            if not tasks or size > room:
                tasks.append([])
                room = limit
            tasks[-1].append(piece)
            room -= size
        return tasks

    def submit(self, pieces: Sequence[Piece]) -> Future:
        """Ask for the published rows of pieces."""
        self._sent += 1
        # A tree over the parts, the children of node i being 2i + 1 and 2i + 2. Each adds what its
        # children send to its own sums; the root, another part's holder each time, publishes.
        sent: dict[int, Future] = {}
        for node in reversed(range(self._parts)):
            part = (self._sent + node) % self._parts
            others = [sent.pop(child) for child in (2 * node + 1, 2 * node + 2) if child in sent]
            sent[node] = self._task(
                _sums if node else _rows,
                self._name,
                pieces,
                part,
                self._parts,
                *others,
                part=part,
                label=str(node),
            )
        return sent[0]

    def submit_part(self, part: Part) -> Future:
        """Ask for a part in the store; the answer is its name and its digest."""
        number, pieces = part
        rows = [self.submit(some) for some in self.divide(pieces)]
        tables = [table for table, _ in pieces]
        return self._task(_write, self._name, number, tables, *rows, part=None, label="file")

    def _task(self, function: Any, *arguments: Any, part: int | None, label: str) -> Future:
        """Ask somebody who holds a part, or any, for what a function returns."""
        able = [a for a, parts in self._holders.items() if part is None or part in parts]
        key = f"privmix{function.__name__}-{self._name}-{self._sent}-{label}"
        return self._client.submit(function, *arguments, key=key, workers=able, pure=False)

    def end(self) -> None:
        """Let the workers forget the key and the records; those that cannot be reached do so later."""
        with suppress(OSError, TimeoutError, RuntimeError):
            self._client.run(_forget, self._name, on_error="ignore")
