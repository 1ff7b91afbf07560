"""What the commands share: the application, its options, and how it prints."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from privmix import _validate
from privmix._validate import printable
from privmix.accounting.guarantee import Guarantee, number
from privmix.cli._app import app as app
from privmix.foreign.files import MOST_JSON_BYTES, read_file
from privmix.mechanism import DESIGNS
from privmix.running.durable import put_in_place
from privmix.schema import Schema
from privmix.schema.text_format import PLAIN, TextFormat

if TYPE_CHECKING:
    from privmix.inputs.extractor import Extractor
    from privmix.preprocess import Step


class _SafeConsole(Console):
    """Prints text as it stands, on one line: nothing in it is markup, and no terminal acts on it.

    Names and messages from strangers reach the terminal here, in lines and in the cells of tables.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, soft_wrap=True, highlight=False, markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return text to print, made printable."""
        return super().render_str(printable(text), **options)


OUT = _SafeConsole()
ERR = _SafeConsole(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Design = Annotated[
    str | None, typer.Option(help=f"One of {', '.join(DESIGNS)} [auto: see plan --explain].")
]
SchemaFile = Annotated[Path | None, typer.Option("--schema", help="Schema file (JSON).")]
FormatOf = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        help='Schema file (JSON) whose "format" says how a file of delimited text is written.',
    ),
]
LabelColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        help="Label column of a table; several times for targets that are vectors [the classes].",
    ),
]
UnitColumn = Annotated[
    str | None,
    typer.Option(help="Protect all records of one owner together: the column that names owners."),
]
MaxRecordsPerUnit = Annotated[
    int | None, typer.Option(help="Records of one owner that take part at most, drawn at random.")
]
FeaturesKey = Annotated[
    str | None, typer.Option(help="Array of an .npz or .zarr with the features.")
]
LabelKey = Annotated[str | None, typer.Option(help="Array of an .npz or .zarr with the labels.")]
Labels = Annotated[Path | None, typer.Option(help=".npy with the labels of an .npy.")]
MaxMemory = Annotated[
    str | None, typer.Option(help="Memory to stay within, such as 1GB [half the machine's].")
]


def among(names: Iterable[str], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a command's arguments that have one of the names."""
    return {name: arguments[name] for name in names}


