"""The budget ledger of data sets: what has been spent, and a limit that holds.

A data set is named by an identifier that its holder declares, since any hash of its content is
evaded by one appended row. A release is charged in full before anything is drawn, in one
transaction, and never refunded: a run that was started may have shown something to somebody.
The ledger is the data holder's own and private file.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.accounting import ComposedEvent, Event, account, event_from_json

_FORMAT = 1
_WAIT_SECONDS = 300.0
_TABLES = """
CREATE TABLE datasets (
    dataset_id TEXT PRIMARY KEY,
    epsilon_limit REAL NOT NULL,
    delta REAL NOT NULL
) STRICT;
CREATE TABLE charges (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    dataset_id TEXT NOT NULL REFERENCES datasets,
    charged_at TEXT NOT NULL,
    note TEXT NOT NULL,
    event TEXT NOT NULL
) STRICT;
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY,
    number INTEGER NOT NULL REFERENCES charges
) STRICT;
"""


class Charge(FrozenModel):
    """One entry: what was charged, when, and the holder's note on it."""

    number: int
    charged_at: str
    note: str
    event: Event


class Balance(FrozenModel):
    """What a data set has spent.

    Attributes:
        dataset_id: The declared identifier.
        epsilon_limit: Most that all charges together may cost at ``delta``.
        delta: The data set's delta.
        epsilon_spent: Certified epsilon of all charges composed, at ``delta``.
        charges: The entries, oldest first.

    """

    dataset_id: str
    epsilon_limit: float
    delta: float
    epsilon_spent: float
    charges: tuple[Charge, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return self.model_dump(mode="json")


class Ledger:
    """A ledger file, safe for concurrent use by several processes.

    Args:
        path: SQLite file; made on first use, readable by its owner alone.

    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.absolute().parent.is_dir():
            _validate.fail(f"ledger={path}", "a file in an existing folder", "no such folder")
        if not self.path.exists():
            try:
                self.path.touch(mode=0o600)
            except OSError as error:
                _validate.fail(f"ledger={path}", "a place in a writable folder", error.strerror)
        with self._transaction() as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _FORMAT):
                _validate.fail(f"ledger={path}", f"a ledger of format {_FORMAT}", version)
            found = _columns(connection)
            if version == 0 and not found:  # a new file
                _make_tables(connection)
                connection.execute(f"PRAGMA user_version = {_FORMAT}")
            elif version == 0 or not _own_columns() <= found:
                _validate.fail(f"ledger={path}", "a ledger", "another program's database")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the only write lock from before the first read to the commit."""
        try:
            connection = sqlite3.connect(self.path, timeout=_WAIT_SECONDS, isolation_level=None)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.DatabaseError as error:
            _validate.fail(f"ledger={self.path}", "a ledger that can be opened", error)
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # a full disk has ended it already
                connection.execute("ROLLBACK")
            raise
        finally:
            connection.close()

    def open_dataset(self, dataset_id: str, *, epsilon_limit: float, delta: float) -> Self:
        """Enter a data set with its limit; entering it again with the same limit changes nothing.

        Raises:
            InvalidInputError: An empty identifier, a limit or delta out of range, or a data set
                that is there with another limit.

        """
        if not isinstance(dataset_id, str) or not dataset_id.strip():
            _validate.fail("dataset_id", "a name", repr(dataset_id))
        limit = _validate.real("epsilon_limit", epsilon_limit, above=0.0)
        delta = _validate.delta("delta", delta)
        with self._transaction() as connection:
            known = self._find(connection, dataset_id)
            if known is None:
                row = (dataset_id, limit, delta)
                connection.execute("INSERT INTO datasets VALUES (?, ?, ?)", row)
            elif known != (limit, delta):
                allowed = f"({known[0]:g}, {known[1]:g}), the limit it was entered with"
                _validate.fail(f"data set {dataset_id!r}", allowed, (limit, delta))
        return self

    def charge(
        self, dataset_id: str, event: Event, *, note: str = "", run_id: str | None = None
    ) -> Balance:
        """Charge an event, or refuse it if all charges together would pass the limit.

        Args:
            dataset_id: The data set.
            event: What is charged.
            note: The holder's own words.
            run_id: Name of the run that is charged; a run that was charged already, and then cut
                off, is not charged again.

        Raises:
            InvalidInputError: An unknown data set, a cost past the limit, or an event under another
                neighbouring relation than the earlier ones. Nothing is charged then.

        """
        with self._transaction() as connection:
            before = self._balance(connection, dataset_id)
            query = "SELECT number FROM runs WHERE run_id = ?"
            if run_id is not None and connection.execute(query, (run_id,)).fetchone():
                return before
            _check_cost(dataset_id, before, event)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            entered = connection.execute(
                "INSERT INTO charges (dataset_id, charged_at, note, event) VALUES (?, ?, ?, ?)",
                (dataset_id, now, note, event.model_dump_json()),
            )
            if run_id is not None:
                connection.execute("INSERT INTO runs VALUES (?, ?)", (run_id, entered.lastrowid))
            return self._balance(connection, dataset_id)

    def check(self, dataset_id: str, event: Event) -> None:
        """Refuse an event that ``charge`` would refuse now; nothing is charged."""
        _check_cost(dataset_id, self.balance(dataset_id), event)

    def balance(self, dataset_id: str) -> Balance:
        """Return what a data set has spent; InvalidInputError if it is unknown."""
        with self._transaction() as connection:
            return self._balance(connection, dataset_id)

    def dataset_ids(self) -> list[str]:
        """Return the identifiers of all data sets."""
        with self._transaction() as connection:
            rows = connection.execute("SELECT dataset_id FROM datasets ORDER BY dataset_id")
            return [row[0] for row in rows]

    def to_json(self) -> str:
        """Export the whole ledger."""
        balances = [self.balance(dataset_id).to_dict() for dataset_id in self.dataset_ids()]
        return json.dumps({"format_version": _FORMAT, "datasets": balances}, indent=2)

    def _find(self, connection: sqlite3.Connection, dataset_id: str) -> tuple[float, float] | None:
        query = "SELECT epsilon_limit, delta FROM datasets WHERE dataset_id = ?"
        row: tuple[float, float] | None = connection.execute(query, (dataset_id,)).fetchone()
        return row

    def _balance(self, connection: sqlite3.Connection, dataset_id: str) -> Balance:
        known = self._find(connection, dataset_id)
        if known is None:
            _validate.fail("dataset_id", "a data set that the ledger knows", repr(dataset_id))
        query = (
            "SELECT number, charged_at, note, event FROM charges WHERE dataset_id = ? "
            "ORDER BY number"
        )
        charges = tuple(
            Charge(number=number, charged_at=at, note=note, event=event_from_json(event))
            for number, at, note, event in connection.execute(query, (dataset_id,))
        )
        events = tuple(charge.event for charge in charges)
        spent = account(ComposedEvent(events=events), known[1]).epsilon if events else 0.0
        return Balance(
            dataset_id=dataset_id,
            epsilon_limit=known[0],
            delta=known[1],
            epsilon_spent=spent,
            charges=charges,
        )


def _make_tables(connection: sqlite3.Connection) -> None:
    for statement in filter(str.strip, _TABLES.split(";")):
        connection.execute(statement)


def _columns(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    """Return (table, column) of all tables and views; SQLite's own say nothing of whose they are."""
    query = (
        "SELECT held.name, part.name FROM sqlite_master AS held, pragma_table_info(held.name) AS part "
        "WHERE held.name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    )
    return set(connection.execute(query))


def _own_columns() -> set[tuple[str, str]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        _make_tables(connection)
        return _columns(connection)


def _check_cost(dataset_id: str, before: Balance, event: Event) -> None:
    """Refuse an event that, with all charges before it, passes the limit."""
    events = tuple(charge.event for charge in before.charges)
    cost = account(ComposedEvent(events=(*events, event)), before.delta).epsilon
    if cost > before.epsilon_limit:
        _validate.fail(
            f"data set {dataset_id!r}",
            f"charges of at most epsilon {before.epsilon_limit:g} at delta "
            f"{before.delta:g}, of which {before.epsilon_spent:.6g} is spent",
            f"one that makes it {cost:.6g}",
        )


def ledger_charge(
    ledger: str | Path | None, dataset_id: str | None, event: Event, note: str
) -> Callable[[str], Balance] | None:
    """Return what charges an event to a ledger, given the run's name, or None without a ledger.

    Raises:
        InvalidInputError: A ledger without a data set's name or the other way round, or no such
            ledger.

    """
    if (ledger is None) != (dataset_id is None):
        given = "ledger" if dataset_id is None else "dataset_id"
        _validate.fail("ledger and dataset_id", "both, or neither", f"{given} alone")
    if ledger is None or dataset_id is None:
        return None
    if not Path(ledger).is_file():
        _validate.fail("ledger", "an existing ledger; see privmix ledger open", str(ledger))
    book, name = Ledger(ledger), dataset_id
    return lambda run_id: book.charge(name, event, note=note, run_id=run_id)
