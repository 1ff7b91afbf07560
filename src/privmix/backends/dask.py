"""Mixing on a Dask cluster: records stay with workers, integers are added up on the way.

The records are divided into shares, runs of the plan's shards, and each worker holds a share in its own
memory. There are as few shares as let a worker hold one, so that little travels: several workers may
hold the same share, and small data lies with every worker as a whole. For a block of rows each share is
sampled and summed where it lies, the sums are joined along a tree of the shares, and the block's noise
is added once, at its root, under the block's key. Published rows come back to the data holder's
process, which writes them, or one worker gathers those of a file and writes it to a store that all
reach (``shared_store``).

**What a task graph holds** is public: a run's random name, and numbers of tables, blocks, rows and
shares. The key and the records never enter it. They are handed to workers beside it, sealed for one
worker at a time (``rng.Mailbox``), since messages pass through the scheduler and may be logged.
Noiseless sums are results of tasks: they stay in workers' memory and pass between workers, so that
these must not spill to disk (refused), and they show as ``<private>`` wherever a log prints a task's
arguments.

**Who can connect** to the scheduler or a worker can run code there and read everything. So every
connection is under TLS with certificates on both sides, also on one machine, which other users share:
a cluster that is started here has credentials of its own (``dask_cluster``). Plain TCP is refused.

**What can go wrong changes nothing.** Every task is a function of the run's key and of public
numbers, so that one that is run twice, or elsewhere, gives the same integers. A worker that
was lost, or that came back empty, is noticed: another gets its share, and the blocks in flight start
again. Workers drop the key and the records when the run ends, or ten minutes after their last task
if the holder's process is gone.

``dask_worker`` is what workers hold and do, ``dask_cluster`` the connection and its checks, ``dask_run``
who holds what; here is the order of the work. See ``docs/how-to/clusters.md``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Self

from privmix import _validate
from privmix.backends import Job
from privmix.backends.dask_cluster import (
    OwnCluster,
    check_cluster,
    check_credentials,
    check_store,
    check_transport,
    store_problem_of,
)
from privmix.backends.dask_run import Run
from privmix.backends.dask_worker import MissingShare
from privmix.mixer import Rows
from privmix.publishing.folder import Part, TableBlock
from privmix.running.shared_store import SharedStore

if TYPE_CHECKING:
    from distributed import Client, Future

_CONNECT_SECONDS = 20.0
_MAX_LOSSES = 20  # restarts without a finished block before giving up

_Task = tuple[Callable[[Any], "Future"], Any, int]  # how to submit what; the mixing tasks it makes


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
            check_transport("scheduler", [scheduler])
        self._scheduler = scheduler
        self._workers = threads if workers is None else _validate.integer("workers", workers)
        self._threads = max(1, threads // self._workers)
        self._cluster: OwnCluster | None = None
        self._client: Client | None = None

    def __enter__(self) -> Self:
        try:
            from distributed import Client
        except ImportError:
            _validate.fail("backend", "dask with Dask: pip install 'privmix[dask]'", "no Dask")
        address = self._scheduler
        try:
            if address is None:
                self._cluster = OwnCluster(self._workers, self._threads)
                address = self._cluster.address
            else:
                check_credentials(address)
            try:
                self._client = Client(
                    address,
                    security=None if self._cluster is None else self._cluster.security,
                    timeout=_CONNECT_SECONDS,
                    set_as_default=False,
                    # Rows then do not pass through the scheduler; elsewhere it may be the only way.
                    direct_to_workers=self._cluster is not None,
                )
                self._client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
            except (OSError, ValueError, RuntimeError) as error:
                allowed = "one that can be reached and has workers"
                _validate.fail(f"scheduler {address}", allowed, f"{type(error).__name__}: {error}")
            check_cluster(self._client)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            if self._client is not None:
                self._client.close()
        finally:
            if self._cluster is not None:
                self._cluster.close()
            self._client = self._cluster = None

    def check_store(self, store: SharedStore) -> None:
        """Refuse a store that this process or a worker cannot write to."""
        check_store("this process", store, store.problem())
        for address in self._connected.nthreads():
            check_store(
                f"worker {address}", store, store_problem_of(self._connected, address, store)
            )

    def rows(self, job: Job, table_blocks: Sequence[TableBlock]) -> Generator[Rows]:
        """Yield the published rows of blocks in order, whichever workers are lost on the way."""
        run = Run(self._connected, job)
        for rows in self._in_order(
            run, [(run.submit, some, 1) for some in run.divide(table_blocks)]
        ):
            yield from rows

    def parts(
        self, job: Job, parts: Sequence[Part], store: SharedStore
    ) -> Generator[tuple[str, str]]:
        """Have workers write parts; yield the (name, SHA-256) of each in their order."""
        run = Run(self._connected, job, store)
        tasks = [(run.submit_part, part, len(run.divide(part[1]))) for part in parts]
        yield from self._in_order(run, tasks)

    @property
    def _connected(self) -> Client:
        if self._client is None:
            raise RuntimeError("a back end is entered before it is used")
        return self._client

    def _in_order(self, run: Run, tasks: Sequence[_Task]) -> Generator[Any]:
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
                    result = flying[0][1].result(timeout=run.poll_seconds)
                except TimeoutError:
                    lost = run.refresh()
                except (MissingShare, KilledWorker, CancelledError) as error:
                    run.refresh(empty=error.args if isinstance(error, MissingShare) else ())
                    lost = True
                else:
                    flying.popleft()
                    losses = 0
                    yield result
                    lost = run.refresh_is_due and run.refresh()
                # What was asked of a worker that left would be waited for without an end.
                if lost:
                    losses += 1
                    if losses > _MAX_LOSSES:
                        raise RuntimeError("workers are lost faster than blocks are finished")
                    waiting.extendleft(task for task, _ in reversed(flying))
                    flying.clear()
        finally:
            flying.clear()
            run.end()
