"""What this process has spent without a ledger, so that a second time does not pass in silence."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import current_process
from threading import Lock

from privmix._validate import InvalidInputError
from privmix.accounting import ComposedEvent, Event, account, format_epsilon
from privmix.accounting.guarantee import number

_spent: list[Event] = []
_lock = Lock()


class UnrecordedSpendingWarning(UserWarning):
    """Private records were used again, or may be by another process, and no ledger keeps count."""


@contextmanager
def unrecorded(event: Event, delta: float, what: str) -> Iterator[None]:
    """Spend in the block, without a ledger; warn beforehand from the second time on.

    In a worker of a pool of processes, from the first time on: what the others spend is not known there.

    A block that ends in InvalidInputError has spent nothing, unless a run is kept, of which the error
    has a note; nor has one before which the warning was made an error.

    Args:
        event: What is spent.
        delta: The delta to state the cost at.
        what: What spends it, for the message.

    """
    with _lock:
        events = (*_spent, event)
    if len(events) > 1:
        _warn(events, delta, what)
    elif current_process().name != "MainProcess":
        _warn_of_others(what)
    with _lock:
        _spent.append(event)
    try:
        yield
    except InvalidInputError as error:
        if not getattr(error, "__notes__", ()):
            with _lock:
                _spent.remove(event)
        raise


def _warn(events: tuple[Event, ...], delta: float, what: str) -> None:
    try:
        cost = format_epsilon(account(ComposedEvent(events=events), delta).epsilon)
        together = f"all {len(events)} times cost epsilon {cost} at delta {number(delta)} together"
    except InvalidInputError as error:
        together = f"all {len(events)} times have no common account ({error.got})"
    warnings.warn(
        f"{what} spends on private records {len(events)} times in this process, and no ledger keeps count. "
        f"If they are of the same people, {together}, and more where later settings follow from earlier "
        "results. With ledger= and dataset_id= each time is charged and held to a limit",
        UnrecordedSpendingWarning,
        stacklevel=5,
    )


def _warn_of_others(what: str) -> None:
    """Say that a worker of a pool, as a grid search with n_jobs has them, knows of itself alone."""
    warnings.warn(
        f"{what} spends on private records in one of several processes, and no ledger keeps count: what the "
        "others spend is not known here. With ledger= and dataset_id= all of it is charged and held to a limit",
        UnrecordedSpendingWarning,
        stacklevel=5,
    )
