"""The budget ledger of data sets: what has been spent, and a limit that holds.

A data set is named by an identifier that its holder declares, since any hash of its content is
evaded by one appended row. A release is charged in full before anything is drawn, in one
transaction, and never refunded: a run that was started may have shown something to somebody.
What exists already is recorded in any case, past the limit too; from then on nothing new is admitted.
The ledger is the data holder's own and private file.
"""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from privmix import _validate
from privmix._validate import FrozenModel, InvalidInputError
from privmix.accounting import ComposedEvent, Event
from privmix.accounting.guarantee import number
from privmix.running.ledger_account import Balance, Charge, Draw, balances
from privmix.running.ledger_entries import (
    START,
    Charged,
    Drawn,
    Entry,
    Link,
    Opened,
    Reserved,
    Sealed,
    canonical,
    chain_problems,
    link,
    numbered,
    read_entries,
)
from privmix.running.ledger_file import FORMAT, LedgerFile

__all__ = ["Balance", "Charge", "Draw", "Ledger", "LedgerCharge", "Receipt", "ledger_charge"]

# Versions of the accountant agree far better than this.
_TOLERANCE = 1e-6


class Receipt(FrozenModel):
    """What became of a charge.

    Attributes:
        number: Entry of the charge, or of the draw on a reservation.
        news: ``charged``; ``drawn`` on the reservation that is entry ``reservation``; ``known``: it
            was there before and costs nothing more.
        reservation: The reservation drawn on, or None.
        balance: The data set's balance.

    """

    number: int
    news: str
    reservation: int | None = None
    balance: Balance

    def told(self, what: str) -> str:
        """Say in a line what became of ``what``."""
        if self.news == "known":
            return f"{what} was charged before, as entry {self.number}: nothing more to charge"
        if self.news == "drawn":
            return f"{what} draws on reservation {self.reservation}: no new charge"
        return f"{what} is charged as entry {self.number}"


