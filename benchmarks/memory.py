"""Measure the peak memory of a release that does not fit into memory.

    python benchmarks/memory.py --max-memory 1GB --folder /path/on/a/large/disk

Writes a file of ``-n`` random records of ``-d`` float32 features, runs ``privmix release`` on it as
a process of its own with ``-T`` rows, and reads that process's peak from the operating system
(``ru_maxrss``, through a small process between: on Linux a process starts with the peak of the one
that forked it). ``-T`` should be enough for more than one sweep over the records: from then on memory
does not depend on it, and the time of the rows grows linearly. The time for ``--target-rows`` is that
extrapolation. Fails if the peak is above ``--max-memory`` or above what the plan predicts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from stamp import stamp

WRITTEN_AT_ONCE = 4096


def write_input(folder: Path, n: int, d: int) -> None:
    """Write random unit vectors, a block of them again and again, and labels."""
    generator = np.random.default_rng(0)
    block = generator.standard_normal((WRITTEN_AT_ONCE, d), dtype=np.float32)
    block /= np.linalg.norm(block, axis=1, keepdims=True)
    with (folder / "features.npy").open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (n, d)}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, n, WRITTEN_AT_ONCE):
            file.write(block[: min(WRITTEN_AT_ONCE, n - start)].data)
    np.save(folder / "labels.npy", generator.integers(10, size=n))
    facts = {"classes": list(range(10)), "num_features": d, "num_records": n}
    (folder / "schema.json").write_text(json.dumps(facts | {"feature_clip_norm": 1.0}))


MEASURED = """
import resource, subprocess, sys
status = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
raise SystemExit(status)
"""


def run(*arguments: str) -> tuple[float, int]:
    """Run a command; return its seconds and its peak memory in bytes."""
    command = (sys.executable, "-c", "from privmix.cli import main; main()", *arguments)
    start = time.perf_counter()
    told = subprocess.run((sys.executable, "-c", MEASURED, *command), stdout=subprocess.PIPE)
    if told.returncode:
        raise SystemExit(f"privmix {arguments[0]} failed with status {told.returncode}")
    return time.perf_counter() - start, int(told.stdout)


def compile_kernels(folder: Path) -> None:
    """Make a small release: an installation compiles its loops once, and that takes memory too."""
    folder.mkdir()
    write_input(folder, 50, 4)
    facts = ("--schema", str(folder / "schema.json"), "--design", "signed", "--epsilon", "1")
    sizes = ("--delta", "1e-7", "--num-mixtures", "20", "--mix-size", "2")
    plan, data = str(folder / "plan.json"), str(folder / "features.npy")
    run("plan", *facts, *sizes, "--out", plan)
    labels = ("--labels", str(folder / "labels.npy"))
    run("release", data, *labels, "--plan", plan, "--out", str(folder / "release"))


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, float]:
    compile_kernels(folder / "small")
    write_input(folder, arguments.n, arguments.d)
    plan = str(folder / "plan.json")
    sizes = ("--num-mixtures", str(arguments.T), "--mix-size", str(arguments.m))
    budget = ("--max-memory", arguments.max_memory)
    facts = ("--schema", str(folder / "schema.json"), "--design", "signed", "--epsilon", "1")
    run("plan", *facts, "--delta", "1e-7", *sizes, *budget, "--out", plan)
    data = (str(folder / "features.npy"), "--labels", str(folder / "labels.npy"), "--plan", plan)
    out = ("--out", str(folder / "release"), *budget)
    checking, _ = run("release", *data, *out, "--dry-run")
    seconds, peak = run("release", *data, *out)
    predicted = json.loads(Path(plan).read_text())["peak_memory_bytes"]
    return {
        "n": arguments.n,
        "T": arguments.T,
        "d": arguments.d,
        "m": arguments.m,
        "peak_memory_bytes": peak,
        "predicted_bytes": predicted,
        "checking_seconds": checking,
        "mixing_seconds": seconds - checking,
        "rows_per_second": arguments.T / (seconds - checking),
        "target_rows": arguments.target_rows,
        "extrapolated_hours": (
            (checking + (seconds - checking) * arguments.target_rows / arguments.T) / 3600
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, size in (("-n", 1_000_000), ("-T", 100_000), ("-m", 64), ("-d", 2048)):
        parser.add_argument(name, type=int, default=size)
    parser.add_argument("--target-rows", type=int, default=1_000_000)
    parser.add_argument("--max-memory", default="1GB")
    parser.add_argument("--folder", help="where to write the input [a temporary folder]")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        told = {**stamp(), **measure(arguments, Path(folder))}
    from privmix.running.resources import parse_bytes

    allowed = parse_bytes("--max-memory", arguments.max_memory)
    if arguments.json:
        print(json.dumps(told, indent=2))
    else:
        peak, predicted = told["peak_memory_bytes"] / 1e6, told["predicted_bytes"] / 1e6
        print(f"peak {peak:.0f} MB, predicted {predicted:.0f} MB, allowed {allowed / 1e6:.0f} MB")
        print(
            f"{told['rows_per_second']:.0f} rows/s after {told['checking_seconds']:.0f} s of "
            f"checking; {told['target_rows']} rows would take "
            f"{told['extrapolated_hours']:.1f} h (extrapolated from {told['T']} rows)"
        )
    sys.exit(not told["peak_memory_bytes"] <= min(allowed, told["predicted_bytes"]))


if __name__ == "__main__":
    main()
