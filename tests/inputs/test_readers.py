from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privmix import InvalidInputError, Schema
from privmix.inputs import readers
from privmix.inputs.labels import match_labels
from privmix.inputs.readers import open_labelled, read_labelled
from privmix.records.binding import bound_records

X = np.array([[0.5, 1.0], [2.0, -3.0], [0.0, 0.25]])
Y = ["a", "b", "a"]


def write(path, columns) -> None:
    pq.write_table(pa.table(columns), path)


def test_parquet_with_number_columns(tmp_path):
    write(tmp_path / "t.parquet", {"u": X[:, 0], "label": Y, "v": X[:, 1].astype(np.float32)})
    data = read_labelled(tmp_path / "t.parquet", label="label")
    assert np.array_equal(data.features, X)
    assert data.labels.tolist() == Y


def test_the_width_of_vectors_is_found_without_reading_all_of_them(tmp_path, monkeypatch):
    x = np.arange(40_000 * 64, dtype=np.float32).reshape(40_000, 64)
    vectors = pa.FixedSizeListArray.from_arrays(x.ravel(), 64)
    table = pa.table({"features": vectors, "label": pa.array(np.zeros(len(x), np.int64))})
    pq.write_table(table, tmp_path / "data.parquet")
    seen, scan = [], readers.scan_parquet

    def watched(*arguments, **options):
        for file, first, run in scan(*arguments, **options):
            seen.append(run.nbytes)
            yield file, first, run

    monkeypatch.setattr(readers, "scan_parquet", watched)
    source = open_labelled(tmp_path / "data.parquet", label="label").features
    assert source.shape == x.shape
    assert 0 < max(seen) <= readers._BATCH_BYTES < x.nbytes


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32(), 2), pa.list_(pa.float64()), pa.large_list(pa.int64())]
)
def test_parquet_with_one_list_column(tmp_path, kind):
    rows = pa.array(np.round(X).astype(int).tolist(), type=kind)
    write(tmp_path / "t.parquet", {"vectors": rows, "label": [1, 2, 1]})
    data = read_labelled(tmp_path / "t.parquet", label="label")
    assert np.array_equal(data.features, np.round(X))
    assert data.labels.tolist() == [1, 2, 1]


def test_a_folder_of_parquet_files(tmp_path):
    for i in range(2):
        write(tmp_path / f"{i}.parquet", {"u": X[:, 0], "label": Y})
    assert read_labelled(tmp_path, label="label").features.shape == (6, 1)


@pytest.mark.parametrize(
    ("paths", "count"),
    [
        (["part-0.parquet", "part-1.parquet", "_old.parquet", ".tmp/part-9.parquet"], 2),
        # Sorted as texts, the folder a comes after a-b and a.parquet.
        (["a-b/part.parquet", "a/part.parquet", "a.parquet"], 3),
        (["site=1/part.parquet", "site=2/part.parquet"], 2),
    ],
)
def test_records_of_a_folder_keep_their_labels_and_owners(tmp_path, paths, count):
    for number, path in enumerate(paths):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        columns = {"u": [float(number)], "v": [-float(number)], "label": [number], "who": [number]}
        order = sorted(columns, reverse=bool(number % 2))
        write(tmp_path / path, {name: columns[name] for name in order})
    data = read_labelled(tmp_path, label="label", classes=range(9), unit_column="who")
    assert sorted(data.labels) == list(range(count))
    assert data.units.tolist() == data.labels.tolist()
    due = data.labels.astype(float)
    signs = 1 if data.features[-1, 0] > 0 else -1  # which of the columns comes first
    assert np.array_equal(data.features, np.column_stack([signs * due, -signs * due]))


