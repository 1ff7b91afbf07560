"""The file of a ledger: an SQLite database to which entries are appended, whole or not at all."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import monotonic

from privmix import _validate
from privmix.running.ledger_entries import Link

FORMAT = 2
WAIT_SECONDS = 60.0
_NOTICE_SECONDS = 1.0
_TABLES = """
CREATE TABLE entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    content TEXT NOT NULL,
    hash TEXT NOT NULL
) STRICT;
"""
_logger = logging.getLogger("privmix")


class LedgerFile:
    """The stored entries of a ledger, safe for concurrent use by several processes.

    Args:
        path: SQLite file; made if it is not there, readable by its owner alone.

    Raises:
        InvalidInputError: A path that cannot be written to, a file that is no ledger, or one of
            another format.

    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.position = f"ledger={path}"
        if not self.path.absolute().parent.is_dir():
            _validate.fail(self.position, "a file in an existing folder", "no such folder")
        if not os.path.lexists(self.path):
            try:
                self.path.touch(mode=0o600)
            except OSError as error:
                _validate.fail(self.position, "a path in a writable folder", error.strerror)
        if not self.path.is_file():
            _validate.fail(self.position, "a file", "something else")
        if self.path.stat().st_size:
            with self.reading():
                pass
            return
        with self._transaction() as connection:
            if not _columns(connection):  # else another process has just made them
                connection.execute(_TABLES)
                connection.execute(f"PRAGMA user_version = {FORMAT}")

    @contextmanager
    def reading(self) -> Iterator[list[Link]]:
        """Yield all entries, in order, as of one moment; nothing is locked, a file may be read-only."""
        yield self.read_with_most()[0]

    def read_with_most(self) -> tuple[list[Link], int]:
        """Return all entries, in order, and how many there were at most, both as of one moment.

        SQLite keeps the latter though some are removed.
        """
        writable = os.access(self.path, os.W_OK)
        with self._opened(writable=writable) as connection, self._checked():
            self._wait_for(connection, "BEGIN")
            self._check_format(connection)
            links = _links(connection)
            query = "SELECT seq FROM sqlite_sequence WHERE name = 'entries'"
            most = connection.execute(query).fetchone()
            connection.execute("ROLLBACK")
        return links, int(most[0]) if most and isinstance(most[0], int) else 0

    @contextmanager
    def appending(self) -> Iterator[tuple[list[Link], Callable[[Link], None]]]:
        """Yield all entries and a function that appends one, under the only write lock.

        What was appended is there for good when the block ends; nothing of it if the block fails.
        """
        with self._transaction() as connection:
            with self._checked():
                self._check_format(connection)
                links = _links(connection)

            def append(one: Link) -> None:
                row = (one.number, one.content, one.hash)
                with self._written():
                    connection.execute("INSERT INTO entries VALUES (?, ?, ?)", row)

            yield links, append

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the only write lock from before the first read to the commit."""
        begun = self._identity()
        with self._opened(writable=True) as connection:
            with self._checked():
                connection.execute("PRAGMA synchronous = FULL")
                self._wait_for(connection, "BEGIN IMMEDIATE")
            try:
                yield connection
                with self._written():
                    self._wait_for(connection, "COMMIT")
            except BaseException:
                if connection.in_transaction:  # a full disk has ended it already
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                raise
            if self._identity() != begun:
                gone = (
                    "one that was removed or replaced meanwhile; what was written is lost with it"
                )
                _validate.fail(self.position, "a ledger that stays where it is", gone)

    @contextmanager
    def _opened(self, *, writable: bool) -> Iterator[sqlite3.Connection]:
        if not self.path.is_file():
            _validate.fail(self.position, "an existing ledger", "none: it was removed")
        # A missing file is not made anew: that would be a ledger in which nothing is spent.
        address = f"{self.path.absolute().as_uri()}?mode={'rw' if writable else 'ro'}"
        try:
            connection = sqlite3.connect(address, uri=True, timeout=0.1, isolation_level=None)
        except sqlite3.Error as error:
            _validate.fail(self.position, "a ledger that can be opened", error)
        with closing(connection):
            yield connection

    def _wait_for(self, connection: sqlite3.Connection, statement: str) -> None:
        """Execute a statement when no other process has the lock; say so after a second."""
        started, told = monotonic(), False
        while True:
            try:
                connection.execute(statement)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
            else:
                return
            waited = monotonic() - started
            if waited > WAIT_SECONDS:
                allowed = f"a ledger that no other process locks for over {WAIT_SECONDS:g} seconds"
                _validate.fail(self.position, allowed, "a locked one; nothing was charged")
            if waited > _NOTICE_SECONDS and not told:
                told = True
                line = "%s is in use by another process: waiting for at most %g seconds"
                _logger.warning(line, self.position, WAIT_SECONDS)

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """Turn what SQLite says of a file that is no sound database into one line."""
        try:
            yield
        except sqlite3.Error as error:
            self._fail_to_write(error)
            _validate.fail(self.position, "a ledger that can be opened", error)

    @contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            self._fail_to_write(error)
            raise OSError(f"{self.position}: {error}; nothing was charged") from None

    def _fail_to_write(self, error: sqlite3.Error) -> None:
        whole = getattr(error, "sqlite_errorcode", 0)
        if whole == sqlite3.SQLITE_READONLY_DBMOVED:
            gone = "one that was removed or replaced meanwhile; nothing was charged"
            _validate.fail(self.position, "a ledger that stays where it is", gone)
        code = whole & 0xFF
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            allowed = "a ledger that may be written, in a folder that may be written"
            _validate.fail(
                self.position, allowed, f"a read-only one ({error}); nothing was charged"
            )
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise OSError(f"{self.position}: {error}; nothing was charged") from None

    def _check_format(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        found = _columns(connection)
        if version == 1 and ("charges", "event") in found:
            old = "format 1, of a version before the first release of privmix"
            _validate.fail(self.position, f"a ledger of format {FORMAT}", old)
        if version == 0 or (found and not _own_columns() <= found):
            _validate.fail(self.position, "a ledger", "another program's database")
        if version != FORMAT:
            _validate.fail(self.position, f"a ledger of format {FORMAT}", version)


def _links(connection: sqlite3.Connection) -> list[Link]:
    rows = connection.execute("SELECT number, content, hash FROM entries ORDER BY number")
    return [Link(number=number, content=content, hash=mark) for number, content, mark in rows]


def _columns(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    """Return (table, column) of all tables and views; SQLite's own say nothing of whose they are."""
    query = (
        "SELECT held.name, part.name FROM sqlite_master AS held, pragma_table_info(held.name) AS part "
        "WHERE held.name NOT LIKE 'sqlite!_%' ESCAPE '!'"
    )
    return set(connection.execute(query))


def _own_columns() -> set[tuple[str, str]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(_TABLES)
        return _columns(connection)
