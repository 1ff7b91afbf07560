"""Run cases in a process of their own, of limited memory, each within a limit of time.

A worker tells before each case which one it begins, so that a case that ends the process is known:
by the alarm, by memory, or by a fault of the interpreter. A new worker goes on behind it. Workers are
forks of one process that has loaded the libraries, which takes longer than most samples of cases.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any

TESTS = Path(__file__).parents[1]
_PATHS = (TESTS.parent / "src", TESTS)
SECONDS = 20  # a case, on a machine that others share
_PR_SET_PDEATHSIG = 1  # of Linux's prctl
_START = 300  # a worker, until it begins its first case: the alarm of a case replaces it
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
        code, out, err = _parent().work(words)
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        done += sum("begin" in line for line in lines)
        failures += [
            f"{target} {line['case']}: {line['fault']}" for line in lines if "fault" in line
        ]
        if code == 0:
            return done, failures
        begins = [line for line in lines if "begin" in line]
        if not begins:
            return done, [*failures, f"{target}: no sample: {err[-2000:]}"]
        last = begins[-1]
        why = "no end" if code == -signal.SIGALRM else f"ended by {code}"
        failures.append(f"{target} {last['case']}: {why}")
        first = last["begin"] + 1


class _Parent:
    """The process that workers are forks of."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.runner"],
            cwd=TESTS, env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, _PATHS))}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        atexit.register(self._process.communicate)

    def work(self, words: list[Any]) -> tuple[int, str, str]:
        """Have a worker do something; return its exit status, and what it printed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with tempfile.TemporaryDirectory() as room:
            print(json.dumps([room, *words]), file=self._process.stdin, flush=True)
            code = self._process.stdout.readline()
            assert code, f"the workers' parent has ended by {self._process.wait()}"
            out, err = (Path(room, name).read_text(errors="replace") for name in ("out", "err"))
        return int(code), out, err


_parent = cache(_Parent)


def _end_with_parent() -> None:
    """Have the system kill this process when the one that has started it is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _fork_workers() -> None:
    _end_with_parent()
    from fuzz.targets import TARGETS

    with tempfile.TemporaryDirectory() as room:  # loads what most workers need
        TARGETS["certificate-hybrid"].make(Path(room, "sample"))
    for line in sys.stdin:
        room, *words = json.loads(line)
        child = os.fork()
        if child == 0:
            _be_worker(Path(room), words)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _be_worker(room: Path, words: list[Any]) -> None:
    _end_with_parent()
    signal.alarm(_START)
    code = 1
    try:
        for number, name in enumerate((os.devnull, room / "out", room / "err")):
            file = os.open(name, os.O_RDWR | os.O_CREAT)
            os.dup2(file, number)
        _work(*words)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


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
            except KeyboardInterrupt:
                raise
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
    _fork_workers()