def test_files_of_a_folder_with_other_columns_are_refused(tmp_path):
    write(tmp_path / "0.parquet", {"u": X[:, 0], "label": Y})
    write(tmp_path / "1.parquet", {"u": X[:, 0], "v": X[:, 1], "label": Y})
    with pytest.raises(InvalidInputError, match=r"1\.parquet"):
        read_labelled(tmp_path, label="label")
    (tmp_path / "none").mkdir()
    with pytest.raises(InvalidInputError, match="none in it"):
        read_labelled(tmp_path / "none", label="label")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"u": X[:, 0]}, "label: missing column; expected the columns of .*0.parquet"),
        ({"label": Y}, "u: missing column; expected the columns of .*0.parquet"),
        ({"u": X[:, 0], "label": Y, "v": X[:, 1]}, "v: expected .*0.parquet, got one more"),
        ({"u": X[:, 0], "label": [1, 2, 3]}, "label: .* of string, as in .*0.*, .* of int64"),
        ({"u": Y, "label": Y}, "u: expected a column of double, as in .* of string"),
    ],
)
def test_a_file_of_a_folder_with_other_columns_is_named(tmp_path, columns, words):
    write(tmp_path / "0.parquet", {"u": X[:, 0], "label": Y})
    write(tmp_path / "1.parquet", columns)
    with pytest.raises(InvalidInputError, match=rf"/1\.parquet: {words}"):
        read_labelled(tmp_path, label="label")


def test_values_of_one_file_do_not_change_the_type_of_anothers(tmp_path):
    large = 2**53 + 1
    write(tmp_path / "0.parquet", {"u": [1, 2], "label": [large, 0], "who": pa.array(["a", "b"])})
    others = {"u": [0.5, None], "label": [0.0, None], "who": pa.array(["a", None], pa.large_utf8())}
    write(tmp_path / "1.parquet", others)
    data = read_labelled(tmp_path, label="label", unit_column="who")
    assert data.labels.tolist() == [large, 0, 0, None]
    assert data.units.tolist() == ["a", "b", "a", None]
    assert np.array_equal(data.features, [[1], [2], [0.5], [np.nan]], equal_nan=True)


def test_label_vectors_of_several_lengths_in_a_folder(tmp_path):
    write(tmp_path / "0.parquet", {"u": X[:, 0], "y": [[0.5, 0.5]] * 3})
    write(tmp_path / "1.parquet", {"u": X[:, 0], "y": [[1.0]] * 3})
    with pytest.raises(InvalidInputError, match="y: expected lists of one length, .* 1 and 2"):
        read_labelled(tmp_path, label="y", target="soft", classes=("a", "b"))


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
@pytest.mark.parametrize("coded", [False, True])
def test_labels_and_owners_that_are_not_utf8(tmp_path, kind, coded):
    cells = pa.array(
        [b"a", b"\xff", None], pa.large_binary() if "large" in str(kind) else pa.binary()
    )
    cells = cells.view(kind)
    columns = {"u": X[:, 0], "label": cells.dictionary_encode() if coded else cells, "who": cells}
    write(tmp_path / "t.parquet", columns)
    data = read_labelled(tmp_path / "t.parquet", label="label", unit_column="who")
    assert data.labels.tolist() == data.units.tolist() == ["a", b"\xff", None]
    schema = Schema(classes=("a", "b"), num_features=1, num_records=3, feature_clip_norm=1.0)
    with pytest.raises(InvalidInputError, match=r"labels\[1\]: .*'a', 'b'.* got b'\\xff'"):
        bound_records(data.features, data.labels, schema)
    bounded = bound_records(data.features, data.labels, schema, "zero", max_bad_share=1.0)
    assert bounded.blank.tolist() == [False, True, True]
    bounded = bound_records(
        data.features, ["a"] * 3, schema, "zero", max_bad_share=1.0, units=data.units
    )
    assert bounded.blank.tolist() == [False, True, True]
    with pytest.raises(InvalidInputError, match=r"units\[1\]: .* bytes that are no text"):
        bound_records(data.features, ["a"] * 3, schema, units=data.units)


