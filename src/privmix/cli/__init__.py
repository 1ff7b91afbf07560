"""The command line: parse and call, no logic. One module for each command."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, NoReturn

import typer

from privmix._validate import InvalidInputError
from privmix.cli._common import ERR, OUT, app

# Importing a command's module registers it; the order is that of the help.
_COMMANDS = (
    "schema plan account extract release verify train evaluate synthesize compare fit ledger demo"
)
for _command in _COMMANDS.split():
    import_module(f"privmix.cli.{_command}")

# Wrong usage as Typer reports it; the class itself has no public name.
UsageError: type[Any] = typer.BadParameter.__mro__[1]


def _print_version(wanted: bool) -> None:
    if wanted:
        OUT.print(f"privmix {version('privmix')}")
        raise typer.Exit(0)


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say the version."),
    ] = False,
) -> None:
    """Private data release by random mixup under differential privacy."""


def main() -> NoReturn:
    """Run the command line. Exit status: 0, 2 for bad input (one line says what), 1 for failure."""
    try:
        with _telling():
            code = app(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except InvalidInputError as error:
        _fail(2, str(error))
    except UsageError as error:
        if not str(error.format_message()).strip():  # a command without arguments shows its help
            sys.exit(2)
        _fail(2, error.format_message())
    except (typer.Abort, KeyboardInterrupt):
        _fail(1, "interrupted")
    except Exception as error:
        if os.environ.get("PRIVMIX_DEBUG"):
            raise
        _fail(1, f"{type(error).__name__}: {error}")


@contextmanager
def _telling() -> Iterator[None]:
    """Print what is noted beside an error: for the data holder's eyes only."""
    try:
        yield
    except BaseException as error:
        for note in getattr(error, "__notes__", ()):
            ERR.print(f"for your eyes only: {note}", markup=False)
        raise


def _fail(code: int, message: str) -> NoReturn:
    sys.stderr.write("error: " + " ".join(message.split()) + "\n")
    sys.exit(code)