def refuse_beside(other: str, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that were given although another option leaves them nothing to say."""
    for name, value in arguments.items():
        if value is not None and value is not False:
            _validate.fail("--" + name.replace("_", "-"), f"nothing beside {other}", value)


def refuse_without(other: str, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that were given although they say nothing without another option."""
    for name, value in arguments.items():
        if value is not None:
            _validate.fail("--" + name.replace("_", "-"), f"nothing without {other}", value)


def read_text(path: Path) -> str:
    allowed = "a readable JSON file"
    try:
        return read_file(path, MOST_JSON_BYTES, allowed).decode("utf-8")
    except UnicodeDecodeError as error:
        _validate.fail(str(path), allowed, error)


def check_new(option: str, path: Path) -> None:
    """Refuse, before any work, a file that something has the name of, if only a link to nothing."""
    if os.path.lexists(path):
        _validate.fail(option, "a new file", f"{path}, which exists")
    if not path.absolute().parent.is_dir():
        _validate.fail(option, "a file in an existing folder", str(path))


def write_text(
    path: Path, text: str, *, new: bool = False, mode: int = 0o666, option: str = "--out"
) -> None:
    """Write a file for an option, whole or not at all; if ``new``, only where there is none.

    ``mode`` are its permissions from the first byte on, less what the umask takes.
    """
    try:
        if path.exists() and not path.is_file() and not new:  # a pipe, or a terminal
            path.write_text(text, encoding="utf-8")
            return
        with put_in_place(path if new else path.resolve(), new=new, mode=mode) as file:
            file.write(text.encode("utf-8"))
    except OSError as error:
        allowed = f"a {'new ' * new}file in a writable folder"
        _validate.fail(option, allowed, f"{path}: {error.strerror}")


def read_schema(path: Path) -> Schema:
    return Schema.from_json(read_text(path), position=str(path))


def text_format(schema: Path | None, extractor: object = None) -> TextFormat:
    """Return how files of delimited text are written: as a schema says, else as a table's extractor does."""
    if schema is not None:
        return read_schema(schema).text_format
    table = getattr(extractor, "schema", None)
    return PLAIN if table is None else table.format


def reader_of(extractor: Extractor, source: Path) -> Extractor:
    """Return an extractor that reads a file's rows: synthetic ones, which a file beside them tells, are
    written plainly whatever the table's format is.
    """
    from privmix.features.tabular import TabularExtractor
    from privmix.synthesis.file import sidecar_path

    if not isinstance(extractor, TabularExtractor) or extractor.schema.format == PLAIN:
        return extractor
    plain = extractor.schema.model_copy(update={"format": PLAIN})
    return TabularExtractor(plain) if sidecar_path(source).exists() else extractor


def warn_of(guarantee: Guarantee) -> None:
    """Say on standard error that nothing is protected, or how little."""
    for line in guarantee.warnings:
        ERR.print(line)


def note_centring(steps: Sequence[Step] | None) -> None:
    """Say on standard error that steps were given which leave automatic centring out."""
    if steps and not any(step.step == "center" for step in steps):
        ERR.print("note: steps that are given replace automatic centring; --center SHARE adds it")


def print_json(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def print_made(
    facts: dict[str, Any], guarantee: Guarantee, folder: object, *, as_json: bool
) -> None:
    """Print what was made, with its digest among the facts, and what it guarantees."""
    if as_json:
        print_json({**facts, "guarantee": guarantee.model_dump(mode="json")})
        return
    print_facts(facts)
    for line in guarantee.lines():
        OUT.print(line)
    OUT.print(verify_command_line(folder, facts["digest"]))


def verify_command_line(folder: object, digest: str) -> str:
    """Return the command that checks a release or a model, as a shell takes it."""
    return f"check it with: privmix verify {shlex.quote(str(folder))} --expect-digest {digest}"


def print_facts(facts: dict[str, Any]) -> None:
    for name, value in facts.items():
        if isinstance(value, dict):
            OUT.print(f"{name}:")
            print_facts({f"  {key}": part for key, part in value.items()})
            continue
        shown = value
        if isinstance(value, float):  # what is claimed is said in full, never rounded down
            shown = number(value) if name in ("epsilon", "delta") else f"{value:.6g}"
        OUT.print(f"{name}: {shown}")


class Pace:
    """How fast work goes, from the first report on: what came before does not count."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._first: tuple[float, int] | None = None

    def tell(self, done: int, total: int | None, now: float) -> str:
        """Return rate and time left, or nothing before there is anything to judge by."""
        if self._first is None:
            self._first = (now, done)
        start, before = self._first
        if done <= before or now <= start:
            return ""
        rate = (done - before) / (now - start)
        shown_rate = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
        if total is None:
            return f"{shown_rate} {self._noun}/s"
        left = round((total - done) / rate)
        shown = f"{left} s" if left < 120 else f"{left // 60} min"
        return f"{shown_rate} {self._noun}/s, about {shown} left"


@contextmanager
def progress_bar(noun: str) -> Iterator[Any]:
    """Yield a callback (done, total): a bar on a terminal, now and then a line elsewhere."""
    if not ERR.is_terminal:
        yield _LinePrinter(noun)
        return
    pace = Pace(noun)
    columns = (
        TextColumn(noun),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[pace]}"),
    )
    with Progress(*columns, console=ERR, transient=True) as bar:
        task = bar.add_task(noun, total=None, pace="")
        yield lambda done, total: bar.update(
            task, completed=done, total=total, pace=pace.tell(done, total, monotonic())
        )


class _LinePrinter:
    """Plain progress lines, the first two seconds after the work began and then every ten."""

    def __init__(self, noun: str) -> None:
        self._noun, self._pace = noun, Pace(noun)
        self._due: float | None = None

    def __call__(self, done: int, total: int | None) -> None:
        now = monotonic()
        pace = self._pace.tell(done, total, now)
        if self._due is None:
            self._due = now + 2
        if now >= self._due:
            self._due = now + 10
            share = f"{done}" if total is None else f"{done} of {total}"
            ERR.print(f"{share} {self._noun}" + (pace and f", {pace}"))


@contextmanager
def status_line(text: str, *, always: bool = False) -> Iterator[None]:
    """Say on a terminal what is being done; with ``always`` as a plain line elsewhere."""
    if ERR.is_terminal:
        with ERR.status(Text(printable(text))):
            yield
    else:
        if always:
            ERR.print(text)
        yield