@pytest.mark.parametrize("kind", [pa.list_(pa.float32(), 2), pa.list_(pa.int64())])
@pytest.mark.parametrize("nulls", [[1], [0, 1], [4]])
def test_a_null_vector_is_a_bad_record(tmp_path, kind, nulls):
    rows = [None if i in nulls else [i, 1] for i in range(5)]
    table = pa.table({"x": pa.array(rows, type=kind), "label": ["a"] * 5})
    # In runs of nulls alone the width does not show.
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=1)
    source = open_labelled(tmp_path / "t.parquet", label="label")
    assert source.features.shape == (5, 2)
    schema = Schema(classes=("a", "b"), num_features=2, num_records=5, feature_clip_norm=9.0)
    words = rf"features\[{nulls[0]}, 0\]: expected a finite number"
    with pytest.raises(InvalidInputError, match=words):
        bound_records(source.features, source.labels, schema)
    bounded = bound_records(source.features, source.labels, schema, "zero", max_bad_share=1.0)
    assert np.flatnonzero(bounded.blank).tolist() == nulls
    assert bounded.num_replaced == len(nulls)
    others = [i for i in range(5) if i not in nulls]
    alone = bound_records([rows[i] for i in others], ["a"] * len(others), schema)
    assert np.array_equal(bounded.features[others], alone.features)


def test_csv(tmp_path):
    (tmp_path / "t.csv").write_text("u,label,v\n0.5,a,1\n2,b,-3\n0,a,0.25\n")
    data = read_labelled(tmp_path / "t.csv", label="label")
    assert np.array_equal(data.features, X)
    assert data.labels.tolist() == Y


def test_labels_of_a_csv_file_that_are_not_utf8(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"u,label\n1,caf\xe9\n2,\n3,caf\xc3\xa9\n")
    labels = read_labelled(tmp_path / "t.csv", label="label", classes=["caf\xe9"]).labels
    assert labels.tolist() == [b"caf\xe9", "", "caf\xe9"]


def test_npz(tmp_path):
    np.savez(tmp_path / "t.npz", x=X, y=np.array(Y))
    data = read_labelled(tmp_path / "t.npz", features_key="x", label_key="y")
    assert np.array_equal(data.features, X)
    assert data.labels.tolist() == Y


def test_nulls_become_nan_for_the_bad_record_policy(tmp_path):
    (tmp_path / "t.csv").write_text("u,label,v\n1,a,\n,b,2\n")
    features = read_labelled(tmp_path / "t.csv", label="label").features
    assert np.isnan(features).tolist() == [[False, True], [True, False]]
    (tmp_path / "n.csv").write_text("u,label\n,a\n,b\n")
    assert np.isnan(read_labelled(tmp_path / "n.csv", label="label").features).all()


def test_dictionary_labels(tmp_path):
    write(tmp_path / "t.parquet", {"u": X[:, 0], "label": pa.array(Y).dictionary_encode()})
    assert read_labelled(tmp_path / "t.parquet", label="label").labels.tolist() == Y


