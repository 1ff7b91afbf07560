"""Attribute inference on tables: what a release says of a column of a record that is known otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression

from privmix import _validate
from privmix.attacks.rows import Background, row_scores
from privmix.attacks.scores import CONFIDENCE, Interval, clopper_pearson
from privmix.features.tabular import TabularExtractor
from privmix.publishing.release import Release
from privmix.schema.table import TableSchema

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AttributeGuesses:
    """Which guesses of an attribute were right.

    What is true of a population helps to guess anybody's attribute, and is what a release is for. The
    leak is what is guessed better of those who took part.

    Attributes:
        members: (count,) booleans, of records that took part.
        non_members: (count,) booleans: the same attacker on records that did not.

    """

    members: NDArray[np.bool_]
    non_members: NDArray[np.bool_]

    def __post_init__(self) -> None:
        for name in ("members", "non_members"):
            given = np.asarray(getattr(self, name))
            if given.dtype != np.bool_ or given.ndim != 1 or not len(given):
                _validate.fail(
                    name, "booleans of at least one record", f"an array of {given.dtype}"
                )

    @property
    def advantage(self) -> float:
        """Accuracy on members less that on non-members."""
        return float(self.members.mean() - self.non_members.mean())

    def accuracies(self, confidence: float = CONFIDENCE) -> tuple[Interval, Interval]:
        """Return the accuracies on members and on non-members with limits of Clopper and Pearson."""
        tail = (1 - _validate.real("confidence", confidence, above=0.0, below=1.0)) / 2
        one, other = (
            clopper_pearson(int(group.sum()), len(group), tail)
            for group in (self.members, self.non_members)
        )
        return one, other

    def leaks(self, confidence: float = CONFIDENCE) -> bool:
        """Whether members' attributes are guessed better, beyond chance.

        Of like groups this is true with probability of at most 1 - ``confidence``.
        """
        members, non_members = self.accuracies(confidence)
        return members.low > non_members.high


def with_value(records: pa.Table, column: str, value: Any) -> pa.Table:
    """Return records whose ``column`` holds one value everywhere."""
    if column not in records.column_names:
        _validate.fail("column", "one of the table's", repr(column))
    place = records.column_names.index(column)
    return records.set_column(place, column, pa.array([value] * records.num_rows))


def infer_from_rows(
    release: Release,
    records: pa.Table,
    labels: ArrayLike,
    column: str,
    values: Sequence[Any],
    background: Background,
    log_prior: ArrayLike,
) -> NDArray[np.intp]:
    """Guess an attribute by which of its values makes the published rows likeliest.

    The attacker knows that the target took part, all other columns and the label, and ``background``.

    Args:
        release: A release of a table.
        records: Targets; what they hold in ``column`` is not looked at.
        labels: (count,) theirs.
        column: The attribute.
        values: What it may be.
        background: The other records, or others like them, as features.
        log_prior: (count, values) logarithms of what the attacker believed before.

    Returns:
        (count,) places in ``values``.

    """
    extractor = TabularExtractor(_table_of(release))
    scores = [
        row_scores(release, extractor.transform(with_value(records, column, v)), labels, background)
        for v in values
    ]
    believed = np.stack(scores, axis=1) + np.asarray(log_prior, dtype=np.float64)
    return np.asarray(believed.argmax(axis=1))


def infer_from_records(
    table: TableSchema,
    known: tuple[pa.Table, ArrayLike],
    targets: tuple[pa.Table, ArrayLike],
    column: str,
    values: Sequence[Any],
) -> Matrix:
    """Learn an attribute from all other columns and the label, and apply it to targets.

    With synthetic records this is the usual attack on them; with public ones of the same population it is what
    the attacker believes without a release.

    Args:
        table: The public schema of the columns.
        known: (rows, labels) that hold the attribute.
        targets: (rows, labels) of which it is guessed; what they hold there is not looked at.
        column: The attribute.
        values: What it may be.

    Returns:
        (count, values) log-probabilities. A value that no known record has is as likely as one in all
        of them and one more.

    """
    others = [one for one in table.columns if one.name != column]
    if len(others) == len(table.columns):
        _validate.fail("column", "one of the table's", repr(column))
    rest = TabularExtractor(table.model_copy(update={"columns": tuple(others)}))
    classes, known_labels = np.unique(np.asarray(known[1]), return_inverse=True)
    truth = _places(known[0], column, values)
    sides = []
    for rows, labels in ((known[0], classes[known_labels]), targets):
        one_hot = np.asarray(labels)[:, None] == classes
        sides.append(np.hstack([rest.transform(rows), one_hot]))
    there = truth >= 0
    rare = np.log(1 / (there.sum() + 1))
    found = np.full((len(sides[1]), len(values)), rare)
    if len(np.unique(truth[there])) < 2:
        found[:, truth[there][:1]] = 0.0
        return found
    model = LogisticRegression(max_iter=500).fit(sides[0][there], truth[there])
    found[:, model.classes_] = np.maximum(model.predict_log_proba(sides[1]), rare)
    return found


def _places(rows: pa.Table, column: str, values: Sequence[Any]) -> NDArray[np.intp]:
    """Return the place of each row's value; -1 for another or none."""
    places = {value: place for place, value in enumerate(values)}
    return np.array([places.get(value, -1) for value in rows[column].to_pylist()], dtype=np.intp)


def _table_of(release: Release) -> TableSchema:
    if release.schema.table is None:
        _validate.fail("release.schema.table", "the columns of a table", "none")
    return release.schema.table