class Ledger:
    """A ledger file, safe for concurrent use by several processes.

    Args:
        path: SQLite file; made on first use, readable by its owner alone.

    """

    def __init__(self, path: str | Path) -> None:
        self._file = LedgerFile(path)
        self.path = self._file.path

    def open_dataset(
        self, dataset_id: str, *, epsilon_limit: float, delta: float, who: str | None = None
    ) -> Self:
        """Enter a data set with its limit; entering it again with the same limit changes nothing.

        Raises:
            InvalidInputError: An identifier that is empty, has blanks at an end or characters that
                are not printable, a limit or delta out of range, or a data set that is there with
                another limit.

        """
        named = isinstance(dataset_id, str) and dataset_id == dataset_id.strip() != ""
        if not named or not dataset_id.isprintable():  # two that look alike would be two accounts
            allowed = "a name of printable characters, without blanks at its ends"
            _validate.fail("dataset_id", allowed, repr(dataset_id))
        limit = _validate.real("epsilon_limit", epsilon_limit, above=0.0)
        delta = _validate.delta("delta", delta)
        with _writing(self._file) as book:
            known = book.balances.get(_text(dataset_id))
            if known is None:
                said = _written(dataset_id, who)
                book.append(Opened(**said, epsilon_limit=limit, delta=delta))
            elif (known.epsilon_limit, known.delta) != (limit, delta):
                allowed = f"({number(known.epsilon_limit)}, {number(known.delta)}), the limit it was entered with"
                _validate.fail(f"data set {dataset_id!r}", allowed, (limit, delta))
        return self

    def charge(
        self,
        dataset_id: str,
        event: Event,
        *,
        name: str = "",
        kind: str = "mechanism",
        run_id: str | None = None,
        who: str | None = None,
    ) -> Receipt:
        """Charge an event that is about to happen, or refuse it if all charges would pass the limit.

        A run whose event is reserved, and not drawn yet, draws on the reservation instead.

        Args:
            dataset_id: The data set.
            event: What is charged.
            name: The holder's own name for it.
            kind: ``release``, ``model``, or ``mechanism`` for anything else.
            run_id: Name of the run that is charged; a run that was charged already, and then cut
                off, is not charged again.
            who: By whom: free text; the login name by default.

        Raises:
            InvalidInputError: An unknown data set, a cost past the limit, or an event under another
                neighbouring relation or of another unit than the earlier ones, or a run that was
                charged as another event. Nothing is charged then.

        """
        with _writing(self._file) as book:
            before = book.balance(dataset_id)
            if run_id is not None and (known := before.run(run_id)) is not None:
                before.check_same(known, event, name or "event")
                return Receipt(number=known.number, news="known", balance=before)
            said = {**_written(dataset_id, who), "kind": kind, "name": _text(name)}
            free = None if run_id is None else before.free_place(event)
            if free is not None and run_id is not None:
                number = book.append(
                    Drawn(**said, run_id=run_id, reservation=free[0], place=free[1])
                )
                after = book.balance(dataset_id)
                return Receipt(number=number, news="drawn", reservation=free[0], balance=after)
            cost = before.check(event)
            number = book.append(Charged(**said, event=event, run_id=run_id, cost=cost))
            return Receipt(number=number, news="charged", balance=book.balance(dataset_id))

    def record(
        self,
        dataset_id: str,
        event: Event,
        *,
        digest: str,
        name: str = "",
        kind: str = "release",
        who: str | None = None,
    ) -> Receipt:
        """Record something that exists, by its certificate digest; past the limit too.

        What is known by its digest is not charged again. What has no common account with the earlier
        charges is recorded without a finite cost.

        Raises:
            InvalidInputError: An unknown data set, or a digest that is known as another mechanism's.
                Nothing is charged then.

        """
        with _writing(self._file) as book:
            before = book.balance(dataset_id)
            if (known := before.recorded(digest)) is not None:
                before.check_same(known, event, name or "event")
                return Receipt(number=known.number, news="known", balance=before)
            cost = before.cost_of(event, existing=True)
            said = {**_written(dataset_id, who), "kind": kind, "name": _text(name)}
            number = book.append(
                Charged(**said, event=event, digest=digest, existing=True, cost=cost)
            )
            return Receipt(number=number, news="charged", balance=book.balance(dataset_id))

    def reserve(
        self, dataset_id: str, events: Sequence[Event], *, name: str = "", who: str | None = None
    ) -> Receipt:
        """Charge several events together before any of them happens, or refuse all of them.

        Fixed in advance, they cost what their composed loss distribution says. Runs of these events
        draw on the reservation afterwards, each once and in any order.

        Raises:
            InvalidInputError: As of :meth:`charge`, or no event.

        """
        event = ComposedEvent(events=tuple(events))
        with _writing(self._file) as book:
            cost = book.balance(dataset_id).check(event)
            said = {**_written(dataset_id, who), "name": _text(name)}
            number = book.append(Reserved(**said, event=event, cost=cost))
            return Receipt(number=number, news="charged", balance=book.balance(dataset_id))

    def seal(self, dataset_id: str, run_id: str, digest: str) -> None:
        """Note the certificate digest of what a charged run made; again, and nothing happens."""
        with _writing(self._file) as book:
            run = book.balance(dataset_id).run(run_id)
            if run is None:
                allowed = "the ledger that the run was charged to"
                _validate.fail(self._file.position, allowed, "one that does not have the run")
            if run.digest != digest:
                book.append(Sealed(**_written(dataset_id, run.who), run_id=run_id, digest=digest))

    def check(self, dataset_id: str, event: Event) -> None:
        """Refuse an event that ``charge`` would refuse of a run now; nothing is charged."""
        balance = self.balance(dataset_id)
        if balance.free_place(event) is None:
            balance.check(event)

    def balance(self, dataset_id: str) -> Balance:
        """Return what a data set has spent; InvalidInputError if it is unknown."""
        return _known(self.balances(), dataset_id)

    def balances(self) -> dict[str, Balance]:
        """Return the balances of all data sets, by their identifiers."""
        with self._file.reading() as links:
            return balances(read_entries(links, self._file.position), self._file.position)

    def head(self) -> str:
        """Return the hash of the last entry, which stands for the whole ledger as it is now."""
        with self._file.reading() as links:
            return links[-1].hash if links else START

    def to_json(self) -> str:
        """Export all entries with their hashes, and the head."""
        with self._file.reading() as links:
            read_entries(links, self._file.position)
            entries = [
                {"number": one.number, "hash": one.hash, "content": json.loads(one.content)}
                for one in links
            ]
            head = links[-1].hash if links else START
        exported = {"ledger_format": FORMAT, "entries": entries, "head": head}
        return json.dumps(exported, indent=2, allow_nan=False)

    def import_json(self, text: str | bytes, position: str = "export") -> int:
        """Append what an export has beyond this ledger; return how many entries.

        Raises:
            InvalidInputError: As of :func:`read_export`, or an export that this ledger is not the
                beginning of, and that has not more than this ledger either: what was spent is never
                lowered.

        """
        return self.go_on(read_export(text, position), position)

    def go_on(self, theirs: Sequence[Link], position: str) -> int:
        """Append what the entries of :func:`read_export` have beyond this ledger, as :meth:`import_json`."""
        with _writing(self._file) as book:
            shared = min(len(book.links), len(theirs))
            if theirs[:shared] != book.links[:shared]:
                first = next(i for i in range(shared) if theirs[i] != book.links[i])
                allowed = "an export that goes on from this ledger, or that this one goes on from"
                _validate.fail(position, allowed, f"one with another entry {first + 1}")
            book.extend(theirs[shared:])
            return len(theirs) - shared

    def problems(
        self,
        made: Sequence[tuple[str, str, Event]] = (),
        *,
        expect_head: str | None = None,
    ) -> list[str]:
        """Say, one line each, what is wrong with the ledger.

        Args:
            made: (name, certificate digest, event) of releases and models that it should know.
            expect_head: A head that was noted earlier: the ledger must have it, or go on from it.

        """
        links, ever = self._file.read_with_most()
        found, last = chain_problems(links), len(links)
        if not found and ever > last:
            found.append(f"{numbered(last + 1, ever)}: removed from the end")
        if expect_head is not None and expect_head.strip().lower() not in {
            START,
            *(one.hash for one in links),
        }:
            found.append(f"no entry has the hash {expect_head}: rolled back, or another ledger")
        if not found:
            try:
                books = balances(read_entries(links, self._file.position), self._file.position)
            except InvalidInputError as error:
                return [str(error)]
            found += _wrong_costs(books)
            found += [line for one in made if (line := _unrecorded(books, *one)) is not None]
        return found


