"""Membership by distances to synthetic records."""

from __future__ import annotations

import numpy as np
import pytest

from privmix import InvalidInputError
from privmix.attacks import MembershipScores, nearest_record_scores


def test_copies_among_synthetic_records_are_found(rng):
    x, other = rng.random((50, 4)), rng.random((50, 4))
    made = np.concatenate([x + 1e-6, rng.random((30, 4))])
    scores = MembershipScores(nearest_record_scores(x, made), nearest_record_scores(other, made))
    assert scores.auc == 1.0
    assert nearest_record_scores([[0.0, 0.0]], [[3.0, 4.0]]).tolist() == [-5.0]
    with pytest.raises(InvalidInputError, match="synthetic: expected records as wide as"):
        nearest_record_scores(x, made[:, :3])