class TestBadFiles:
    def refused(self, path, words, **options):
        with pytest.raises(InvalidInputError, match=words):
            read_labelled(path, **options)

    def test_no_such_file(self, tmp_path):
        self.refused(tmp_path / "none.csv", "no such file", label="label")

    def test_unknown_kind(self, tmp_path):
        (tmp_path / "t.xlsx").touch()
        self.refused(tmp_path / "t.xlsx", r"\.parquet, \.npz, .*\.csv, ", label="label")

    @pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.npz"])
    def test_empty_and_garbled_files(self, tmp_path, name):
        for content in (b"", b"\x00garbage"):
            (tmp_path / name).write_bytes(content)
            keys = (
                {"features_key": "x", "label_key": "y"} if name == "t.npz" else {"label": "label"}
            )
            self.refused(tmp_path / name, name, **keys)

    def test_names_that_are_not_utf8(self, tmp_path):
        (tmp_path / "t.csv").write_bytes(b"caf\xe9,label\n1,a\n")
        self.refused(tmp_path / "t.csv", "t.csv: expected a first line in UTF-8", label="label")

    def test_no_rows(self, tmp_path):
        (tmp_path / "t.csv").write_text("u,label\n")
        self.refused(tmp_path / "t.csv", "at least one record", label="label")

    def test_missing_label(self, tmp_path):
        (tmp_path / "t.csv").write_text("u,label\n1,a\n")
        self.refused(tmp_path / "t.csv", "missing column 'lable'.*perhaps 'label'", label="lable")
        self.refused(tmp_path / "t.csv", "--label", label=None)

    def test_missing_arrays(self, tmp_path):
        np.savez(tmp_path / "t.npz", x=X)
        self.refused(tmp_path / "t.npz", "--features-key: required: .*: x", label_key="x")
        self.refused(tmp_path / "t.npz", "--label-key.*'y'", features_key="x", label_key="y")

    def test_pickled_arrays_are_never_loaded(self, tmp_path):
        np.savez(tmp_path / "t.npz", x=X, y=np.array(Y, dtype=object))
        self.refused(tmp_path / "t.npz", "pickle", features_key="x", label_key="y")

    def test_text_among_the_features(self, tmp_path):
        (tmp_path / "t.csv").write_text("u,name,label\n1,x,a\n")
        self.refused(tmp_path / "t.csv", "name: expected a column of numbers", label="label")

    def test_no_features(self, tmp_path):
        (tmp_path / "t.csv").write_text("label\na\n")
        self.refused(tmp_path / "t.csv", "at least one feature column", label="label")

    def test_ragged_and_null_lists(self, tmp_path):
        write(tmp_path / "r.parquet", {"x": [[1.0, 2.0], [3.0]], "label": [0, 1]})
        self.refused(tmp_path / "r.parquet", r"x\[1\]: expected 2 numbers", label="label")
        write(tmp_path / "r.parquet", {"x": [None, [1.0, 2.0], [3.0]], "label": [0, 1, 1]})
        self.refused(tmp_path / "r.parquet", r"x\[2\]: .*as in record 1", label="label")
        nulls = pa.array([None, None], pa.list_(pa.float64()))
        write(tmp_path / "n.parquet", {"x": nulls, "label": [0, 1]})
        self.refused(tmp_path / "n.parquet", "x: expected at least one list", label="label")

    def test_repeated_names(self, tmp_path):
        (tmp_path / "t.csv").write_text("u,u,label\n1,2,a\n")
        self.refused(tmp_path / "t.csv", "distinct names", label="label")


class TestVectorLabels:
    def test_named_columns_and_a_column_of_lists(self, tmp_path):
        write(tmp_path / "t.parquet", {"u": X[:, 0], "lo": [1.0, 2.0, 3.0], "hi": [4, 5, None]})
        options = {"target": "regression", "classes": ("lo", "hi")}
        for label in (None, ["lo", "hi"]):
            data = read_labelled(tmp_path / "t.parquet", label=label, **options)
            assert data.features.tolist() == X[:, :1].tolist()
            assert data.labels[:2].tolist() == [[1, 4], [2, 5]]
            assert np.isnan(data.labels[2, 1])
        swapped = read_labelled(tmp_path / "t.parquet", label=["hi", "lo"], **options)
        assert swapped.labels[0].tolist() == [4, 1]
        write(tmp_path / "l.parquet", {"u": X[:, 0], "w": [[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]]})
        data = read_labelled(tmp_path / "l.parquet", label=["w"], target="soft", classes=("a", "b"))
        assert data.labels.tolist() == [[0.5, 0.5], [1, 0], [0, 1]]

    def test_an_array(self, tmp_path):
        np.savez(tmp_path / "t.npz", x=X, y=np.eye(3))
        data = read_labelled(tmp_path / "t.npz", features_key="x", label_key="y", target="soft")
        assert data.labels.tolist() == np.eye(3).tolist()

    @pytest.mark.parametrize(
        ("label", "words"),
        [
            (None, "missing column 'a'; .* the first line .*, which has 3"),
            (["lo"] * 3, "1 or 2 columns for target soft, got 3"),
            (["lo", "lo"], "distinct columns"),
        ],
    )
    def test_missing_columns(self, tmp_path, label, words):
        (tmp_path / "t.csv").write_text("u,lo,hi\n1,0,1\n")
        with pytest.raises(InvalidInputError, match=words):
            read_labelled(tmp_path / "t.csv", label=label, target="soft", classes=("a", "b"))

    def test_classes_have_one_column(self, tmp_path):
        (tmp_path / "t.csv").write_text("u,lo,hi\n1,0,1\n")
        with pytest.raises(InvalidInputError, match="--label: expected 1 columns"):
            read_labelled(tmp_path / "t.csv", label=["lo", "hi"], classes=(0, 1))


