"""What is loaded follows what is used: the import, the help, and planning start at once."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import time

import pytest
import typer.main

import privmix
from privmix.cli import _app, app

ACCOUNT = "account --design poisson --num-records 500 --num-mixtures 20 --mix-size 5 --noise-multiplier 2 --delta 1e-5"
PLAN = "plan --num-records 1000 --num-classes 3 --num-features 10 --epsilon 1 --delta 1e-5"
HEAVY = {"torch", "sklearn", "numba", "scipy.stats", "pandas", "pyarrow", "dp_accounting", "dask"}
FIRST = HEAVY | {"numpy", "scipy", "cryptography", "mpmath", "safetensors"}


def loaded(*arguments: str) -> set[str]:
    """Run a program in a fresh interpreter; return the names of the modules that it loaded."""
    run = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    lines = [line for line in run.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (("-c", "import privmix"), FIRST | {"pydantic", "typer"}),
        (("-m", "privmix", "--help"), FIRST),
        (("-m", "privmix", "--version"), FIRST),
        (("-m", "privmix", *ACCOUNT.split()), HEAVY | {"cryptography"}),
        (("-m", "privmix", *PLAN.split()), HEAVY | {"cryptography"}),
        (("-c", "import privmix.report.facts, privmix.report.page"), {"torch", "sklearn", "dask"}),
    ],
    ids=["import", "help", "version", "account", "plan", "report"],
)
def test_what_is_not_used_is_not_loaded(arguments, unwanted):
    names = loaded(*arguments)
    assert "privmix" in names
    assert not names & unwanted


def test_every_public_name_is_there_and_nothing_else():
    assert dir(privmix) == sorted([*privmix.__all__, "__version__"])
    assert all(getattr(privmix, name) is not None for name in dir(privmix))
    with pytest.raises(AttributeError, match="no attribute 'NoSuchThing'"):
        privmix.NoSuchThing


def test_every_wing_that_is_public_is_loaded_by_its_name():
    code = """
import privmix
for wing in ("accounting", "datasets", "dpsgd", "features", "learners", "planning", "plotting", "preprocess", "theory"):
    assert getattr(privmix, wing).__name__ == f"privmix.{wing}"
    assert wing in dir(privmix)
from privmix import *
assert release is privmix.release and callable(release)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


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


def test_the_help_takes_little_processor_time():
    """Allowed is 0.35 s on a quiet machine; here twice that, the best of four tries."""
    import resource

    seconds = []
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "privmix", "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if seconds[-1] < 0.7:
            return
        time.sleep(0.1)
    pytest.fail(f"help takes {min(seconds):.2f} s of processor time")
