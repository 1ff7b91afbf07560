"""The connection to a cluster: its credentials, and what is refused before anything is charged."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from privmix import _validate
from privmix.backends.dask_worker import (
    code_version,
    forget_run,
    open_share,
    scheduler_addresses,
    store_problem,
)
from privmix.running.shared_store import SharedStore

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

# Of the HTTP servers that Dask starts beside its own: nothing is served to whoever asks.
_NO_PAGES: dict[str, list[str]] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}


class OwnCluster:
    """Worker processes on this machine, which nobody but the holder's process can connect to.

    The machine's other users reach every port on its loopback address. So the processes speak TLS, with
    a key and a certificate made for this cluster, which no other user can read. So is their working
    folder, since workers import code from there, and they serve no pages over HTTP.

    Args:
        workers: Number of processes.
        threads: Threads of each.

    """

    def __init__(self, workers: int, threads: int) -> None:
        import dask
        from distributed import LocalCluster
        from distributed.security import Security

        self.security = Security.temporary()
        self._folder = tempfile.TemporaryDirectory(prefix="privmix-", ignore_cleanup_errors=True)
        try:
            with dask.config.set(_NO_PAGES):
                # Without a memory limit a worker neither spills nor is stopped.
                self._cluster: LocalCluster = LocalCluster(
                    n_workers=workers,
                    threads_per_worker=threads,
                    processes=True,
                    memory_limit=0,
                    security=self.security,
                    protocol="tls://",
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    scheduler_kwargs={"dashboard": False},
                    local_directory=self._folder.name,
                    silence_logs="ERROR",
                )
        except BaseException:
            self._folder.cleanup()
            raise

    @property
    def address(self) -> str:
        """The scheduler's address."""
        address: str = self._cluster.scheduler_address
        return address

    def close(self) -> None:
        """End the processes and remove their folder."""
        try:
            self._cluster.close()
        finally:
            self._folder.cleanup()


def check_transport(position: str, addresses: Iterable[str]) -> None:
    """Refuse addresses at which others can connect: all but those under TLS or in this process.

    A loopback address is no exception: it is every local user's.
    """
    for address in addresses:
        if address.partition("://")[0] not in ("tls", "inproc"):
            allowed = "a tls:// address; under plain TCP every user of the machine can connect"
            _validate.fail(position, allowed, address)


def check_credentials(address: str) -> None:
    """Refuse an address under TLS where Dask's configuration has no certificates for it."""
    from distributed.security import Security

    if not address.startswith("tls://"):
        return
    names = "distributed.comm.tls.ca-file, client.cert and client.key"
    allowed = f"readable certificates in Dask's configuration: {names}"
    try:
        context = Security().get_connection_args("client")["ssl_context"]
    except (OSError, ValueError) as error:
        _validate.fail(f"scheduler {address}", allowed, f"{type(error).__name__}: {error}")
    if context is None:
        _validate.fail(f"scheduler {address}", allowed, "none")


def check_cluster(client: Client) -> None:
    """Refuse a cluster that others can connect to, and workers that cannot be used."""
    try:
        check_transport("scheduler", client.run_on_scheduler(scheduler_addresses))
    except ImportError as error:
        _validate.fail("scheduler", "privmix where the scheduler runs", error)
    for address in client.nthreads():
        check_transport(f"worker {address}", [address])
        try:
            facts = client.run(open_share, "", 0, workers=[address])[address]
            client.run(forget_run, "", workers=[address])
        except ImportError as error:
            _validate.fail(f"worker {address}", "privmix on every worker", error)
        check_worker(address, facts)


def check_worker(address: str, facts: dict[str, Any]) -> None:
    """Refuse a worker that would spill, that others can connect to, or of another version."""
    if facts["spills"]:
        allowed = (
            "spilling to disk switched off: distributed.worker.memory.target and "
            "distributed.worker.memory.spill are False, or no memory limit"
        )
        _validate.fail(f"worker {address}", allowed, "a worker that spills")
    if (code := facts.get("code", facts.get("version"))) != code_version():
        _validate.fail(f"worker {address}", f"privmix {code_version()}, as here", code)
    check_transport(f"worker {address}", facts["addresses"])


def store_problem_of(client: Client, address: str, store: SharedStore) -> str | None:
    """Ask a worker why it cannot write parts to a store, if it cannot."""
    told = client.run(store_problem, store, version("pyarrow"), workers=[address])
    problem: str | None = told[address]
    return problem


def check_store(who: str, store: SharedStore, problem: str | None) -> None:
    """Refuse a store that somebody cannot use."""
    if problem is not None:
        _validate.fail(store.position, f"a store that {who} can read and write", problem)
