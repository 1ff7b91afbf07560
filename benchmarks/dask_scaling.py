"""How much faster two Dask workers mix than one, on this machine.

    python benchmarks/dask_scaling.py [--json]

Workers have one thread each. The mixing stage is timed, in rows a second: sampling, sums, their
addition, noise, and the way of the rows to the holder's process. Starting workers, handing records to
them and a first few rows, for which workers load compiled kernels, come before. The settings alternate, and their
medians are compared: one worker; two workers that both hold all records, as they do where the records
are small (``ratio``); two workers with half of the records each, as where they are large, whose sums
travel from one to the other (``ratio_divided``). With three processes and more at work (the holder's,
which also schedules, and the workers), a machine of two cores has none to spare.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time

import numpy as np

from privmix.backends import Job, dask_run
from privmix.backends.dask import DaskBackend
from privmix.clipping import FixedPoint
from privmix.mechanism import MixtureConfig, mixture_config
from privmix.records.bounded import BoundedRecords
from privmix.rng import MasterKey
from stamp import stamp


def records(count: int, num_features: int) -> BoundedRecords:
    """Random records of norm at most one, quantised."""
    rng = np.random.default_rng(0)
    grid = FixedPoint(1.0)
    features = np.empty((count, num_features), dtype=np.int16)
    for start in range(0, count, 8192):
        vectors = rng.standard_normal((min(8192, count - start), num_features))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        grid.quantise(vectors, features[start : start + 8192])
    labels = rng.integers(10, size=count).astype(np.int32)
    return BoundedRecords(
        labels=labels,
        blank=labels < 0,
        feature_grid=grid,
        label_grid=grid,
        num_clipped=0,
        num_replaced=0,
        features=features,
    )


def mechanism(count: int, num_features: int, num_mixtures: int, mix_size: int) -> MixtureConfig:
    """A poisson release."""
    layout = {
        "design": "poisson",
        "num_records": count,
        "num_classes": 10,
        "num_features": num_features,
        "num_mixtures": num_mixtures,
        "sampling_prob": mix_size / count,
        "mix_size": float(mix_size),
    }
    return mixture_config(layout, 1.0, 2**0.5)


def throughput(backend: DaskBackend, job: Job) -> float:
    """Rows a second from the first task that is asked for to the last rows that are here."""
    pieces = [(0, block) for block in job.mechanism.components[0].blocks]
    for _ in backend.rows(job, pieces[:8]):  # workers load their kernels
        pass
    run = dask_run.Run(backend._client, job)
    started = time.perf_counter()
    for _ in backend._in_order(run, [(run.submit, some, 1) for some in run.divide(pieces)]):
        pass
    return job.mechanism.num_mixtures / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--num-records", type=int, default=131_072)  # several shards
    parser.add_argument("--num-features", type=int, default=1280)
    parser.add_argument("--num-mixtures", type=int, default=240_000)
    parser.add_argument("--mix-size", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    sizes = parser.parse_args()
    mix = mechanism(sizes.num_records, sizes.num_features, sizes.num_mixtures, sizes.mix_size)
    job = Job(
        mix,
        records(sizes.num_records, sizes.num_features),
        MasterKey.for_test(0, b"benchmark"),
    )
    settings = {"1 worker": (1, 1), "2 workers": (2, 1), "2 workers, divided": (2, 2)}
    measured: dict[str, list[float]] = {name: [] for name in settings}
    for _ in range(sizes.repeats):
        for name, (workers, parts) in settings.items():
            dask_run._SHARE_BYTES = -(-job.records.features.nbytes // parts)
            with DaskBackend(workers=workers, threads=workers) as backend:
                measured[name].append(throughput(backend, job))
            print(f"{name}: {measured[name][-1]:.0f} rows/s", file=sys.stderr)
    one, two, divided = (statistics.median(rates) for rates in measured.values())
    ratios = {"ratio": two / one, "ratio_divided": divided / one}
    if sizes.json:
        print(json.dumps({**stamp(), **ratios, "rows_per_second": measured, "sizes": vars(sizes)}))
        return
    print(f"1 worker            {one:8.0f} rows/s")
    print(f"2 workers           {two:8.0f} rows/s, ratio {two / one:.2f} (at least 1.6)")
    print(f"2 workers, divided  {divided:8.0f} rows/s, ratio {divided / one:.2f}")


if __name__ == "__main__":
    main()