class _Book:
    """A ledger under its write lock: what it holds, and what is appended."""

    def __init__(self, links: list[Link], store: Callable[[Link], None], position: str) -> None:
        self.links, self._store, self._place = links, store, position
        self.balances = balances(read_entries(links, position), position)

    def balance(self, dataset_id: str) -> Balance:
        return _known(self.balances, dataset_id)

    def append(self, entry: Entry) -> int:
        """Append an entry and return its number."""
        previous = self.links[-1].hash if self.links else START
        self.extend([link(previous, len(self.links) + 1, entry)])
        return len(self.links)

    def extend(self, links: Sequence[Link]) -> None:
        """Append entries that are tied to the chain already."""
        self.links.extend(links)
        self.balances = balances(read_entries(self.links, self._place), self._place)
        for one in links:
            self._store(one)


@contextmanager
def _writing(file: LedgerFile) -> Iterator[_Book]:
    with file.appending() as (links, store):
        yield _Book(links, store, file.position)


class LedgerCharge:
    """Charges a run to a ledger, given its name, and seals it, given what it made.

    Attributes:
        receipt: What became of the charge; None before it.

    """

    def __init__(self, ledger: Ledger, dataset_id: str, **charge: Any) -> None:
        self._ledger, self._dataset_id, self._charge = ledger, dataset_id, charge
        self.receipt: Receipt | None = None

    def __call__(self, run_id: str) -> None:
        """Charge the run, before anything is drawn; again, and nothing happens."""
        self.receipt = self._ledger.charge(self._dataset_id, run_id=run_id, **self._charge)

    def sealed(self, run_id: str, digest: str) -> None:
        """Note the digest of the certificate, before what was made appears."""
        self._ledger.seal(self._dataset_id, run_id, digest)

    def check(self) -> None:
        """Refuse what would be refused now."""
        self._ledger.check(self._dataset_id, self._charge["event"])


