"""Numbers to predict from a table: what a release, and its synthetic records, are worth with bins and without.

    PRIVMIX_DATA=../shared/data python benchmarks/prices.py --num-records 1000 5000 40000

The logarithm of the price of diamonds, from the other columns; a fifth of the records, by a fixed seed, is
the test part. Releases draw fresh secret randomness.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

import privmix
from privmix.features.tabular import TabularExtractor
from privmix.schema import TableSchema
from tables import DELTA, READERS, SCHEMAS, state_bins

CUTS = ["Fair", "Good", "Very Good", "Premium", "Ideal"]
SYNTHETIC = 10_000
PRICES = 5.0, 10.0  # logarithms of dollars, 150 to 22,000


def schema_of(num_records: int, num_bins: int | None, constant: bool) -> privmix.Schema:
    columns = [
        column
        for column in json.loads(SCHEMAS.read_text())["diamonds"]["table"]["columns"]
        if column["name"] != "price"
    ]
    state_bins(columns, num_bins)
    columns.append({"name": "cut", "type": "categorical", "categories": CUTS})
    return privmix.Schema(
        classes=["price"],
        target="regression",
        target_bounds=(PRICES,),
        num_records=num_records,
        table=TableSchema(columns=columns, constant=constant),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--num-records", type=int, nargs="+", default=[1000, 5000, 40_000])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 8.0])
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    frame = READERS["diamonds"][1]().reset_index(drop=True)
    price = np.log(frame["price"].astype(float).to_numpy())
    order = np.random.default_rng(2026).permutation(len(frame))
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    for num_records in arguments.num_records:
        for epsilon in arguments.epsilon:
            for num_bins, constant in ((0, True), (None, True), (None, False)):
                schema = schema_of(num_records, num_bins, constant)
                extractor = TabularExtractor(schema.table)
                plan = privmix.plan_release(schema, target_epsilon=epsilon, target_delta=DELTA)
                runs = []
                for seed in range(arguments.seeds):
                    used = np.random.default_rng(seed).permutation(train)[:num_records]
                    with tempfile.TemporaryDirectory() as folder:
                        release = privmix.release(
                            frame.iloc[used],
                            price[used, None],
                            plan,
                            out=Path(folder) / "r",
                            extractor=extractor,
                        )
                        own = privmix.NoiseAwareRegressor().fit(release)
                        x, y = privmix.synthesize(release, SYNTHETIC, seed=seed)
                    features = extractor.transform(frame.iloc[test])
                    models = own, Ridge().fit(x, np.ravel(y))
                    runs.append(
                        [r2_score(price[test], np.ravel(m.predict(features))) for m in models]
                    )
                told = "; ".join(
                    f"{statistics.mean(found):.3f} ({statistics.pstdev(found):.3f})"
                    for found in zip(*runs, strict=True)
                )
                extra = " and a constant" if constant else ""
                print(
                    f"{num_records:6} epsilon {epsilon:g}, {extractor.schema.bins or 'no'} bins{extra}: {told}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
