"""Tables of mixed types: what a release, its synthetic records and private training are worth.

    PRIVMIX_DATA=../shared/data python benchmarks/tables.py --tables adult --epsilon 1 --seeds 3

Six public tables: four of ``$PRIVMIX_DATA/tables``; ``flchain`` comes with scikit-survival, ``diamonds``
with plotnine. Bounds and categories in ``tables_schemas.json`` are general knowledge. A quarter of the
records, by a fixed seed, is the test part; with ``--development`` a quarter of the training part stands in
for it, which is what choices may be made on. Releases draw fresh secret randomness.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, balanced_accuracy_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import privmix
from privmix import dpsgd
from privmix.baselines import TreeMarginals
from privmix.features.tabular import TabularExtractor
from privmix.schema.table import CategoricalColumn, OrdinalColumn
from synthetic import plan_of

DELTA = 1e-5
RESULTS = Path(__file__).parent / "results"
SCHEMAS = Path(__file__).parent / "tables_schemas.json"
SYNTHETIC = 20_000
NUM_BINS = 16  # of numbers, of equal width between public bounds
Figures = dict[str, float]


@dataclass(frozen=True)
class Table:
    """A table in two parts, with its public schema."""

    schema: privmix.Schema
    train: pd.DataFrame
    y_train: NDArray[Any]
    test: pd.DataFrame
    y_test: NDArray[Any]

    @property
    def extractor(self) -> TabularExtractor:
        """What makes vectors of rows."""
        return TabularExtractor(self.schema.table)

    def vectors(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Vectors of the training and of the test part."""
        return self.extractor.transform(self.train), self.extractor.transform(self.test)


def packaged(package: str, path: str) -> Path:
    """Find a package's file without importing the package."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise SystemExit(f"{package} is not installed, which brings the table")
    return Path(found.origin).parent / path


def read_flchain() -> pd.DataFrame:
    lines = packaged("sksurv", "datasets/data/flchain.arff").read_text().splitlines()
    names = [line.split()[1] for line in lines if line.startswith("@attribute")]
    rows = csv.reader(lines[lines.index("@data") + 1 :])
    return pd.DataFrame(list(rows), columns=names)


def read_csv(name: str, **options: Any) -> pd.DataFrame:
    path = Path(os.environ["PRIVMIX_DATA"]) / "tables" / name
    return pd.read_csv(path, dtype=str, keep_default_na=False, skipinitialspace=True, **options)


def read_adult() -> pd.DataFrame:
    return pd.concat([read_csv(f"adult-{part}.csv") for part in ("train", "test")])


READERS: dict[str, tuple[str, Callable[[], pd.DataFrame]]] = {
    "adult": ("class", read_adult),
    "bank": ("y", lambda: read_csv("bank-marketing.csv")),
    "wine": ("quality", lambda: read_csv("wine-quality-red.csv", sep=";")),
    "letters": ("lettr", lambda: read_csv("letter-recognition.csv")),
    "flchain": ("death", read_flchain),
    "diamonds": (
        "cut",
        lambda: pd.read_csv(packaged("plotnine", "data/diamonds.csv"), dtype=str),
    ),
}


def state_bins(columns: list[dict[str, Any]], num_bins: int | None) -> None:
    """State bins of numbers and ranks, these no more than categories; None leaves them to the schema's rule."""
    for column in columns if num_bins is not None else ():
        if column["type"] == "numeric":
            column["num_bins"] = num_bins
        if column["type"] == "ordinal":
            column["num_bins"] = min(num_bins, len(column["categories"]))


def load(
    name: str, development: bool, num_bins: int | None = None, num_records: int | None = None
) -> Table:
    label, reader = READERS[name]
    frame = reader().reset_index(drop=True)
    order = np.random.default_rng(2026).permutation(len(frame))
    for _ in range(1 + development):
        cut = len(order) // 4
        test, order = order[:cut], order[cut:]
    order = order[:num_records]
    stated = json.loads(SCHEMAS.read_text())[name]
    state_bins(stated["table"]["columns"], num_bins)
    schema = privmix.Schema.from_json(json.dumps({**stated, "num_records": len(order)}))
    labels = frame[label].str.strip().str.rstrip(".").to_numpy()
    return Table(schema, frame.iloc[order], labels[order], frame.iloc[test], labels[test])


