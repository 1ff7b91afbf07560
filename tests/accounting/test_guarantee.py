"""The words of a guarantee: nothing rounded down, weakness and absence said."""

from __future__ import annotations

import math

import pytest

from privmix.accounting.guarantee import NOT_PRIVATE, Guarantee, number

SIZES = {"num_records": 1000}


def of(epsilon=1.0, delta=1e-5, relation="add_or_remove_one", **more):
    return Guarantee.of(epsilon, delta, relation, **(SIZES | more))


def test_numbers_are_said_in_full():
    told = of(1.99836, 1.0000001e-5)
    assert told.statement.startswith("(1.99836, 1.0000001e-05)-differentially private for")
    assert "exp(1.99836) = 7.38" in told.meaning
    assert float(number(0.1 + 0.2)) == 0.1 + 0.2
    assert number(1.0) == "1"


def test_the_factor_is_rounded_up():
    for epsilon in (0.1, 1.0, 2.0, 9.9):
        told = of(epsilon).meaning
        factor = float(told.split(" = ")[1].split(",")[0])
        assert math.exp(epsilon) <= factor <= 1.01 * math.exp(epsilon)
    assert " = " not in of(400.0).meaning  # and no overflow


def test_who_is_protected():
    assert "any one record" in of().protects
    assert "number of records, which is public" in of(relation="replace_one").protects
    unit = of(unit_column="patient", max_records_per_unit=4)
    assert "any one 'patient' with all of its records, at most 4" in unit.protects
    assert unit.privacy_unit == "patient"


def test_an_attackers_gain_is_rounded_up():
    assert "at most 2.01 members in 100 (guessing: 1)" in of(true_positive_rate=0.020001).attacker
    assert "at most 100 members" in of(true_positive_rate=1.0).attacker
    assert of().attacker is None


@pytest.mark.parametrize(
    ("epsilon", "delta", "words"),
    [
        (10.0, 1e-5, []),
        (10.0001, 1e-5, ["epsilon 10.0001 is above 10"]),
        (1.0, 1e-3, ["is above 0.0001"]),
        (1.0, 2e-3, ["above 1 / num_records", "is above 0.0001"]),
        (1.0, 1e-4, []),
    ],
)
def test_a_weak_guarantee_is_called_weak(epsilon, delta, words):
    told = of(epsilon, delta)
    assert len(told.weaknesses) == len(words)
    assert told.is_weak == bool(words)
    for line, word in zip(told.weaknesses, words, strict=True):
        assert line.startswith("weak: ")
        assert word in line
    assert [line for line in told.lines() if line.startswith("weak")] == list(told.weaknesses)


@pytest.mark.parametrize("what", ["release", "model"])
def test_no_sentence_claims_anything_of_what_is_not_private(what):
    told = of(1.0, private=False, what=what, true_positive_rate=0.02)
    for text in (told.statement, told.protects, told.meaning, *told.lines(), *told.warnings):
        assert text.startswith(NOT_PRIVATE)
        assert "differentially private" not in text
    assert told.attacker is None
    assert told.true_positive_rate is None
