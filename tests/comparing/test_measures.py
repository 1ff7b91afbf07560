"""Comparing records with synthetic ones: what differs is seen, and names cannot break the page."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privmix
from privmix.comparing.measures import WARNING, compare
from privmix.comparing.page import to_html, to_text

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
    from privmix.comparing.sources import read_columns

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
