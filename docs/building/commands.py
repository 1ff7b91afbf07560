"""The reference page of the command line, made from what ``--help`` shows."""

from __future__ import annotations

import re
from typing import Any

from privmix.cli._app import COMMANDS, load_command

_EXAMPLES = re.compile(r"^ *Examples?:\n", re.MULTILINE)


def commands_page() -> str:
    """Return the page, as Markdown: a section for each command, in the order of the help."""
    parts = [
        "# Commands",
        "What each command prints with `--help`. Exit status: 0, 2 for bad input, 1 for a failure or for "
        "what does not verify, 130 and 143 where Ctrl-C or SIGTERM stopped it.",
    ]
    for name in COMMANDS:
        command = load_command(name)
        parts += _section(f"privmix {name}", command, level=2)
        for sub, one in getattr(command, "commands", {}).items():
            parts += _section(f"privmix {name} {sub}", one, level=3)
    return "\n\n".join(parts) + "\n"


def _section(title: str, command: Any, level: int) -> list[str]:
    text, *examples = _EXAMPLES.split(_plain(command.help or ""), maxsplit=1)
    parts = [f"{'#' * level} {title}", text.strip()]
    if examples:
        lines = [line.strip() for line in examples[0].splitlines() if line.strip()]
        parts.append("\n".join(["```sh", *lines, "```"]))
    context = command.context_class(command)
    records = [one.get_help_record(context) for one in command.params]
    rows = [f"| `{_cell(name)}` | {_cell(_plain(told))} |" for name, told in filter(None, records)]
    if rows:
        parts.append("\n".join(["| option | what it is |", "|---|---|", *rows]))
    return parts


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _plain(text: str) -> str:
    """Return help without reStructuredText's double backquotes, and without what HTML would take."""
    return text.replace("``", "`").replace("<", "&lt;")
