"""Pages built as trees: no text becomes markup, whatever it is."""

from __future__ import annotations

from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pages import ReadPage
from privmix import InvalidInputError
from privmix._validate import printable
from privmix.markup import element, markdown, page


@given(st.text(), st.text())
def test_no_text_becomes_markup(text, value):
    shown = element("p", text, title=value).render()
    read = ReadPage(shown)
    assert [tag for tag, _ in read.elements] == ["p"]
    assert set(read.elements[0][1]) == {"title"}


@pytest.mark.parametrize("text", ["<b>", "a&amp;b", 'x" onload="y', "'", "</p>", "\n", "é"])
def test_printable_texts_arrive_as_they_are(text):
    read = ReadPage(element("p", text, title=text).render())
    assert "".join(read.texts) == text and read.elements[0][1]["title"] == text


def test_marks_that_turn_the_direction_of_writing_are_shown():
    assert element("p", "a\u202eb").render() == "<p>a\\u202eb</p>"


def test_attributes():
    made = element("input", class_="a", aria_label="b", hidden=True, min=0.5, max=None, open=False)
    assert made.render() == '<input class="a" aria-label="b" hidden="" min="0.5">'


def test_children_may_be_nested_and_absent():
    made = element("ul", None, [element("li", text) for text in "ab"], ["c", [None, "d"]])
    assert made.render() == "<ul><li>a</li><li>b</li>cd</ul>"


def test_scripts_are_constants_that_cannot_end_early():
    assert element("script", "a < b && c").render() == "<script>a < b && c</script>"
    with pytest.raises(InvalidInputError, match="<script>: expected content without </"):
        element("script", "x = '</script>'")


def test_a_page():
    text = page("A & B", [element("style", "p{}")], [element("h1", "A & B")])
    assert text.startswith('<!doctype html>\n<html lang="en">')
    assert "<title>A &amp; B</title>" in text and ReadPage(text).headings == [(1, "A & B")]


@given(st.text())
def test_no_text_becomes_markdown(text):
    shown = markdown(text)
    assert shown.isprintable()
    assert not set(shown) & set("<>[]`*|~$\\")
    assert unescape(shown) == printable(text)
