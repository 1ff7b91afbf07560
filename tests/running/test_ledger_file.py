"""The file of a ledger: whose it is, where it may be missing, full, locked or somebody else's."""

from __future__ import annotations

import logging
import os
import resource
import sqlite3
import threading
import time
from contextlib import closing

import pytest

from ledger_cases import EVENT, altered
from privmix import InvalidInputError
from privmix.accounting import (
    GaussianEvent,
)
from privmix.running import ledger_file
from privmix.running.ledger import Ledger


class TestFiles:
    def test_bad_files(self, tmp_path):
        (tmp_path / "text").write_text("this is no database, but long enough to be looked at")
        with pytest.raises(InvalidInputError, match="a ledger that can be opened"):
            Ledger(tmp_path / "text")
        with pytest.raises(InvalidInputError, match="existing folder"):
            Ledger(tmp_path / "no" / "ledger.db")
        with pytest.raises(InvalidInputError, match="a file, got something else"):
            Ledger(tmp_path)
        with sqlite3.connect(tmp_path / "new.db") as connection:
            connection.execute("PRAGMA user_version = 7")
        connection.close()
        with pytest.raises(InvalidInputError, match="format 2, got 7"):
            Ledger(tmp_path / "new.db")

    def test_the_old_format_is_refused_by_name(self, tmp_path):
        with closing(sqlite3.connect(tmp_path / "old.db")) as connection:
            connection.execute("CREATE TABLE charges (number INTEGER, event TEXT)")
            connection.execute("PRAGMA user_version = 1")
            connection.commit()
        with pytest.raises(InvalidInputError, match="format 2, got format 1"):
            Ledger(tmp_path / "old.db")

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_another_programs_database_is_left_alone(self, tmp_path, version):
        path = tmp_path / "other.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE datasets (name TEXT)")
            connection.execute(f"PRAGMA user_version = {version}")
            connection.commit()
        content = path.read_bytes()
        with pytest.raises(InvalidInputError, match=r"other\.db: expected a ledger, .* another"):
            Ledger(path)
        assert path.read_bytes() == content

    def test_tables_of_another_program_beside_its_own(self, ledger):
        altered(ledger, "CREATE TABLE backups (number INTEGER)")
        assert list(Ledger(ledger.path).balances()) == ["d"]

    def test_it_is_private(self, ledger):
        assert ledger.path.stat().st_mode & 0o777 == 0o600

    def test_one_that_is_gone_is_not_made_anew(self, ledger):
        ledger.path.unlink()
        for use in (ledger.balances, lambda: ledger.charge("d", EVENT), ledger.to_json):
            with pytest.raises(InvalidInputError, match="existing ledger, got none"):
                use()
        assert not ledger.path.exists()

    def test_one_that_goes_before_it_is_opened_is_not_made_anew(self, ledger, monkeypatch):
        honest = ledger_file.sqlite3.connect

        def connect(*arguments, **options):
            ledger.path.unlink()
            return honest(*arguments, **options)

        monkeypatch.setattr(ledger_file.sqlite3, "connect", connect)
        with pytest.raises(InvalidInputError, match="ledger"):
            ledger.charge("d", EVENT)
        assert not ledger.path.exists()

    @pytest.mark.parametrize("replaced", [False, True])
    @pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "COMMIT"])
    def test_one_removed_while_it_is_charged(self, ledger, monkeypatch, statement, replaced):
        """The charge went into a file that is nobody's: the run must not go on."""
        content, honest = ledger.path.read_bytes(), ledger_file.LedgerFile._wait_for

        def wait_for(self, connection, asked):
            if statement == "COMMIT" == asked:
                remove()
            honest(self, connection, asked)
            if statement == "BEGIN IMMEDIATE" == asked:
                remove()

        def remove():
            ledger.path.unlink()
            if replaced:
                ledger.path.write_bytes(content)

        with monkeypatch.context() as patch:
            patch.setattr(ledger_file.LedgerFile, "_wait_for", wait_for)
            with pytest.raises(InvalidInputError, match="removed or replaced meanwhile"):
                ledger.charge("d", EVENT)
        assert ledger.path.exists() == replaced

    @pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to the superuser")
    def test_a_read_only_one_is_shown_and_not_charged(self, ledger):
        ledger.charge("d", EVENT)
        ledger.path.chmod(0o400)
        assert len(ledger.balance("d").charges) == 1
        assert ledger.problems() == []
        with pytest.raises(InvalidInputError, match="nothing was charged"):
            ledger.charge("d", EVENT)

    def test_a_file_system_that_is_read_only(self, ledger, monkeypatch):
        """As it looks to a process that may write everywhere: the file opens for reading only."""
        ledger.charge("d", EVENT)
        honest = ledger_file.sqlite3.connect

        def connect(address, **options):
            return honest(address.replace("mode=rw", "mode=ro"), **options)

        monkeypatch.setattr(ledger_file.sqlite3, "connect", connect)
        assert len(ledger.balance("d").charges) == 1
        with pytest.raises(InvalidInputError, match="may be written.*nothing was charged"):
            ledger.charge("d", EVENT)

    def test_a_full_disk_charges_nothing(self, ledger):
        before = ledger.balance("d")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        try:
            with pytest.raises(OSError, match=r"ledger\.db: .*; nothing was charged"):
                for _ in range(3):
                    ledger.charge("d", GaussianEvent(noise_multiplier=1e6), name="x" * 5000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert ledger.balance("d") == before
        assert ledger.problems() == []

    def test_a_locked_one_says_so_and_goes_on(self, ledger, caplog):
        with closing(sqlite3.connect(ledger.path, check_same_thread=False)) as other:
            other.execute("BEGIN IMMEDIATE")
            done = threading.Timer(1.6, other.rollback)
            done.start()
            with caplog.at_level(logging.WARNING, "privmix"):
                assert ledger.charge("d", EVENT).news == "charged"
            done.join()
        assert [record.getMessage() for record in caplog.records] == [
            f"ledger={ledger.path} is in use by another process: waiting for at most 60 seconds"
        ]

    def test_a_locked_one_is_given_up(self, ledger, monkeypatch):
        monkeypatch.setattr(ledger_file, "WAIT_SECONDS", 0.3)
        started = time.monotonic()
        with closing(sqlite3.connect(ledger.path)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(
                InvalidInputError, match=r"over 0\.3 seconds, .* nothing was charged"
            ):
                ledger.charge("d", EVENT)
        assert time.monotonic() - started < 5
        assert ledger.balance("d").charges == ()
