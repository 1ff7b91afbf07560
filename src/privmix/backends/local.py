"""Mixing by threads of this process."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.backends import Job
from privmix.mixer import Mixer, Rows
from privmix.mixing import BlockSums
from privmix.planning.memory import sum_bytes
from privmix.publishing.folder import Part, TableBlock, part_bytes, part_name
from privmix.records.bounded import Records
from privmix.running.shared_store import SharedStore
from privmix.sampling import RowBlock


class LocalBackend:
    """Threads of this process; compiled kernels let them run side by side.

    Args:
        threads: Number of threads.

    """

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def rows(self, job: Job, table_blocks: Sequence[TableBlock]) -> Generator[Rows]:
        """Yield the published rows of blocks in order, drawing a few blocks ahead."""
        mixers = job.mixers()
        with ThreadPoolExecutor(self.threads) as pool:
            try:
                if job.records.in_memory:
                    whole = (partial(mixers[table].rows, block) for table, block in table_blocks)
                    yield from in_order(pool, whole, self.threads + 2)
                else:
                    yield from _swept_rows(
                        pool, mixers, job.records, table_blocks, job.sums_bytes, self.threads
                    )
            finally:
                pool.shutdown(cancel_futures=True)

    def check_store(self, store: SharedStore) -> None:
        """Refuse a store that this process cannot write to."""
        problem = store.problem()
        if problem is not None:
            _validate.fail(store.position, "a store that can be read and written", problem)

    def parts(
        self, job: Job, parts: Sequence[Part], store: SharedStore
    ) -> Generator[tuple[str, str]]:
        """Write parts to a store; yield the (name, SHA-256) of each in their order."""
        with closing(
            self.rows(
                job, [table_block for _, table_blocks in parts for table_block in table_blocks]
            )
        ) as rows:
            for number, table_blocks in parts:
                made = ((table, next(rows)) for table, _ in table_blocks)
                content = part_bytes(job.mechanism, made)
                store.files.put(part_name(number), content)
                yield part_name(number), hashlib.sha256(content).hexdigest()


def _swept_rows(
    pool: ThreadPoolExecutor,
    mixers: Sequence[Mixer],
    records: Records,
    tasks: Sequence[TableBlock],
    sums_bytes: int,
    threads: int,
) -> Iterator[Rows]:
    """Yield the rows of blocks in order, sweeping over the records for as many as there is room."""
    left = deque(tasks)
    while left:
        group: list[tuple[Mixer, RowBlock, BlockSums]] = []
        room = sums_bytes
        while left:
            mixer, block = mixers[left[0][0]], left[0][1]
            room -= sum_bytes(mixer.config, block.num_rows, records.count)
            if group and room < 0:
                break
            group.append((mixer, block, mixer.new_sums(block)))
            left.popleft()
        _sweep(pool, records, group)
        group.reverse()

        def publish(group: list[tuple[Mixer, RowBlock, BlockSums]] = group) -> Iterator[Any]:
            while group:  # sums go as soon as they are published
                mixer, block, sums = group.pop()
                yield partial(mixer.publish, block, sums)

        yield from in_order(pool, publish(), threads + 2)


def _sweep(
    pool: ThreadPoolExecutor,
    records: Records,
    group: list[tuple[Mixer, RowBlock, BlockSums]],
) -> None:
    """Add all records to the sums of a group of blocks, reading one shard ahead."""

    def load(run: tuple[int, int]) -> tuple[NDArray[np.int16], list[Future[None]]]:
        values, tasks = records.load(*run)
        return values, [pool.submit(task) for task in tasks]

    shards = group[0][0].shards
    following = load(shards[0])
    for shard in range(len(shards)):
        values, reading = following
        for future in reading:
            future.result()
        if shard + 1 < len(shards):
            following = load(shards[shard + 1])
        adding = [
            pool.submit(mixer.add, block, shard, values, sums) for mixer, block, sums in group
        ]
        for added in adding:
            added.result()


def in_order(
    pool: ThreadPoolExecutor, tasks: Iterable[Callable[[], Rows]], ahead: int
) -> Iterator[Rows]:
    """Yield results in the order of their tasks, with at most ``ahead`` of them in the making."""
    pending: deque[Future[Rows]] = deque()
    for task in tasks:
        pending.append(pool.submit(task))
        if len(pending) >= ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()
