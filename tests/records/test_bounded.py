from __future__ import annotations

import numpy as np
import pytest

from builders import make_schema
from privmix import InvalidInputError, Schema, bound_records


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
