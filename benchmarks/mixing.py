"""Time the mixing of a release against other ways to do it, and against the machine's limits.

    python benchmarks/mixing.py --json

Ways to make the same rows, features only, from index sets to float32 rows, noise included:

- ours: the release engine's path (``Mixer.rows``), all processors;
- csr_threads: index sets by skipping, a SciPy CSR product in float32, NumPy's normal noise, in slices of
  rows on all processors;
- csr: the same on one thread, as SciPy is by itself;
- dense, only with ``--dense``, as it takes minutes: the papers' way, a dense Bernoulli mask of float32, a
  matrix product, noise; torch, all processors;
- limit: no way at all, but a bound: the time to draw the noise alone on all processors, plus the
  time to read every touched row once at the bandwidth measured.

Each way is measured whole, ``--repeats`` times in turn with the others, and its best time counts.
``ratio_dense``, ``ratio_csr`` and ``ratio_csr_threads`` are their times over ours, ``ratio_limit`` is ours
over the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numba import njit
from rich.console import Console
from rich.table import Table
from scipy import sparse

from privmix.backends.local import in_order
from privmix.clipping import FixedPoint
from privmix.mechanism import MixtureConfig
from privmix.mixer import Mixer
from privmix.noise import rounded_gaussian
from privmix.records.bounded import BoundedRecords
from privmix.rng import MasterKey, fresh_secret
from privmix.running.resources import default_threads
from stamp import stamp

NOISE_MULTIPLIER = 1.26
SLICE_ROWS = 500  # that a rival makes at a time
BANDWIDTH_BYTES = 512 << 20


def make_config(n: int, rows: int, m: int, d: int) -> MixtureConfig:
    return MixtureConfig(
        design="poisson",
        num_records=n,
        num_classes=2,
        num_features=d,
        num_mixtures=rows,
        sampling_prob=m / n,
        mix_size=float(m),
        noise_multiplier=NOISE_MULTIPLIER,
        feature_noise_multiplier=NOISE_MULTIPLIER,
        label_noise_multiplier=None,
    )


def make_records(n: int, d: int) -> BoundedRecords:
    """Bounded random records; their values do not matter to the time."""
    largest = max(1, int(16384 / np.sqrt(d)))
    generator = np.random.default_rng(0)
    features = np.empty((n, d), dtype=np.int16)
    for start in range(0, n, 4096):
        some = features[start : start + 4096]
        some[...] = generator.integers(-largest, largest, size=some.shape, dtype=np.int16)
    return BoundedRecords(
        labels=np.zeros(n, dtype=np.int32),
        blank=np.zeros(n, dtype=bool),
        feature_grid=FixedPoint(1.0),
        label_grid=FixedPoint(1.0),
        num_clipped=0,
        num_replaced=0,
        features=features,
    )


def best(work: Callable[[], object], repeats: int) -> float:
    return best_in_turn({"": work}, repeats)[""]


def best_in_turn(ways: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Seconds of each, at best, all of them measured equally often."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, work in ways.items():
            start = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - start)
    return {name: min(some) for name, some in times.items()}


def drain(tasks: Iterable[Callable[[], object]], threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        for _ in in_order(pool, tasks, threads + 2):
            pass


def ours(config: MixtureConfig, records: BoundedRecords, threads: int) -> None:
    mixer = Mixer(config, records, MasterKey(fresh_secret(), b"benchmark"))
    drain((partial(mixer.rows, block) for block in config.blocks), threads)


def slices(config: MixtureConfig) -> list[int]:
    """Numbers of rows to make at a time."""
    whole, rest = divmod(config.num_mixtures, SLICE_ROWS)
    return [SLICE_ROWS] * whole + [rest] * bool(rest)


def dense(config: MixtureConfig, x: np.ndarray, threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    values = torch.from_numpy(x)
    for rows in slices(config):
        mask = torch.empty(rows, len(x)).bernoulli_(config.sampling_prob)
        sums = mask @ values
        sums += NOISE_MULTIPLIER * torch.randn(sums.shape)
        sums /= config.mix_size


def csr(config: MixtureConfig, x: np.ndarray, threads: int) -> None:
    def make(seed: np.random.SeedSequence, rows: int) -> None:
        generator = np.random.default_rng(seed)
        cells = rows * len(x)
        spare = int(cells * config.sampling_prob + 10 * np.sqrt(cells * config.sampling_prob) + 10)
        places = np.cumsum(generator.geometric(config.sampling_prob, spare)) - 1
        places = places[places < cells]
        starts = np.searchsorted(places, np.arange(rows + 1) * len(x))
        ones = np.ones(places.size, dtype=np.float32)
        mask = sparse.csr_matrix((ones, places % len(x), starts), shape=(rows, len(x)))
        sums = mask @ x
        sums += np.float32(NOISE_MULTIPLIER) * generator.standard_normal(sums.shape, np.float32)
        sums /= np.float32(config.mix_size)

    sizes = slices(config)
    seeds = np.random.SeedSequence().spawn(len(sizes))
    drain((partial(make, *one) for one in zip(seeds, sizes, strict=True)), threads)


def noise_alone(config: MixtureConfig, threads: int) -> None:
    key = MasterKey(fresh_secret(), b"benchmark")
    stddev = config.noise_stddev(16384.0, "feature")

    def draw(number: int, size: int) -> None:
        stream, extra = key.stream("noise", block=number), key.stream("extra", block=number)
        room = np.empty(min(1 << 16, size), dtype=np.int64)
        for start in range(0, size, len(room)):
            some = room[: size - start]
            rounded_gaussian(stream, extra, stddev, len(some), out=some)

    tasks = (partial(draw, b.index, b.num_rows * config.num_features) for b in config.blocks)
    drain(tasks, threads)


@njit(nogil=True, cache=True)
def read_through(values: np.ndarray) -> int:  # pragma: no cover - compiled
    total = 0
    for value in values:
        total += value
    return total


def bandwidth(threads: int) -> float:
    """Bytes a second that all threads together read from memory, one after another, at best."""
    parts = np.array_split(np.ones(BANDWIDTH_BYTES // 8, dtype=np.int64), threads)
    read_through(parts[0][:10])
    with ThreadPoolExecutor(threads) as pool:
        return BANDWIDTH_BYTES / best(lambda: list(pool.map(read_through, parts)), 7)


def compare(n: int, rows: int, m: int, d: int, with_dense: bool, repeats: int) -> dict[str, object]:
    threads = default_threads()
    config, records = make_config(n, rows, m, d), make_records(n, d)
    warm = make_config(n, 32, m, d)
    ours(warm, records, threads)  # compiles
    noise_alone(warm, threads)
    x = records.features.astype(np.float32)
    ways: dict[str, Callable[[], object]] = {
        "ours": partial(ours, config, records, threads),
        "noise": partial(noise_alone, config, threads),
        "csr": partial(csr, config, x, 1),
        "csr_threads": partial(csr, config, x, threads),
    }
    if with_dense:
        ways["dense"] = partial(dense, config, x, threads)
    seconds = best_in_turn(ways, repeats)
    speed = bandwidth(threads)
    stream, own = rows * m * d * 2 / speed, seconds["ours"]
    told: dict[str, object] = {"n": n, "T": rows, "m": m, "d": d, "threads": threads}
    told |= {f"{name}_seconds": value for name, value in seconds.items()}
    told |= {"repeats": repeats, "bandwidth_gb_per_second": speed / 1e9, "stream_seconds": stream}
    rivals = [name for name in seconds if name not in ("ours", "noise")]
    told |= {f"ratio_{name}": seconds[name] / own for name in rivals}
    told["ratio_limit"] = own / (seconds["noise"] + stream)
    return told


def growth(n: int, rows: int, m: int, d: int) -> list[dict[str, float]]:
    """Time ours alone from a quarter of each size up to the whole."""
    threads, found = default_threads(), []
    base = {"n": n, "T": rows, "m": m, "d": d}
    cases = [base] + [base | {k: base[k] // f} for k in base for f in (2, 4)]
    for case in cases:
        config = make_config(case["n"], case["T"], case["m"], case["d"])
        records = make_records(case["n"], case["d"])
        seconds = best(partial(ours, config, records, threads), 2)
        found.append(case | {"seconds": seconds})
    return found


def show(told: dict[str, object], grown: list[dict[str, float]]) -> None:
    console = Console()
    sizes = ", ".join(f"{k} = {told[k]}" for k in ("n", "T", "m", "d"))
    table = Table("way", "seconds", "against ours", title=f"{sizes}, {told['threads']} threads")
    own = float(told["ours_seconds"])  # type: ignore[arg-type]
    for name, key in (
        ("ours", "ours_seconds"),
        ("dense mask, torch", "dense_seconds"),
        ("CSR, SciPy, one thread", "csr_seconds"),
        ("CSR, SciPy, all threads", "csr_threads_seconds"),
        ("noise alone", "noise_seconds"),
        (f"touched rows at {told['bandwidth_gb_per_second']:.1f} GB/s", "stream_seconds"),
    ):
        if key not in told:
            continue
        seconds = float(told[key])  # type: ignore[arg-type]
        table.add_row(name, f"{seconds:.3f}", f"{seconds / own:.2f}")
    console.print(table)
    due = {"dense": ">= 25", "csr": ">= 2.5", "csr_threads": ">= 3", "limit": "<= 1.5"}
    for name, allowed in due.items():
        if (ratio := told.get(f"ratio_{name}")) is not None:
            console.print(f"ratio_{name} {ratio:.2f} (must be {allowed})")
    if grown:
        table = Table("n", "T", "m", "d", "seconds", title="ours, one size at a time")
        for case in grown:
            table.add_row(*(str(case[k]) for k in ("n", "T", "m", "d")), f"{case['seconds']:.3f}")
        console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, size in (("-n", 50_000), ("-T", 50_000), ("-m", 64), ("-d", 1280)):
        parser.add_argument(name, type=int, default=size)
    parser.add_argument("--dense", action="store_true", help="measure the dense way as well")
    parser.add_argument("--repeats", type=int, default=3, help="of every way; the best counts")
    parser.add_argument("--no-growth", action="store_true", help="skip the table of growth")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    sizes = (arguments.n, arguments.T, arguments.m, arguments.d)
    told = compare(*sizes, arguments.dense, arguments.repeats)
    grown = [] if arguments.no_growth else growth(*sizes)
    if arguments.json:
        print(json.dumps(stamp() | told | {"growth": grown, "load": os.getloadavg()[0]}, indent=2))
    else:
        show(told, grown)


if __name__ == "__main__":
    main()
