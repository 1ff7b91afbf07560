"""The page: what a person finds in it, and what no stranger's text can do to it."""

from __future__ import annotations

import re

import pytest

from pages import ReadPage, check_structure
from privmix.accounting.guarantee import Guarantee
from privmix.report.facts import report_facts
from privmix.report.page import report_page


@pytest.fixture(scope="module")
def facts(released):
    return report_facts(released)


@pytest.fixture(scope="module")
def page(facts):
    return ReadPage(report_page(facts))


def test_it_is_built_for_every_reader(page):
    check_structure(page)


# The five questions of somebody who has never seen privmix: each is answered in the first screen,
# and at length in a section whose name is the question.
def test_who_is_protected(page):
    short = page.section("In short")
    assert (
        "Who is protected Any one record: its features, its label, and that it was there." in short
    )
    assert "whatever else they know" in page.section("Who is protected, and against what")


def test_how_strongly(page, facts):
    epsilon = f"{facts.guarantee.epsilon:g}"
    assert f"How strongly epsilon {epsilon} at delta 1e-05" in page.section("In short")
    told = page.section("How strongly")
    assert epsilon in told
    for value in facts.epsilon_by_delta.values():
        assert f"{value:g}" in told


def test_by_how_much_an_attacker_gains(page, facts):
    gain = facts.attacker[1]
    sentence = (
        "Of 1,000 people in the data, an attacker who wrongly accuses 10 of 1,000 others finds at most "
        f"{gain.found_at_most:g}; by guessing alone 10."
    )
    assert f"What an attacker gains {sentence}" in page.section("In short")
    told = page.section("What an attacker gains")
    assert told.count("Of 1,000 people in the data") == 3 and sentence in told


def test_what_is_not_protected(page, facts):
    short = page.section("In short")
    assert "What is not protected What is true of people in general" in short
    assert "other publications" in short and "people with several records" in short
    for line in facts.not_protected:
        assert line in page.section("What is not protected")


def test_how_to_check_that_it_is_genuine(page, facts):
    assert "Is it genuine? It is not signed. Ask the data holder" in page.section("In short")
    told = page.section("How to check that it is genuine")
    assert f"privmix verify DIR --expect-digest {facts.digest}" in told
    assert "anyone who can change all files can change the certificate" in told


def test_the_pictures_are_told_in_words(page):
    titles = [text for text in page.texts if "squares" in text]
    assert len(titles) == 3 and all("found by guessing" in text for text in titles)
    assert "At 1 % wrongly accused" in page.text


def test_the_certificate_is_there_in_full(page, facts):
    assert facts.certificate.count("\\u202e") == 0  # the file has the mark itself
    shown = "".join(page.texts)
    for line in facts.certificate.splitlines():
        assert line.replace("\u202e", "\\u202e") in shown


def test_blanks_are_marked_as_blanks(page, facts):
    blanks = sum(one.answer is None for one in facts.checklist)
    told = page.section("Checklist")
    assert told.count("BLANK: to be filled in") == blanks > 8
    assert f"{blanks} are blank" in told
    assert "Signature" in page.section("Decision")


def test_what_was_not_given_is_said(page):
    assert "No ledger was given" in page.section("The budget before and after")
    assert "Not measured" in page.section("How useful it is")
    assert "None was given" in page.section("Attacks and audits")


def test_what_was_given_is_shown(released, evaluation, audit, evil_names):
    facts = report_facts(
        released, evaluation=evaluation, audit=audit, ledger=released.parent / "ledger.db"
    )
    text = report_page(facts)
    page = ReadPage(text)
    check_structure(page)
    assert "accuracy 0.8 0.7 to 0.9" in page.section("How useful it is")
    assert "<b>sound</b>" in page.section("Attacks and audits")
    assert "Private to the data holder" in page.section("The budget before and after")
    assert "people 0 " in page.section("The budget before and after")
    for name in evil_names:
        assert name not in text
    assert "\u202e" not in text


def test_an_audit_that_contradicts_is_a_stamp(released, audit):
    audit.write_text(
        '{"epsilon": 9, "lower_bound": 7.5, "confidence": 0.99, "verdict": "violated"}'
    )
    page = ReadPage(report_page(report_facts(released, audit=audit)))
    stamps = [a for _, a in page.elements if a.get("class") == "stamp"]
    assert len(stamps) == 1 and "the guarantee does not hold as stated" in page.text
    assert "not the epsilon of this certificate" in page.section("Attacks and audits")


def test_a_weak_guarantee_is_a_stamp(facts):
    weak = Guarantee.of(20.0, 1e-3, "add_or_remove_one", num_records=60)
    page = ReadPage(report_page(facts.model_copy(update={"guarantee": weak})))
    assert "weak: epsilon 20 is above 10" in page.text.partition("Contents")[0]
    assert len([a for _, a in page.elements if a.get("class") == "stamp"]) == 2


def test_a_test_seed_is_stamped_and_no_number_is_promised(for_tests):
    page = ReadPage(report_page(report_facts(for_tests)))
    check_structure(page)
    assert "NOT PRIVATE" in page.text.partition("In short")[0]
    short = page.section("In short")
    assert "Who is protected Nobody." in short and "epsilon" not in short
    assert "at most" not in page.section("What an attacker gains")
    assert page.all("input") == []


def test_nothing_is_loaded_and_only_its_own_lines_run(facts):
    text = report_page(facts)
    assert len(ReadPage(text).scripts) == 1
    assert not re.search(r"https?:|url\(|@import|//[a-z]", text)
    policy = ReadPage(text).all("meta")[2]
    assert policy["http-equiv"] == "Content-Security-Policy"
    assert policy["content"].startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy["content"]
    assert not re.search(r"<[^>]* style=", text)


def test_it_is_small_and_the_same_again(facts):
    text = report_page(facts)
    assert len(text.encode()) < 300_000 and report_page(facts) == text


def test_a_long_certificate_is_cut_off_and_says_so(facts):
    long = facts.model_copy(update={"certificate": "x" * 1_200_000})
    text = report_page(long)
    assert len(text.encode()) < 2_000_000
    assert "The first 1,000,000 of 1,200,000 characters" in ReadPage(text).text
