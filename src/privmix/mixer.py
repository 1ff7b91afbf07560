"""Sums and noise: the rows of one table of mixtures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from threading import Lock
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privmix.clipping import FixedPoint
from privmix.mechanism import MixtureConfig, ReleaseConfig
from privmix.mixing import BlockSums, divide
from privmix.noise import rounded_gaussian
from privmix.records.bounded import Records
from privmix.rng import KeyStream, MasterKey
from privmix.sampling import (
    WEIGHT_SCALE,
    Choices,
    Inclusions,
    RowBlock,
    balanced_eligibility,
    bernoulli_inclusions,
    dirichlet_weights,
    random_eligibility,
    split_inclusions,
    transposed_choices,
    uniform_inclusions,
)


class Rows(NamedTuple):
    """A run of published rows: features, and class indices or label weights or neither.

    Rows of a round (``adaptive``) also have the public ``weights`` of the round, one vector a class.
    """

    features: NDArray[np.float32]
    labels: NDArray[np.int64] | None = None
    label_weights: NDArray[np.float32] | None = None
    weights: NDArray[np.float32] | None = None


_NOISE_AT_ONCE = 1 << 16  # draws that stay in the cache until they are added


class Mixer:
    """Makes the rows of one table of mixtures, block by block, under one master key.

    Records count in shards, fixed runs of them: the sums of a block are the sums over shards, in any
    order and wherever they are made. The same key, mechanism and records give the same bits.

    Args:
        config: The table's mechanism.
        records: The private records.
        key: The release's key.
        table: Number of the table in the release; each has its own streams.
        sums: What adds records up.

    """

    def __init__(
        self,
        config: MixtureConfig,
        records: Records,
        key: MasterKey,
        table: int = 0,
        sums: type[BlockSums] = BlockSums,
    ) -> None:
        records.check_sampled()
        self.config, self._records, self._key, self._table = config, records, key, table
        self._new_sums = sums
        self._eligible = self._draw_eligibility()
        self._lock = Lock()
        self._split: dict[int, list[Inclusions]] = {}  # uniform: of blocks in the making
        # What follows from a shard is kept for all of them only where their features are as well.
        kept = None if records.in_memory else 1
        self._classes = lru_cache(kept)(self._split_by_class)
        self._choices = lru_cache(kept)(self._draw_choices)

    @property
    def shards(self) -> list[tuple[int, int]]:
        """The stretches of records (start, stop) that sums are made of."""
        count, size = self._records.count, self.config.shard_records
        return [(start, min(start + size, count)) for start in range(0, count, size)]

    def _stream(self, purpose: str, *, shard: int = 0, block: int = 0) -> KeyStream:
        return self._key.stream(f"table={self._table}/{purpose}", shard=shard, block=block)

    def _draw_eligibility(self) -> NDArray[np.bool_] | None:
        config = self.config
        if config.class_prob is None:
            return None
        if isinstance(config.class_prob, tuple):
            return np.hstack([self._random_class(k, p) for k, p in enumerate(config.class_prob)])
        stream, shape = self._stream("eligibility"), (config.num_mixtures, config.num_classes)
        if config.eligible_rows is not None:
            return balanced_eligibility(stream, config.eligible_rows, *shape)
        return random_eligibility(
            stream, self._stream("eligibility-extra"), config.class_prob, *shape
        )

    def _random_class(self, class_index: int, class_prob: float) -> NDArray[np.bool_]:
        """Toss one class's coins by themselves: (num_mixtures, 1)."""
        name = f"class={class_index}/eligibility"
        streams = self._stream(name), self._stream(f"{name}-extra")
        return random_eligibility(*streams, class_prob, self.config.num_mixtures, 1)

    def _split_by_class(self, shard: int) -> list[NDArray[np.int32]]:
        """Return the places of each class's records in a shard, in their order in the input."""
        labels = self._records.labels[slice(*self.shards[shard])]
        order = np.argsort(labels, kind="stable").astype(np.int32)
        bounds = np.searchsorted(labels[order], np.arange(self.config.num_classes + 1))
        return [order[a:b] for a, b in pairwise(bounds)]

    def _draw_choices(self, shard: int) -> Choices:
        config, (start, stop) = self.config, self.shards[shard]
        assert config.rows_per_record is not None
        stream = self._stream("choice", shard=shard)
        rows = config.rows_per_record
        return transposed_choices(stream, rows, config.num_mixtures, stop - start)

    def new_sums(self, block: RowBlock) -> BlockSums:
        """Return sums of nothing, for a block to be added to."""
        config = self.config
        width = config.num_classes if config.labels == "mixed" else 0
        weighted = config.weight_clip is not None
        return self._new_sums(block.num_rows, config.num_features, width, weighted=weighted)

    def sums(self, block: RowBlock, shards: Iterable[int] | None = None) -> BlockSums:
        """Return the exact integer sums of a block, over all shards or some. Private.

        Two inputs that differ by the last record differ, under the same key, by that record alone
        in the rows that include it.
        """
        sums = self.new_sums(block)
        for shard in range(len(self.shards)) if shards is None else shards:
            self.add(block, shard, self._records.read(*self.shards[shard]), sums)
        self._split.pop(block.index, None)
        return sums

    def add(self, block: RowBlock, shard: int, values: NDArray[np.int16], sums: BlockSums) -> None:
        """Add to a block's sums a shard's records, whose features are ``values``."""
        labels, one = self._records.labels[slice(*self.shards[shard])], self._records.label_one
        for rows, members, inclusions in self._inclusions(block, shard):
            if inclusions is None:
                sums.add_all(values, labels, one, rows, members)
            else:
                sums.add(values, labels, one, rows, inclusions)

    def _inclusions(
        self, block: RowBlock, shard: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32], Inclusions | None]]:
        """Yield (rows of the block, a pool of a shard's records, who of it enters these rows).

        No inclusions stand for the whole pool in every row.
        """
        config, everywhere = self.config, np.arange(block.num_rows)
        start, stop = self.shards[shard]
        everybody = np.arange(stop - start, dtype=np.int32)
        if config.design == "transposed":
            with self._lock:
                choices = self._choices(shard)
            yield everywhere, everybody, choices.of_block(block)
        elif config.design == "uniform":
            yield everywhere, everybody, self._uniform(block)[shard]
        elif self._eligible is not None:
            for k, pool in enumerate(self._classes(shard)):
                rows = np.flatnonzero(self._eligible[block.start : block.stop, k])
                if rows.size and pool.size:
                    prob = config.inclusion_prob_of(k)
                    inclusions = self._bernoulli(block, shard, rows.size, pool, f"class={k}/", prob)
                    yield rows, pool, inclusions
        else:
            pool = everybody
            if block.class_index is not None:
                pool = self._classes(shard)[block.class_index]
            prob = config.inclusion_prob
            yield everywhere, pool, self._bernoulli(block, shard, block.num_rows, pool, "", prob)

    def _bernoulli(
        self,
        block: RowBlock,
        shard: int,
        num_rows: int,
        pool: NDArray[np.int32],
        name: str,
        prob: float,
    ) -> Inclusions | None:
        signed = self.config.design == "signed"
        if prob == 1 and not signed:
            return None
        inclusions = bernoulli_inclusions(
            self._stream(f"{name}inclusion", shard=shard, block=block.index),
            self._stream(f"{name}inclusion-extra", shard=shard, block=block.index),
            prob,
            num_rows,
            pool.size,
            signed=signed,
        )
        start, stop = self.shards[shard]
        if pool.size == stop - start:  # everybody, in order
            return inclusions
        return inclusions._replace(records=pool[inclusions.records])

    def _uniform(self, block: RowBlock) -> list[Inclusions]:
        """Draw a block's inclusions, once, and divide them by shards."""
        shards = self._split.get(block.index)
        if shards is None:
            config, size = self.config, round(self.config.mix_size)
            stream = self._stream("inclusion", block=block.index)
            drawn = uniform_inclusions(stream, size, block.num_rows, config.num_records)
            if config.weight_alpha is not None and config.weight_clip is not None:
                stream = self._stream("weight", block=block.index)
                weights = dirichlet_weights(
                    stream, config.weight_alpha, config.weight_clip, block.num_rows, size
                )
                drawn = drawn._replace(weights=weights)
            shards = split_inclusions(drawn, config.shard_records, len(self.shards))
            self._split[block.index] = shards
        return shards

    def rows(self, block: RowBlock) -> Rows:
        """Return the published rows of a block: each value is a function of one noisy integer."""
        return self.publish(block, self.sums(block))

    def publish(self, block: RowBlock, sums: BlockSums) -> Rows:
        """Add the noise to the whole sums of a block, and divide."""
        self._split.pop(block.index, None)
        published = self._publish(sums.features, self._records.feature_grid, block, "feature")
        if self.config.labels == "mixed":
            mixed = self._publish(sums.labels, self._records.label_grid, block, "label")
            return Rows(published, label_weights=mixed)
        if block.class_index is None:
            return Rows(published)
        return Rows(published, labels=np.full(block.num_rows, block.class_index, dtype=np.int64))

    def _publish(
        self,
        sums: NDArray[np.int64] | NDArray[np.int32],
        grid: FixedPoint,
        block: RowBlock,
        side: Literal["feature", "label"],
    ) -> NDArray[np.float32]:
        weighted = self.config.weight_clip is not None
        unit = WEIGHT_SCALE if weighted else 1
        stddev = self.config.noise_stddev(grid.sensitivity * unit, side)
        stream = self._stream(f"{side}-noise", block=block.index)
        extra = self._stream(f"{side}-noise-extra", block=block.index)
        published = np.empty(sums.shape, dtype=np.float32)
        step = max(1, _NOISE_AT_ONCE // sums.shape[1])
        room = np.empty(min(step, len(sums)) * sums.shape[1], dtype=np.int64)
        for start in range(0, len(sums), step):
            some = sums[start : start + step]
            noise = rounded_gaussian(stream, extra, stddev, some.size, out=room[: some.size])
            divisor = grid.scale * unit * self.config.divisor
            divide(some, noise.reshape(some.shape), divisor, published[start : start + step])
        return published


def make_mixers(
    mechanism: ReleaseConfig,
    records: Records,
    key: MasterKey,
    sums: type[BlockSums] = BlockSums,
) -> list[Mixer]:
    """Return the mixers of a release's tables of mixtures; see :class:`Mixer`."""
    return [
        Mixer(config, records, key, table, sums)
        for table, config in enumerate(mechanism.components)
        if isinstance(config, MixtureConfig)
    ]
