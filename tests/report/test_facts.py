"""What a report states: all of it from what was verified."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest

import privmix
from builders import make_data
from privmix import InvalidInputError, Schema
from privmix.mechanism import DESIGNS
from privmix.report.facts import FALSE_ALARMS, report_facts
from privmix.report.words import DESIGN_WORDS


@pytest.fixture(scope="module")
def facts(released):
    return report_facts(released)


def test_the_numbers_are_those_of_the_certificate(facts, released):
    certificate = privmix.Release(released).certificate
    assert facts.guarantee == certificate.guarantee
    assert facts.epsilon_by_delta == certificate.epsilon_by_delta
    assert facts.tradeoff_curve == certificate.tradeoff_curve
    assert facts.certificate == (released / "certificate.json").read_text()
    assert facts.digest == certificate.digest() and facts.digest in "".join(facts.checks.values())
    assert facts.private and facts.kind == "release" and facts.name == "made"


def test_an_attackers_gain_is_never_told_smaller_than_the_bound(facts):
    assert [gain.false_alarms for gain in facts.attacker] == [1.0, 10.0, 100.0]
    for gain, rate in zip(facts.attacker, FALSE_ALARMS, strict=True):
        bound = 1000 * facts.tradeoff_curve.true_positive_rate(rate)
        assert bound <= gain.found_at_most <= bound * 1.01
        assert gain.found_at_most > gain.by_guessing == pytest.approx(1000 * rate)


def test_the_alternatives_are_ranked_and_one_is_taken(facts):
    errors = [one.predicted_error for one in facts.alternatives]
    assert errors == sorted(errors) and sum(one.taken for one in facts.alternatives) == 1
    assert next(one for one in facts.alternatives if one.taken).design == "poisson"


def test_every_design_has_words():
    assert set(DESIGN_WORDS) == set(DESIGNS)


def test_nothing_that_is_stated_depends_on_the_records(plan, released, facts, tmp_path):
    """Another data set under the same plan: the facts differ by rows, digests and names of files alone."""
    x, y = make_data(plan.data_schema, 37, seed=5)
    privmix.release(-x, y, plan, out=tmp_path / "made")
    other = report_facts(tmp_path / "made").model_dump()
    same = facts.model_dump()
    for name in ("digest", "checks", "certificate", "example"):
        assert other.pop(name) != same.pop(name)
    assert other == same


def test_the_example_shows_a_published_row_and_no_record(facts, released):
    example = facts.example
    rows = privmix.Release(released).features
    assert example.row == pytest.approx(rows[0].tolist(), rel=1e-5)
    assert math.hypot(*example.record) == pytest.approx(1.0, rel=1e-4)
    assert math.hypot(*example.share) == pytest.approx(example.share_length, rel=1e-4)
    assert example.noise_length == pytest.approx(example.noise_stddev * math.sqrt(12))


def test_what_stands_beside_it(released, evaluation, audit):
    facts = report_facts(
        released, evaluation=evaluation, audit=audit, ledger=released.parent / "ledger.db"
    )
    assert facts.utility.measures[0].interval == (0.7, 0.9)
    assert facts.audit.lower_bound == 0.4 and not facts.audit.contradicts
    (one,) = facts.ledger
    assert one.epsilon_before == 0.0 and one.epsilon_after == one.epsilon_now <= one.epsilon_limit
    assert json.loads(facts.model_dump_json())["ledger"][0]["dataset_id"] == "people"


def test_what_does_not_verify_gets_no_report(damaged):
    with pytest.raises(InvalidInputError, match=r"privmix verify accepts.*part-00000"):
        report_facts(damaged)


def test_a_signature_of_something_else_gets_no_report(released, tmp_path):
    shutil.copytree(released, tmp_path / "r")
    (tmp_path / "r" / "certificate.json.sig").write_text("none")
    with pytest.raises(InvalidInputError, match="signature"):
        report_facts(tmp_path / "r")


def test_what_is_no_release_gets_no_report(tmp_path):
    with pytest.raises(InvalidInputError, match="no such folder"):
        report_facts(tmp_path / "none")
    with pytest.raises(InvalidInputError):
        report_facts(tmp_path)


def test_a_test_seed_is_told_and_nothing_is_promised(for_tests):
    facts = report_facts(for_tests)
    assert not facts.private and facts.attacker == ()
    assert facts.deployment["deployment"]["privacy_loss"]["privacy_parameters"] is None
    drawn = [one.answer for one in facts.checklist if "random numbers" in one.question]
    assert drawn[0].startswith("NOT")


def test_a_forged_stamp_is_no_test_seed(for_tests, tmp_path):
    """A test-seed release whose certificate says that it is private does not verify."""
    shutil.copytree(for_tests, tmp_path / "r")
    path = tmp_path / "r" / "certificate.json"
    path.write_text(path.read_text().replace('"private": false', '"private": true'))
    with pytest.raises(InvalidInputError, match="privmix verify accepts"):
        report_facts(tmp_path / "r")


def test_units_are_named(tmp_path):
    schema = Schema(classes=[0, 1], num_features=4, num_records=60, feature_clip_norm=1.0)
    plan = privmix.plan_release(
        schema,
        target_epsilon=3.0,
        target_delta=1e-5,
        design="stratified",
        rows_per_class=5,
        preprocessing=(),
        unit_column="patient",
        max_records_per_unit=2,
    )
    x, y = make_data(schema, 60)
    privmix.release(x, y, plan, out=tmp_path / "r", units=np.arange(60) // 2)
    facts = report_facts(tmp_path / "r")
    assert facts.alternatives == () and "'patient'" in facts.guarantee.protects
    assert any("several of them together" in line for line in facts.not_protected)
