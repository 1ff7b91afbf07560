"""Exact integer sums of a round: every record, weighted by its residuals. Private.

Features are integers of a bounded norm, and so are the public weights, on a grid of their own: a score
is a sum of products of integers whose every partial sum stays below 2^53, exact in doubles in any
order, with any companions, by any number of threads. What is rounded is computed record by record:
the softmax, or another link, by one sequential routine, and the residual by ``clipping``, which truncates it to the grid
and checks its norm. The sum over records of residual times features is again exact. So removing a
record changes a sum by that record's own integers and by nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.compiling import kernel
from privmix.mechanism import Link, ResidualConfig
from privmix.mixer import Rows
from privmix.mixing import divide
from privmix.noise import rounded_gaussian
from privmix.records.bounded import Records, batch_records
from privmix.rng import MasterKey
from privmix.rounds.public_model import Weights, weight_exponent
from privmix.running.resources import one_blas_thread

Sums = NDArray[np.int64]
_LINK_NUMBERS: dict[Link, int] = {"softmax": 0, "sigmoid": 1, "identity": 2}


class Rounds:
    """Makes the rows of one round after another, under one master key.

    The same key, mechanism, records and weights give the same bits.

    Args:
        config: The rounds' mechanism.
        records: The private records.
        key: The release's key.
        table: Number of the table in the release.

    """

    def __init__(
        self, config: ResidualConfig, records: Records, key: MasterKey, table: int = 1
    ) -> None:
        records.check_sampled()
        self.config, self._records, self._key, self._table = config, records, key, table

    def rows(self, number: int, weights: Weights, threads: int = 1) -> Rows:
        """Return the published rows of a round: each value is a function of one noisy integer."""
        return self.publish(number, weights, self.sums(weights, threads))

    def sums(self, weights: Weights, threads: int = 1) -> Sums:
        """Return the exact integer sums of a round, (K, d). Private."""
        total = np.zeros(weights.shape, dtype=np.int64)
        size, count = self.config.shard_records, self._records.count
        shards = [(start, min(start + size, count)) for start in range(0, count, size)]
        with ThreadPoolExecutor(threads) as pool, one_blas_thread():

            def load(shard: tuple[int, int]) -> tuple[NDArray[np.int16], list[Future[None]]]:
                values, tasks = self._records.load(*shard)
                return values, [pool.submit(task) for task in tasks]

            following = load(shards[0]) if shards else None
            for number, (start, stop) in enumerate(shards):
                assert following is not None
                values, reading = following
                for task in reading:
                    task.result()
                if number + 1 < len(shards):
                    following = load(shards[number + 1])
                add = partial(self._add, values, self._records.labels[start:stop], weights)
                for summed in pool.map(add, self._shares(stop - start, threads)):
                    total += summed
        return total

    def _shares(self, count: int, threads: int) -> list[list[slice]]:
        """Divide the stretches of a shard among threads."""
        size = batch_records(self.config.num_features)
        stretches = [slice(start, start + size) for start in range(0, count, size)]
        return [share for i in range(threads) if (share := stretches[i::threads])]

    def _add(
        self,
        values: NDArray[np.int16],
        labels: NDArray[Any],
        weights: Weights,
        stretches: Sequence[slice],
    ) -> Sums:
        total = np.zeros(weights.shape, dtype=np.int64)
        for stretch in stretches:
            add_residuals(
                values[stretch],
                labels[stretch],
                weights,
                self._score_unit,
                self.config,
                total,
                1 / self._records.label_grid.scale,
            )
        return total

    @property
    def _score_unit(self) -> float:
        """What an integer feature counts in clip norms."""
        return 1 / self._records.feature_grid.sensitivity

    def publish(self, number: int, weights: Weights, sums: Sums) -> Rows:
        """Add the noise to the whole sums of a round, and divide."""
        grid, config = self._records.feature_grid, self.config
        name = f"table={self._table}/feature-noise"
        noise = rounded_gaussian(
            self._key.stream(name, block=number),
            self._key.stream(f"{name}-extra", block=number),
            config.noise_stddev(grid.sensitivity),
            sums.size,
        )
        published = np.empty(sums.shape, dtype=np.float32)
        divisor = grid.scale * config.weight_unit * config.divisor
        divide(sums, noise.reshape(sums.shape), divisor, published)
        labels = np.arange(config.num_classes, dtype=np.int64)
        return Rows(published, labels=labels, weights=weights)


def add_residuals(
    values: NDArray[np.int16],
    labels: NDArray[Any],
    weights: Weights,
    unit: float,
    config: ResidualConfig,
    total: Sums,
    label_unit: float = 1.0,
) -> None:
    """Add to ``total`` (K, d) the integer residuals of records times their integer features.

    Args:
        values: (records, d), at most 2^14 of them.
        labels: (records,) class indices; a record of class -1 adds nothing. Of other targets: (records,
            K) integers; a record that takes no part has features of zero, and adds nothing either.
        weights: (K, d) public weights for features in clip norms.
        unit: What an integer feature counts in clip norms.
        config: The rounds' mechanism.
        total: Changed in place.
        label_unit: What an integer of label vectors counts.

    """
    features = values.astype(np.float64)
    exponent = weight_exponent(weights)
    # |w| <= 2^23 sqrt(d) and |x| <= 2^15, so that |w| |x| < 2^53 for d up to 2^30.
    integers = np.ldexp(weights.astype(np.float64), exponent)
    scores = features @ integers.T
    _minus_link(scores, math.ldexp(unit, -exponent), _LINK_NUMBERS[config.link])
    _compare(scores, labels, label_unit)
    # Here, whatever the link, a record's sensitivity is bounded: a residual of at most C times features
    # of at most the clip norm.
    residuals = np.empty(scores.shape, dtype=np.int16)
    config.residual_grid.quantise(scores, residuals)
    # 2^14 products of at most 2^15 2^15 each: exact.
    total += (residuals.T.astype(np.float64) @ features).astype(np.int64)


def _compare(scores: NDArray[np.float64], labels: NDArray[Any], label_unit: float) -> None:
    """Add labels to what is minus the link of scores, number by number: residuals."""
    if labels.ndim > 1:
        scores += labels * label_unit
        return
    scores[labels < 0] = 0.0
    known = np.flatnonzero(labels >= 0)
    scores[known, labels[known]] += 1.0


@kernel(nogil=True)
def _minus_link(
    scores: NDArray[np.float64], unit: float, link: int
) -> None:  # pragma: no cover - compiled
    """Turn scores, in ``unit``, into minus their softmax or another link, one record after another."""
    for i in range(scores.shape[0]):
        own = scores[i]
        if link > 0:
            for k in range(own.size):
                score = own[k] * unit
                if link == 1:
                    small = math.exp(-abs(score))
                    score = (1.0 if score > 0 else small) / (1.0 + small)
                own[k] = -score
            continue
        top = own[0]
        for value in own:
            top = max(top, value)
        mass = 0.0
        for k in range(own.size):
            own[k] = math.exp((own[k] - top) * unit)
            mass += own[k]
        for k in range(own.size):
            own[k] = -own[k] / mass
