"""How objects show themselves in a notebook."""

from __future__ import annotations

from collections.abc import Mapping

from privmix.markup import element


def facts_html(title: str, facts: Mapping[str, object]) -> str:
    """Return a table of facts as HTML; every text is escaped, whoever wrote it."""
    rows = [
        element(
            "tr",
            element("th", name, style="text-align:left"),
            element("td", str(value)),
        )
        for name, value in facts.items()
    ]
    return element("table", element("caption", title), rows).render()
