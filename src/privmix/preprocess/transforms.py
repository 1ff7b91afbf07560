"""What steps do to records, record by record: no record changes a bit of what is made of another."""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privmix.compiling import kernel

Matrix = NDArray[np.float64]


@kernel(nogil=True)
def _project_rows(rows: Matrix, columns: Matrix, out: Matrix) -> None:  # pragma: no cover
    """Add up in a fixed order for each output: a matrix product's order depends on the batch."""
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            value = rows[i, j]
            for r in range(columns.shape[1]):
                out[i, r] += value * columns[j, r]


def with_constant(features: Matrix, share: float, clip_norm: float) -> Matrix:
    """Return (rows, d + 1) rows scaled by sqrt(1 - share), and a last column sqrt(share) clip_norm."""
    constant = np.full((len(features), 1), math.sqrt(share) * clip_norm)
    return np.hstack([math.sqrt(1 - share) * features, constant])


def projected(features: Matrix, directions: Matrix) -> Matrix:
    """Return (rows, r) products with the (r, d) ``directions``."""
    out = np.zeros((len(features), len(directions)))
    _project_rows(np.ascontiguousarray(features), np.ascontiguousarray(directions.T), out)
    return out


@lru_cache(maxsize=4)
def random_signs(seed: int, num_directions: int, num_features: int) -> Matrix:
    """Return the (num_directions, num_features) matrix of a random projection, read-only."""
    from privmix.rng import KeyStream

    name = f"privmix random projection {seed} {num_directions} {num_features}"
    count = num_directions * num_features
    words = KeyStream(hashlib.sha256(name.encode()).digest()).words(math.ceil(count / 64))
    bits = np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")[:count]
    signs = (1.0 - 2.0 * bits) / math.sqrt(num_directions)
    matrix: Matrix = np.asarray(signs.reshape(num_directions, num_features), dtype=np.float64)
    matrix.flags.writeable = False
    return matrix
