"""How alike two tables are: columns, correlations, classes, what models learn, nearest records.

The measures are few and standard. SDMetrics and Anonymeter have more of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.stats import ks_2samp
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import balanced_accuracy_score
from sklearn.neighbors import NearestNeighbors

from privmix import _validate

WARNING = (
    "for the data holder's eyes only: these figures are computed from the records, without privacy"
)
MOST_SEED = 2**32 - 1  # that models take
_MOST_RECORDS = 4000
_STILL = 0.01  # of the synthetic spread
_MOST_CATEGORIES = 30
# Boosting grows a tree for each class in each iteration: of many classes, fewer iterations.
_MOST_TREES = 500
_ITERATIONS = 5, 50
_MOST_CORRELATED = 200
_MICROSECONDS = {"day": 86_400e6, "s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1.0}
# Models compute in single precision, where larger numbers are infinite.
_LARGEST = 1e37
_MOST_SPREADS = 1e6  # a record is as far off here as anywhere beyond
_TIMES = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_time, pa.types.is_duration)
_MISSING = "(missing)"
_OTHER = "(other)"

_CLASSIFIERS: dict[str, Callable[[int, int], Any]] = {
    "linear": lambda seed, _: LogisticRegression(max_iter=300),
    "forest": lambda seed, _: RandomForestClassifier(random_state=seed),
    "boosting": lambda seed, num_classes: HistGradientBoostingClassifier(
        max_iter=min(max(_MOST_TREES // num_classes, _ITERATIONS[0]), _ITERATIONS[1]),
        random_state=seed,
    ),
}
_REGRESSORS: dict[str, Callable[[int, int], Any]] = {
    "linear": lambda seed, _: Ridge(),
    "forest": lambda seed, _: RandomForestRegressor(random_state=seed),
    "boosting": lambda seed, _: HistGradientBoostingRegressor(
        max_iter=_ITERATIONS[1], random_state=seed
    ),
}

Values = NDArray[Any]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class _Encoding:
    """A table as numbers, by what one table holds: scaled numbers and one-hot categories."""

    columns: tuple[tuple[str, float, float, tuple[str, ...] | None], ...]

    @classmethod
    def of(cls, table: pa.Table, names: list[str], other: pa.Table) -> _Encoding:
        """Scale numbers by their spread.

        Columns that vary much less in ``table`` than in ``other`` are left out: in units of their spread
        they would be most of any distance, and hide copies.
        """
        columns: list[tuple[str, float, float, tuple[str, ...] | None]] = []
        for name in names:
            values = _values(table[name])
            if values.dtype.kind == "f":
                there = values[np.isfinite(values)]
                middle = there.mean() if there.size else 0.0
                spread = _spread(values)
                if spread < _STILL * _spread(_values(other[name])):
                    spread = np.inf  # so that all its values are 0
                columns.append((name, float(middle), float(spread) or 1.0, None))
            else:
                found, counts = np.unique(values, return_counts=True)
                order = np.argsort(-counts, kind="stable")[:_MOST_CATEGORIES]
                columns.append((name, 0.0, 1.0, tuple(found[order].tolist())))
        return cls(tuple(columns))

    @property
    def still(self) -> list[str]:
        """Columns that are left out since they hardly vary."""
        return [name for name, _, spread, _ in self.columns if np.isinf(spread)]

    @property
    def names(self) -> list[str]:
        """Names of what a table is encoded as: a column, or a column and one of its categories."""
        names: list[str] = []
        for name, _, _, categories in self.columns:
            names += [name] if categories is None else [f"{name}={value}" for value in categories]
        return names

    def encode(self, table: pa.Table) -> Matrix:
        parts = []
        for name, middle, spread, categories in self.columns:
            values = _values(table[name])
            if categories is not None:
                parts += [(values.astype(str) == category).astype(float) for category in categories]
                continue
            numbers = values if values.dtype.kind == "f" else np.full(len(values), np.nan)
            scaled = (numbers - middle) / spread
            within = np.clip(scaled, -_MOST_SPREADS, _MOST_SPREADS)
            parts.append(np.where(np.isfinite(scaled), within, 0.0))
        return np.column_stack(parts)


def compare(real: pa.Table, synthetic: pa.Table, label: str, *, seed: int = 0) -> dict[str, Any]:
    """Compare records with synthetic ones. **Private**: for the data holder's eyes only.

    Numbers that are infinite, or beyond 1e37 either way, count as missing.

    Args:
        real: Records, an Arrow table; half of them are what models learn from and what is near, the
            other half what models are tested on and what shows how near a record not seen is.
        synthetic: Synthetic records with the same columns.
        label: The label's column.
        seed: Of the sample of at most 4,000 records of each, of the halves, and of the models; at most
            2^32 - 1.

    Returns:
        ``records``: how many are compared; ``given``: how many there were, of which those are a sample if they are more;
        ``left_out``: columns that the synthetic records lack; ``still``: columns of numbers that hardly vary
        in ``real``, which correlations, models and nearest records leave out;
        ``columns``: 1 less the Kolmogorov-Smirnov distance of numbers, 1 less the total variation of
        categories, of which all but the 30 commonest count as one; ``correlations``: mean and largest
        difference, and which two columns have the largest (a category is a column of its own, None where
        there are no two); ``classes``: shares, empty for numbers; ``models``: the score on real records of models
        trained on real and on synthetic ones (balanced accuracy, or R2 of numbers; boosting has 50 iterations, fewer of more than
        ten classes, so that it grows about 500 trees); ``nearest``: medians and 5 % quantiles of the distance to the nearest record,
        and the share of synthetic records that are nearer than 5 % of records not seen are.

    Raises:
        InvalidInputError: Other columns, no label, too few records, or another seed.

    """
    _validate.integer("seed", seed, at_least=0, at_most=MOST_SEED)
    names = [name for name in real.column_names if name in synthetic.column_names]
    for position, table in (("real", real), ("synthetic", synthetic)):
        if label not in table.column_names:
            _validate.fail(f"{position}.label", f"a column named {label}", "none")
        if table.num_rows < 20:
            _validate.fail(position, "at least 20 records", table.num_rows)
    given = {"real": real.num_rows, "synthetic": synthetic.num_rows}
    names.remove(label)
    if not names:
        _validate.fail("synthetic", "at least one column of the records beside the label", "none")
    random = np.random.default_rng(seed)
    real = _sample(real, _MOST_RECORDS, random)
    synthetic = _sample(synthetic, _MOST_RECORDS, random)
    half = real.num_rows // 2
    seen, held = real.slice(0, half), real.slice(half)
    encoding = _Encoding.of(real, names, synthetic)
    x_seen, x_held, x_made = (encoding.encode(table) for table in (seen, held, synthetic))
    return {
        "warning": WARNING,
        "records": {"real": real.num_rows, "synthetic": synthetic.num_rows},
        "given": given,
        "left_out": [n for n in real.column_names if n not in (*names, label)],
        "still": encoding.still,
        "columns": {n: _likeness(real[n], synthetic[n]) for n in names},
        "correlations": _correlations(np.vstack([x_seen, x_held]), x_made, encoding.names),
        "classes": _balance(real[label], synthetic[label]),
        "models": _models(
            (x_seen, seen[label]), (x_held, held[label]), (x_made, synthetic[label]), seed
        ),
        "nearest": _nearest(x_seen, x_held, x_made),
    }


def _sample(table: pa.Table, most: int, random: np.random.Generator) -> pa.Table:
    order = random.permutation(table.num_rows)[:most]
    return table.take(pa.array(order))


def _values(column: pa.ChunkedArray) -> Values:
    """Return numbers and times as float64 with NaN for missing, anything else as texts."""
    kind, types = column.type, pa.types
    if any(is_kind(kind) for is_kind in _TIMES):
        return _times(column)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        numbers = _floats(column)
        return np.where(np.abs(numbers) <= _LARGEST, numbers, np.nan)
    # In CSV an empty text and none are written alike.
    texts = [_MISSING if value in (None, "") else str(value) for value in column.to_pylist()]
    return np.array(texts, dtype=str)


def _times(column: pa.ChunkedArray) -> Matrix:
    """Return times in microseconds, in whatever unit they are; what is finer is cut off."""
    kind = column.type
    counts = pc.cast(column, pa.int32() if kind.bit_width == 32 else pa.int64())
    unit = {pa.date32(): "day", pa.date64(): "ms"}.get(kind) or kind.unit
    return _floats(pc.divide(counts, 1000) if unit == "ns" else counts) * _MICROSECONDS[unit]


def _floats(column: pa.ChunkedArray) -> Matrix:
    numbers = pc.cast(column, pa.float64(), safe=False).fill_null(np.nan)
    return np.asarray(numbers.to_numpy(), dtype=np.float64)


def _spread(values: Values) -> float:
    there = values[np.isfinite(values)] if values.dtype.kind == "f" else np.empty(0)
    return float(there.std()) if there.size else 0.0


def _likeness(real: pa.ChunkedArray, synthetic: pa.ChunkedArray) -> dict[str, Any]:
    one, other = _values(real), _values(synthetic)
    if one.dtype.kind == "f" and other.dtype.kind == "f":
        missing = [float(np.isnan(values).mean()) for values in (one, other)]
        one, other = one[~np.isnan(one)], other[~np.isnan(other)]
        found = {"missing": {"real": missing[0], "synthetic": missing[1]}}
        if not (one.size and other.size):
            return {"kind": "numeric", "likeness": float(one.size == other.size), **found}
        distance = float(ks_2samp(one, other, method="asymp").statistic)
        means = {"real": float(one.mean()), "synthetic": float(other.mean())}
        return {"kind": "numeric", "likeness": 1 - distance, "mean": means, **found}
    one, other = _common(one, other)
    return {"kind": "categorical", "likeness": 1 - _apart(one, other)}


def _common(one: Values, other: Values) -> tuple[Values, Values]:
    """Keep the commonest categories of one side; the rest of either are one category.

    Of thousands of categories two samples share few, however alike they are.
    """
    names, counts = np.unique(_as_texts(one), return_counts=True)
    kept = names[np.argsort(-counts, kind="stable")[:_MOST_CATEGORIES]]
    first, second = (np.where(np.isin(x, kept), x, _OTHER) for x in map(_as_texts, (one, other)))
    return first, second


def _apart(one: Values, other: Values) -> float:
    """Total variation of two samples of categories."""
    names = np.union1d(one, other)
    shares = [np.array([(values == name).mean() for name in names]) for values in (one, other)]
    return float(np.abs(shares[0] - shares[1]).sum()) / 2


def _balance(real: pa.ChunkedArray, synthetic: pa.ChunkedArray) -> dict[str, dict[str, float]]:
    """Return the shares of values; of many numbers, which are no classes, nothing."""
    one, other = (_texts(column) for column in (real, synthetic))
    names, counts = np.unique(one, return_counts=True)
    broken = any(_has_fractions(column) for column in (real, synthetic))
    kept = dict(zip(names.tolist(), counts.tolist(), strict=True))
    extra = [n for n in np.unique(other).tolist() if n not in kept]
    if len(kept) > _MOST_RECORDS // 4 or (broken and len(kept) + len(extra) > _MOST_CATEGORIES):
        return {}
    return {
        n: {"real": kept.get(n, 0) / len(one), "synthetic": float((other == n).mean())}
        for n in [*kept, *extra]
    }


def _has_fractions(column: pa.ChunkedArray) -> bool:
    values = _values(column)
    return values.dtype.kind == "f" and bool((np.nan_to_num(values) % 1 != 0).any())


def _texts(column: pa.ChunkedArray) -> Values:
    return _as_texts(_values(column))


def _as_texts(values: Values) -> Values:
    if values.dtype.kind != "f":
        return values
    return np.array([_MISSING if np.isnan(v) else f"{v:g}" for v in values], dtype=str)


def _correlations(real: Matrix, synthetic: Matrix, names: list[str]) -> dict[str, Any]:
    one, other = (_correlation(x[:, :_MOST_CORRELATED]) for x in (real, synthetic))
    first, second = np.triu_indices(len(one), 1)
    apart = np.abs(one - other)[first, second]
    if not apart.size:
        return {"mean_difference": 0.0, "largest_difference": 0.0, "largest_pair": None}
    most = int(apart.argmax())
    return {
        "mean_difference": float(apart.mean()),
        "largest_difference": float(apart[most]),
        "largest_pair": [names[first[most]], names[second[most]]],
    }


def _correlation(x: Matrix) -> Matrix:
    centred = x - x.mean(axis=0)
    spread = np.linalg.norm(centred, axis=0)
    standard = centred / np.where(spread > 1e-9, spread, np.inf)
    return np.asarray(standard.T @ standard)


def _models(
    seen: tuple[Matrix, Any], held: tuple[Matrix, Any], made: tuple[Matrix, Any], seed: int
) -> dict[str, Any]:
    labels = [_values(part[1]) for part in (seen, held, made)]
    numbers = all(y.dtype.kind == "f" for y in labels)
    regression = numbers and max(len(np.unique(y)) for y in labels) > _MOST_CATEGORIES
    if regression and any(np.isnan(y).any() for y in labels):
        return {}
    if not regression:
        labels = [_texts(part[1]) for part in (seen, held, made)]
    found: dict[str, Any] = {"score": "R2" if regression else "balanced accuracy"}
    for name, make in (_REGRESSORS if regression else _CLASSIFIERS).items():
        scores = {}
        for kind, x, y in (("real", seen[0], labels[0]), ("synthetic", made[0], labels[2])):
            if not regression and len(np.unique(y)) < 2:
                continue
            model = make(seed, len(np.unique(y))).fit(x, y)
            guess = model.predict(held[0])
            scores[kind] = (
                float(model.score(held[0], labels[1]))
                if regression
                else float(balanced_accuracy_score(labels[1], guess))
            )
        found[name] = scores
    return found


def _nearest(seen: Matrix, held: Matrix, made: Matrix) -> dict[str, Any]:
    index = NearestNeighbors(n_neighbors=1).fit(seen)
    apart = {
        "held_out": index.kneighbors(held)[0][:, 0],
        "synthetic": index.kneighbors(made)[0][:, 0],
    }
    near = float(np.quantile(apart["held_out"], 0.05))
    return {
        name: {"median": float(np.median(d)), "quantile_05": float(np.quantile(d, 0.05))}
        for name, d in apart.items()
    } | {"share_nearer": float((apart["synthetic"] < near).mean())}
