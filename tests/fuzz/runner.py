"""Run cases in a process of their own, of limited memory, each within a limit of time.

A worker tells before each case which one it begins, so that a case that ends the process is known:
by the alarm, by memory, or by a fault of the interpreter. A new worker goes on behind it.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from time import monotonic

TESTS = Path(__file__).parents[1]
_PATHS = (TESTS.parent / "src", TESTS)
SECONDS = 20  # a case, on a machine that others share
BYTES = 3 << 30  # beyond what the libraries take


def run(target: str, *, every: int = 1, seed: int = 0, num_random: int = 200, first: int = 0,
        seconds: float = 1e9) -> tuple[int, list[str]]:  # fmt: skip
    """Run a target's cases, every so many-th of them; return how many, and what failed.

    Args:
        target: Its name.
        every: Take one of so many cases.
        seed: Which random changes.
        num_random: How many of them.
        first: The first case.
        seconds: When to stop.

    """
    failures, done, begun = [], 0, monotonic()
    while True:
        left = seconds - (monotonic() - begun)
        if left <= 0:
            return done, failures
        words = [target, every, seed, num_random, first, left]
        process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.runner", *map(str, words)],
            cwd=TESTS, env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, _PATHS))}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        out, err = process.communicate()
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        done += sum("begin" in line for line in lines)
        failures += [
            f"{target} {line['case']}: {line['fault']}" for line in lines if "fault" in line
        ]
        if process.returncode == 0:
            return done, failures
        begins = [line for line in lines if "begin" in line]
        if not begins:
            return done, [*failures, f"{target}: no sample: {err[-2000:]}"]
        last = begins[-1]
        why = (
            "no end" if process.returncode == -signal.SIGALRM else f"ended by {process.returncode}"
        )
        failures.append(f"{target} {last['case']}: {why}")
        first = last["begin"] + 1


def _work(name: str, every: int, seed: int, num_random: int, first: int, seconds: float) -> None:
    from fuzz.targets import FAULTY, TARGETS, prepare
    from privmix import InvalidInputError

    target = FAULTY if name == "faulty" else TARGETS[name]
    with tempfile.TemporaryDirectory() as room:
        copy = prepare(target, Path(room))
        path = copy / target.file
        sample = (Path(room) / "sample" / target.file).read_bytes()
        target_cases = target.cases(Path(room) / "sample", seed, num_random)
        _check_sample(target, copy)
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + BYTES, resource.RLIM_INFINITY))
        end = monotonic() + seconds
        for number, case in enumerate(itertools.islice(target_cases, seed % every, None, every)):
            if number < first:
                continue
            if monotonic() > end:
                return
            print(json.dumps({"begin": number, "case": case.name}), flush=True)
            path.write_bytes(case.content)
            signal.alarm(SECONDS)
            try:
                target.check(copy, case)
            except InvalidInputError as error:
                if not str(error).isprintable():
                    fault = f"an error that is not printable: {error!r}"
                    print(json.dumps({"case": case.name, "fault": fault}), flush=True)
            except BaseException as error:
                frames = traceback.extract_tb(error.__traceback__)
                where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames[:-9:-1])
                fault = f"{type(error).__name__}: {str(error)[:300]!r} at {where}"
                print(json.dumps({"case": case.name, "fault": fault}), flush=True)
            signal.alarm(0)
            path.write_bytes(sample)


def _check_sample(target: object, copy: Path) -> None:
    """The sample itself is read without a fault: else nothing would be found out."""
    from fuzz.targets import CERTIFICATE
    from privmix import verify
    from privmix.dpsgd.model_certificate import is_model_folder, verify_model

    if (copy / CERTIFICATE).exists():
        outcome = (verify_model if is_model_folder(copy) else verify)(copy)
        assert outcome.valid or (copy / "m.safetensors").exists(), outcome.reasons


if __name__ == "__main__":
    name, every, seed, num_random, first, seconds = sys.argv[1:]
    _work(name, int(every), int(seed), int(num_random), int(first), float(seconds))
