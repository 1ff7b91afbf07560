from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from privmix.features.decoding import _shares, constant_weights
from privmix.features.tabular import TabularExtractor
from privmix.schema.table import FourierFeatures, TableSchema

WEIGHTS = np.full(4, 0.25)


def missing(*means: float) -> np.ndarray:
    """Return the shares of missing values of four groups of a column with two values."""
    there = (1 - np.array(means)) / 2
    return _shares(np.column_stack([there, there, means]), WEIGHTS, True)[:, -1]


def test_noise_about_nothing_leaves_nothing_missing():
    assert missing(0.02, -0.03, 0.01, -0.01).max() < 1e-9


def test_shares_average_to_that_of_all_groups():
    assert missing(0.10, -0.03, 0.03, -0.02).mean() == pytest.approx(0.02)


def test_what_is_too_much_is_taken_from_all_groups_alike():
    found = missing(0.60, 0.05, -0.05, -0.02)
    # In proportion the first would lose nearly all that is cut off, and have .535.
    assert found[1] < 0.02 and found[0] > 0.55
    assert found.mean() == pytest.approx(0.145)


def test_shares_that_need_no_cut_stay():
    assert missing(1.0, 0.3, 0.0, 0.2).tolist() == [1.0, 0.3, 0.0, 0.2]


def test_weights_make_one_of_every_row():
    columns = [
        {"name": "a", "type": "numeric", "lower": 0, "upper": 9, "num_bins": 4},
        {"name": "b", "type": "numeric", "lower": 0, "upper": 9},
        {"name": "c", "type": "categorical", "categories": ["x", "y"]},
        {"name": "d", "type": "categorical", "categories": ["x", "y"], "unknown": "zero"},
        {"name": "e", "type": "boolean"},
    ]
    rows = pd.DataFrame(
        {
            "a": [1.5, np.nan, 9.0],
            "b": [1.0, 2.0, np.nan],
            "c": ["x", None, "z"],
            "d": ["x", "z", None],
            "e": [True, False, None],
        }
    )
    for used in ([0], [2], [0, 1, 2, 3, 4]):
        table = TableSchema(columns=[columns[i] for i in used])
        weights = constant_weights(table)
        assert weights is not None
        vectors = TabularExtractor(TableSchema(columns=columns)).transform(rows)
        names = list(TabularExtractor(TableSchema(columns=columns)).get_feature_names_out())
        mine = [names.index(name) for name in TabularExtractor(table).get_feature_names_out()]
        np.testing.assert_allclose(vectors[:, mine] @ weights, 1, atol=1e-6)
    assert constant_weights(TableSchema(columns=[columns[i] for i in (1, 3, 4)])) is None
    fourier = FourierFeatures(num_features=4)
    assert constant_weights(TableSchema(columns=columns, fourier=fourier)) is None
    constant = constant_weights(TableSchema(columns=columns[1:2], constant=True))
    assert constant.tolist() == [0, 0, 1]
