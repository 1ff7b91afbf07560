"""What a worker holds of a run, and what it is asked to do with it."""

from __future__ import annotations

import hashlib
import pickle
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.mixer import Mixer, Rows, make_mixers
from privmix.mixing import BlockSums
from privmix.publishing.folder import TableBlock, part_bytes, part_name
from privmix.records.bounded import BoundedRecords
from privmix.rng import Mailbox, MasterKey
from privmix.running.journal import FORMAT_VERSION
from privmix.running.shared_store import SharedStore
from privmix.sampling import RowBlock

if TYPE_CHECKING:
    from distributed import Scheduler, Worker

_LEASE_SECONDS = 600.0


class MissingShare(Exception):
    """A worker lacks what a task needs: it joined late, or it was started again."""


@dataclass(frozen=True, repr=False)
class PartialSums:
    """Noiseless sums of blocks on their way between workers; never shown."""

    sums: list[BlockSums]

    def __repr__(self) -> str:
        return "PartialSums(<private>)"

    def __sizeof__(self) -> int:
        return sum(one.features.nbytes + one.labels.nbytes for one in self.sums)


@dataclass(frozen=True, repr=False)
class HeldRecords(BoundedRecords):
    """The features of a stretch of records, and the labels of all.

    Attributes:
        first: The first record whose features are here.

    """

    first: int

    def read(self, start: int, stop: int) -> NDArray[np.int16]:
        """Return the features of a stretch of records that are here."""
        if not self.first <= start <= stop <= self.first + len(self.features):
            raise ValueError(f"records {start} to {stop} are not here")
        return self.features[start - self.first : stop - self.first]


class HeldShare:
    """What a worker holds of one run for one share; forgotten when it is not used for a while."""

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
        if _held.get(self._name) is self:
            _held.pop(self._name, None)

    def end_lease(self) -> None:
        """End the lease."""
        with self._lock:
            if self._lease is not None:
                self._lease.cancel()

    def receive_job(self, sealed: bytes, key: bytes) -> None:
        """Take everything but the features."""
        content = pickle.loads(self.mailbox.open(sealed))
        self.mechanism, self.store, self._records, count = content
        self._key = MasterKey.opened(key, self.mailbox)
        features = np.empty((count, self._records.num_features), dtype=np.int16)
        self._records = replace(self._records, features=features)
        self._left = count

    def receive_features(self, sealed: bytes) -> None:
        """Take the next feature vectors."""
        vectors = np.frombuffer(self.mailbox.open(sealed), dtype=np.int16)
        features = self._records.features
        vectors = vectors.reshape(-1, features.shape[1])
        first = len(features) - self._left
        features[first : first + len(vectors)] = vectors
        self._left -= len(vectors)

    def mixers(self) -> Sequence[Mixer] | None:
        """Return the mixers of this share, or None before everything is there."""
        self.renew()
        with self._lock:
            if self._left == 0 and self._mixers is None:
                self._mixers = make_mixers(self.mechanism, self._records, self._key)
            return self._mixers


# By (worker's address, run, share): workers may share a process.
_held: dict[tuple[str, str, int], HeldShare] = {}


@cache
def code_version() -> str:
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


code_version()  # when the files are read, and not when they may have changed under a process


# What the holder calls on workers, outside task graphs.


def open_share(run: str, share: int, dask_worker: Worker) -> dict[str, Any]:
    """Open a mailbox for a share and say what kind of worker this is."""
    name = (dask_worker.address, run, share)
    held = _held[name] = HeldShare(name)
    return {
        "mailbox": held.mailbox.address,
        "spills": type(dask_worker.data) is not dict,
        "code": code_version(),
        "addresses": worker_addresses(dask_worker),
    }


def worker_addresses(dask_worker: Worker) -> list[str]:
    """Return all addresses at which a worker or its nanny is reached."""
    own = [listener.contact_address for listener in dask_worker.listeners]
    return [*own, dask_worker.nanny] if dask_worker.nanny else own


def scheduler_addresses(dask_scheduler: Scheduler) -> list[str]:
    """Return all addresses at which the scheduler is reached."""
    return [listener.contact_address for listener in dask_scheduler.listeners]


def receive_job(run: str, share: int, sealed: bytes, key: bytes, dask_worker: Worker) -> None:
    """Take everything but the features of a share."""
    _held[dask_worker.address, run, share].receive_job(sealed, key)


def receive_features(run: str, share: int, sealed: bytes, dask_worker: Worker) -> None:
    """Take the next features of a share."""
    _held[dask_worker.address, run, share].receive_features(sealed)


def store_problem(store: SharedStore, pyarrow: str) -> str | None:
    """Say why this worker cannot write parts to a store, or not the same bytes, if it cannot."""
    if version("pyarrow") != pyarrow:
        return f"pyarrow {version('pyarrow')} here, {pyarrow} where privmix release runs"
    return store.problem()


def forget_run(run: str, dask_worker: Worker) -> None:
    """Drop the key and the records of a run."""
    for name in [name for name in _held if name[:2] == (dask_worker.address, run)]:
        _held.pop(name).end_lease()


# Tasks: functions of public numbers, and of what the worker holds.


def _held_share(run: str, share: int | None) -> tuple[HeldShare, Sequence[Mixer]]:
    from distributed import get_worker

    address = get_worker().address
    for name, held in list(_held.items()):
        if name[:2] == (address, run) and share in (None, name[2]):
            mixers = held.mixers()
            if mixers is not None:
                return held, mixers
    raise MissingShare(address)


def publish_rows(
    run: str, table_blocks: Sequence[TableBlock], share: int, num_shares: int, *others: PartialSums
) -> list[Rows]:
    """Return the published rows of blocks, given the sums of all shares but one."""
    return [
        mixer.publish(block, sums)
        for mixer, block, sums in _block_sums(run, table_blocks, share, num_shares, others)
    ]


def add_sums_of_share(
    run: str, table_blocks: Sequence[TableBlock], share: int, num_shares: int, *others: PartialSums
) -> PartialSums:
    """Add a share's records to sums of blocks."""
    made = [sums for *_, sums in _block_sums(run, table_blocks, share, num_shares, others)]
    for sums in made:
        sums.narrow()
    return PartialSums(made)


def _block_sums(
    run: str,
    table_blocks: Sequence[TableBlock],
    share: int,
    num_shares: int,
    others: Sequence[PartialSums],
) -> Iterator[tuple[Mixer, RowBlock, BlockSums]]:
    _, mixers = _held_share(run, share)
    for number, (table, block) in enumerate(table_blocks):
        mixer = mixers[table]
        sums = mixer.sums(block, shards_of(share, num_shares, len(mixer.shards)))
        for other in others:
            sums.add_sums(other.sums[number])
        yield mixer, block, sums


def shards_of(share: int, num_shares: int, num_shards: int) -> range:
    """Return the shards of a share: each shard is in one, and some shares may have none."""
    return range(share * num_shards // num_shares, (share + 1) * num_shards // num_shares)


def write_part(run: str, number: int, tables: Sequence[int], *rows: list[Rows]) -> tuple[str, str]:
    """Write a part of published rows to the store; return its name and its SHA-256."""
    held, _ = _held_share(run, None)
    content = part_bytes(held.mechanism, zip(tables, chain(*rows), strict=True))
    try:
        held.store.files.put(part_name(number), content)
    except Exception as error:  # of whatever library the store needs: one that travels
        raise OSError(f"{part_name(number)}: {type(error).__name__}: {error}") from None
    return part_name(number), hashlib.sha256(content).hexdigest()
