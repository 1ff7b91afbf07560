"""Time the mixing of a release against other ways to do it, and against the machine's limits.

    python benchmarks/mixing.py --json

Four ways to make the same rows, features only, noise included, on all processors:

- ours: the release engine's path, index sets to float32 rows (``Mixer.rows``);
- dense: the papers' way, a dense Bernoulli mask of float32 in slices of rows, a matrix product,
  noise; torch;
- csr: index sets by skipping, a SciPy CSR product in float32, noise; NumPy (one thread, as SciPy is);
- limit: no way at all, but a bound: the time to draw the noise alone on all processors, plus the
  time to read every touched row once at the bandwidth measured.

``ratio_dense`` and ``ratio_csr`` are their times over ours, ``ratio_limit`` is ours over the limit.
``--slices`` below 100 measures the first slices of dense and csr and scales their time linearly, and
says so.
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

NOISE_MULTIPLIER = 1.26
SLICES = 100
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


def best(work: Callable[[], None], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def drain(tasks: Iterable[Callable[[], object]], threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        for _ in in_order(pool, tasks, threads + 2):
            pass


def ours(config: MixtureConfig, records: BoundedRecords, threads: int) -> None:
    mixer = Mixer(config, records, MasterKey(fresh_secret(), b"benchmark"))
    drain((partial(mixer.rows, block) for block in config.blocks), threads)


def dense(config: MixtureConfig, x: np.ndarray, slices: int, threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    values = torch.from_numpy(x)
    rows = config.num_mixtures // SLICES
    for _ in range(slices):
        mask = torch.empty(rows, len(x)).bernoulli_(config.sampling_prob)
        sums = mask @ values
        sums += NOISE_MULTIPLIER * torch.randn(sums.shape)
        sums /= config.mix_size


def csr(config: MixtureConfig, x: np.ndarray, slices: int) -> None:
    generator = np.random.default_rng()
    rows = config.num_mixtures // SLICES
    cells = rows * len(x)
    spare = int(cells * config.sampling_prob + 10 * np.sqrt(cells * config.sampling_prob) + 10)
    for _ in range(slices):
        places = np.cumsum(generator.geometric(config.sampling_prob, spare)) - 1
        places = places[places < cells]
        starts = np.searchsorted(places, np.arange(rows + 1) * len(x))
        ones = np.ones(places.size, dtype=np.float32)
        mask = sparse.csr_matrix((ones, places % len(x), starts), shape=(rows, len(x)))
        sums = mask @ x
        sums += np.float32(NOISE_MULTIPLIER) * generator.standard_normal(sums.shape, np.float32)
        sums /= np.float32(config.mix_size)


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


def compare(n: int, rows: int, m: int, d: int, slices: int, repeats: int) -> dict[str, object]:
    threads = default_threads()
    config, records = make_config(n, rows, m, d), make_records(n, d)
    warm = make_config(n, 32, m, d)
    ours(warm, records, threads)  # compiles
    noise_alone(warm, threads)
    told: dict[str, object] = {"n": n, "T": rows, "m": m, "d": d, "threads": threads}
    told["ours_seconds"] = own = best(partial(ours, config, records, threads), repeats)
    told["noise_seconds"] = noise = best(partial(noise_alone, config, threads), repeats)
    told["bandwidth_gb_per_second"] = (speed := bandwidth(threads)) / 1e9
    told["stream_seconds"] = stream = rows * m * d * 2 / speed
    x = records.features.astype(np.float32)
    scale = SLICES / slices
    told["csr_seconds"] = by_csr = best(partial(csr, config, x, slices), repeats) * scale
    told["dense_seconds"] = by_mask = best(partial(dense, config, x, slices, threads), 1) * scale
    told["slices_measured"] = slices
    told["ratio_dense"] = by_mask / own
    told["ratio_csr"] = by_csr / own
    told["ratio_limit"] = own / (noise + stream)
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
    measured = "" if told["slices_measured"] == SLICES else " (scaled up from fewer slices)"
    for name, key in (
        ("ours", "ours_seconds"),
        (f"dense mask, torch{measured}", "dense_seconds"),
        (f"CSR, SciPy{measured}", "csr_seconds"),
        ("noise alone", "noise_seconds"),
        (f"touched rows at {told['bandwidth_gb_per_second']:.1f} GB/s", "stream_seconds"),
    ):
        seconds = float(told[key])  # type: ignore[arg-type]
        table.add_row(name, f"{seconds:.3f}", f"{seconds / own:.2f}")
    console.print(table)
    for name, allowed in (("dense", ">= 25"), ("csr", ">= 2.5"), ("limit", "<= 1.5")):
        console.print(f"ratio_{name} {told[f'ratio_{name}']:.2f} (must be {allowed})")
    if grown:
        table = Table("n", "T", "m", "d", "seconds", title="ours, one size at a time")
        for case in grown:
            table.add_row(*(str(case[k]) for k in ("n", "T", "m", "d")), f"{case['seconds']:.3f}")
        console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, size in (("-n", 50_000), ("-T", 50_000), ("-m", 64), ("-d", 1280)):
        parser.add_argument(name, type=int, default=size)
    parser.add_argument("--slices", type=int, default=SLICES, help="of 100, for dense and csr")
    parser.add_argument("--repeats", type=int, default=3, help="the best counts; dense: one")
    parser.add_argument("--no-growth", action="store_true", help="skip the table of growth")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    sizes = (arguments.n, arguments.T, arguments.m, arguments.d)
    told = compare(*sizes, arguments.slices, arguments.repeats)
    grown = [] if arguments.no_growth else growth(*sizes)
    if arguments.json:
        print(json.dumps(told | {"growth": grown, "load": os.getloadavg()[0]}, indent=2))
    else:
        show(told, grown)


if __name__ == "__main__":
    main()