def figures(classes: NDArray[Any], probabilities: NDArray[Any], y: NDArray[Any]) -> Figures:
    """Accuracy, balanced accuracy, and the area under the ROC curve, one class against the rest."""
    chosen = classes[probabilities.argmax(axis=1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        areas = [
            roc_auc_score(y == name, probabilities[:, k])
            for k, name in enumerate(classes)
            if 0 < (y == name).sum() < len(y)
        ]
        balanced = balanced_accuracy_score(y, chosen)
    areas = areas[-1:] if len(classes) == 2 else areas
    return {
        "accuracy": float(accuracy_score(y, chosen)),
        "balanced": float(balanced),
        "auc": float(np.mean(areas)),
    }


def learners(seed: int) -> dict[str, Any]:
    return {
        "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)),
        "boosting": HistGradientBoostingClassifier(max_iter=60, random_state=seed),
    }


def learnt(
    prefix: str, x: Any, y: Any, test: Any, y_test: Any, seed: int
) -> Iterator[tuple[str, Figures]]:
    for name, learner in learners(seed).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of steps that did not suffice
            learner.fit(x, y)
        yield f"{prefix} {name}", figures(learner.classes_, learner.predict_proba(test), y_test)


def of_release(
    table: Table, epsilon: float, seed: int, design: str = "auto"
) -> Iterator[tuple[str, Figures]]:
    """A release's own learner, and others on synthetic records drawn from it; the default plan, or a design."""
    plan = plan_of(table, epsilon, design)
    x_test = table.extractor.transform(table.test)
    name = "release" if design == "auto" else design
    with tempfile.TemporaryDirectory() as folder:
        options = {"out": Path(folder) / "release", "extractor": table.extractor}
        release = privmix.release(table.train, table.y_train, plan, **options)
        found = privmix.NoiseAwareClassifier().fit(release).predict_proba(x_test)
        yield name, figures(np.array(table.schema.classes), found, table.y_test)
        x, y = privmix.synthesize(release, SYNTHETIC, seed=seed)
    yield from learnt(f"{name}: synthetic,", x, y, x_test, table.y_test, seed)


def of_hybrid(table: Table, epsilon: float, seed: int) -> Iterator[tuple[str, Figures]]:
    """The design that serves synthetic records best where its rows can tell."""
    return of_release(table, epsilon, seed, "hybrid")


def of_fit(table: Table, epsilon: float, seed: int) -> Iterator[tuple[str, Figures]]:
    """`privmix fit`: DP-SGD on the vectors, with one rate and 20 passes for all tables."""
    x, x_test = table.vectors()
    plan = dpsgd.plan_training(
        target_epsilon=epsilon,
        target_delta=DELTA,
        epochs=20,
        classes=table.schema.classes,
        input_shape=x.shape[1:],
        num_records=len(x),
        batch_size=max(len(x) // 20, 64),
        learning_rate=1.0,
        momentum=0.9,
        clip_norm=1.0,
        augmentation=dpsgd.AugmentationPlan.plain(),
    )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "model"
        model = dpsgd.fit(x, table.y_train, plan, model=dpsgd.LinearHead(None), out=out)
        found = model.predict_proba(x_test)
    yield "fit", figures(np.array(table.schema.classes), found, table.y_test)


def of_marginals(table: Table, epsilon: float, seed: int) -> Iterator[tuple[str, Figures]]:
    """Records from noisy marginals along a tree, and learners on them."""
    train, sizes = coded(table, table.train)
    test, _ = coded(table, table.test)
    classes = list(map(str, table.schema.classes))
    labels = np.array([classes.index(str(y)) for y in table.y_train])
    method = TreeMarginals(len(classes), len(labels), tuple(sizes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of releases of the same public tables
        published = method.release(
            np.column_stack(train), labels, target_epsilon=epsilon, target_delta=DELTA
        )
    drawn, drawn_labels = published.records(SYNTHETIC, seed=seed)
    codes = drawn.astype(np.int64)
    x, x_test = (one_hot(part, sizes) for part in (codes, np.column_stack(test)))
    y = np.array(table.schema.classes)[drawn_labels.argmax(axis=1)]
    yield from learnt("marginals,", x, y, x_test, table.y_test, seed)


def coded(table: Table, frame: pd.DataFrame) -> tuple[list[NDArray[np.int64]], list[int]]:
    """Cut the extractor's coordinates of each column into codes: categories, or bins of numbers."""
    vectors, codes, sizes, start = table.extractor.transform(frame), [], [], 0
    assert table.schema.table is not None
    for column in table.schema.table.columns:
        part = vectors[:, start : start + column.width]
        start += column.width
        if isinstance(column, CategoricalColumn):
            codes.append(part.argmax(axis=1))
            sizes.append(column.width)
            continue
        bins = len(column.categories) if isinstance(column, OrdinalColumn) else NUM_BINS
        code = np.clip(((part[:, 0] + 1) / 2 * bins).astype(int), 0, bins - 1)
        if column.nullable:
            code = np.where(part[:, -1] > 0, bins, code)
        codes.append(code)
        sizes.append(bins + column.nullable)
    return codes, sizes


def one_hot(codes: NDArray[np.int64], sizes: list[int]) -> NDArray[np.float32]:
    """Categories as indicators, and each code as a number beside them, for orders."""
    parts = [np.eye(s, dtype=np.float32)[codes[:, j]] for j, s in enumerate(sizes)]
    return np.hstack([*parts, codes.astype(np.float32) / np.array(sizes, dtype=np.float32)])


def of_nothing(table: Table, epsilon: float, seed: int) -> Iterator[tuple[str, Figures]]:
    """The largest class of the training part, and learners without privacy."""
    names, counts = np.unique(table.y_train, return_counts=True)
    shares = np.tile(counts / counts.sum(), (len(table.y_test), 1))
    yield "majority", figures(names, shares, table.y_test)
    x, x_test = table.vectors()
    yield from learnt("no privacy,", x, table.y_train, x_test, table.y_test, seed)


METHODS: dict[str, Callable[[Table, float, int], Iterator[tuple[str, Figures]]]] = {
    "nothing": of_nothing,
    "release": of_release,
    "hybrid": of_hybrid,
    "fit": of_fit,
    "marginals": of_marginals,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 3.0, 8.0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--num-bins",
        type=int,
        help="bins of every column of numbers or ranks, 0 for none [by the schema's rule]",
    )
    parser.add_argument("--num-records", type=int, help="release no more than these [all]")
    parser.add_argument("--development", action="store_true")
    arguments = parser.parse_args()
    if "PRIVMIX_DATA" not in os.environ:
        parser.error("PRIVMIX_DATA must name the folder with the data")
    rows = []
    for name in arguments.tables:
        table = load(name, arguments.development, arguments.num_bins, arguments.num_records)
        for epsilon in arguments.epsilon:
            for method in arguments.methods:
                if method == "nothing" and epsilon != arguments.epsilon[0]:
                    continue
                runs: dict[str, list[Figures]] = {}
                for seed in range(1 if method == "nothing" else arguments.seeds):
                    for kind, found in METHODS[method](table, epsilon, seed):
                        runs.setdefault(kind, []).append(found)
                for kind, found in runs.items():
                    rows.append({"table": name, "epsilon": epsilon, "method": kind, "runs": found})
                    print(f"{name:9}{epsilon:4g} {kind:28}{line(found)}", flush=True)
    RESULTS.mkdir(exist_ok=True)
    part = "development" if arguments.development else "test"
    path = RESULTS / f"tables-{part}-{'-'.join(arguments.tables)}.json"
    path.write_text(json.dumps(rows, indent=2))
    print(path, file=sys.stderr)


def line(runs: list[Figures]) -> str:
    cells = []
    for key in runs[0]:
        values = [run[key] for run in runs]
        spread = f" ({statistics.stdev(values):.3f})" if len(values) > 1 else ""
        cells.append(f"{key} {statistics.mean(values):.3f}{spread}")
    return "  ".join(cells)


if __name__ == "__main__":
    main()
