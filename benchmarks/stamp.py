"""What made a row of results: the commit and the day; and tables that say so.

Every benchmark stamps what it prints as JSON or saves. A table whose rows come from several commits
marks each of its cells and says underneath which mark is which commit.
"""

from __future__ import annotations

import datetime
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from string import ascii_lowercase
from typing import Any

ROOT = Path(__file__).parent.parent
UNKNOWN = "unknown"
MADE_BY = ("commit", "date")


@cache
def stamp() -> dict[str, str]:
    """Return the commit of this checkout, ``+changes`` where files differ from it, and the day."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    try:
        commit = _git("rev-parse", "--short=10", "HEAD")
        if _git("status", "--porcelain", "--", "src", "benchmarks"):
            commit += "+changes"
    except (OSError, subprocess.CalledProcessError):  # no checkout, or no git
        commit = UNKNOWN
    return {"commit": commit, "date": today}


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


class Marks:
    """Marks for the cells of a table: none where one commit made all of it.

    Args:
        rows: The table's, as they were saved; one without a stamp is of an unknown commit.

    """

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        days: dict[str, set[str]] = {}
        for row in rows:
            days.setdefault(row.get("commit", UNKNOWN), set()).add(row.get("date", UNKNOWN))
        self._days = days
        single = len(days) < 2
        self._marks = {
            commit: "" if single else f"[{_letters(i)}]" for i, commit in enumerate(days)
        }

    def of(self, row: dict[str, Any]) -> str:
        """Return the mark of a row: an empty string, or such as ``[a]``."""
        return self._marks[row.get("commit", UNKNOWN)]

    def legend(self) -> list[str]:
        """Return the lines to print under the table."""
        return [
            f"{self._marks[commit]} commit {commit}, {', '.join(sorted(days))}".lstrip()
            for commit, days in self._days.items()
        ]


def _letters(number: int) -> str:
    first = _letters(number // 26 - 1) if number >= 26 else ""
    return first + ascii_lowercase[number % 26]
