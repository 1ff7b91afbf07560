"""Entries of a ledger, and the chain of hashes that ties each to all before it.

An entry's hash covers the hash before it, its number and its content, so that an entry that was
edited, removed from the middle or moved shows. A ledger whose last entries are gone is a shorter
chain, and sound by itself: whoever noted its head, or holds a release that it recorded, can tell.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.accounting import ComposedEvent, Event

START = "0" * 64  # stands for the hash before the first entry


class _Written(FrozenModel):
    """What every entry says: when it was written, by whom, and on which data set.

    Attributes:
        at: Time in UTC, ISO 8601.
        who: Free text.
        dataset_id: The data set's declared name.

    """

    at: str
    who: str
    dataset_id: str


class Opened(_Written):
    """A data set with its limit: ``epsilon_limit`` at ``delta``."""

    entry: Literal["opened"] = "opened"
    epsilon_limit: float
    delta: float


class Cost(FrozenModel):
    """What a charge cost, at the data set's delta; None where no finite bound is known.

    Attributes:
        epsilon_alone: The charge by itself.
        epsilon_spent: How much of the limit all charges up to this one use, each chosen after the
            outputs of those before.
        epsilon_planned: The same, had all of them been fixed before the first ran.

    """

    epsilon_alone: float | None
    epsilon_spent: float | None
    epsilon_planned: float | None


class Charged(_Written):
    """A run, or something that exists, and what it cost.

    Attributes:
        kind: ``release``, ``model``, or ``mechanism`` for a bare event.
        name: The name it was given.
        event: What was charged.
        run_id: The run that was charged before it drew anything; None for what was recorded later.
        digest: Certificate digest of what was recorded later; a run's is in :class:`Sealed`.
        existing: Whether it existed before the entry: when it was planned nobody can tell.
        cost: What it cost.

    """

    entry: Literal["charged"] = "charged"
    kind: str
    name: str
    event: Event
    run_id: str | None = None
    digest: str | None = None
    existing: bool = False
    cost: Cost


class Reserved(_Written):
    """Plans that were charged together before any of them ran; ``event`` composes them."""

    entry: Literal["reserved"] = "reserved"
    name: str
    event: ComposedEvent
    cost: Cost


class Drawn(_Written):
    """A run of a reserved plan, at no new charge.

    Attributes:
        kind, name, run_id: As of a charge.
        reservation: Number of the entry that reserved it.
        place: Which of the reserved plans, from 0.

    """

    entry: Literal["drawn"] = "drawn"
    kind: str
    name: str
    run_id: str
    reservation: int
    place: int


class Sealed(_Written):
    """The certificate digest of what a run made."""

    entry: Literal["sealed"] = "sealed"
    run_id: str
    digest: str


Entry: TypeAlias = Annotated[
    Opened | Charged | Reserved | Drawn | Sealed, Field(discriminator="entry")
]
_ADAPTER: TypeAdapter[Any] = TypeAdapter(Entry)


class Link(FrozenModel):
    """An entry as it is stored: its number from 1, its content as JSON text, its hash."""

    number: int
    content: str
    hash: str


def canonical(content: Any) -> str:
    """Return JSON in the one form that is hashed."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def link(previous: str, number: int, entry: Entry) -> Link:
    """Tie an entry to the chain that ends with ``previous``."""
    content = canonical(entry.model_dump(mode="json"))
    return Link(number=number, content=content, hash=_hash(previous, number, content))


def chain_problems(links: Iterable[Link]) -> list[str]:
    """Say, one line each, which entries are not as they were written, nor where."""
    problems, previous, due = [], START, 1
    for one in links:
        if one.number != due:
            order = f"entry {one.number} comes where entry {due} is due: entries were moved"
            gone = f"{numbered(due, one.number - 1)}: removed"
            problems.append(gone if one.number > due else order)
        elif one.hash != _hash(previous, one.number, one.content):
            problems.append(f"entry {one.number}: changed since it was written")
        previous, due = one.hash, one.number + 1
    return problems


def numbered(first: int, last: int) -> str:
    """Name entries from a first to a last one."""
    return f"entry {first}" if first == last else f"entries {first} to {last}"


def read_entries(links: Sequence[Link], position: str) -> list[Entry]:
    """Return the entries of a sound chain, in order.

    Raises:
        InvalidInputError: A broken chain, or an entry or a mechanism of a kind that this version
            does not know; ``position`` names the ledger.

    """
    if problems := chain_problems(links):
        allowed = "entries as they were written; privmix ledger verify lists what is not"
        _validate.fail(position, allowed, problems[0])
    return [_read(one, position) for one in links]


def _read(one: Link, position: str) -> Entry:
    try:
        entry: Entry = _ADAPTER.validate_json(one.content)
    except ValidationError as error:
        unknown = [part for part in error.errors() if part["type"] == "union_tag_invalid"]
        if unknown:
            found = unknown[0].get("ctx", {}).get("tag", "another")
            allowed = "entries and mechanisms that this version of privmix knows"
            _validate.fail(f"{position}: entry {one.number}", allowed, repr(found)[:80])
        raise _validate._first_problem(f"{position}: entry {one.number}", error) from None
    return entry


def _hash(previous: str, number: int, content: str) -> str:
    return hashlib.sha256(f"privmix ledger 2\n{previous}\n{number}\n{content}".encode()).hexdigest()
