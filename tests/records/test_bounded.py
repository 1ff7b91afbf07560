from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import make_schema
from privmix import InvalidInputError, Schema, bound_records
from privmix.clipping import FixedPoint
from privmix.inputs.labels import match_labels

norms = st.floats(1e-12, 1e12)


def quantise(grid: FixedPoint, vectors) -> tuple[np.ndarray, int]:
    vectors = np.array(vectors)
    integers = np.empty(vectors.shape, dtype=np.int16)
    clipped = grid.quantise(vectors, integers)
    return integers, clipped


@given(norms)
def test_the_grid_is_the_finest_that_fits(clip_norm):
    grid = FixedPoint(clip_norm)
    bound = Fraction(clip_norm)
    assert bound * Fraction(2) ** grid.exponent <= 32767
    assert bound * Fraction(2) ** (grid.exponent + 1) > 32767


def test_grid_of_a_unit_norm():
    grid = FixedPoint(1.0)
    assert (grid.exponent, grid.scale, grid.sensitivity) == (14, 16384.0, 16384.0)
    assert grid.largest_square == 2**28


@settings(deadline=None)  # the first call compiles
@given(
    norms,
    st.lists(st.lists(st.floats(-1e300, 1e300), min_size=3, max_size=3), min_size=1, max_size=5),
)
def test_every_integer_vector_is_within_the_sensitivity(clip_norm, rows):
    grid = FixedPoint(clip_norm)
    integers, _ = quantise(grid, rows)
    for row in integers.tolist():
        bound = Fraction(clip_norm) * Fraction(2) ** grid.exponent
        assert sum(v * v for v in row) <= bound**2


def test_vectors_on_the_bound_stay_within_it(rng):
    # Rounding puts about half of these a little above the norm; the exact check shrinks them.
    for clip_norm in (1.0, 1.999, 0.3, 7.0):
        x = rng.standard_normal((2000, 3))
        x *= clip_norm / np.linalg.norm(x, axis=1, keepdims=True)
        grid = FixedPoint(clip_norm)
        integers, _ = quantise(grid, x)
        assert np.square(integers.astype(np.int64)).sum(axis=1).max() <= grid.largest_square
        assert np.abs(integers / grid.scale - x).max() < 2 / grid.scale


def test_truncation_moves_toward_zero():
    grid = FixedPoint(1.0)
    integers, clipped = quantise(grid, [[0.5 / 16384, -1.9 / 16384, 0.0]])
    assert integers.tolist() == [[0, -1, 0]]
    assert clipped == 0


def test_long_vectors_are_scaled_down():
    integers, clipped = quantise(FixedPoint(1.0), [[3.0, 4.0], [1e200, 0.0], [0.0, 0.6]])
    assert integers[:2].tolist() == [[9830, 13107], [16384, 0]]
    assert clipped == 2


def test_tiny_vectors_do_not_divide_by_zero():
    integers, clipped = quantise(FixedPoint(1e-12), [[5e-324, 0.0], [0.0, 0.0]])
    assert not integers.any()
    assert clipped == 0


