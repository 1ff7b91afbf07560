"""Accuracy of the default plan against every other design, over tasks of many sizes.

    PRIVMIX_DATA=../shared/data python benchmarks/sizes.py --epsilon 1 8 --seeds 3

Few records, rare positives, tables, a thousand classes, wide records: does ``--design auto`` pick a
design that is within a point of the best at hand? Records scaled to unit norm, everything charged;
fresh secret randomness, so that runs differ. Each line has the mean accuracy of every design as the
planner lays it out (standard deviation over seeds), what ``auto`` picks, and how much better the best
is. ``training`` is ``dp-gradient-strong`` of ``benchmarks/utility.py``, which publishes no data. A seed
draws the records of a subset or of a synthetic population anew, and all designs get the same ones.
Results are saved in ``benchmarks/results/sizes.json``, beside what earlier runs saved, each row with the
commit that made it.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import privmix
from privmix.running.unrecorded import UnrecordedSpendingWarning
from stamp import Marks, stamp
from utility import (
    DELTA,
    RESULTS,
    DataSet,
    dp_gradient_strong,
    load_banking77,
    load_cifar10,
    progress,
    unit_norm,
)

DESIGNS = ("adaptive", "hybrid", "stratified", "signed")
COLUMNS = (*DESIGNS, "training")


def data_folder() -> Path:
    return Path(os.environ["PRIVMIX_DATA"])


def subset(load: Callable[[Path, Path], DataSet], most: int, seed: int) -> DataSet:
    """Take some of the training records of a data set at hand."""
    data = load(data_folder(), data_folder())
    some = np.random.default_rng(seed).permutation(len(data.x_train))[:most]
    return DataSet(data.x_train[some], data.y_train[some], data.x_test, data.y_test)


def classes_in_space(
    num_records: int,
    num_features: int,
    shares: tuple[float, ...],
    distance: float,
    decay: float,
    seed: int,
) -> DataSet:
    """Gaussian classes: means at random, features that vary by i ** -decay, i = 1..d, inside a class."""
    rng = np.random.default_rng(seed)
    scales = np.arange(1, num_features + 1) ** -decay
    means = distance * rng.standard_normal((len(shares), num_features)) * scales**2
    labels = rng.choice(len(shares), num_records + 5000, p=shares)
    values = means[labels] + scales * rng.standard_normal((len(labels), num_features))
    x = unit_norm(values)
    n = num_records
    return DataSet(x[:n], labels[:n], x[n:], labels[n:])


def adult(seed: int) -> DataSet:
    """Numbers over their public upper bounds, one column for each category that anybody has."""
    columns = []
    for name in ("adult-train.csv", "adult-test.csv"):
        with (data_folder() / "tables" / name).open() as file:
            rows = list(csv.reader(file, skipinitialspace=True))
        columns.append([row for row in rows if len(row) > 1 and row[0].isdigit()])
    whole = [row for part in columns for row in part]
    labels = np.array([int(">50K" in row[-1]) for row in whole])
    blocks = []
    for values in list(zip(*whole, strict=True))[:-1]:
        try:
            number = np.array(values, dtype=float)
            blocks.append(number[:, None] / number.max())
        except ValueError:
            names, code = np.unique(values, return_inverse=True)
            blocks.append(np.eye(len(names))[code])
    x, n = unit_norm(np.hstack(blocks)), len(columns[0])
    return DataSet(x[:n], labels[:n], x[n:], labels[n:])


def equal(num_classes: int) -> tuple[float, ...]:
    return (1 / num_classes,) * num_classes


TASKS: dict[str, Callable[[int], DataSet]] = {
    "cifar10, 500 records": partial(subset, load_cifar10, 500),
    "cifar10, 2,000 records": partial(subset, load_cifar10, 2000),
    "banking77, 2,000 records": partial(subset, load_banking77, 2000),
    "2 classes, 500 records": partial(classes_in_space, 500, 20, equal(2), 1.0, 0.5),
    "5 % positives": partial(classes_in_space, 10_000, 20, (0.95, 0.05), 4.0, 0.5),
    "table, 54 features": partial(classes_in_space, 30_000, 54, equal(2), 1.0, 0.5),
    "adult": adult,
    "1,000 classes": partial(classes_in_space, 30_000, 128, equal(1000), 1.5, 0.1),
    "2,048 features": partial(classes_in_space, 5_000, 2048, equal(10), 0.5, 0.25),
}


def accuracy(data: DataSet, epsilon: float, design: str) -> float:
    """Release with a design as the planner lays it out, learn, and score."""
    plan = plan_of(data, epsilon, design)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UnrecordedSpendingWarning)
        release = privmix.release(data.x_train, data.y_train, plan, out=Path(folder) / "release")
        return float(privmix.NoiseAwareClassifier().fit(release).score(data.x_test, data.y_test))


def plan_of(data: DataSet, epsilon: float, design: str) -> privmix.ReleasePlan:
    return privmix.plan_release(
        data.schema, target_epsilon=epsilon, target_delta=DELTA, design=design
    )


def measure(task: str, epsilon: float, seeds: int, columns: list[str]) -> dict[str, Any]:
    found: dict[str, list[float]] = {name: [] for name in columns}
    auto = ""
    for seed in range(seeds):
        data = TASKS[task](seed)
        auto = plan_of(data, epsilon, "auto").design
        for name in columns:
            progress(f"{task}, epsilon {epsilon:g}, seed {seed}, {name}")
            if name == "training":
                found[name].append(dp_gradient_strong(data, epsilon, seed)[0])
            else:
                found[name].append(accuracy(data, epsilon, name))
    row = {"task": task, "epsilon": epsilon, "auto": auto, "seeds": seeds, "accuracies": found}
    return row | stamp()


def lost(row: dict[str, Any]) -> float:
    """How much better the best design is than the one that ``auto`` picks."""
    means = {name: statistics.fmean(row["accuracies"][name]) for name in DESIGNS}
    return max(means.values()) - means[row["auto"]]


def print_table(rows: list[dict[str, Any]]) -> None:
    marks = Marks(rows)
    print(f"accuracy in % (standard deviation), delta {DELTA:g}")
    print(f"{'task':26}{'epsilon':>8}" + "".join(f"{name:>14}" for name in COLUMNS), "  auto, loss")
    for row in rows:
        line = f"{row['task']:26}{row['epsilon']:>8g}"
        for name in COLUMNS:
            values = [100 * value for value in row["accuracies"].get(name, [])]
            spread = f" ({statistics.stdev(values):.1f})" if len(values) > 1 else ""
            line += f"{f'{statistics.fmean(values):.1f}{spread}' if values else '':>14}"
        told = f"  {row['auto']}, {100 * lost(row):.1f}" if covers(row) else ""
        print(line + told + marks.of(row))
    print("\n".join(marks.legend()))


def covers(row: dict[str, Any]) -> bool:
    return all(name in row["accuracies"] for name in DESIGNS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 8.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, default=list(COLUMNS))
    arguments = parser.parse_args()
    path = RESULTS / "sizes.json"
    RESULTS.mkdir(exist_ok=True)
    kept = (
        {(r["task"], r["epsilon"]): r for r in json.loads(path.read_text())}
        if path.is_file()
        else {}
    )
    for task in arguments.tasks:
        for epsilon in arguments.epsilon:
            row = measure(task, epsilon, arguments.seeds, arguments.columns)
            kept[task, epsilon] = row
            path.write_text(json.dumps(list(kept.values()), indent=2) + "\n")
            print_table([row])
    progress("")
    print_table(list(kept.values()))


if __name__ == "__main__":
    main()
