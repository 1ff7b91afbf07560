"""The long form: ``python -m tests.fuzz [TARGET ...] [--every N] [--seed N] [--random N] [--seconds N]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


def main() -> int:
    from fuzz.runner import run
    from fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--every", type=int, default=1, help="one of so many cases")
    parser.add_argument("--seed", type=int, default=0, help="of the random changes")
    parser.add_argument("--random", type=int, default=500, help="random changes of each target")
    parser.add_argument("--seconds", type=float, default=1e9, help="for each target")
    asked = parser.parse_args()
    failed = False
    for name in asked.targets or TARGETS:
        done, failures = run(
            name, every=asked.every, seed=asked.seed, num_random=asked.random, seconds=asked.seconds
        )
        print(f"{name}: {done} cases, {len(failures)} failures", flush=True)
        for failure in failures:
            print(f"  {failure}", flush=True)
        failed |= bool(failures) or not done
    return 1 if failed else 0


sys.exit(main())
