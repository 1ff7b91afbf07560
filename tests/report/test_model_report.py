"""The report of a model: the same page, without rows."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from pages import ReadPage, check_structure
from privmix.dpsgd import LinearHead, fit
from privmix.report.facts import report_facts
from privmix.report.page import report_page
from training_cases import Pooled, make_images, make_plan


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "m"
    fit(*make_images(60), make_plan(), model=LinearHead(Pooled()), out=folder)
    return folder


def test_a_model(model):
    facts = report_facts(model)
    assert facts.kind == "model" and facts.private and facts.example is None
    assert ("augmentations of a record", "5") in facts.plan
    assert not any(name == "class weights" for name, _ in facts.plan)
    assert ("steps", "4") in facts.plan and "privmix.load_model" in facts.loading["privmix"]
    page = ReadPage(report_page(facts))
    check_structure(page)
    titles = [title for _, title in page.headings]
    assert "What a row looks like" not in titles and "Alternatives" not in titles
    assert "train the last layer of a public network" in page.section("What was done")


def test_class_weights_of_a_model_are_told(tmp_path):
    plan = make_plan(class_weight=(1.0, 2.0, 0.5))
    fit(*make_images(60), plan, model=LinearHead(Pooled()), out=tmp_path / "m", test_seed=0)
    assert ("class weights", "1, 2, 0.5") in report_facts(tmp_path / "m").plan


def test_a_model_for_research_is_stamped(tmp_path):
    folder = tmp_path / "m"
    fit(*make_images(60), make_plan(), model=LinearHead(Pooled()), out=folder, test_seed=0)
    page = ReadPage(report_page(report_facts(folder)))
    check_structure(page)
    assert "NOT PRIVATE" in page.text.partition("In short")[0]
