"""Exact integer sums of private records, with noise: all that a charged step learns of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privmix.noise import rounded_gaussian
from privmix.preprocess.steps import ChargedStep, RecordFacts
from privmix.records.bounded import Records

if TYPE_CHECKING:
    from privmix.rng import MasterKey

Integers = NDArray[np.int64]


def exact_sums(kind: str, records: Records, num_classes: int) -> Integers:
    """Sum over records, exactly. Private. See ``steps.Statistic`` for the kinds.

    Removing a record removes its own summand and changes nothing else.
    """
    records.check_sampled()
    width = records.num_features
    total = np.zeros(_SHAPES[kind](num_classes, width), dtype=np.int64)
    for features, labels in _blocks(records):
        _SUMS[kind](features, labels, total)
    if kind == "second_moments":
        return np.asarray(total[np.triu_indices(width)])
    return total


def noisy_statistics(
    step: ChargedStep, facts: RecordFacts, records: Records, key: MasterKey, number: int
) -> dict[str, Integers]:
    """Return what step ``number`` of a release publishes: exact sums plus rounded noise."""
    found = {}
    for part, stddev in zip(step.statistics(facts), step.stddevs(facts), strict=True):
        sums = exact_sums(part.kind, records, facts.num_classes)
        name = f"preprocessing={number}/{part.kind}"
        noise = rounded_gaussian(
            key.stream(f"{name}-noise"), key.stream(f"{name}-noise-extra"), stddev, sums.size
        )
        found[part.kind] = sums + noise.reshape(sums.shape)
    return found


def _blocks(records: Records) -> Iterator[tuple[NDArray[np.int16], NDArray[np.int32]]]:
    for start in range(0, records.count, records.stretch_records):
        stop = min(start + records.stretch_records, records.count)
        yield records.read(start, stop), records.labels[start:stop]


def _add_features(features: NDArray[np.int16], labels: NDArray[np.int32], total: Integers) -> None:
    total += features.sum(axis=0, dtype=np.int64)


def _add_by_class(features: NDArray[np.int16], labels: NDArray[np.int32], total: Integers) -> None:
    order = np.argsort(labels, kind="stable")
    present, starts = np.unique(labels[order], return_index=True)
    sums = np.add.reduceat(features[order], starts, axis=0, dtype=np.int64)
    total[present[present >= 0]] += sums[present >= 0]


def _add_squares(features: NDArray[np.int16], labels: NDArray[np.int32], total: Integers) -> None:
    total += np.square(features, dtype=np.int64).sum(axis=0)


def _add_counts(features: NDArray[np.int16], labels: NDArray[np.int32], total: Integers) -> None:
    total += np.bincount(labels[labels >= 0], minlength=len(total))


def _add_products(features: NDArray[np.int16], labels: NDArray[np.int32], total: Integers) -> None:
    # Integers in doubles: a block's sums stay below 2^53, so that any order of additions is exact.
    block = features.astype(np.float64)
    total += (block.T @ block).astype(np.int64)


_Add = Callable[[NDArray[np.int16], NDArray[np.int32], Integers], None]
_SUMS: dict[str, _Add] = {
    "feature_sums": _add_features,
    "class_sums": _add_by_class,
    "square_sums": _add_squares,
    "class_counts": _add_counts,
    "second_moments": _add_products,
}
_SHAPES: dict[str, Callable[[int, int], tuple[int, ...]]] = {
    "feature_sums": lambda k, d: (d,),
    "class_sums": lambda k, d: (k, d),
    "square_sums": lambda k, d: (d,),
    "class_counts": lambda k, d: (k,),
    "second_moments": lambda k, d: (d, d),
}
