"""The command line: parse and call, no logic. One module for each command."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer

from privmix._validate import InvalidInputError, printable
from privmix.cli._app import app
from privmix.cli._stopping import Stopped, stopped_by_signals, what_is_left

_LONGEST_ERROR = 8000

# Wrong usage as Typer reports it; the class itself has no public name.
UsageError: type[Any] = typer.BadParameter.__mro__[1]


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"privmix {version('privmix')}")
        raise typer.Exit(0)


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Private data release by random mixup under differential privacy."""


def main() -> NoReturn:
    """Run the command line. Exit status: 0, 2 for bad input (one line says what), 1 for failure, 130 and
    143 where Ctrl-C or SIGTERM stopped it (one line says what is left and how to go on).
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a letter is no error
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _show_warning
    try:
        with stopped_by_signals(), _printing_notes():
            code = app(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except InvalidInputError as error:
        _fail(2, str(error))
    except UsageError as error:
        if not str(error.format_message()).strip():  # a command without arguments shows its help
            sys.exit(2)
        _fail(2, error.format_message())
    except Stopped as stop:
        _fail(stop.exit_status, f"{stop}: {what_is_left(stop)}")
    except (typer.Abort, KeyboardInterrupt) as error:
        _fail(130, f"interrupted: {what_is_left(error)}")
    except Exception as error:
        if os.environ.get("PRIVMIX_DEBUG"):
            raise
        notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
        _fail(1, f"{type(error).__name__}: {error}{notes}")


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Write a warning of the library as one line, as all that is told."""
    line = printable(" ".join(str(message).split()), _LONGEST_ERROR)
    sys.stderr.write(f"warning: {line}\n")


@contextmanager
def _printing_notes() -> Iterator[None]:
    """Print what is noted beside bad input: for the data holder's eyes only. What is noted beside other
    ends stands in their own line.
    """
    try:
        yield
    except InvalidInputError as error:
        for note in getattr(error, "__notes__", ()):
            from privmix.cli._common import ERR

            ERR.print(f"for your eyes only: {note}")
        raise


def _fail(code: int, message: str) -> NoReturn:
    sys.stderr.write("error: " + printable(" ".join(message.split()), _LONGEST_ERROR) + "\n")
    sys.exit(code)
