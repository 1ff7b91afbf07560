"""Attribute inference: what a release tells of a member's column, beyond what it tells of anybody's."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom

from builders import make_plan, make_schema
from privmix import InvalidInputError, Schema, release
from privmix.attacks import (
    AttributeGuesses,
    Background,
    infer_from_records,
    infer_from_rows,
    with_value,
)
from privmix.features.tabular import TabularExtractor

TOWNS = tuple(f"t{i}" for i in range(40))
SECRETS = ("red", "green", "blue")
COLUMNS = [
    {"name": "town", "type": "categorical", "categories": list(TOWNS), "nullable": False},
    {"name": "secret", "type": "categorical", "categories": list(SECRETS), "nullable": False},
]
COUNT = 60


@pytest.fixture(scope="module")
def schema() -> Schema:
    facts = {"classes": ["no", "yes"], "num_records": COUNT, "table": {"columns": COLUMNS}}
    return Schema.from_json(json.dumps(facts))


def draw(rng, count=COUNT):
    """Secrets that nothing tells: whoever guesses them better than one in three knows the records."""
    rows = pa.table({"town": rng.choice(TOWNS, count), "secret": rng.choice(SECRETS, count)})
    return rows, rng.choice(["no", "yes"], count)


def attack(schema, noise, tmp_path, rng):
    """Attack each target with all other records known, the strongest attacker there is."""
    extractor = TabularExtractor(schema.table)
    plan = make_plan(schema, "stratified", noise, sampling_prob=1.0, rows_per_class=1)
    rows, labels = draw(rng)
    made = release(rows, labels, plan, out=tmp_path / "r", test_seed=1, extractor=extractor)
    features, flat = extractor.transform(rows), np.zeros((1, len(SECRETS)))
    outside, outside_labels = draw(rng, 20)
    hits = ([], [])
    for target in range(20):
        others = np.arange(COUNT) != target
        background = Background(features[others], labels[others])
        for place, (some, theirs) in enumerate(((rows, labels), (outside, outside_labels))):
            one = some.slice(target, 1)
            guess = infer_from_rows(
                made, one, theirs[target : target + 1], "secret", SECRETS, background, flat
            )
            hits[place].append(SECRETS[guess[0]] == one["secret"][0].as_py())
    return AttributeGuesses(*(np.array(group) for group in hits))


def test_little_noise_gives_members_attributes_away(schema, tmp_path, rng):
    found = attack(schema, 0.05, tmp_path, rng)
    assert found.members.all()
    assert found.leaks(0.999)
    assert found.advantage > 0.3


def test_much_noise_does_not(schema, tmp_path, rng):
    """By chance 17 of 20 are right once in a million."""
    found = attack(schema, 20.0, tmp_path, rng)
    assert found.members.sum() <= binom.isf(1e-6, 20, 1 / 3)
    assert not found.leaks(0.999)


def test_no_alarms_where_nobody_took_part(rng):
    """Like groups: at most 5 % of 400, but for once in a million."""
    alarms = sum(
        AttributeGuesses(rng.random(100) < 0.4, rng.random(80) < 0.4).leaks() for _ in range(400)
    )
    assert alarms <= binom.isf(1e-6, 400, 0.05)


class TestFromRecords:
    """The attacker who learns from records: synthetic ones, or a population."""

    def test_what_other_columns_tell_is_found(self, schema, rng):
        towns = rng.choice(TOWNS[:3], 300)
        secret = np.array(SECRETS)[[TOWNS.index(town) for town in towns]]
        known = (pa.table({"town": towns, "secret": secret}), rng.choice(["no", "yes"], 300))
        hidden = (with_value(known[0], "secret", "red"), known[1])
        found = infer_from_records(schema.table, known, hidden, "secret", SECRETS)
        assert (np.array(SECRETS)[found.argmax(axis=1)] == secret).all()
        np.testing.assert_allclose(np.exp(found).sum(axis=1), 1.0, atol=0.01)

    def test_a_label_tells_too(self, schema, rng):
        labels = rng.choice(["no", "yes"], 300)
        secret = np.where(labels == "yes", "green", "blue")
        known = (pa.table({"town": rng.choice(TOWNS, 300), "secret": secret}), labels)
        found = infer_from_records(schema.table, known, known, "secret", SECRETS)
        assert (np.array(SECRETS)[found.argmax(axis=1)] == secret).all()
        np.testing.assert_allclose(found[:, 0], np.log(1 / 301))

    def test_records_that_all_hold_one_value(self, schema, rng):
        rows, labels = draw(rng)
        known = (with_value(rows, "secret", "blue"), labels)
        found = infer_from_records(schema.table, known, (rows, labels), "secret", SECRETS)
        assert (found.argmax(axis=1) == 2).all()


def test_what_is_refused(schema, tmp_path, rng):
    rows, labels = draw(rng)
    with pytest.raises(InvalidInputError, match="column: expected one of the table's"):
        with_value(rows, "income", 1)
    with pytest.raises(InvalidInputError, match="column: expected one of the table's"):
        infer_from_records(schema.table, (rows, labels), (rows, labels), "income", SECRETS)
    with pytest.raises(InvalidInputError, match="members: expected booleans"):
        AttributeGuesses(np.array([1, 0]), np.array([True]))
    plain = make_schema()
    x = rng.standard_normal((60, 5))
    plan = make_plan(plain, "poisson", mix_size=6.0)
    made = release(x, np.zeros(60, dtype=int), plan, out=tmp_path / "p", test_seed=1)
    with pytest.raises(InvalidInputError, match="release.schema.table"):
        infer_from_rows(
            made, rows, labels, "secret", SECRETS, Background(x, labels), np.zeros((1, 3))
        )
