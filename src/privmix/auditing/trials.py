"""Runs of the release code on data with known canaries, kept in a file so that an audit can go on."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.accounting.tradeoff import Array
from privmix.auditing.canaries import CanarySet, Tables
from privmix.foreign.files import read_file
from privmix.mechanism import AdaptiveConfig, ReleaseConfig
from privmix.mixer import Rows, make_mixers
from privmix.records.bounded import BoundedRecords, Progress
from privmix.rng import MasterKey, fresh_secret, guessable_secret
from privmix.rounds.public_model import PublicModel
from privmix.rounds.residuals import Rounds

_DIGITS = 9  # of a score
_MOST_BYTES = 1 << 30
_STATISTICS = 2  # of each canary: the likelihood ratio, and by how much rows spread


class Subject(Protocol):
    """What is audited: makes one run with canaries there or not, and looks at what it published."""

    num_canaries: int

    def digest(self) -> str:
        """Return a SHA-256 of all that is run, hexadecimal."""

    def run(self, present: NDArray[np.bool_], key: MasterKey) -> tuple[Array, NoiseTotals]:
        """Return scores (A, 2), and what the published noise adds up to."""


class NoiseTotals(NamedTuple):
    """What is published where nobody's record is, in planned standard deviations.

    Attributes:
        numbers: How many there are.
        squares: Sum of their squares.
        rows: Rows they stand in.
        repeated: Rows whose numbers, all of them, stand in an earlier row of the run as well.
        by_chance: Upper bound on the expected number of pairs of rows that are alike, of sound noise.

    """

    numbers: int
    squares: float
    rows: int
    repeated: int
    by_chance: float = 0.0

    @classmethod
    def of(cls, tables: list[Array], stddevs: list[float]) -> NoiseTotals:
        """Add up the noise of the tables of one run, each (rows, axes), in planned standard deviations.

        ``stddevs`` are the same in points of the grid that it is drawn on, one a table. Two rounded
        Gaussians are equal with probability 1 / (2 sqrt(pi) stddev) at most, by Cauchy and Schwarz from cell
        to cell. Cells of single precision, in which rows are published, are wider by 2^-23 times the number
        at most, which adds 2^-23 / (2 pi).
        """
        total = cls(0, 0.0, 0, 0)
        for noise, stddev in zip(tables, stddevs, strict=True):
            rows, axes = noise.shape
            alike = min(1.0, 1 / (2 * math.sqrt(math.pi) * stddev) + 2.0**-23 / (2 * math.pi))
            by_chance = rows * (rows - 1) / 2 * alike**axes
            in_order = noise[np.lexsort(noise.T)]
            repeated = int((in_order[1:] == in_order[:-1]).all(axis=1).sum())
            total = total.plus(cls(noise.size, float((noise**2).sum()), rows, repeated, by_chance))
        return total

    def plus(self, other: NoiseTotals) -> NoiseTotals:
        """Return both together."""
        return NoiseTotals(
            self.numbers + other.numbers,
            self.squares + other.squares,
            self.rows + other.rows,
            self.repeated + other.repeated,
            self.by_chance + other.by_chance,
        )


class Trials(NamedTuple):
    """All runs: of each canary of each run whether it was there, and what the auditor saw of it.

    Attributes:
        present: (runs, A).
        scores: (runs, A, statistics); of a subject's runs, two.
        noise: All runs' together.

    """

    present: NDArray[np.bool_]
    scores: Array
    noise: NoiseTotals


class ReleaseSubject:
    """Releases by the code that makes all releases: sampler, clipping, sums, noise, rounds.

    Args:
        canaries: What is released.

    """

    def __init__(self, canaries: CanarySet) -> None:
        self.canaries, self.num_canaries = canaries, canaries.num_canaries

    def digest(self) -> str:
        """See :class:`Subject`."""
        return self.canaries.digest()

    def run(self, present: NDArray[np.bool_], key: MasterKey) -> tuple[Array, NoiseTotals]:
        """See :class:`Subject`."""
        records = self.canaries.records(present)
        tables = published(self.canaries.mechanism, self.canaries.clip_norm, records, key)
        noise = NoiseTotals.of(self.canaries.noise(tables), self.canaries.grid_stddevs())
        labels = self.canaries.label_noise(tables, records)
        noise = noise.plus(NoiseTotals(labels.size, float((labels**2).sum()), 0, 0))
        return self.canaries.scores(tables), noise


def published(
    mechanism: ReleaseConfig, clip_norm: float, records: BoundedRecords, key: MasterKey
) -> Tables:
    """Return what ``privmix.release`` would publish under a key, the same bits, without its files.

    One :class:`privmix.mixer.Rows` for each table, with the rows of all its blocks.
    """
    tables = [
        _joined([mixer.rows(block) for block in mixer.config.blocks])
        for mixer in make_mixers(mechanism, records, key)
    ]
    if isinstance(mechanism, AdaptiveConfig):
        _, config = mechanism.components
        model = PublicModel.of(mechanism, clip_norm, [tables[0].features])
        maker, weights, made = Rounds(config, records, key), model.first, []
        for number in range(config.num_rounds):
            made.append(maker.rows(number, weights))
            weights = model.after(weights, made[-1].features)
        tables.append(_joined(made))
    return tables


def _joined(parts: list[Rows]) -> Rows:
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name, value in parts[0]._asdict().items()
        if value is not None
    }
    return Rows(**columns)


def run_trials(
    subject: Subject,
    num_runs: int,
    *,
    out: Path | None = None,
    test_seed: int | None = None,
    progress: Progress | None = None,
) -> Trials:
    """Make runs, each with fresh keys and fair coins for the canaries.

    Args:
        subject: What is run.
        num_runs: How many runs.
        out: File of finished runs, a line each: an audit of the same subject goes on from there, and the
            file of another is refused.
        test_seed: For tests: repeatable runs.
        progress: Called with (runs done, runs in all), first with those that were taken from the file.

    Raises:
        InvalidInputError: The file of another audit, a line of it that is no run or one that was there
            before, or more runs than are asked for, from which some would be chosen.

    """
    num_runs = _validate.integer("runs", num_runs)
    audited = subject.digest()
    head = {"audited": audited, "canaries": subject.num_canaries, "test_seed": test_seed}
    done = [] if out is None else list(_read(out, head, subject.num_canaries))
    if len(done) > num_runs:
        _validate.fail(f"{out}, line {num_runs + 2}", f"{num_runs} runs at most", len(done))
    if progress is not None:
        progress(len(done), num_runs)
    lines = _Lines(out, head)
    try:
        for number in range(len(done), num_runs):
            secret = (
                fresh_secret()
                if test_seed is None
                else guessable_secret((test_seed << 32) + number)
            )
            context = hashlib.sha256(audited.encode() + number.to_bytes(8, "big")).digest()
            coins = MasterKey(secret, b"audit" + context).stream("coins")
            words = coins.words(-(-subject.num_canaries // 64))
            present = np.unpackbits(words.view(np.uint8))[: subject.num_canaries].astype(bool)
            scores, noise = subject.run(present, MasterKey(secret, context))
            scores = _rounded(
                scores
            )  # as the file keeps them: an audit that goes on finds the same
            done.append((present, scores, noise))
            lines.add(present, scores, noise)
            if progress is not None:
                progress(number + 1, num_runs)
    finally:
        lines.close()
    total = NoiseTotals(0, 0.0, 0, 0)
    for _, _, noise in done:
        total = total.plus(noise)
    return Trials(np.stack([p for p, _, _ in done]), np.stack([s for _, s, _ in done]), total)


def _rounded(scores: Array) -> Array:
    return np.array([[float(f"{s:.{_DIGITS}g}") for s in canary] for canary in scores.tolist()])


_Run = tuple[NDArray[np.bool_], Array, NoiseTotals]


def _read(path: Path, head: dict[str, object], num_canaries: int) -> Iterator[_Run]:
    """Yield finished runs; a last line that was cut off is left out."""
    if not path.exists():
        return
    allowed = "the file of an audit of the same plan, to go on with"
    try:
        lines = read_file(path, _MOST_BYTES, allowed).decode().split("\n")
        if json.loads(lines[0]) != head:
            _validate.fail(str(path), allowed, "another file")
    except (ValueError, TypeError, UnicodeDecodeError, RecursionError):
        _validate.fail(str(path), allowed, "another file")
    seen: dict[bytes, int] = {}
    for number, line in enumerate(lines[1:-1], start=2):
        position = f"{path}, line {number}"
        run = _parse(position, line, num_canaries)
        present, scores, noise = run
        # Runs are drawn independently: one that is there twice was not run twice.
        content = present.tobytes() + scores.tobytes() + np.array(noise, np.float64).tobytes()
        if (first := seen.setdefault(content, number)) != number:
            _validate.fail(position, "a run of its own", f"that of line {first}")
        yield run


def _parse(position: str, line: str, num_canaries: int) -> _Run:
    """Return a run from its line, or fail: indicators, finite scores and counts, in their shapes."""
    try:
        found = json.loads(line)
        present, scores, noise = (found[name] for name in ("present", "scores", "noise"))
        shape = np.shape(present), np.shape(scores), np.shape(noise)
        numbers = [np.asarray(part) for part in (present, scores, noise)]
    except (ValueError, KeyError, TypeError, RecursionError):
        _validate.fail(position, "a finished run", "another line")
    due = (num_canaries,), (num_canaries, _STATISTICS), (len(NoiseTotals._fields),)
    if shape != due or set(found) != {"present", "scores", "noise"}:
        _validate.fail(position, f"present, scores and noise of shapes {due}", shape)
    if not all(type(one) is int and one in (0, 1) for one in present):
        _validate.fail(f"{position}: present", "0 or 1 for each canary", "others")
    for name, values in zip(("scores", "noise"), numbers[1:], strict=True):
        if values.dtype.kind not in "if" or not np.isfinite(values).all():
            _validate.fail(f"{position}: {name}", "finite numbers", "others")
    if min(noise) < 0:
        _validate.fail(f"{position}: noise", "no number below 0", min(noise))
    return np.array(present, dtype=bool), numbers[1].astype(np.float64), NoiseTotals(*noise)


class _Lines:
    """Appends finished runs to a file, after cutting off a line that is not whole."""

    def __init__(self, path: Path | None, head: dict[str, object]) -> None:
        self._write: Callable[[str], object] = lambda line: None
        self.close: Callable[[], object] = lambda: None
        if path is None:
            return
        try:
            file = path.open("r+b") if path.exists() else path.open("xb")
        except OSError as error:
            _validate.fail("--out", "a file that can be written", f"{path}: {error.strerror}")
        whole = 0
        if path.stat().st_size:
            whole = path.read_bytes().rfind(b"\n") + 1
        file.truncate(whole)
        file.seek(whole)
        self.close = file.close

        def write(line: str) -> None:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

        self._write = write
        if not whole:
            write(json.dumps(head))

    def add(self, present: NDArray[np.bool_], scores: Array, noise: NoiseTotals) -> None:
        run = {"present": present.astype(int).tolist(), "scores": scores.tolist()}
        self._write(json.dumps(run | {"noise": list(noise)}))
