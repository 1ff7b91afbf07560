"""What the experiments share: results that outlive a stop, the papers' values beside them, a figure.

    PRIVMIX_DATA=data python -m experiments.lee2019.mixing_degree --quick

A script measures one table or figure. Each row of its results is written as soon as it is measured,
to ``<out>/<paper>/<name>.csv`` (``<name>-quick.csv`` with ``--quick``), and is not measured again when
the script is started again: stop it whenever you like. ``<name>.paper.csv`` beside the script has the
paper's values, with the same names of columns and a column ``source``.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))  # for stamp: what made a row

from stamp import stamp  # noqa: E402

Row = dict[str, str]


class Experiment:
    """One table or figure of a paper: where its results are, and what was measured already.

    Args:
        script: ``__file__`` of the script.
        keys: Names of the columns that tell rows apart: all settings that a run may change.
        arguments: Of the command line, from :func:`parser`.

    """

    def __init__(self, script: str, keys: Iterable[str], arguments: argparse.Namespace) -> None:
        here = Path(script)
        self.name, self.keys, self.quick = here.stem, tuple(keys), bool(arguments.quick)
        self._paper = here.with_suffix(".paper.csv")
        folder = Path(arguments.out) / here.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{here.stem}{'-quick' if self.quick else ''}.csv"
        self.rows = read_rows(self.path)

    def measure(self, key: Mapping[str, Any], function: Callable[[], Mapping[str, Any]]) -> Row:
        """Return the row of ``key``, by ``function`` where no earlier run has measured it."""
        assert set(key) == set(self.keys), (sorted(key), self.keys)
        wanted = {name: str(value) for name, value in key.items()}
        for row in self.rows:
            if all(row.get(name) == value for name, value in wanted.items()):
                return row
        start = time.perf_counter()
        figures = {name: _text(value) for name, value in function().items()}
        seconds = f"{time.perf_counter() - start:.1f}"
        row = {**wanted, **figures, "seconds": seconds, **stamp()}
        self.rows.append(row)
        write_rows(self.path, self.rows)
        print(f"{self.name}: {', '.join(f'{k} {v}' for k, v in {**wanted, **figures}.items())}",
              file=sys.stderr)  # fmt: skip
        return row

    def paper(self) -> list[Row]:
        """Return the paper's rows."""
        return read_rows(self._paper)

    def expected(self, row: Mapping[str, str]) -> Row:
        """Return the paper's row for ``row``: the one that agrees on every key it states; or {}."""
        for known in self.paper():
            stated = [name for name in self.keys if known.get(name)]
            if all(known[name] == row.get(name) for name in stated):
                return known
        return {}

    def show(self, *columns: str) -> None:
        """Print the rows, with the paper's value in brackets where it states one."""
        print("  ".join((*self.keys, *columns)), "  (the paper's)")
        for row in self.rows:
            known = self.expected(row)
            cells = [row[name] for name in self.keys]
            for name in columns:
                stated = f" ({known[name]})" if known.get(name) else ""
                cells.append(f"{row.get(name, '')}{stated}")
            print("  ".join(cells))

    def figure(self, draw: Callable[[Any], None]) -> Path:
        """Save the figure that ``draw`` puts on Matplotlib's axes, beside the results."""
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
        draw(axes)
        path = self.path.with_suffix(".svg")
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
        return path


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with what every experiment takes."""
    found = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    found.add_argument("--quick", action="store_true", help="minutes on two cores, smaller sizes")
    found.add_argument(
        "--out", default=str(ROOT / "build" / "experiments"), help="folder of results"
    )
    return found


def data(name: str) -> Path:
    """Return the path of a data file in ``$PRIVMIX_DATA``."""
    folder = os.environ.get("PRIVMIX_DATA")
    if folder is None or not (Path(folder) / name).is_file():
        raise SystemExit(f"set PRIVMIX_DATA to a folder with {name}")
    return Path(folder) / name


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a CSV file; none where there is no file."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, rows: list[Row]) -> None:
    """Write a CSV file whole or not at all."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    waiting = path.with_suffix(".tmp")
    with waiting.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
    waiting.replace(path)


def _text(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
