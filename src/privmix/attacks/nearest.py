"""Membership by the distance to the nearest synthetic record."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.neighbors import NearestNeighbors

from privmix import _validate


def nearest_record_scores(features: ArrayLike, synthetic: ArrayLike) -> NDArray[np.float64]:
    """Score records by minus the Euclidean distance to the nearest synthetic record.

    The attacker knows the candidate records and the synthetic ones. Columns count as they are: scale
    those of different units first, by public constants.

    Args:
        features: (count, d) candidates.
        synthetic: (records, d), drawn by ``privmix.synthesize``, say, as features.

    """
    candidates, made = (np.asarray(one, dtype=np.float64) for one in (features, synthetic))
    if made.ndim != 2 or candidates.ndim != 2 or made.shape[1] != candidates.shape[1]:
        _validate.fail("synthetic", f"records as wide as {candidates.shape}", made.shape)
    index = NearestNeighbors(n_neighbors=1).fit(made)
    return np.asarray(-index.kneighbors(candidates)[0][:, 0])
