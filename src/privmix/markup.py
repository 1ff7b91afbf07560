"""HTML and SVG as a tree whose texts are escaped, whoever wrote them; foreign texts in Markdown.

A page is built of :func:`element`; only its rendering makes text of it. So no text can become markup:
there is no other way in. The contents of ``style`` and ``script`` are the one exception, since they
have no escapes: they must be constants of this library, and :func:`element` refuses an end tag in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import NamedTuple, TypeAlias, Union

from privmix import _validate
from privmix._validate import printable

# Elements without content or end tag.
_VOID = frozenset({"br", "col", "hr", "img", "input", "link", "meta"})
_RAW = frozenset({"style", "script"})
# Not _: within words, where names have it, it marks nothing.
_MARKDOWN = {ord(mark): f"&#{ord(mark)};" for mark in "&<>[]`*|~$\\"}

Content: TypeAlias = Union[str, "Element", Iterable["Content"], None]


class Element(NamedTuple):
    """One element: its name, its attributes in their order, and what is in it."""

    tag: str
    attributes: tuple[tuple[str, str], ...]
    children: tuple[Content, ...]

    def render(self) -> str:
        """Return the element as HTML; what is not printable is shown as an escape sequence."""
        return "".join(_texts(self))


def element(tag: str, *children: Content, **attributes: str | float | bool | None) -> Element:
    """Return an element.

    Args:
        tag: Its name.
        children: Texts, elements, None for nothing, or iterables of these.
        attributes: By name; ``_`` stands for ``-`` and one at the end is dropped (``class_``). None and
            False leave an attribute out, True gives it no value.

    Raises:
        InvalidInputError: An end tag in a ``style`` or a ``script``.

    """
    if tag in _RAW and any("</" in str(child) for child in children):
        _validate.fail(f"<{tag}>", "content without </", "one that ends it")
    found = []
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        told = "" if value is True else f"{value:.6g}" if isinstance(value, float) else str(value)
        found.append((name.rstrip("_").replace("_", "-"), told))
    return Element(tag, tuple(found), children)


def page(title: str, head: Iterable[Element], body: Iterable[Content]) -> str:
    """Return a whole page in English."""
    root = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            head,
            element("title", title),
        ),
        element("body", body),
        lang="en",
    )
    return f"<!doctype html>\n{root.render()}\n"


def facts_html(title: str, facts: Mapping[str, object]) -> str:
    """Return a table of facts as HTML: how objects show themselves in a notebook."""
    rows = [
        element(
            "tr",
            element("th", name, style="text-align:left"),
            element("td", str(value)),
        )
        for name, value in facts.items()
    ]
    return element("table", element("caption", title), rows).render()


def markdown(text: str) -> str:
    """Return a foreign text as Markdown that shows it: one line, without markup of any kind.

    What HTML, links, code, emphasis, tables or formulas are made of becomes a numeric entity; what is
    not printable, such as marks that turn the direction of writing, is shown as an escape sequence.
    """
    return printable(text).translate(_MARKDOWN)


def _texts(content: Content, raw: bool = False) -> Iterator[str]:
    if content is None:
        return
    if isinstance(content, str):
        yield content if raw else escape(_visible(content))
    elif isinstance(content, Element):
        attributes = "".join(
            f' {name}="{escape(_visible(value))}"' for name, value in content.attributes
        )
        yield f"<{content.tag}{attributes}>"
        if content.tag in _VOID:
            return
        for child in content.children:
            yield from _texts(child, content.tag in _RAW)
        yield f"</{content.tag}>"
    else:
        for one in content:
            yield from _texts(one, raw)


def _visible(text: str) -> str:
    """Show what would act on a reader's eyes, such as marks that turn the direction of writing."""
    return "\n".join(map(printable, text.split("\n")))
