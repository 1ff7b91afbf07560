"""One run on a cluster, as the holder sees it: who holds which share, and what is asked of whom."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from privmix.backends import Job
from privmix.backends.dask_cluster import (
    check_store,
    check_transport,
    check_worker,
    store_problem_of,
)
from privmix.backends.dask_worker import (
    HeldRecords,
    add_sums_of_share,
    forget_run,
    open_share,
    publish_rows,
    receive_features,
    receive_job,
    shards_of,
    write_part,
)
from privmix.publishing.folder import Part, TableBlock
from privmix.rng import fresh_name, seal
from privmix.running.shared_store import SharedStore

if TYPE_CHECKING:
    from distributed import Client, Future

_RETURN_SECONDS = 120.0  # for a worker to come when all have left
_POLL_SECONDS = 1.0  # between looks at which workers are there
_SHARE_BYTES = 1 << 30  # features of a share, about; most of what a worker needs
_TASK_BYTES = 16 << 20  # rows of a task, about: a task costs some milliseconds by itself


class Run:
    """One job on a cluster, as the holder sees it: who holds which share, and what is asked of whom.

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
        # The number of shares shows in task graphs: it follows from public sizes. The tables of a
        # release have the same shards.
        config = job.mechanism.components[0]
        size = 2 * config.num_records * config.num_features
        planned = -(-config.num_records // config.shard_records)
        self._num_shares = min(-(-size // _SHARE_BYTES), len(live), planned)
        self._shard_records = config.shard_records
        self.ahead = 2 * sum(live.values()) + 2
        self._next_refresh = 0.0
        self.refresh()

    @property
    def poll_seconds(self) -> float:
        """How long a result is waited for before the next look at who is there."""
        return _POLL_SECONDS

    @property
    def refresh_is_due(self) -> bool:
        """Whether the last look at who is there was a while ago."""
        return monotonic() > self._next_refresh

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

    def refresh(self, empty: Sequence[str] = ()) -> bool:
        """Give shares to workers that came and shares of workers that left to others.

        Args:
            empty: Workers that were found to hold nothing.

        Returns:
            Whether a worker was lost.

        """
        live = self._live()
        lost = {a for a in self._holders if a not in live or a in empty}
        for address in lost:
            del self._holders[address]
        for address in live:
            if address not in self._holders:
                self._send_share(address, min(range(self._num_shares), key=self._num_holders))
        for share in range(self._num_shares):
            if not self._num_holders(share) and self._holders:
                least = min(self._holders, key=lambda address: len(self._holders[address]))
                self._send_share(least, share)
        self._next_refresh = monotonic() + _POLL_SECONDS
        return bool(lost)

    def _num_holders(self, share: int) -> int:
        return sum(share in shares for shares in self._holders.values())

    def _send_share(self, address: str, share: int) -> None:
        """Hand a share of the records and the key to a worker, sealed; nothing if it is gone."""
        check_transport(f"worker {address}", [address])
        records = self._job.records
        shards = -(-records.count // self._shard_records)
        runs = [
            (shard * self._shard_records, min((shard + 1) * self._shard_records, records.count))
            for shard in shards_of(share, self._num_shares, shards)
        ]
        first, stop = (runs[0][0], runs[-1][1]) if runs else (0, 0)

        def call(function: Any, *arguments: Any) -> Any:
            outcome = self._client.run(function, self._name, share, *arguments, workers=[address])
            return outcome[address]

        try:
            facts = call(open_share)
            check_worker(address, facts)
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
            call(receive_job, seal(content, box), self._job.key.sealed(box))
            if self._store is not None:
                problem = store_problem_of(self._client, address, self._store)
                check_store(f"worker {address}", self._store, problem)
            for run in runs:
                vectors = np.ascontiguousarray(records.read(*run))
                call(receive_features, seal(vectors.tobytes(), box))
        except (OSError, KeyError):  # lost meanwhile: the next look will tell
            return
        self._holders.setdefault(address, set()).add(share)

    def divide(self, table_blocks: Sequence[TableBlock]) -> list[list[TableBlock]]:
        """Divide blocks into tasks: as large as costs little memory, and enough for all workers."""
        tables = self._job.mechanism.components
        sizes = [4 * block.num_rows * tables[table].row_width for table, block in table_blocks]
        limit = min(_TASK_BYTES, sum(sizes) // (2 * self.ahead))
        tasks: list[list[TableBlock]] = []
        room = 0
        for table_block, size in zip(table_blocks, sizes, strict=True):
            if not tasks or size > room:
                tasks.append([])
                room = limit
            tasks[-1].append(table_block)
            room -= size
        return tasks

    def submit(self, table_blocks: Sequence[TableBlock]) -> Future:
        """Ask for the published rows of blocks."""
        self._sent += 1
        # A tree over the shares, the children of node i being 2i + 1 and 2i + 2. Each adds what its
        # children send to its own sums; the root, another share's holder each time, publishes.
        sent: dict[int, Future] = {}
        for node in reversed(range(self._num_shares)):
            share = (self._sent + node) % self._num_shares
            others = [sent.pop(child) for child in (2 * node + 1, 2 * node + 2) if child in sent]
            sent[node] = self._task(
                add_sums_of_share if node else publish_rows,
                self._name,
                table_blocks,
                share,
                self._num_shares,
                *others,
                share=share,
                label=str(node),
            )
        return sent[0]

    def submit_part(self, part: Part) -> Future:
        """Ask for a part in the store; the answer is its name and its digest."""
        number, table_blocks = part
        rows = [self.submit(some) for some in self.divide(table_blocks)]
        tables = [table for table, _ in table_blocks]
        return self._task(write_part, self._name, number, tables, *rows, share=None, label="file")

    def _task(self, function: Any, *arguments: Any, share: int | None, label: str) -> Future:
        """Ask a worker that holds a share, or any, for what a function returns."""
        able = [a for a, held in self._holders.items() if share is None or share in held]
        key = f"privmix-{function.__name__}-{self._name}-{self._sent}-{label}"
        return self._client.submit(function, *arguments, key=key, workers=able, pure=False)

    def end(self) -> None:
        """Let the workers forget the key and the records; those that cannot be reached do so later."""
        with suppress(OSError, TimeoutError, RuntimeError):
            self._client.run(forget_run, self._name, on_error="ignore")
