"""A marginal-based rival for tables: noisy one- and two-way marginals along a tree, then records.

It follows MST (McKenna, Miklau & Sheldon 2021, Winning the NIST Contest): Gaussian one-way marginals; a
spanning tree of columns chosen edge by edge by the exponential mechanism, by how far a pair's counts
are from independence; Gaussian two-way marginals along it. Unlike theirs, no graphical model reconciles the
marginals: on a tree each child is drawn given its parent from their own noisy table, shrunk to what the
one-way marginals say. Numbers are cut into 16 bins of equal width between public bounds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.accounting import gdp_mu_from

Codes = NDArray[np.int64]
NUM_BINS = 16


def draw_records(
    codes: Codes, sizes: list[int], epsilon: float, delta: float, count: int, seed: int
) -> Codes:
    """Draw (count, columns) synthetic codes from (records, columns) codes below ``sizes``.

    A third of the squared budget each for one-way marginals, the choice of the tree, and two-way marginals.
    The zCDP of the choice, e^2 / 8 a step, is bounded by that of a Gaussian step of the same cost.
    """
    random = np.random.default_rng(seed)
    share = gdp_mu_from(epsilon, delta) ** 2 / 3
    width = len(sizes)
    noise = math.sqrt(width / share)
    ones = [
        np.bincount(codes[:, j], minlength=size) + noise * random.standard_normal(size)
        for j, size in enumerate(sizes)
    ]
    shares = [_shares(one) for one in ones]
    edges = _tree(codes, shares, sizes, math.sqrt(share), random)
    noise = math.sqrt(len(edges) / share)
    drawn = np.zeros((count, width), dtype=np.int64)
    drawn[:, 0] = random.choice(sizes[0], count, p=shares[0])
    for parent, child in edges:
        table = _pair(codes, parent, child, sizes) + noise * random.standard_normal(
            (sizes[parent], sizes[child])
        )
        # Rows that noise outweighs are left to the one-way marginal.
        prior = noise * math.sqrt(sizes[child]) * shares[child]
        given = np.maximum(table, 0.0) + prior
        given /= given.sum(axis=1, keepdims=True)
        steps = given.cumsum(axis=1)[drawn[:, parent]]
        places = (random.random((count, 1)) > steps).sum(axis=1)
        drawn[:, child] = np.minimum(places, sizes[child] - 1)
    return drawn


def _shares(counts: NDArray[Any]) -> NDArray[np.float64]:
    kept = np.maximum(counts, 0.0) + 1e-9
    return np.asarray(kept / kept.sum())


def _pair(codes: Codes, a: int, b: int, sizes: list[int]) -> NDArray[np.int64]:
    flat = np.bincount(codes[:, a] * sizes[b] + codes[:, b], minlength=sizes[a] * sizes[b])
    return flat.reshape(sizes[a], sizes[b])


def _tree(
    codes: Codes,
    shares: list[NDArray[np.float64]],
    sizes: list[int],
    gdp_mu: float,
    random: np.random.Generator,
) -> list[tuple[int, int]]:
    """Grow a tree from column 0 by noisy distances from independence; a record changes one by at most 2."""
    width, count = len(sizes), len(codes)
    scores = np.full((width, width), -np.inf)
    for a in range(width):
        for b in range(width):
            if a != b:
                expected = count * np.outer(shares[a], shares[b])
                scores[a, b] = np.abs(_pair(codes, a, b, sizes) - expected).sum()
    # Exponential mechanism: pure epsilon e has zCDP e^2 / 8; mu^2 / 2 is a Gaussian's.
    step = math.sqrt(8 * (gdp_mu**2 / 2) / (width - 1))
    reached, edges = [0], []
    while len(reached) < width:
        open_ = [j for j in range(width) if j not in reached]
        choices = [(a, b) for a in reached for b in open_]
        values = np.array([scores[a, b] for a, b in choices])
        edge = choices[int((values * step / 4 + random.gumbel(size=len(values))).argmax())]
        edges.append(edge)
        reached.append(edge[1])
    return edges
