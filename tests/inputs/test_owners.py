"""Which records of a unit take part: at most so many, and never because of another unit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from privmix import InvalidInputError
from privmix.inputs.owners import match_units
from privmix.rng import MasterKey


def stream(seed: int = 0):
    return MasterKey.for_test(seed, b"units").stream("units")


def taking_part(ids, max_records: int, seed: int = 0) -> list[int]:
    return match_units(ids, strict=False).chosen(stream(seed), max_records).tolist()


def test_small_units_take_part_whole_and_large_ones_in_part():
    ids = ["a", "b", "a", "c", "a", "b", "a"]
    chosen = taking_part(ids, 2)
    counts = {name: sum(ids[i] == name for i in chosen) for name in "abc"}
    assert counts == {"a": 2, "b": 2, "c": 1}
    assert chosen == sorted(chosen)
    assert match_units(ids).num_taking_part(2) == 5
    assert taking_part(ids, 9) == list(range(7))


@pytest.mark.parametrize("kind", [str, int])
def test_a_unit_that_comes_or_goes_changes_no_other_choice(kind, rng):
    """Records of a unit stand in between the others', before and after them, in any number."""
    ids = [kind(i) for i in rng.integers(12, size=300)]
    for gone in set(ids):
        left = [i for i, name in enumerate(ids) if name != gone]
        chosen = taking_part(ids, 5)
        without = taking_part([ids[i] for i in left], 5)
        assert [i for i in chosen if ids[i] != gone] == [left[i] for i in without]


def test_only_the_order_within_a_unit_matters(rng):
    """Which of its own records a unit sends in does not change when units are interleaved anew."""
    ids = np.array(rng.integers(6, size=120))
    order = np.argsort(ids, kind="stable")
    chosen = set(taking_part(ids, 4))
    sorted_by_unit = [order[i] for i in taking_part(ids[order], 4)]
    assert chosen == set(sorted_by_unit)


def test_another_key_chooses_others_and_the_same_key_the_same():
    ids = ["a"] * 50
    assert taking_part(ids, 5) == taking_part(ids, 5)
    assert taking_part(ids, 5) != taking_part(ids, 5, seed=1)
    halves = [taking_part(["a"] * 50 + ["b"] * 50, 5)]
    assert {i - 50 for i in halves[0] if i >= 50} != {i for i in halves[0] if i < 50}


def test_every_record_of_a_unit_has_the_same_chance():
    """3 of 7 records in 4000 units: chi-square with 6 degrees of freedom, false alarm 1e-8.

    Counts under a choice without replacement vary less than multinomial ones, by (7 - 3) / 6.
    """
    ids = np.repeat(np.arange(4000), 7)
    places = np.array(taking_part(ids, 3)) % 7
    counts = np.bincount(places, minlength=7)
    assert counts.sum() == 12_000
    expected = 12_000 / 7
    statistic = np.square(counts - expected).sum() / expected / (4 / 6)
    assert statistic < stats.chi2.isf(1e-8, 6)


def test_a_pair_of_records_is_no_rarer_than_another():
    """2 of 4 records: all six pairs alike (false alarm 1e-8)."""
    ids = np.repeat(np.arange(3000), 4)
    chosen = np.array(taking_part(ids, 2)).reshape(-1, 2) % 4
    counts = np.unique(chosen[:, 0] * 4 + chosen[:, 1], return_counts=True)[1]
    assert counts.size == 6
    assert np.square(counts - 500).sum() / 500 < stats.chi2.isf(1e-8, 5)


@pytest.mark.parametrize(
    "missing", [None, float("nan"), "", "  ", np.float64("nan"), "NA", "nan", "None", "<NA>"]
)
def test_a_record_without_an_owner_takes_no_part(missing):
    ids = np.array(["a", missing, "b"], dtype=object)
    assert taking_part(ids, 1) == [0, 2]
    with pytest.raises(InvalidInputError, match=r"units\[1\].*zero.*leaves such records out"):
        match_units(ids)


@pytest.mark.parametrize(
    "ids",
    [
        [1, 2, 1],
        np.array([1, 2, 1], dtype=np.uint8),
        np.array([1, 2, 1], dtype=object),
        np.array([np.int64(1), 2, 1], dtype=object),
    ],
)
def test_integers_of_all_kinds_are_the_same_owners(ids):
    found = match_units(ids)
    assert found.names == (b"i1", b"i2")
    assert found.codes.tolist() == [0, 1, 0]


def test_strings_are_compared_character_by_character():
    found = match_units(np.array(["7", "007", "7 ", "é", "e\u0301"]))
    assert len(found.names) == 5
    assert match_units(["1"]).names != match_units([1]).names


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["1", 1], "all integers or all strings"),
        (np.array(["1", 1], dtype=object), "all integers or all strings"),
        ([True, False], r"units\[0\].*a bool"),
        ([1.0, 2.0], r"units\[0\].*a float"),
        (np.array([1.0, 2.0]), "an array of float64"),
        (np.array([[1], [2]]), "shape"),
        ([[1], [2]], "a list"),
        ("ab", "sequence"),
        (np.array([b"a"]), "integers or strings"),
        (np.ma.array([1, 2], mask=[True, False]), "masked"),
    ],
)
def test_ambiguous_owners_are_refused(ids, words):
    with pytest.raises(InvalidInputError, match=words):
        match_units(ids)


def test_owners_do_not_show_themselves():
    units = match_units(["alice", "bob"])
    assert repr(units) == "Units(<private>)"
    assert units.digest() != match_units(["alice", "alice"]).digest()
    assert units.digest() != match_units(["alice", "bo"]).digest()


@pytest.mark.parametrize("missing", [False, True])
def test_categories_of_pandas_are_owners(missing):
    owners = [2**53 + 1, 2**53]
    cells = pd.Series(pd.Categorical([*owners, None if missing else owners[0]], categories=owners))
    units = match_units(cells, strict=False)
    assert units.codes.tolist() == [0, 1, -1 if missing else 0]
    assert units.names == tuple(b"i%d" % owner for owner in owners)


def test_bytes_that_are_no_text_are_a_missing_owner():
    assert match_units(["a", b"\xff", "b"], strict=False).codes.tolist() == [0, -1, 1]
    with pytest.raises(InvalidInputError, match=r"units\[1\]: .*zero.* bytes that are no text"):
        match_units(["a", b"\xff", "b"])
    with pytest.raises(InvalidInputError, match="a bytes"):
        match_units(["a", b"c", "b"], strict=False)