class TestUnitColumns:
    def test_the_unit_is_no_feature(self, tmp_path):
        columns = {"u": X[:, 0], "label": Y, "who": ["p1", None, "p1"]}
        write(tmp_path / "t.parquet", columns)
        data = read_labelled(tmp_path / "t.parquet", label="label", unit_column="who")
        assert data.features.shape == (3, 1)
        assert data.units.tolist() == ["p1", None, "p1"]

    def test_csv_files_hold_text(self, tmp_path):
        (tmp_path / "t.csv").write_text("u,who,label\n1,7,a\n2,007,b\n3,,a\n")
        data = read_labelled(tmp_path / "t.csv", label="label", unit_column="who")
        assert data.units.tolist() == ["7", "007", ""]

    def test_arrays(self, tmp_path):
        np.savez(tmp_path / "t.npz", x=X, y=Y, who=[4, 4, 5])
        options = {"features_key": "x", "label_key": "y"}
        data = read_labelled(tmp_path / "t.npz", unit_column="who", **options)
        assert data.units.tolist() == [4, 4, 5]
        with pytest.raises(InvalidInputError, match="--unit-column: .*x, y, who, got 'whom'"):
            read_labelled(tmp_path / "t.npz", unit_column="whom", **options)

    def test_no_such_column(self, tmp_path):
        (tmp_path / "t.csv").write_text("u,who,label\n1,7,a\n")
        with pytest.raises(InvalidInputError, match="--unit-column: missing column 'whom'"):
            read_labelled(tmp_path / "t.csv", label="label", unit_column="whom")


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_labels_that_lost_digits_are_refused(tmp_path, suffix):
    """One missing label makes pandas write all integers as floating-point numbers."""
    classes = [2**53, 2**53 + 1]
    data = tmp_path / f"t.{suffix}"
    keys = {}
    for labels in (classes, [float(classes[0]), float("nan")]):
        if suffix == "npz":
            np.savez(data, x=X[:2], y=np.array(labels))
            keys = {"features_key": "x", "label_key": "y"}
        else:
            write(data, {"u": X[:2, 0], "y": labels})
            keys = {"label": "y"}
        if labels is classes:
            opened = read_labelled(data, classes=classes, **keys)
            assert match_labels(opened.labels, classes).tolist() == [0, 1]
    with pytest.raises(InvalidInputError, match="where integers of 2\\^53 or more are classes"):
        opened = read_labelled(data, classes=classes, **keys)
        match_labels(opened.labels, classes, strict=False)


@pytest.mark.parametrize("cell", ["abc", "", "2020-01-01", "1_0", "true", "+1", "0x10", "é"])
@pytest.mark.parametrize("others", [["7", "-2"], ["0.5", "1e3"], ["true", "False"], ["0x1f", "3"]])
def test_a_cell_of_a_csv_file_changes_its_own_record_alone(tmp_path, cell, others):
    path, schema = (
        tmp_path / "t.csv",
        Schema(classes=("a", "b"), num_features=2, num_records=3, feature_clip_norm=1e6),
    )
    found = []
    for last in (others[0], cell):
        rows = [f"{others[0]},1,a", f"{others[1]},2,b", f"{last},3,a"]
        path.write_text("\n".join(["x,y,label", *rows]) + "\n")
        data = read_labelled(path, label="label")
        bounded = bound_records(data.features, data.labels, schema, "zero", max_bad_share=1.0)
        found.append(bounded.features[:2].tolist())
        assert bounded.blank[:2].tolist() == [False, False]
    assert found[0] == found[1]
    numbers = {"true": 1.0, "+1": 1.0, "0x10": 16.0}
    assert bounded.blank[2] == (cell not in numbers)
    if cell in numbers:
        assert data.features[2].tolist() == [numbers[cell], 3.0]
    else:
        with pytest.raises(InvalidInputError, match=r"features\[2"):
            bound_records(data.features, data.labels, schema)


def test_a_csv_column_without_numbers_is_refused_with_advice(tmp_path):
    (tmp_path / "t.csv").write_text("x,text,label\n1,abc,a\n2,def,b\n")
    with pytest.raises(InvalidInputError, match="text: expected a column of numbers .--text-col"):
        read_labelled(tmp_path / "t.csv", label="label")
