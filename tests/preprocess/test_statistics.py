"""Charged steps: sums are exact, one record moves them within the stated sensitivity."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from builders import make_data, make_schema
from privmix import bound_records
from privmix.preprocess import Center, ClassCounts, RecordFacts, SelectFeatures, Subspace
from privmix.preprocess.statistics import exact_sums, noisy_statistics
from privmix.rng import MasterKey

STEPS = [
    Center(noise_multiplier=2.0),
    ClassCounts(noise_multiplier=2.0),
    SelectFeatures(num_selected=2, noise_multiplier=2.0),
    SelectFeatures(num_selected=2, with_squares=True, noise_multiplier=2.0),
    Subspace(num_directions=2, noise_multiplier=2.0),
]
SCHEMA = make_schema()


def facts(relation: str = "add_or_remove_one") -> RecordFacts:
    return RecordFacts(
        num_records=60, num_classes=3, num_features=5, clip_norm=1.0, neighboring_relation=relation
    )


def movement(step, one, other, relation: str) -> float:
    """Joint movement of everything a step publishes, in units of the noise, at most 1/2 here."""
    parts = step.statistics(facts(relation))
    squares = 0.0
    for part, stddev in zip(parts, step.stddevs(facts(relation)), strict=True):
        moved = exact_sums(part.kind, one, 3) - exact_sums(part.kind, other, 3)
        assert moved.shape == part.shape
        assert np.linalg.norm(moved.astype(float)) <= part.sensitivity * (1 + 1e-12)
        squares += float(np.square(moved / stddev).sum())
    return math.sqrt(squares)


@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.step)
@pytest.mark.parametrize("length", [1.0, 50.0, 1e-3, 0.0])
def test_one_more_record(step, length):
    x, y = make_data(SCHEMA, 61)
    x[-1] = [length, 0, 0, 0, 0]  # squares and products are longest along an axis
    with_it, without = bound_records(x, y, SCHEMA), bound_records(x[:-1], y[:-1], SCHEMA)
    moved = movement(step, with_it, without, "add_or_remove_one")
    noise = step.event("add_or_remove_one").noise_multiplier
    assert moved <= 1 / noise
    if length >= 1.0:
        assert moved > 0.999 / noise  # the bound is met, so that less noise would not do


@pytest.mark.parametrize(("step", "tight"), list(zip(STEPS, [1, 1, 1, 0.8, 1], strict=True)))
def test_another_record_in_its_place(step, tight):
    x, y = make_data(SCHEMA, 60)
    farthest = 0.0
    for vector, label in (([-1.0, 0, 0, 0, 0], 0), ([0, 1.0, 0, 0, 0], 1), ([0.3] * 5, 2)):
        x[-1], y[-1] = [1.0, 0, 0, 0, 0], 0
        other_x, other_y = x.copy(), y.copy()
        other_x[-1], other_y[-1] = vector, label
        pair = bound_records(x, y, SCHEMA), bound_records(other_x, other_y, SCHEMA)
        farthest = max(farthest, movement(step, *pair, "replace_one"))
    event = step.event("replace_one")
    assert event.neighboring_relation == "replace_one"
    assert farthest <= 1 / event.noise_multiplier
    assert farthest > 0.999 * tight / event.noise_multiplier


def test_sums_equal_brute_force(monkeypatch):
    monkeypatch.setattr("privmix.records.bounded._BATCH_BYTES", 8 * 8 * 5)
    x, y = make_data(SCHEMA, 60)
    y = y.copy()
    y[y == 1] = 0  # a class without records
    x[3] = np.nan  # a record that becomes nothing
    records = bound_records(x, y, SCHEMA, "zero", max_bad_share=1.0)
    q, labels = records.features.astype(object), records.labels
    one_hot = np.array([[int(k == c) for k in range(3)] for c in labels], dtype=object)
    products = [sum(row[i] * row[j] for row in q) for i in range(5) for j in range(i, 5)]
    for kind, expected in {
        "feature_sums": q.sum(axis=0),
        "class_sums": one_hot.T @ q,
        "square_sums": (q * q).sum(axis=0),
        "class_counts": one_hot.sum(axis=0),
        "second_moments": np.array(products),
    }.items():
        found = exact_sums(kind, records, 3)
        assert found.dtype == np.int64
        assert np.array_equal(found, expected.astype(np.int64))
    assert exact_sums("class_counts", records, 3).sum() == 59


@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.step)
def test_noise_has_the_stated_scale(step):
    """Records of nothing leave pure noise (false alarm 1e-8; a scale wrong by 1.5 is seen)."""
    records = bound_records(np.zeros((1, 5)), [0], SCHEMA)
    counted = exact_sums("class_counts", records, 3)
    draws: dict[str, list] = {}
    for seed in range(60):
        key = MasterKey.for_test(seed, b"statistics")
        for kind, values in noisy_statistics(step, facts(), records, key, 0).items():
            draws.setdefault(kind, []).append(values - (counted if kind == "class_counts" else 0))
    for part, stddev in zip(step.statistics(facts()), step.stddevs(facts()), strict=True):
        z = np.concatenate([d.ravel() for d in draws[part.kind]]) / stddev
        total, tail = float(np.square(z).sum()), 5e-9
        if part.kind == "class_counts":  # rounding to integers adds a variance of 1/12
            total /= 1 + 1 / (12 * stddev**2)
        low, high = stats.chi2.interval(1 - 2 * tail, z.size)
        assert low < total < high
        assert high / z.size < 1.5**2
        assert low / z.size > 1.5**-2


def test_the_noise_is_that_of_the_event():
    """One config yields noise and event: shares of the parts add up to one."""
    for step in STEPS:
        for relation in ("add_or_remove_one", "replace_one"):
            parts = step.statistics(facts(relation))
            assert sum(part.share for part in parts) == 1.0
            drawn = sum(
                (part.sensitivity / stddev) ** 2
                for part, stddev in zip(parts, step.stddevs(facts(relation)), strict=True)
            )
            accounted = step.event(relation).noise_multiplier
            assert accounted * (1 - 1e-14) <= drawn**-0.5 * (1 + 1e-15) <= accounted * (1 + 1e-11)
            assert step.event(relation).count == 1
