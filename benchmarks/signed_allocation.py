"""Whether signed rows learn more where every record enters exactly R of them.

    PRIVMIX_DATA=../shared/data python benchmarks/signed_allocation.py [--seeds 5] [--json]

Both kinds of rows at the same cost: ``signed`` (a record enters each row independently) and signed
random allocation (it enters exactly R rows), each with the noise that its own accountant asks for. On
made-up records and on Banking77's training records, a fifth held out; test records are not touched.
``error`` is that of the estimated second moments in Frobenius norm, relative to them; ``accuracy`` that of
the noise-aware rule of the whitened cosine. Noise is drawn by NumPy, which serves to measure and
protects nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from privmix.accounting import (
    SignedAllocationGaussianEvent,
    SignedGaussianEvent,
    calibrate_noise_multiplier,
)
from stamp import stamp
from utility import load_banking77, unit_norm

DELTA = 1e-5
LABEL_BALANCE = 1.0


@dataclass(frozen=True)
class Case:
    """Sizes of a table of rows; n / T divides the rows that a record enters."""

    data: str
    num_records: int
    num_rows: int
    rows_per_record: int
    epsilon: float


CASES = [
    Case("made up", 500, 500, 3, 1.0),
    Case("made up", 500, 500, 30, 8.0),
    Case("made up", 2000, 2000, 60, 1.0),
    Case("banking77", 8000, 8000, 9, 1.0),
    Case("banking77", 8000, 8000, 50, 1.0),
    Case("banking77", 8000, 8000, 300, 8.0),
]

Records = tuple[NDArray[np.float32], NDArray[np.int64]]


def made_up(count: int, rng: np.random.Generator) -> Records:
    """Return twenty features that vary less and less, three classes."""
    labels = rng.integers(3, size=count)
    means = np.random.default_rng(0).normal(size=(3, 20)) / 2
    x = means[labels] + rng.normal(size=(count, 20)) * np.linspace(1.0, 0.1, 20)
    return unit_norm(x - x.mean(axis=0)), labels


def banking77(count: int, rng: np.random.Generator) -> Records:
    data = load_banking77(Path(os.environ["PRIVMIX_DATA"]), Path())
    order = np.random.default_rng(7).permutation(len(data.x_train))[:count]
    return unit_norm(data.x_train - data.x_train.mean(axis=0))[order], data.y_train[order]


LOADERS: dict[str, Callable[[int, np.random.Generator], Records]] = {
    "made up": made_up,
    "banking77": banking77,
}


def noise_multipliers(case: Case) -> dict[str, float]:
    t, r = case.num_rows, case.rows_per_record

    def signed(noise: float) -> SignedGaussianEvent:
        return SignedGaussianEvent(sampling_prob=r / t, noise_multiplier=noise, count=t)

    def allocation(noise: float) -> SignedAllocationGaussianEvent:
        return SignedAllocationGaussianEvent(num_rows=t, rows_per_record=r, noise_multiplier=noise)

    return {
        "signed": calibrate_noise_multiplier(signed, case.epsilon, DELTA),
        "allocation": calibrate_noise_multiplier(allocation, case.epsilon, DELTA),
    }


def weights(case: Case, kind: str, rng: np.random.Generator) -> sparse.csr_matrix:
    """Return who enters which row with what sign: (T, n)."""
    t, n = case.num_rows, case.num_records
    counts = np.full(n, case.rows_per_record)
    if kind == "signed":
        counts = rng.binomial(t, case.rows_per_record / t, size=n)
    rows = np.concatenate([rng.choice(t, size=count, replace=False) for count in counts])
    signs = rng.choice(np.array([-1, 1], dtype=np.float32), size=rows.size)
    return sparse.csr_matrix((signs, (rows, np.repeat(np.arange(n), counts))), shape=(t, n))


def learn(
    case: Case, kind: str, noise: float, train: Records, test: Records, rng: np.random.Generator
) -> dict[str, float]:
    x, y = train[0], np.eye(int(train[1].max()) + 1, dtype=np.float32)[train[1]]
    (n, d), t = x.shape, case.num_rows
    entries = case.rows_per_record * n  # T q n
    x_noise = noise * math.sqrt(1 + LABEL_BALANCE**-2)
    y_noise = LABEL_BALANCE * x_noise
    mixing = weights(case, kind, rng)
    zx = mixing @ x + x_noise * rng.standard_normal((t, d))
    zy = mixing @ y + y_noise * rng.standard_normal((t, y.shape[1]))
    moments = (zx.T @ zx - t * x_noise**2 * np.eye(d)) / entries
    cross = zy.T @ zx / entries
    truth = x.T.astype(np.float64) @ x / n
    # The ridge of the planning rule, from public sizes.
    edge = x_noise**2 * t / entries * (2 * math.sqrt(d / t) + d / t)
    spread = x_noise * y_noise * math.sqrt(t) / entries
    ridge = math.sqrt(edge / d) + 0.16 * y.shape[1] ** 2 * d * spread**2
    variances, basis = np.linalg.eigh(moments)
    whiten = basis * (np.maximum(variances, 0) + ridge) ** -0.5
    means = cross @ whiten
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    right = (test[0] @ whiten @ means.T).argmax(axis=1) == test[1]
    error = np.linalg.norm(moments - truth) / np.linalg.norm(truth)
    return {"error": float(error), "accuracy": float(right.mean())}


def measure(case: Case, seeds: int) -> list[dict[str, Any]]:
    found = []
    for kind, noise in noise_multipliers(case).items():
        runs = []
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            x, y = LOADERS[case.data](case.num_records * 5 // 4, rng)
            n = case.num_records
            runs.append(learn(case, kind, noise, (x[:n], y[:n]), (x[n:], y[n:]), rng))
        row: dict[str, Any] = {**stamp(), **vars(case), "kind": kind, "noise_multiplier": noise}
        for name in runs[0]:
            values = [run[name] for run in runs]
            row[name] = statistics.mean(values)
            row[f"{name}_std"] = statistics.stdev(values) if seeds > 1 else None
        found.append(row)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=LOADERS, default=list(LOADERS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if "banking77" in arguments.data and "PRIVMIX_DATA" not in os.environ:
        parser.error("PRIVMIX_DATA must name the folder with the data")
    rows = []
    for case in CASES:
        if case.data not in arguments.data:
            continue
        rows += measure(case, arguments.seeds)
        for row in () if arguments.json else rows[-2:]:
            spread = [row[name] or 0.0 for name in ("error_std", "accuracy_std")]
            print(
                f"{case.data:10} n {case.num_records:5} R {case.rows_per_record:4} "
                f"epsilon {case.epsilon:g} {row['kind']:11} noise {row['noise_multiplier']:.4f} "
                f"error {row['error']:.4f} ({spread[0]:.4f}) "
                f"accuracy {100 * row['accuracy']:.2f} ({100 * spread[1]:.2f})",
                flush=True,
            )
    if arguments.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
