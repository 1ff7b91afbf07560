"""Labels are matched by value, each by itself."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from privmix import InvalidInputError, Schema, bound_records
from privmix.inputs.labels import match_labels, refuse_missing


@pytest.mark.parametrize(
    ("classes", "labels", "indices"),
    [
        ([-1, 1], [1, -1, 1], [1, 0, 1]),
        ([1, 2, 3], np.array([3, 1], dtype=np.uint8), [2, 0]),
        ([0, 1], [True, False], [1, 0]),
        ([0, 1], [1.0, 0.0], [1, 0]),
        (["b", "a"], ["a", "b"], [1, 0]),
        (["b", "a"], np.array(["a", "b"], dtype=object), [1, 0]),
        ([5, 6], np.array([6, 5], dtype=object), [1, 0]),
    ],
)
def test_labels_are_matched_by_value(classes, labels, indices):
    assert match_labels(labels, classes).tolist() == indices


@pytest.mark.parametrize(
    ("classes", "labels"),
    [
        ([0, 1], ["0", "1"]),
        (["0", "1"], [0, 1]),
        ([0, 1], [float("nan")]),
        ([0, 1], [0.5]),
        (["a", "b"], np.array([None, "a"], dtype=object)),
        (["a", "b"], np.array([["a"], 1], dtype=object)),
    ],
)
def test_labels_of_another_kind_are_refused(classes, labels):
    with pytest.raises(InvalidInputError, match=r"labels\[0\]: expected one of the schema's 2"):
        match_labels(labels, classes)


@pytest.mark.parametrize("odd", ["1", "x", b"1", 1.5, None, float("nan"), 2**70, [1], True, {}])
@pytest.mark.parametrize(
    ("classes", "labels"),
    [
        ([1, 2**53 + 1], [2**53 + 1, 1, 7]),
        (["1", "a"], ["a", "1", "b", "1\0"]),
        (["1", "a"], [1, True]),
        ([0, 1], [np.int64(1), torch.tensor(0)]),
    ],
)
def test_one_label_of_a_list_changes_no_other(classes, labels, odd):
    """NumPy would find one type for all of them, the texts' if there is one text."""
    alone = [match_labels([label], classes, strict=False)[0] for label in labels]
    for made in (list, tuple):
        assert match_labels(made([*labels, odd]), classes, strict=False)[:-1].tolist() == alone


@pytest.mark.parametrize("made", [pl.Series, pa.array, lambda v: pa.chunked_array([v])])
def test_a_null_label_changes_no_other(made):
    """Of integers with a null NumPy would make floats, which lose digits."""
    found = match_labels(made([2**53 + 1, None, 1]), [1, 2**53 + 1], strict=False)
    assert found.tolist() == [1, -1, 0]


def test_large_integers_among_floats_are_refused_by_type():
    """2^53 and 2^53 + 1 are one floating-point number: which class it was cannot be told."""
    for kind, bits in ((np.float16, 11), (np.float32, 24), (np.float64, 53)):
        with pytest.raises(InvalidInputError, match=f"2.{bits} or more"):
            match_labels(np.ones(2, dtype=kind), [2**bits, 2**bits + 1])
        assert match_labels(np.ones(2, dtype=kind), [1, 2**bits - 1]).tolist() == [0, 0]
    classes = [2**53 + 1, 2**53]
    for labels in (
        np.array([2.0**53, np.nan]),
        pd.Series([2.0**53]),
        pd.Series([2.5], dtype="category"),
    ):
        with pytest.raises(InvalidInputError, match="integers or texts .* where integers of 2"):
            match_labels(labels, classes, strict=False)
    assert match_labels([2**53, 2.0**53, 2**53 + 1], classes, strict=False).tolist() == [1, -1, 0]
    assert match_labels(np.array([2.0**60, 1.0]), [1, 2], strict=False).tolist() == [-1, 0]


@pytest.mark.parametrize("missing", [False, True])
def test_categories_of_pandas_stay_integers(missing):
    classes = [2**53 + 1, 2**53]
    cells = pd.Categorical([*classes, None if missing else classes[0]], categories=classes)
    for labels in (cells, pd.Series(cells), pd.Index(cells)):
        found = match_labels(labels, classes, strict=False).tolist()
        assert found == [0, 1, -1 if missing else 0]


def test_polars_integers_beyond_64_bits_are_refused():
    wide = pl.Series("x", [2**70, 1], dtype=pl.Int128)
    schema = Schema(classes=("a", "b"), num_features=1, num_records=2, feature_clip_norm=1.0)
    words = "expected values of a type that NumPy has, got .*128"
    with pytest.raises(InvalidInputError, match=f"features: {words}"):
        bound_records(wide.to_frame(), ["a", "a"], schema)
    with pytest.raises(InvalidInputError, match=f"units: {words}"):
        bound_records(np.eye(2)[:, :1], ["a", "a"], schema, units=wide)


@pytest.mark.parametrize(
    ("labels", "position"),
    [
        ([0.0, np.nan], "1"),
        (["a", None], "1"),
        (["a", np.nan, None], "1"),
        (["a", "b", float("nan")], "2"),
        (np.array([0, np.float32("nan")], dtype=object), "1"),
        (None, ""),
        (pd.Series([1, None], dtype="Int64"), "1"),
        (pd.Series(["a", None], dtype="string"), "1"),
        (pd.Series([pd.Timestamp(0), pd.NaT]).astype(object), "1"),
        (pl.Series([1, None]), "1"),
        ([[0.0, 1.0], [np.nan, 1.0]], "1, 0"),
    ],
)
def test_missing_labels_are_refused_by_position(labels, position):
    with pytest.raises(InvalidInputError, match=rf"^labels\[{position}\]: expected a label"):
        refuse_missing(labels)


@pytest.mark.parametrize("labels", [[], [0, 1], ["a", ""], [1.0, np.inf], [True], [[0, 1]]])
def test_labels_that_are_there_are_not_missing(labels):
    refuse_missing(labels)
