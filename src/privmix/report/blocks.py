"""What the sections of a page are built of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from privmix.accounting.rounding import format_epsilon
from privmix.markup import Element
from privmix.markup import element as h


def sentence(text: str) -> str:
    """Return a text as a sentence."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def lead_line(text: str) -> Element:
    """Return a line whose beginning, up to a colon, says what it is about."""
    about, colon, rest = text.partition(":")
    return h("li", h("strong", about + colon), rest) if colon else h("li", text)


def code_box(text: str, label: str, *, long: bool = False) -> Element:
    """Return code in a box that the keyboard can scroll."""
    return h(
        "pre",
        h("code", text),
        tabindex="0",
        role="region",
        aria_label=label,
        class_="long" if long else None,
    )


def data_table(
    caption: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str | Element]],
    *,
    numbers: int = 0,
) -> Element:
    """Return a table; the last ``numbers`` columns are numbers, and the first names its row."""
    first = len(header) - numbers

    kinds = [None if i < max(first, 1) else "number" for i in range(len(header))]

    def cell(place: int, content: str | Element) -> Element:
        if place == 0:
            return h("th", content, scope="row")
        return h("td", content, class_=kinds[place])

    heads = [
        h("th", text, scope="col", class_=kind) if text else h("td")
        for text, kind in zip(header, kinds, strict=True)
    ]
    lines = [h("tr", [cell(i, content) for i, content in enumerate(row)]) for row in rows]
    table = h("table", h("caption", caption), h("thead", h("tr", heads)), h("tbody", lines))
    return h("div", table, class_="wide", tabindex="0", role="region", aria_label=caption)


def shown_epsilon(value: float | None) -> str:
    """Return an epsilon as text, rounded up; ``unbounded`` for None."""
    return "unbounded" if value is None else format_epsilon(value)


def listed(parts: Iterable[str]) -> str:
    """Return what a list is about as one sentence."""
    return sentence("; ".join(one[:1].lower() + one[1:] for one in parts))
