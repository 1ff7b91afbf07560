"""Processor time of the command line's first answers, and of the import.

    python benchmarks/startup.py [--runs 5] [--json]

Each figure is the smallest of several runs of a fresh interpreter: its own processor time, user and
system together, so that other programs count little. Modules are compiled to bytecode once, as in
an installation, whatever ``PYTHONDONTWRITEBYTECODE`` says. ``help_seconds``: ``privmix --help``;
``import_seconds``: ``import privmix``; ``account_seconds`` and ``plan_seconds``: the commands' first
examples. ``python_seconds`` is an interpreter that does nothing, which is part of all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys

from stamp import stamp

ACCOUNT = (
    "account --design poisson --num-records 50000 --num-mixtures 50000 --mix-size 64 "
    "--noise-multiplier 1.26 --delta 1e-5"
)
PLAN = "plan --num-records 10003 --num-classes 77 --num-features 384 --epsilon 1 --delta 1e-5"
PROGRAMS = {
    "python_seconds": ("-c", "pass"),
    "help_seconds": ("-m", "privmix", "--help"),
    "version_seconds": ("-m", "privmix", "--version"),
    "import_seconds": ("-c", "import privmix"),
    "account_seconds": ("-m", "privmix", *ACCOUNT.split()),
    "plan_seconds": ("-m", "privmix", *PLAN.split()),
}


def processor_seconds(arguments: tuple[str, ...], runs: int) -> float:
    """Smallest processor time of several runs of the interpreter."""
    seconds = []
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = {name: processor_seconds(how, options.runs) for name, how in PROGRAMS.items()}
    if options.json:
        print(json.dumps({**stamp(), **figures}))
        return
    for name, seconds in figures.items():
        print(f"{name}: {seconds:.2f}")


if __name__ == "__main__":
    main()
