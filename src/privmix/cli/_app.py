"""The application and the table of its commands, each of which is loaded when it is asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

# A command is defined by the module of its name. This line of it is what the help lists; the order
# is that of the help.
COMMANDS = {
    "schema": "Write a schema to fill in, from a table's column names and types alone.",
    "plan": "Plan a release from public sizes alone. Touches no data.",
    "account": "State what a mechanism costs, by every accountant.",
    "extract": "Turn images, texts or tables into feature vectors. A second run resumes one that "
    "was cut off.",
    "release": "Publish private records. Spends the budget.",
    "sign": "Sign a release or a model that you made. Checks it first; exit status 1 if anything is "
    "wrong.",
    "verify": "Check a release, or a model: its files, its certificate, its rows. Exit status 1 if "
    "anything is wrong.",
    "train": "Train a model on a release.",
    "evaluate": "Measure a model on labelled test data. The numbers are about the test set, not "
    "protected.",
    "predict": "Predict the labels of records. Costs nothing; the file that it writes reveals INPUT's "
    "records.",
    "synthesize": "Draw labelled synthetic records from a release, for any learner or tool.",
    "compare": "Compare records with synthetic ones. For the data holder's eyes only: nothing here "
    "is private.",
    "fit": "Train a model on private records by DP-SGD with mixup. Spends the budget.",
    "report": "Write a page about a release, or a model, that people can read, check and sign.",
    "audit": "Run the code of a plan on worst-case records and bound epsilon from below. Exit status 1 if "
    "the guarantee is violated.",
    "ledger": "Keep account of what data sets have spent. Private to their holder.",
    "demo": "Run the main job on bundled data: plan, release, verify, train, evaluate.",
}


class LazyCommands(TyperGroup):
    """Commands whose modules are imported when they run: the help needs only the table."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        loaded = dict(self.commands)
        self.commands = {
            name: loaded.get(name) or TyperCommand(name, help=line)
            for name, line in COMMANDS.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Load the command that is called, if it is one."""
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = load_command(args[0])
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=LazyCommands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Private data release by random mixup under differential privacy.",
)


@cache
def load_command(name: str) -> Any:
    """Import the module of a command, which registers it, and return the command."""
    import_module(f"privmix.cli.{name}")
    command = typer.main.get_group(app).commands[name]
    # It is kept here, and not made again with every group.
    app.registered_commands = [one for one in app.registered_commands if one.name != name]
    app.registered_groups = [one for one in app.registered_groups if one.name != name]
    return command
