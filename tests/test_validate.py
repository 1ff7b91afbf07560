"""Errors have one form, and what they print of strangers is one line that no terminal acts on."""

from __future__ import annotations

import os

import pytest

from privmix import InvalidInputError
from privmix._validate import numbers, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, Zürich, 東京", "plain, Zürich, 東京"),
        ("a\nvalid: (0.1, 1e-9)", r"a\nvalid: (0.1, 1e-9)"),
        ("\x1b[2J\x9b2J\x07\x7f", r"\x1b[2J\x9b2J\x07\x7f"),
        ("a\u202eb\u2028c\u2066", r"a\u202eb\u2028c\u2066"),
        (os.fsdecode(b"rel\xff"), r"rel\xff"),
        ("\ud800", r"\ud800"),
        ("\U000e0001", r"\U000e0001"),
    ],
)
def test_printable(text, shown):
    assert printable(text) == shown
    assert printable(shown) == shown
    assert str(InvalidInputError("p", "a", text)) == f"p: expected a, got {shown}"
    assert len(printable("x" * 10**6, 100)) < 150
    assert printable(10**5000) == "a very long int"


@pytest.mark.parametrize(
    ("said", "due"),
    [
        (("--mix-size", "at most 100", 101), "--mix-size: expected at most 100, got 101"),
        (("--label", "the label column", "nothing"), "--label: required: the label column"),
        (("--seed", "nothing beside --plan", 3), "--seed: not accepted beside --plan, got 3"),
        (("t.csv", "a, b", "missing column 'c'"), "t.csv: missing column 'c'; expected a, b"),
        (("out=r", "a run", "nothing to resume"), "out=r: nothing to resume; expected a run"),
    ],
)
def test_an_error_has_one_form_for_each_kind_of_fault(said, due):
    assert str(InvalidInputError(*said)) == due


def test_numbers_are_read_with_and_without_brackets():
    for text in ("0.9,0.1", "[0.9, 0.1]", " 0.9 ,0.1"):
        assert numbers("--shares", text, "numbers") == (0.9, 0.1)
    for text in ("", "[]", "[1", "1,,2", "much", "nan", "1e999", "[" * 100_000):
        with pytest.raises(ValueError, match="^--shares: expected numbers, got '") as told:
            numbers("--shares", text, "numbers")
        assert len(str(told.value)) < 200