def ledger_charge(
    ledger: str | Path | None,
    dataset_id: str | None,
    event: Event,
    *,
    name: str,
    kind: str,
    private: bool = True,
    who: str | None = None,
) -> LedgerCharge | None:
    """Return what charges an event to a ledger, or None without a ledger.

    Args:
        ledger: The ledger's file; ``dataset_id`` with it, or neither.
        dataset_id: The data set's name there.
        event: What the run costs.
        name: As of :meth:`Ledger.charge`, as are ``kind`` and ``who``.
        kind: ``release`` or ``model``.
        who: By whom.
        private: False for a run that protects nobody, which no epsilon accounts for.

    Raises:
        InvalidInputError: A ledger without a data set's name or the other way round, no such
            ledger, or one for a run that protects nobody.

    """
    if (ledger is None) != (dataset_id is None):
        given = "ledger" if dataset_id is None else "dataset_id"
        _validate.fail("ledger and dataset_id", "both, or neither", f"{given} alone")
    if ledger is None or dataset_id is None:
        return None
    if not private:
        allowed = "no ledger for a run with a test seed or for research, which protects nobody"
        _validate.fail("ledger", allowed, str(ledger))
    if not Path(ledger).is_file():
        _validate.fail("ledger", "an existing ledger; see privmix ledger open", str(ledger))
    book = Ledger(ledger)
    book.balance(dataset_id)
    return LedgerCharge(book, dataset_id, event=event, name=name, kind=kind, who=who)


def _written(dataset_id: str, who: str | None) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        "at": now,
        "who": _login() if who is None else _text(who),
        "dataset_id": _text(dataset_id),
    }


def _login() -> str:
    try:
        return _text(getpass.getuser())
    except (KeyError, OSError, ImportError):  # no name for this user: some containers
        return ""


def _text(value: str) -> str:
    """Return a text that JSON can hold: file names need not be UTF-8."""
    return value.encode("utf-8", "backslashreplace").decode()


def _known(books: dict[str, Balance], dataset_id: str) -> Balance:
    balance = books.get(_text(dataset_id)) if isinstance(dataset_id, str) else None
    if balance is None:
        _validate.fail("dataset_id", "a data set that the ledger knows", repr(dataset_id))
    return balance


def read_export(text: str | bytes, position: str) -> list[Link]:
    """Return the entries of an export.

    Raises:
        InvalidInputError: No export, entries that are not as they were written, or an entry that
            states less than its events cost.

    """
    try:
        found = json.loads(text)
        known = isinstance(found, dict) and "ledger_format" in found
    except (ValueError, RecursionError):
        known = False
    if not known:
        _validate.fail(position, "an export of privmix ledger export", "another file")
    if found["ledger_format"] != FORMAT:
        _validate.fail(position, f"an export of format {FORMAT}", repr(found["ledger_format"])[:80])
    try:
        links = [
            Link(number=one["number"], content=canonical(one["content"]), hash=one["hash"])
            for one in found["entries"]
        ]
        head = found["head"]
    except (TypeError, KeyError, ValueError, RecursionError):
        _validate.fail(position, "entries with number, hash and content", "others")
    if head != (links[-1].hash if links else START):
        _validate.fail(position, "the entries up to the head", "others: some were removed")
    if wrong := _wrong_costs(balances(read_entries(links, position), position)):
        allowed = "entries that state at least what their events cost"
        _validate.fail(position, allowed, f"{len(wrong)} that are lower: {wrong[0]}")
    return links


def _wrong_costs(books: dict[str, Balance]) -> list[str]:
    """Account for all charges anew: none may say that it cost less than it did."""
    found = []
    for balance in books.values():
        past = balance.model_copy(update={"charges": (), "refusal": None})
        for charge in balance.charges:
            due = past.cost_of(charge.event, existing=charge.existing)
            for name in ("epsilon_alone", "epsilon_spent", "epsilon_planned"):
                stated, least = getattr(charge, name), getattr(due, name)
                if stated is not None and (least is None or stated < least * (1 - _TOLERANCE)):
                    found.append(f"entry {charge.number}: {name} is {stated}, but it is {least}")
            past = past.with_charge(charge)
    return found


def _unrecorded(books: dict[str, Balance], name: str, digest: str, event: Event) -> str | None:
    charged = [
        balance.event_of(one) for balance in books.values() if (one := balance.recorded(digest))
    ]
    if not charged:
        return (
            f"{name}: not recorded; it was made without this ledger, or the ledger was rolled back: "
            "privmix ledger charge --release records it"
        )
    if any(one != event for one in charged):
        return f"{name}: recorded as another mechanism than its certificate states"
    return None
