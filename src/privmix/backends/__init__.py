"""Where the mixing runs: threads of this process, a GPU, or a Dask cluster.

Every back end yields the same bits: sums are exact integers, and the keys of all draws follow from
the plan and the records, never from who works where.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.designs import RowBlock
from privmix.mechanism import MixtureConfig, ReleaseConfig
from privmix.mixing import BlockSums
from privmix.records import Records
from privmix.rng import MasterKey
from privmix.shared_store import SharedStore
from privmix.store import Part, Piece, Rows

BackendName = Literal["local", "dask", "cuda"]
BACKENDS: tuple[BackendName, ...] = ("local", "dask", "cuda")


class Mixing(Protocol):
    """Makes the rows of one table: ``engine.Mixer``."""

    config: MixtureConfig

    @property
    def shards(self) -> list[tuple[int, int]]:
        """The runs of records (start, stop) that sums are made of."""

    def new_sums(self, block: RowBlock) -> BlockSums:
        """Return sums of nothing."""

    def add(self, block: RowBlock, shard: int, values: NDArray[np.int16], sums: BlockSums) -> None:
        """Add a shard's records, whose features are ``values``."""

    def sums(self, block: RowBlock, shards: Iterable[int] | None = None) -> BlockSums:
        """Return the exact sums of a block over all shards or some. Private."""

    def publish(self, block: RowBlock, sums: BlockSums) -> Rows:
        """Add the noise to the whole sums of a block, and divide."""

    def rows(self, block: RowBlock) -> Rows:
        """Return the published rows of a block."""


@dataclass(frozen=True, repr=False)
class Job:
    """What is to be mixed. Holds the records and the key: never shown, never serialised.

    Attributes:
        mechanism: Public.
        records: The private records.
        key: The release's key.
        make: ``engine.make_mixers``: makes the tables' mixers of (mechanism, records, key, sums).
        sums_bytes: What the sums of one sweep over streamed records may take.

    """

    mechanism: ReleaseConfig
    records: Records
    key: MasterKey
    make: Callable[..., Sequence[Mixing]]
    sums_bytes: int = 0

    def __reduce__(self) -> str:
        raise TypeError("a job is never serialised")


class Backend(Protocol):
    """Where the mixing runs; a context manager that holds what the place needs."""

    def __enter__(self) -> Self:
        """Open the place, or fail before anything is charged or drawn."""

    def __exit__(self, *error: Any) -> None:
        """Leave nothing behind."""

    def check_store(self, store: SharedStore) -> None:
        """Refuse a store that this process or a worker cannot write to."""

    def rows(self, job: Job, pieces: Sequence[Piece]) -> Generator[Rows]:
        """Yield the published rows of pieces, in their order."""

    def parts(
        self, job: Job, parts: Sequence[Part], store: SharedStore
    ) -> Generator[tuple[str, str]]:
        """Write parts to a store; yield the (name, SHA-256) of each in their order."""


def open_backend(
    name: str, threads: int, scheduler: str | None = None, workers: int | None = None
) -> Backend:
    """Return a back end by its name, to be entered.

    Args:
        name: ``local``: threads of this process. ``dask``: a cluster; see
            :class:`privmix.backends.dask.DaskBackend`. ``cuda``: a GPU; see
            :class:`privmix.backends.cuda.CudaBackend`.
        threads: Threads of this process, or of all worker processes on this machine together.
        scheduler: ``dask``: address of a scheduler.
        workers: ``dask``: worker processes to start on this machine, where there is no scheduler.

    Raises:
        InvalidInputError: An unknown name, options of another back end, or a library that is not
            installed.

    """
    _validate.one_of("backend", name, BACKENDS)
    for option, value in (("scheduler", scheduler), ("workers", workers)):
        if value is not None and name != "dask":
            _validate.fail(option, f"nothing for backend {name}", value)
    if name == "dask":
        from privmix.backends.dask import DaskBackend

        return DaskBackend(scheduler, workers, threads)
    if name == "cuda":
        from privmix.backends.cuda import CudaBackend

        return CudaBackend(threads)
    from privmix.backends.local import LocalBackend

    return LocalBackend(threads)
