"""A small ledger, what it is charged, and changes that somebody makes to its file."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from privmix.accounting import PoissonGaussianEvent, account
from privmix.running import ledger_entries
from privmix.running.ledger import Ledger

EVENT = PoissonGaussianEvent(sampling_prob=0.1, noise_multiplier=4.0, count=50)
COST = account(EVENT, 1e-6).epsilon
DIGEST = "ab" * 32


def narrow(tmp_path, share=1.2):
    """A ledger with budget for one event."""
    return Ledger(tmp_path / "l.db").open_dataset("d", epsilon_limit=share * COST, delta=1e-6)


def altered(ledger, statement, *values) -> Ledger:
    """The ledger after somebody has written to its file."""
    with closing(sqlite3.connect(ledger.path)) as connection:
        connection.execute(statement, values)
        connection.commit()
    return ledger


def contents(ledger) -> list[tuple]:
    with closing(sqlite3.connect(ledger.path)) as connection:
        return list(connection.execute("SELECT * FROM entries ORDER BY number"))


def rehashed(exported):
    previous = ledger_entries.START
    for one in exported["entries"]:
        text = ledger_entries.canonical(one["content"])
        previous = one["hash"] = ledger_entries._hash(previous, one["number"], text)
    exported["head"] = previous
    return exported


def stored(ledger, exported) -> Ledger:
    """The ledger after somebody has written the entries of an export to its file."""
    for one in exported["entries"]:
        row = (one["number"], ledger_entries.canonical(one["content"]), one["hash"])
        altered(ledger, "INSERT INTO entries VALUES (?, ?, ?)", *row)
    return ledger
