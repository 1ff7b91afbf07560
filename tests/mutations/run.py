"""Put faults into the library, one at a time, and see that its tests notice each.

    python tests/mutations/run.py [--only NAME] [--quick]

Each fault goes into a copy of the tree in a temporary folder; the working tree is never touched. The
tests named beside a fault run there until the first failure. A fault that no test notices, that
keeps the tests from being collected, or that they do not finish under, is told of in the end, and
the exit status is 1. ``--only`` takes the faults whose name contains NAME, ``--quick`` one fault of
each source file.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "tests", "docs", "benchmarks", "examples", "pyproject.toml", "README.md")
LIMIT_SECONDS = 600
FAILED = 1  # pytest's exit status where tests ran and some failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="NAME")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    chosen = [fault for fault in FAULTS if options.only in fault.name]
    if options.quick:
        chosen = list({fault.file: fault for fault in reversed(chosen)}.values())[::-1]
    missed = []
    for number, fault in enumerate(chosen, 1):
        start = time.monotonic()
        found = outcome(fault)
        seconds = time.monotonic() - start
        print(f"{number:3}/{len(chosen)} {found:8} {fault.name} ({seconds:.0f} s)", flush=True)
        missed += [fault.name] if found != "caught" else []
    print(f"{len(chosen) - len(missed)} of {len(chosen)} caught")
    for name in missed:
        print(f"not caught: {name}")
    return 1 if missed else 0


def outcome(fault: Fault) -> str:
    """Return ``caught``, ``missed``, ``broken`` (no test ran) or ``hung``."""
    with tempfile.TemporaryDirectory(prefix="privmix-fault-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        path = tree / fault.file
        path.write_text(fault.applied(path.read_text(encoding="utf-8")), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
        try:
            run = subprocess.run(
                [*command, *fault.tests],
                cwd=tree,
                env=environment,
                capture_output=True,
                timeout=LIMIT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return "hung"
    if run.returncode == 0:
        return "missed"
    return "caught" if run.returncode == FAILED else "broken"


def copy_tree(tree: Path) -> None:
    """Copy what the tests need; compiled code comes along, for files without a fault."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name)
        elif source.exists():
            shutil.copy2(source, tree / name)


if __name__ == "__main__":
    sys.exit(main())
