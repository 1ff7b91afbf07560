"""How objects show themselves in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def facts_html(title: str, facts: Mapping[str, object]) -> str:
    """Return a table of facts as HTML; every text is escaped, whoever wrote it."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"
