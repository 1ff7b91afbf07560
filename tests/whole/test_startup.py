"""What is loaded follows what is used: the import, the help, and planning start at once."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

ACCOUNT = "account --design poisson --num-records 500 --num-mixtures 20 --mix-size 5 --noise-multiplier 2 --delta 1e-5"
PLAN = "plan --num-records 1000 --num-classes 3 --num-features 10 --epsilon 1 --delta 1e-5"
HEAVY = {
    "torch",
    "sklearn",
    "numba",
    "scipy.stats",
    "scipy.optimize",
    "pandas",
    "pyarrow",
    "dp_accounting",
    "dask",
}
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
