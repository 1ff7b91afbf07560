"""A guarantee in words: who is protected, for how much, from whom, and when it is weak or none.

Every sentence about a guarantee that privmix prints or writes comes from here, so that plan,
certificate, card, verification, learners and models say the same.
"""

from __future__ import annotations

import math
from typing import Literal, Self

from privmix._validate import FrozenModel
from privmix.accounting.events import NeighboringRelation
from privmix.accounting.rounding import rounded_up

NOT_PRIVATE = "NOT PRIVATE"
FALSE_ALARMS = 0.01  # at which an attacker's gain is told
WEAK_EPSILON = 10.0
WEAK_DELTA = 1e-4

_WHY_NOT = {
    "release": "made with a test seed, which anybody can guess; it protects nobody",
    "model": "trained with a test seed or for research; it protects nobody",
}


class NotPrivateWarning(UserWarning):
    """Something was learnt from a release that protects nobody."""


class Guarantee(FrozenModel):
    """What is guaranteed, as numbers and as sentences; JSON out.

    Attributes:
        private: False for what was made with a test seed or for research: nothing is guaranteed.
        epsilon: Upper bound on the privacy loss at ``delta``; of no meaning unless ``private``.
        delta: Its delta.
        neighboring_relation: What neighbouring data sets differ in.
        privacy_unit: ``record``, or the public name of what owns several.
        statement: One line that says all of it; starts with ``NOT PRIVATE`` if nothing holds.
        protects: Who is protected.
        meaning: What epsilon and delta say.
        true_positive_rate: Most that an attacker finds at ``FALSE_ALARMS``; None if not known.
        attacker: The same in words; None if not known.
        weaknesses: A line for each number that makes the guarantee a weak one.

    """

    private: bool
    epsilon: float
    delta: float
    neighboring_relation: NeighboringRelation
    privacy_unit: str
    statement: str
    protects: str
    meaning: str
    true_positive_rate: float | None
    attacker: str | None
    weaknesses: tuple[str, ...]

    @classmethod
    def of(
        cls,
        epsilon: float,
        delta: float,
        neighboring_relation: NeighboringRelation,
        *,
        num_records: int,
        private: bool = True,
        what: Literal["release", "model"] = "release",
        unit_column: str | None = None,
        max_records_per_unit: int | None = None,
        true_positive_rate: float | None = None,
    ) -> Self:
        """Put a guarantee into words.

        ``epsilon`` and ``delta`` are said with all their digits: give an epsilon as it is stated
        (``accounting.stated``). ``num_records`` is the public number.
        """
        spent = f"({number(epsilon)}, {number(delta)})-differentially private"
        change, protects = _change(neighboring_relation, unit_column, max_records_per_unit)
        statement, attacker = f"{spent} for {change}", None
        meaning = (
            f"{change} changes the probability of any outcome by at most a factor of "
            f"exp({number(epsilon)}){_factor(epsilon)}, but for a probability of {number(delta)}"
        )
        if true_positive_rate is not None:
            attacker = (
                f"an attacker who accepts {100 * FALSE_ALARMS:g} false alarm in 100 is right about "
                f"at most {min(100.0, rounded_up(100 * true_positive_rate, 3)):.3g} members in 100 "
                f"(guessing: {100 * FALSE_ALARMS:g})"
            )
        weaknesses = _weaknesses(epsilon, delta, num_records)
        if not private:
            statement = protects = meaning = f"{NOT_PRIVATE}: {_WHY_NOT[what]}"
            true_positive_rate, attacker, weaknesses = None, None, ()
        return cls(
            private=private,
            epsilon=epsilon,
            delta=delta,
            neighboring_relation=neighboring_relation,
            privacy_unit=unit_column or "record",
            statement=statement,
            protects=protects,
            meaning=meaning,
            true_positive_rate=true_positive_rate,
            attacker=attacker,
            weaknesses=weaknesses,
        )

    @property
    def is_weak(self) -> bool:
        """Whether a number of it is beyond what is usually called privacy."""
        return bool(self.weaknesses)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What nobody may overlook: that nothing is protected, or that little is."""
        return self.weaknesses if self.private else (self.statement,)

    def lines(self) -> list[str]:
        """Return the sentences for people, one a line."""
        if not self.private:
            return [self.statement]
        told = [f"protects: {self.protects}", f"that is: {self.meaning}"]
        if self.attacker is not None:
            told.append(f"attacker: {self.attacker}")
        return [*told, *self.weaknesses]


def number(value: float) -> str:
    """Return a number with all its digits and no more: what is read is what was written."""
    return repr(float(value)).removesuffix(".0")


def _change(
    relation: NeighboringRelation, unit_column: str | None, max_records_per_unit: int | None
) -> tuple[str, str]:
    """Return what neighbouring data sets differ in, and who is protected by that."""
    if unit_column is not None:
        change = (
            f"adding or removing all records of any one {unit_column!r}, of which at most "
            f"{max_records_per_unit} took part"
        )
        return change, (
            f"any one {unit_column!r} with all of its records, at most {max_records_per_unit} of "
            "which took part: their features, their labels, and that they were there"
        )
    if relation == "replace_one":
        change = "replacing any one record by another"
        return change, (
            "any one record: its features and its label; not the number of records, which is public"
        )
    change = "adding or removing any one record"
    return change, "any one record: its features, its label, and that it was there"


def _factor(epsilon: float) -> str:
    if epsilon > 50:
        return ""
    return f" = {number(rounded_up(math.exp(epsilon), 3))}"


def _weaknesses(epsilon: float, delta: float, num_records: int) -> tuple[str, ...]:
    found = []
    if epsilon > WEAK_EPSILON:
        found.append(
            f"weak: epsilon {number(epsilon)} is above {WEAK_EPSILON:g}; against an attacker who "
            "knows all other records it promises little"
        )
    if delta * num_records > 1:
        found.append(
            f"weak: delta {number(delta)} is above 1 / num_records; it allows that much probability "
            "of giving some record away outright"
        )
    if delta > WEAK_DELTA:
        found.append(
            f"weak: delta {number(delta)} is above {WEAK_DELTA:g}, the most that is usually "
            "called negligible"
        )
    return tuple(found)
