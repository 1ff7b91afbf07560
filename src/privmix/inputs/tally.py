"""How many cells of each column were bad or missed the schema: for the data holder's eyes only.

Nothing of it decides what is made of a record. It may only stop a run before anything is spent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NoReturn

from privmix import _validate
from privmix._validate import InvalidInputError

MAX_BAD_SHARE = 0.05
MAX_MISSED_SHARE = 0.5
_SHOWN = 20  # columns that are told of


@dataclass(frozen=True)
class Shares:
    """Above which shares a run stops before anything is spent; public settings.

    Attributes:
        bad: Of records that are bad and would be blanked.
        missed: Of a column's values that miss the schema: categories that it does not list,
            numbers and dates beyond its bounds.

    """

    bad: float = MAX_BAD_SHARE
    missed: float = MAX_MISSED_SHARE

    def __post_init__(self) -> None:
        _validate.real("max_bad_share", self.bad, at_least=0.0, at_most=1.0)
        _validate.real("max_missed_share", self.missed, at_least=0.0, at_most=1.0)


@dataclass
class _Column:
    values: int = 0
    missed: int = 0
    bad: int = 0
    first: str = ""
    hint: str = ""


@dataclass(repr=False)
class Tally:
    """Counts of a pass over the records. Private.

    Attributes:
        num_records: Records read.
        num_bad: Those that are bad.

    """

    num_records: int = 0
    num_bad: int = 0
    _columns: dict[str, _Column] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "Tally(<private>)"

    def add_bad(
        self, column: str, count: int, position: str, allowed: str, received: object
    ) -> None:
        """Count bad cells; of a column the first is kept in words."""
        found = self._columns.setdefault(column, _Column())
        if not found.bad:
            found.first = f"first {_validate.sentence(position, allowed, received)}"
        found.bad += count

    def add_values(self, column: str, count: int, missed: int, hint: str = "") -> None:
        """Count values that are there, and those of them that miss the schema."""
        found = self._columns.setdefault(column, _Column())
        found.values += count
        found.missed += missed
        found.hint = found.hint or hint

    def faults(self) -> list[str]:
        """Return a line for each column with bad cells."""
        return _some(
            f"{name}: {_cells(column.bad, 'bad cell')}, {column.first}"
            for name, column in self._columns.items()
            if column.bad
        )

    def misses(self) -> list[str]:
        """Return a line for each column with values that miss the schema."""
        return _some(
            f"{name}: {column.missed} of {column.values} values ({column.missed / column.values:.1%}) miss the "
            "schema" + (f" ({column.hint})" if column.hint else "")
            for name, column in self._columns.items()
            if column.missed
        )

    def check(self, position: str, shares: Shares, *, remedy: str = "") -> None:
        """Stop above a share.

        Raises:
            InvalidInputError: It names the options; notes have a line for each column.

        """
        if self.num_bad > shares.bad * self.num_records:
            allowed = (
                f"at most {shares.bad:.3g} of the records bad (max_bad_share, --max-bad-share)"
            )
            received = f"{self.num_bad} of {self.num_records}"
            stop(position, allowed + remedy, received, self.faults())
        for name, column in self._columns.items():
            if column.missed > shares.missed * column.values:
                allowed = (
                    f"at most {shares.missed:.3g} of a column's values outside the schema "
                    "(max_missed_share, --max-missed-share)"
                )
                received = f"{column.missed} of {column.values}"
                stop(f"{position}, {name}", allowed, received, self.misses())


def stop(position: str, allowed: str, received: object, notes: Iterable[str]) -> NoReturn:
    """Raise with notes, which the command line prints for the data holder alone."""
    error = InvalidInputError(position, allowed, received)
    for note in notes:
        error.add_note(note)
    raise error


def _cells(count: int, name: str) -> str:
    return f"{count} {name}" + ("s" if count != 1 else "")


def _some(lines: Iterable[str]) -> list[str]:
    found = list(lines)
    more = [f"and {len(found) - _SHOWN} columns more"] if len(found) > _SHOWN else []
    return found[:_SHOWN] + more
