"""Attribute inference on UCI Adult: the occupation of people of whom all else is known.

    PRIVMIX_DATA=... python experiments/attacks/attribute.py
    PRIVMIX_DATA=... python experiments/attacks/attribute.py --quick

Half of the targets are in the release. The attacker knows all their columns but one, their label and
a population of others. ``population`` guesses by that alone; ``rows`` by it and by which value makes
the published rows likeliest; ``synthetic`` learns the column from as many synthetic records as there
were members. The leak is what is guessed better of members than of non-members. Numbers are means
(standard deviations) over releases, in per cent.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

import privmix
from privmix import attacks
from privmix.features.tabular import TabularExtractor
from privmix.running.unrecorded import UnrecordedSpendingWarning

DELTA = 1e-5
METHODS = ("population", "rows", "synthetic")


def load(folder: Path) -> tuple[privmix.Schema, pa.Table, np.ndarray]:
    """Return the public schema, the rows without blanks around cells, and their labels."""
    facts = json.loads((folder / "tables" / "adult.schema.json").read_text())
    columns = facts["table"]["columns"]  # hashed categories cannot be told from vectors
    facts["table"]["columns"] = [column for column in columns if "num_buckets" not in column]
    schema = privmix.Schema.from_json(json.dumps(facts))
    rows = pyarrow.csv.read_csv(folder / "tables" / "adult-train.csv")
    for place, name in enumerate(rows.column_names):
        if rows[name].type == pa.string():
            rows = rows.set_column(place, name, pc.utf8_trim_whitespace(rows[name]))
    labels = np.array(rows["class"].to_pylist())
    return schema, rows.select([column.name for column in schema.table.columns]), labels


def attack(
    schema: privmix.Schema,
    rows: pa.Table,
    labels: np.ndarray,
    options: argparse.Namespace,
    epsilon: float,
    number: int,
) -> dict[str, attacks.AttributeGuesses]:
    """Attack one release."""
    order = np.random.default_rng([options.seed, number]).permutation(rows.num_rows)
    n, column = options.records, options.column
    values = next(c.categories for c in schema.table.columns if c.name == column)
    inside, outside, others = order[:n], order[n : 2 * n], order[2 * n : 2 * n + options.population]
    schema = schema.model_copy(update={"num_records": n})
    extractor = TabularExtractor(schema.table)
    plan = privmix.plan_release(schema, target_epsilon=epsilon, target_delta=DELTA)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # Each release stands for one of its own: nobody's records are released again and again.
        warnings.simplefilter("ignore", UnrecordedSpendingWarning)
        made = privmix.release(
            rows.take(inside), labels[inside], plan, out=Path(folder, "r"), extractor=extractor
        )
        background = attacks.Background(
            extractor.transform(rows.take(others)), labels[others], num_records=n
        )
        synthetic = privmix.synthesize(made, n, seed=number)
        both = [(rows.take(group), labels[group]) for group in (inside, outside)]
        sources = {
            "population": (rows.take(others), labels[others]),
            "synthetic": (synthetic.table, synthetic.labels),
        }
        hits: dict[str, list[np.ndarray]] = {name: [] for name in METHODS}
        for targets in both:
            truth = np.array(
                [values.index(v) if v in values else -1 for v in targets[0][column].to_pylist()]
            )
            believed = {
                name: attacks.infer_from_records(schema.table, source, targets, column, values)
                for name, source in sources.items()
            }
            guesses = {name: found.argmax(axis=1) for name, found in believed.items()}
            guesses["rows"] = attacks.infer_from_rows(
                made, *targets, column, values, background, believed["population"]
            )
            for name in METHODS:
                hits[name].append((guesses[name] == truth)[truth >= 0])
    return {name: attacks.AttributeGuesses(*found) for name, found in hits.items()}


def run(
    schema: privmix.Schema, rows: pa.Table, labels: np.ndarray, options: argparse.Namespace
) -> dict[str, Any]:
    """Return mean and standard deviation over releases of the accuracies and the advantage."""
    results: dict[str, Any] = {}
    for epsilon in options.epsilons:
        found = [
            attack(schema, rows, labels, options, epsilon, number)
            for number in range(options.releases)
        ]
        for name in METHODS:
            some = [one[name] for one in found]
            numbers = {
                "members": [float(one.members.mean()) for one in some],
                "non-members": [float(one.non_members.mean()) for one in some],
                "advantage": [one.advantage for one in some],
            }
            results[f"epsilon {epsilon:g}, {name}"] = {
                key: [float(np.mean(values)), float(np.std(values, ddof=1))]
                for key, values in numbers.items()
            } | {"alarms": sum(one.leaks() for one in some)}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--column", default="occupation")
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--population", type=int, default=4000)
    parser.add_argument("--releases", type=int, default=10)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1000.0, 8.0, 1.0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="500 records, 3 releases")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.records, options.population, options.releases = 500, 1000, 3
    results = run(*load(Path(os.environ["PRIVMIX_DATA"])), options)
    if options.json:
        print(json.dumps(results, indent=1))
        return
    print("| attack | members | non-members | advantage | alarms |")
    print("|---|---|---|---|---|")
    for name, one in results.items():
        cells = [
            f"{100 * m:.1f} ({100 * s:.1f})"
            for m, s in (one[k] for k in ("members", "non-members", "advantage"))
        ]
        print(f"| {name} | " + " | ".join(cells) + f" | {one['alarms']} of {options.releases} |")


if __name__ == "__main__":
    main()
