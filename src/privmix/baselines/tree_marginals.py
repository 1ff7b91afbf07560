"""Noisy one- and two-way marginals of a table along a tree of columns, and records drawn from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.accounting import bounded_range_from
from privmix.baselines.base import BaselineRelease, Budget, Method, Records, noisy, one_hot
from privmix.noise import exponential_choice
from privmix.rng import MasterKey

Codes = NDArray[np.int64]
Edges = list[tuple[int, int]]
_UNITS = 1 << 20  # points of a count in the distances from independence


@dataclass(frozen=True)
class TreeMarginals(Method):
    """Tables of codes: counts of each column, and of pairs of columns along a tree that is chosen first.

    Records are codes: column j has integers from 0 to ``sizes[j]`` - 1, and the class is one more column, the
    root of the tree. Three parts that each take a third of the squared GDP parameter, under
    ``add_or_remove_one``, as one Gaussian mechanism:

    1. the counts of all columns: a record changes one count of each by one;
    2. the tree's edges, one after the other, by the exponential mechanism on how far a pair of columns is
       from independence with the shares published: integers that a record changes by at most 2 counts,
       each choice accounted for by :func:`privmix.accounting.bounded_range_from`;
    3. the counts of the pairs.

    Each column is drawn given its parent from their noisy table, shrunk to what its own counts say.
    After MST (McKenna, Miklau & Sheldon 2021), whose graphical model, which reconciles the counts, is left out.

    Attributes:
        num_classes: Number of classes.
        num_records: Public number of records, of which as many are drawn.
        sizes: Number of codes of each column, a public fact.

    """

    num_classes: int
    num_records: int
    sizes: tuple[int, ...]

    def _publish(
        self, features: NDArray[np.float64], classes: NDArray[np.int64], budget: Budget
    ) -> BaselineRelease:
        """Publish counts and a tree."""
        codes = np.column_stack([classes, self._checked(features)])
        sizes = [self.num_classes, *self.sizes]
        event, epsilon = budget.gaussian("add_or_remove_one")
        key = budget.make_key(event)
        multiplier = event.noise_multiplier * math.sqrt(3.0)  # of each part: 3 / (3 s^2) = 1 / s^2
        ones = self._one_way(codes, sizes, multiplier, key)
        shares = [_shares(one) for one in ones]
        edges = _tree(codes, shares, sizes, 1 / multiplier, key)
        pairs = _two_way(codes, edges, sizes, multiplier, key)

        def draw(num_records: int | None, seed: int) -> Records:
            count = self.num_records if num_records is None else num_records
            noise = multiplier * math.sqrt(len(edges))
            drawn = _drawn(shares, edges, pairs, noise, count, seed)
            return drawn[:, 1:].astype(np.float32), one_hot(drawn[:, 0], self.num_classes)

        statistics = {f"column {j}": one for j, one in enumerate(ones)}
        statistics |= {f"columns {a}, {b}": pair for (a, b), pair in zip(edges, pairs, strict=True)}
        return budget.release(event, epsilon, draw, statistics)

    def _checked(self, features: NDArray[np.float64]) -> Codes:
        columns, listed = features.shape[1], isinstance(self.sizes, tuple | list)
        if not listed or len(self.sizes) != columns:
            found = len(self.sizes) if listed else type(self.sizes).__name__
            _validate.fail("sizes", f"{columns} numbers, one a column", found)
        for size in self.sizes:
            _validate.integer("sizes", size, at_least=1)
        codes = features.astype(np.int64)
        within = (codes == features) & (codes >= 0) & (codes < np.array(self.sizes))
        if not within.all():
            _validate.fail("x", "integers from 0 to the column's size - 1", "something else")
        return codes

    def _one_way(
        self, codes: Codes, sizes: list[int], multiplier: float, key: MasterKey
    ) -> list[NDArray[np.float64]]:
        counts = [np.bincount(codes[:, j], minlength=size) for j, size in enumerate(sizes)]
        # One entry of each column's counts moves by one.
        found = noisy(np.concatenate(counts), math.sqrt(len(sizes)), multiplier, key, "columns")
        return np.split(found, np.cumsum(sizes)[:-1])


def _two_way(
    codes: Codes, edges: Edges, sizes: list[int], multiplier: float, key: MasterKey
) -> list[NDArray[np.float64]]:
    counts = [_pair(codes, a, b, sizes) for a, b in edges]
    flat = np.concatenate([pair.ravel() for pair in counts])
    found = noisy(flat, math.sqrt(len(edges)), multiplier, key, "pairs")
    parts = np.split(found, np.cumsum([pair.size for pair in counts])[:-1])
    return [part.reshape(pair.shape) for part, pair in zip(parts, counts, strict=True)]


def _shares(counts: NDArray[Any]) -> NDArray[np.float64]:
    kept = np.maximum(counts, 0.0) + 1e-9
    return np.asarray(kept / kept.sum())


def _pair(codes: Codes, a: int, b: int, sizes: list[int]) -> Codes:
    flat = np.bincount(codes[:, a] * sizes[b] + codes[:, b], minlength=sizes[a] * sizes[b])
    return flat.reshape(sizes[a], sizes[b])


def _distance(pair: Codes, count: int, one: NDArray[np.float64], other: NDArray[np.float64]) -> int:
    """Return the sum of |pair - count * one other'| in points, which a record changes by 2 counts at most.

    The published shares become integers that add up to no more than a count's points: one from its own
    cell, and as many again from what it adds to the expected counts.
    """
    expected = np.floor(np.outer(one, other) * (_UNITS * (1 - 1e-9))).astype(np.int64)
    assert expected.sum() <= _UNITS
    return int(np.abs(pair * _UNITS - count * expected).sum())


def _tree(
    codes: Codes,
    shares: list[NDArray[np.float64]],
    sizes: list[int],
    gdp_mu: float,
    key: MasterKey,
) -> Edges:
    """Grow a tree from column 0 by one choice an edge; all choices together are ``gdp_mu``-GDP."""
    width = len(sizes)
    loss_range = bounded_range_from(gdp_mu / math.sqrt(width - 1))
    # exp(r u / (2 D)) for utilities that move by at most D = 2 counts either way: a range of r.
    rate = Fraction(int(loss_range * 2**32), 2**32 * 2 * 2 * _UNITS)
    scores = {
        (a, b): _distance(_pair(codes, a, b, sizes), len(codes), shares[a], shares[b])
        for a in range(width)
        for b in range(width)
        if a != b
    }
    reached: list[int] = [0]
    edges: Edges = []
    while len(reached) < width:
        choices = [(a, b) for a in reached for b in range(width) if b not in reached]
        values = [scores[choice] for choice in choices]
        edge = choices[exponential_choice(values, rate, key.stream("edge", block=len(edges)))]
        edges.append(edge)
        reached.append(edge[1])
    return edges


def _drawn(
    shares: list[NDArray[np.float64]],
    edges: Edges,
    pairs: list[NDArray[np.float64]],
    noise: float,
    count: int,
    seed: int,
) -> Codes:
    random = np.random.default_rng(seed)
    drawn = np.zeros((count, len(shares)), dtype=np.int64)
    drawn[:, 0] = random.choice(len(shares[0]), count, p=shares[0])
    for (parent, child), pair in zip(edges, pairs, strict=True):
        size = len(shares[child])
        # Rows that noise outweighs are left to the column's own counts.
        given = np.maximum(pair, 0.0) + noise * math.sqrt(size) * shares[child]
        given /= given.sum(axis=1, keepdims=True)
        steps = given.cumsum(axis=1)[drawn[:, parent]]
        places = (random.random((count, 1)) > steps).sum(axis=1)
        drawn[:, child] = np.minimum(places, size - 1)
    return drawn
