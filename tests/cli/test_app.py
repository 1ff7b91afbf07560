"""The table of commands: each is loaded when it is called."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import typer.main

from privmix.cli import _app, app


def test_the_table_of_commands_says_what_the_commands_say():
    """Every module of a command is in the table, its line is the first of the command's own help."""
    modules = {
        m.name for m in pkgutil.iter_modules(importlib.import_module("privmix.cli").__path__)
    }
    assert set(_app.COMMANDS) == {name for name in modules if not name.startswith("_")}
    for name, line in _app.COMMANDS.items():
        command = _app.load_command(name)
        assert " ".join(command.help.split("\n\n")[0].split()) == line
    assert list(typer.main.get_group(app).commands) == list(_app.COMMANDS)


def test_a_command_that_is_misspelt_is_told_its_neighbour():
    run = subprocess.run(
        [sys.executable, "-m", "privmix", "relase"], capture_output=True, text=True
    )
    assert run.returncode == 2
    assert "No such command 'relase'. Did you mean 'release'?" in run.stderr


def test_a_command_shows_its_options_when_it_is_asked():
    run = subprocess.run(
        [sys.executable, "-m", "privmix", "verify", "--help"], capture_output=True, text=True
    )
    assert run.returncode == 0 and "--expect-digest" in run.stdout
