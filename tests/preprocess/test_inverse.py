"""Undoing preprocessing: what steps have made of vectors leads back to the vectors."""

from __future__ import annotations

import numpy as np
import pytest

from privmix.preprocess import (
    Center,
    ClassCounts,
    Intercept,
    Preprocessor,
    PublicStatistics,
    RandomProjection,
    UnitNorm,
)
from privmix.preprocess.inverse import Inverse
from privmix.preprocess.steps import RecordFacts

FACTS = RecordFacts(
    num_records=100,
    num_classes=2,
    num_features=4,
    clip_norm=2.0,
    neighboring_relation="add_or_remove_one",
)
MEAN = np.array([0.2, -0.1, 0.3, 0.0])


def preprocessor(*steps):
    results = tuple({"mean": MEAN} if isinstance(step, Center) else {} for step in steps)
    return Preprocessor(steps, FACTS, results)


def vectors(count=50):
    rows = np.random.default_rng(0).normal(size=(count, 4))
    return rows * np.linspace(0.1, 1.5, count)[:, None] / np.linalg.norm(rows, axis=1)[:, None]


CENTER = Center(noise_multiplier=1.0)
STATISTICS = PublicStatistics(dataset="public 1", mean=(0.1, 0.0, 0.0, 0.2), stddev=(2, 2, 3, 2))


@pytest.mark.parametrize(
    "steps",
    [
        (CENTER, Intercept(), UnitNorm()),
        (CENTER, Intercept(share=0.2), UnitNorm(), Intercept()),
        (ClassCounts(noise_multiplier=1.0), CENTER, Intercept(), UnitNorm(), Intercept(share=0.3)),
        (CENTER, Intercept(), ClassCounts(noise_multiplier=1.0), UnitNorm()),
        (STATISTICS, CENTER, Intercept(), UnitNorm()),
        (CENTER, Intercept()),
        (CENTER,),
    ],
)
def test_a_constant_before_scaling_keeps_lengths(steps):
    made = preprocessor(*steps)
    rows = made.transform(vectors())
    inverse = Inverse.of(made)
    assert not inverse.loses_lengths
    assert np.abs(inverse.undo(rows) - vectors()).max() < 1e-12
    if isinstance(steps[-1], Intercept):
        assert np.array_equal(inverse.undo(rows[:, :-1]), inverse.undo(rows))


def test_a_constant_that_has_grown_is_taken_as_it_was():
    """No record's can have: it would have been longer than the clip norm."""
    row = np.array([[1.0, 0.0, 0.0, 0.0, 0.5]])
    row *= FACTS.clip_norm / np.linalg.norm(row)
    due = MEAN + row[0, :-1] / np.sqrt(0.75)
    due *= FACTS.clip_norm / np.linalg.norm(due)
    inverse = Inverse.of(preprocessor(CENTER, Intercept(share=0.25), UnitNorm()))
    assert np.allclose(inverse.undo(row), due)


def test_without_one_lengths_are_those_asked_for():
    inverse = Inverse.of(preprocessor(CENTER, UnitNorm()))
    assert inverse.loses_lengths
    found = inverse.undo(preprocessor(CENTER, UnitNorm()).transform(vectors()), radius=0.7)
    assert np.allclose(np.linalg.norm(found - MEAN, axis=1), 0.7)


@pytest.mark.parametrize(
    "steps",
    [
        (Intercept(), PublicStatistics(dataset="public 1", mean=(0.1,) * 5), UnitNorm()),
        (Intercept(), Intercept()),
        (RandomProjection(num_directions=2), UnitNorm()),
    ],
)
def test_what_cannot_be_undone(steps):
    assert Inverse.of(preprocessor(*steps)) is None