class TestBadRecords:
    schema = make_schema(num_features=2)
    x = np.array([[0.1, 0.2], [np.nan, 0.0], [0.3, -np.inf], [0.5, 0.5]])
    y = np.array([0, 1, 2, 7])

    def test_a_nan_is_refused_with_its_position(self):
        with pytest.raises(InvalidInputError, match=r"features\[1, 0\].*nan"):
            bound_records(self.x, [0, 1, 2, 0], self.schema)
        with pytest.raises(InvalidInputError, match=r"features\[1, 1\].*-inf"):
            bound_records(self.x[[0, 2]], [0, 1], self.schema)

    def test_an_unknown_label_is_refused_with_its_position(self):
        with pytest.raises(InvalidInputError, match=r"labels\[3\].*got 7"):
            bound_records(np.zeros((4, 2)), self.y, self.schema)

    def test_zero_replaces_bad_records_one_by_one(self):
        records = bound_records(self.x, self.y, self.schema, "zero", max_bad_share=1.0)
        assert records.num_replaced == 3
        assert records.labels.tolist() == [0, -1, -1, -1]
        assert not records.features[1:].any()
        alone = bound_records(self.x[:1], self.y[:1], self.schema)
        assert np.array_equal(records.features[:1], alone.features)

    def test_unknown_policy(self):
        with pytest.raises(InvalidInputError, match="on_bad_record.*error, zero"):
            bound_records(self.x, self.y, self.schema, "skip")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (np.zeros((2, 3)), [0, 0], r"shape \(records, 2\)"),
        (np.zeros(2), [0, 0], r"shape \(records, 2\)"),
        (np.zeros((0, 2)), [], "at least one record"),
        (np.zeros((2, 2)), [0], "one label for each of the 2 records"),
        (np.zeros((2, 2)), [[0], [1]], "labels"),
        (np.array([["a", "b"]]), [0], "real numbers"),
        (np.zeros((1, 2), dtype=complex), [0], "real numbers"),
        (np.ma.array(np.zeros((1, 2)), mask=[[True, False]]), [0], "without masked values"),
        (np.zeros((1, 2)), np.ma.array([0], mask=[True]), "without masked values"),
        ([[1.0, 2.0], [3.0]], [0, 1], "several lengths"),
        (np.zeros((1, 2)), np.array([0], dtype="datetime64[ns]"), "integers or strings"),
        (np.zeros((1, 2)), np.array([0j]), "integers or strings"),
    ],
)
def test_wrong_shapes(x, y, words):
    with pytest.raises(InvalidInputError, match=words):
        bound_records(x, y, make_schema(num_features=2))


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


def test_a_record_does_not_change_what_is_made_of_another(rng):
    schema = Schema(classes=[0, 1], num_features=4, num_records=10, feature_clip_norm=1.0)
    x = rng.standard_normal((9000, 4)) * 10
    whole = bound_records(x, np.zeros(9000, dtype=int), schema)
    for i in (0, 8999):
        alone = bound_records(x[i : i + 1], [0], schema)
        assert np.array_equal(whole.features[i], alone.features[0])


@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_layout_and_company_change_no_record(rng, order):
    """Vectors whose norm is the bound: the last bit of a sum decides how they are quantised."""
    schema = Schema(classes=[0, 1], num_features=50, num_records=10, feature_clip_norm=1.0)
    for _ in range(20):
        grid = rng.integers(-3000, 3000, size=(4098, 50)) / 16384
        grid /= np.linalg.norm(grid, axis=1, keepdims=True)
        x = np.asarray(grid, order=order)
        labels = np.zeros(4098, dtype=int)
        more = bound_records(x, labels, schema).features
        fewer = bound_records(x[:-1], labels[:-1], schema).features
        assert np.array_equal(more[:-1], fewer)
        assert np.array_equal(more[-1], bound_records(x[-1:], [0], schema).features[0])


def test_private_objects_do_not_show_themselves():
    records = bound_records(np.full((3, 2), 0.5), [0, 1, 2], make_schema(num_features=2))
    assert repr(records) == "BoundedRecords(<private>)"
    assert (
        records.digest()
        != bound_records(np.full((3, 2), 0.5), [0, 1, 1], make_schema(num_features=2)).digest()
    )


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


def test_integers_that_rounding_puts_above_the_bound_are_shrunk():
    """Three equal entries whose exact length lies a hair below n sqrt 3: rounded up, they pass the bound."""
    above = 0
    for n in range(9001, 9101):
        clip_norm = math.sqrt(3) * n / 2**14
        while Fraction(clip_norm) ** 2 * 2**28 >= 3 * n**2:
            clip_norm = math.nextafter(clip_norm, 0)
        grid = FixedPoint(clip_norm)
        naive = int(clip_norm / math.sqrt(3) * grid.scale)
        above += 3 * naive**2 > grid.largest_square
        integers, _ = quantise(grid, np.full((1, 3), 10.0))
        assert np.square(integers.astype(np.int64)).sum() <= grid.largest_square
        assert np.abs(integers - naive).max() <= 1
    assert above > 50
