"""Comparing records with synthetic ones: what differs is seen, and names cannot break the page."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import privmix
from privmix.comparing import measures
from privmix.comparing.measures import WARNING, compare
from privmix.comparing.page import to_html, to_text
from privmix.comparing.sources import read_columns, read_pair

EVIL = "<script>alert(1)</script>"


def table(seed: int, count: int = 600, shift: float = 0.0, flip: bool = False) -> pa.Table:
    rng = np.random.default_rng(seed)
    yes = rng.random(count) < 0.4
    age = rng.normal(np.where(yes, 60, 40) + shift, 5)
    return pa.table(
        {
            EVIL: pa.array(age, mask=rng.random(count) < 0.1),
            "income": age * (-1 if flip else 1) + rng.normal(0, 1, count),
            "zone": np.where(yes, rng.choice(["a", EVIL], count), "b"),
            "died": np.where(yes, "yes", "no"),
        }
    )


def test_records_of_one_kind_are_alike_and_others_are_not():
    same = compare(table(0), table(1), "died")
    other = compare(table(0), table(1, shift=15, flip=True), "died")
    assert all(part["likeness"] > 0.9 for part in same["columns"].values())
    assert other["columns"][EVIL]["likeness"] < 0.5
    assert same["correlations"]["largest_difference"] < 0.2
    assert other["correlations"]["largest_difference"] > 1
    assert abs(same["classes"]["yes"]["synthetic"] - same["classes"]["yes"]["real"]) < 0.06
    for name in ("linear", "forest", "boosting"):
        scores = same["models"][name]
        assert scores["synthetic"] > scores["real"] - 0.05
    assert same["nearest"]["share_nearer"] < 0.15


def test_copies_of_records_are_nearer_than_records_not_seen():
    real = table(0)
    assert compare(real, real, "died")["nearest"]["share_nearer"] > 0.4


def test_numbers_are_compared_by_models_of_numbers():
    real, made = (table(i).drop_columns("died") for i in (0, 1))
    found = compare(real, made, "income")
    assert found["models"]["score"] == "R2" and found["models"]["linear"]["synthetic"] > 0.5
    assert found["classes"] == {}
    for told in (to_text(found), to_html(found)):
        assert "Labels: shares" not in told and "Models tested on real records" in told


def test_classes_that_are_written_as_numbers_have_shares():
    real, made = (table(i).append_column("k", pa.array(np.arange(600) % 40)) for i in (0, 1))
    found = compare(real, made, "k")
    assert len(found["classes"]) == 40 and "Labels: shares" in to_text(found)


def test_one_seed_gives_the_same_figures():
    assert compare(table(0), table(1), "died") == compare(table(0), table(1), "died")


def test_pages_say_who_may_read_them_and_escape_names():
    found = compare(table(0), table(1), "died")
    page = to_html(found)
    assert EVIL not in page and "&lt;script&gt;" in page and "<script" not in page
    assert WARNING.replace("'", "&#x27;") in page
    assert WARNING not in to_text(found)  # the command says it, beside what is redirected
    assert json.loads(json.dumps(found, allow_nan=False))["warning"] == WARNING


@pytest.mark.parametrize(
    ("real", "made", "label"),
    [
        (table(0), table(1), "no such"),
        (table(0, count=10), table(1), "died"),
        (table(0), table(1).select(["died"]), "died"),
    ],
)
def test_what_cannot_be_compared_is_refused(real, made, label):
    with pytest.raises(privmix.InvalidInputError):
        compare(real, made, label)


def test_files_of_every_kind_are_read(tmp_path):
    x, y = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([0, 1, 0])
    np.savez(tmp_path / "a.npz", features=x, labels=y)
    vectors = pa.table({"features": pa.array(x.tolist()), "label": y})
    pq.write_table(vectors, tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("x0,x1,label\n0,1,0\n2,3,1\n4,5,0\n")
    found = [read_columns(tmp_path / f"a.{end}", "label") for end in ("npz", "parquet", "csv")]
    for one in found:
        assert one.column_names == ["x0", "x1", "label"]
        assert one["x1"].to_pylist() == [1, 3, 5] and one["label"].to_pylist() == [0, 1, 0]
    with pytest.raises(privmix.InvalidInputError, match="--label"):
        read_columns(tmp_path / "a.csv", "other")
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(privmix.InvalidInputError, match=r"\.parquet, \.csv or \.npz"):
        read_columns(tmp_path / "a.txt", "label")


def test_whole_numbers_against_synthetic_ones_with_fractions_are_no_classes(rng):
    """As the points of a wine are, which are few."""
    real = table(0).append_column("points", pa.array(rng.integers(3, 9, len(table(0)))))
    made = real.drop(["points"]).append_column("points", pa.array(rng.normal(6, 1, len(real))))
    assert compare(real, made, "points")["classes"] == {}


def test_a_column_of_many_categories_is_compared_by_the_commonest():
    """Two samples share few of thousands of categories, and that is no sign that they differ."""
    rng = np.random.default_rng(0)
    rare = rng.integers(100, 5000, size=(3, 1500))
    often = rng.random((3, 1500)) < 0.5
    codes = np.where(often, rng.integers(5, size=(3, 1500)), rare).astype(str)
    codes[2] = np.where(often[2], "7", codes[2])
    tables = [table(seed, 1500).append_column("code", pa.array(codes[seed])) for seed in range(3)]
    same, other = (compare(tables[0], made, "died")["columns"]["code"] for made in tables[1:])
    assert same["likeness"] > 0.9 > 0.6 > other["likeness"]


def test_a_column_that_hardly_varies_hides_no_copies(rng):
    real = table(0)
    still = 1e-8 * rng.standard_normal(len(real))
    copies = real.append_column("still", pa.array(still + 1e-5 * rng.standard_normal(len(real))))
    found = compare(real.append_column("still", pa.array(still)), copies, "died")
    assert found["nearest"]["share_nearer"] > 0.4
    assert found["still"] == ["still"]
    for told in (to_text(found), to_html(found)):
        assert "Columns left out" in told and "hardly varies in the records" in told


@pytest.mark.parametrize("far", [np.inf, 1e308, 1e38])
@pytest.mark.parametrize("label", ["died", "income"])
def test_numbers_that_no_model_takes_count_as_missing(far, label):
    sides = []
    for seed in (0, 1):
        income = np.array(table(seed)["income"].to_pylist())
        income[:30], income[30:60] = far, -far
        sides.append(table(seed).set_column(1, "income", pa.array(income)))
    found = compare(*sides, label)
    json.dumps(found, allow_nan=False)
    if label == "died":
        told = found["columns"]["income"]
        assert told["missing"]["real"] == 0.1 and told["likeness"] > 0.85
        assert 20 < told["mean"]["real"] < 80


@pytest.mark.parametrize("at", [0.0, 2.0**119])
def test_synthetic_numbers_far_off_are_compared(at, rng):
    """So many spreads away that models cannot take them."""
    made = table(1).set_column(1, "income", pa.array(np.full(600, at)))
    real = table(0).set_column(1, "income", pa.array(rng.normal(1, 1e-6, 600)))
    found = compare(real, made, "died")
    json.dumps(found, allow_nan=False)
    assert found["columns"]["income"]["likeness"] == 0


UNITS = ("s", "ms", "us", "ns")
TIMES = [kind(unit) for kind in (pa.timestamp, pa.duration) for unit in UNITS]
TIMES += [pa.timestamp("ns", "Europe/Berlin"), pa.date64(), pa.date32()]
TIMES += [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]


@pytest.mark.parametrize("kind", TIMES, ids=str)
def test_times_of_every_unit_are_numbers(kind):
    """To the last that a column holds, which is beyond what microseconds or Python hold."""
    last = 2**31 - 1 if kind.bit_width == 32 else 2**63 - 1
    if pa.types.is_time(kind):
        last = 86_399
    of = pa.int32() if kind.bit_width == 32 else pa.int64()
    column = pa.array([1, last, None] * 200, of).cast(kind)
    sides = [table(seed).append_column("seen", column) for seed in (0, 1)]
    found = compare(*sides, "died")["columns"]["seen"]
    assert found["kind"] == "numeric" and found["likeness"] == 1
    assert found["missing"]["real"] == 1 / 3


@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
def test_times_of_two_units_are_the_same_times(unit):
    rng = np.random.default_rng(0)
    seconds = pa.array(rng.integers(10**9, 2 * 10**9, 600)).cast(pa.timestamp("s"))
    one, other = (
        table(0).append_column("seen", seconds.cast(pa.timestamp(u))) for u in (unit, "us")
    )
    assert compare(one, other, "died")["columns"]["seen"]["likeness"] == 1
    days = pa.array(rng.integers(0, 20_000, 600).astype(np.int32)).cast(pa.date32())
    one, other = (
        table(0).append_column("seen", days.cast(kind)) for kind in (pa.date32(), pa.timestamp("s"))
    )
    assert compare(one, other, "died")["columns"]["seen"]["likeness"] == 1


def test_columns_that_nothing_is_compared_by_are_named():
    found = compare(table(0), table(1).drop_columns(["income"]), "died")
    assert (found["left_out"], found["still"]) == (["income"], [])
    for told in (to_text(found), to_html(found)):
        assert "income" in told and "not among the synthetic ones" in told
    assert "Columns left out" not in to_text(compare(table(0), table(1), "died"))


def codes(seed: int) -> pa.Table:
    """Categories that look like numbers, some of them missing, as texts."""
    rng = np.random.default_rng(seed)
    age = rng.normal(50, 9, 200)
    zone = [None if i % 20 == 0 else f"0{i % 3}" for i in rng.integers(0, 300, 200)]
    return pa.table({"zone": zone, "age": age, "died": np.where(age > 50, "01", "00")})


@pytest.mark.parametrize("ends", [("csv", "parquet"), ("parquet", "csv"), ("csv", "csv")])
def test_categories_that_look_like_numbers_are_texts_where_either_side_says_so(tmp_path, ends):
    sides = [tmp_path / f"{name}.{end}" for name, end in zip(("real", "made"), ends, strict=True)]
    for seed, path in enumerate(sides):
        write = pa_csv.write_csv if path.suffix == ".csv" else pq.write_table
        write(codes(seed), path)
    if ends == ("csv", "csv"):  # of numbers alone nobody knows; one other category tells
        with sides[0].open("a") as file:
            file.write('"A1",50.5,"unknown"\n')
    found = compare(*read_pair(*sides, "died"), "died")
    assert found["columns"]["zone"]["kind"] == "categorical"
    assert found["columns"]["zone"]["likeness"] > 0.85
    assert {"00", "01"} <= set(found["classes"]), found["classes"]


def test_categories_of_a_schema_are_texts_in_a_csv_file_of_synthetic_records(tmp_path):
    columns = [
        {"name": "zone", "type": "categorical", "categories": ["00", "01", "02"]},
        {"name": "age", "type": "numeric", "lower": 0, "upper": 100},
    ]
    facts = {"classes": ["00", "01"], "num_records": 200, "table": {"columns": columns}}
    schema = privmix.Schema.from_json(json.dumps(facts))
    for seed, name in enumerate(("real", "made")):
        pa_csv.write_csv(codes(seed), tmp_path / f"{name}.csv")
    records, made = read_pair(tmp_path / "real.csv", tmp_path / "made.csv", "died", schema)
    assert set(made["zone"].to_pylist()) == {"00", "01", "02", None}
    assert set(made["died"].to_pylist()) == {"00", "01"} == set(records["died"].to_pylist())


def test_synthetic_labels_of_another_name_are_texts_as_the_records_are(tmp_path):
    pq.write_table(codes(0), tmp_path / "real.parquet")
    named = codes(1).rename_columns(["zone", "age", "label"])
    pa_csv.write_csv(named, tmp_path / "made.csv")
    _, made = read_pair(tmp_path / "real.parquet", tmp_path / "made.csv", "died")
    assert set(made["died"].to_pylist()) == {"00", "01"}


@pytest.mark.parametrize("cell", ["{}", " {}", "{}.0"])
def test_numbers_in_a_csv_file_are_the_texts_of_numbers_beside_it(tmp_path, cell):
    made = pa.table({"zone": ["0", "1", None] * 40, "died": ["0", "1", "0"] * 40})
    pq.write_table(made, tmp_path / "made.parquet")
    lines = ["zone,died", *(f"{cell.format(i)},{cell.format(i)}" for i in (0, 1) * 20), "NA,0"]
    (tmp_path / "real.csv").write_text("\n".join(lines))
    found = compare(*read_pair(tmp_path / "real.csv", tmp_path / "made.parquet", "died"), "died")
    assert set(found["classes"]) == {"0", "1"}
    assert found["columns"]["zone"]["likeness"] > 0.6


def test_codes_with_leading_zeros_are_texts_whatever_is_around_them(tmp_path):
    pq.write_table(pa.table({"zone": ["03", "1"], "died": ["a", "b"]}), tmp_path / "made.parquet")
    (tmp_path / "real.csv").write_text("zone,died\n 03,a\n1,b\nNA,b")
    records, _ = read_pair(tmp_path / "real.csv", tmp_path / "made.parquet", "died")
    assert records["zone"].to_pylist() == ["03", "1", None]


def test_arrays_of_synthetic_records_are_named_by_their_file(tmp_path):
    x, y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 0])
    np.savez(tmp_path / "a.npz", features=x, labels=y)
    np.savez(tmp_path / "made.npz", x=x, y=y)
    with pytest.raises(privmix.InvalidInputError, match=r"^made.npz: .*: x, y, got 'features'"):
        read_pair(tmp_path / "a.npz", tmp_path / "made.npz", "label")


def test_arrays_of_any_name_are_read_and_those_that_are_there_are_told(tmp_path):
    x, y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 0])
    np.savez(tmp_path / "a.npz", x=x, y=y)
    found = read_columns(tmp_path / "a.npz", "label", keys=("x", "y"))
    assert found["x1"].to_pylist() == [1, 3, 5] and found["label"].to_pylist() == [0, 1, 0]
    with pytest.raises(
        privmix.InvalidInputError, match=r"--features-key: .*: x, y, got 'features'"
    ):
        read_columns(tmp_path / "a.npz", "label")
    pq.write_table(table(0), tmp_path / "a.parquet")
    with pytest.raises(privmix.InvalidInputError, match=r"--features-key, .* except for an \.npz"):
        read_columns(tmp_path / "a.parquet", "died", keys=("x", "y"))


def test_several_labels_are_refused_unless_each_has_a_column(tmp_path):
    x, y = np.eye(3), np.eye(3, dtype=int)
    np.savez(tmp_path / "a.npz", features=x, labels=y)
    vectors = pa.table({"features": pa.array(x.tolist()), "label": pa.array(y.tolist())})
    pq.write_table(vectors, tmp_path / "a.parquet")
    for end in ("npz", "parquet"):
        with pytest.raises(privmix.InvalidInputError, match="a column for each, .* by --label"):
            read_columns(tmp_path / f"a.{end}", "label")
    pq.write_table(pa.table({"x0": [1.0], "a": [0], "b": [1]}), tmp_path / "b.parquet")
    with pytest.raises(privmix.InvalidInputError, match="x0, a, b"):
        read_columns(tmp_path / "b.parquet", "label")
    assert read_columns(tmp_path / "b.parquet", "a").column_names == ["x0", "a", "b"]


def test_the_pair_of_the_largest_difference_is_named():
    found = compare(table(0), table(1, flip=True), "died")
    assert found["correlations"]["largest_pair"] == [EVIL, "income"]
    assert f"{EVIL} and income" in to_text(found)
    assert "&lt;/script&gt; and income" in to_html(found)
    zones = compare(table(0).select(["zone", "died"]), table(1).select(["zone", "died"]), "died")
    assert all(name.startswith("zone=") for name in zones["correlations"]["largest_pair"])
    one = compare(table(0).select(["income", "died"]), table(1).select(["income", "died"]), "died")
    assert one["correlations"]["largest_pair"] is None and "no pair" in to_text(one)


def test_samples_are_said_to_be_some(monkeypatch):
    monkeypatch.setattr(measures, "_MOST_RECORDS", 500)
    found = compare(table(0), table(1, count=300), "died")
    assert found["records"] == {"real": 500, "synthetic": 300}
    assert found["given"] == {"real": 600, "synthetic": 300}
    for told in (to_text(found), to_html(found)):
        assert "500, a sample of 600" in told and "a sample of 300" not in told


@pytest.mark.parametrize(
    ("num_classes", "iterations"), [(2, 50), (10, 50), (20, 25), (77, 6), (1000, 5)]
)
def test_boosting_of_many_classes_has_fewer_iterations(num_classes, iterations):
    assert measures._CLASSIFIERS["boosting"](0, num_classes).max_iter == iterations
