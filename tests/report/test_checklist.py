"""The checklist and the registry's entry: what facts answer is answered, the rest is blank."""

from __future__ import annotations

import json

from privmix.report.facts import report_facts


def answers(facts):
    return {one.question: one for one in facts.checklist}


def test_every_answer_has_a_source_and_every_blank_none(released):
    facts = report_facts(released)
    assert all((one.answer is None) == (one.source is None) for one in facts.checklist)
    assert len({one.question for one in facts.checklist}) == len(facts.checklist)
    assert len({one.part for one in facts.checklist}) == 4


def test_what_is_given_fills_blanks(released, evaluation, audit):
    bare = answers(report_facts(released))
    full = answers(
        report_facts(
            released, evaluation=evaluation, audit=audit, ledger=released.parent / "ledger.db"
        )
    )
    filled = {q: one for q, one in full.items() if one.answer is not None}
    news = {q for q, one in bare.items() if one.answer is None} & set(filled)
    assert {filled[q].source for q in news} == {"ledger", "evaluation", "audit"}
    assert all(full[q] == one for q, one in bare.items() if one.answer is not None)


def test_what_only_people_know_stays_blank(released, evaluation, audit):
    facts = report_facts(
        released, evaluation=evaluation, audit=audit, ledger=released.parent / "ledger.db"
    )
    blank = " ".join(one.question for one in facts.checklist if one.answer is None)
    for word in ("Who decided", "collected", "secured", "accurate enough", "without a look"):
        assert word in blank


def test_the_entry_has_the_registrys_parts(released):
    facts = report_facts(released)
    entry = json.loads(json.dumps(facts.deployment))
    assert set(entry) == {"url_slug", "deployment"}
    parts = entry["deployment"]
    assert list(parts) == [
        "basic",
        "dp_variant",
        "privacy_loss",
        "deployment_model",
        "implementation",
        "administrative",
    ]
    assert parts["privacy_loss"]["privacy_parameters"] == {
        "epsilon": facts.guarantee.epsilon,
        "delta": facts.guarantee.delta,
    }
    assert parts["basic"]["intended_use"] is None and parts["administrative"]["status"] == "Draft"
