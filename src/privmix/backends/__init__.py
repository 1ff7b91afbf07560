"""Where the mixing runs: threads of this process, a GPU, or a Dask cluster.

Every back end yields the same bits: sums are exact integers, and the keys of all draws follow from
the plan and the records, never from who works where.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

from privmix import _validate
from privmix.mechanism import ReleaseConfig
from privmix.mixer import Mixer, Rows, make_mixers
from privmix.mixing import BlockSums
from privmix.publishing.folder import Part, TableBlock
from privmix.records.bounded import Records
from privmix.rng import MasterKey
from privmix.running.shared_store import SharedStore

BackendName = Literal["local", "dask", "cuda"]
BACKENDS: tuple[BackendName, ...] = ("local", "dask", "cuda")


@dataclass(frozen=True, repr=False)
class Job:
    """What is to be mixed. Holds the records and the key: never shown, never serialised.

    Attributes:
        mechanism: Public.
        records: The private records.
        key: The release's key.
        sums: What adds records up.
        sums_bytes: What the sums of one sweep over streamed records may take.

    """

    mechanism: ReleaseConfig
    records: Records
    key: MasterKey
    sums: type[BlockSums] = BlockSums
    sums_bytes: int = 0

    def mixers(self) -> list[Mixer]:
        """Return the mixers of the tables, in their order."""
        return make_mixers(self.mechanism, self.records, self.key, self.sums)

    def __reduce__(self) -> str:
        raise TypeError("a job is never serialised")


class Backend(Protocol):
    """Where the mixing runs; a context manager that holds what that needs."""

    def __enter__(self) -> Self:
        """Open the backend, or fail before anything is charged or drawn."""

    def __exit__(self, *error: Any) -> None:
        """Leave nothing behind."""

    def check_store(self, store: SharedStore) -> None:
        """Refuse a store that this process or a worker cannot write to."""

    def rows(self, job: Job, table_blocks: Sequence[TableBlock]) -> Generator[Rows]:
        """Yield the published rows of blocks, in their order."""

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
