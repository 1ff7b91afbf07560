"""A comparison as text and as one HTML page; names and values are escaped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from privmix.markup import element, page

_MOST_LINES = 50
_STILL = (
    "hardly varies in the records, or has no value there: of correlations, models and distances"
)
_STYLE = (
    "body{font-family:sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;text-align:left;"
    "border-bottom:1px solid #ccc}.warning{border:2px solid #b00;padding:.6em;font-weight:bold}"
)

Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


def tables(found: dict[str, Any]) -> Iterator[Table]:
    """Yield (title, header, lines) of each part of a comparison; the least alike come first."""
    yield "Records", ("", "number"), [(kind, _count(found, kind)) for kind in ("real", "synthetic")]
    lines: list[tuple[str, ...]] = [
        (name, "not among the synthetic ones that are compared") for name in found["left_out"]
    ]
    lines += [(name, _STILL) for name in found["still"]]
    if lines:
        yield "Columns left out", ("column", "why, or of what"), lines
    columns = sorted(found["columns"].items(), key=lambda item: item[1]["likeness"])
    lines = [(name, part["kind"], f"{part['likeness']:.3f}") for name, part in columns]
    yield "Columns: likeness from 0 to 1", ("column", "kind", "likeness"), lines
    apart = found["correlations"]
    yield (
        "Correlations of pairs",
        ("difference", "", "of"),
        [
            ("mean", f"{apart['mean_difference']:.3f}", "all pairs"),
            (
                "largest",
                f"{apart['largest_difference']:.3f}",
                " and ".join(apart["largest_pair"] or ["no pair"]),
            ),
        ],
    )
    shares = sorted(
        found["classes"].items(), key=lambda item: -abs(item[1]["real"] - item[1]["synthetic"])
    )
    lines = [(n, f"{part['real']:.3f}", f"{part['synthetic']:.3f}") for n, part in shares]
    if lines:  # numbers have none
        yield "Labels: shares", ("label", "real", "synthetic"), lines
    models = {name: part for name, part in found["models"].items() if name != "score"}
    lines = [
        (n, *(_number(part.get(k)) for k in ("real", "synthetic"))) for n, part in models.items()
    ]
    score = found["models"].get("score", "score")
    yield (
        f"Models tested on real records: {score}",
        ("model", "trained on real", "on synthetic"),
        lines,
    )
    near = found["nearest"]
    lines = [
        (name.replace("_", " "), f"{near[name]['median']:.3f}", f"{near[name]['quantile_05']:.3f}")
        for name in ("held_out", "synthetic")
    ]
    lines.append(("share nearer than 5 % of held-out records", f"{near['share_nearer']:.3f}", ""))
    yield "Distance to the nearest record", ("records", "median", "5 % quantile"), lines


def to_text(found: dict[str, Any]) -> str:
    """Return a comparison as plain text, but for its warning."""
    parts = []
    for title, header, lines in tables(found):
        shown = lines[:_MOST_LINES]
        rows = [header, *shown]
        widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
        parts.append(title)
        parts += ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        if len(lines) > len(shown):
            parts.append(f"  and {len(lines) - len(shown)} more")
        parts.append("")
    return "\n".join(parts)


def to_html(found: dict[str, Any]) -> str:
    """Return a comparison as one page without scripts, links or anything from elsewhere."""
    title, parts = "Records and synthetic records", []
    for name, header, lines in tables(found):
        heads = element("tr", [element("th", text) for text in header])
        rows = [element("tr", [element("td", text) for text in line]) for line in lines]
        parts += [element("h2", name), element("table", heads, rows)]
    warning = element("p", found["warning"], class_="warning")
    return page(title, [element("style", _STYLE)], [element("h1", title), warning, parts])


def _count(found: dict[str, Any], kind: str) -> str:
    used, given = found["records"][kind], found["given"][kind]
    return str(used) if used == given else f"{used}, a sample of {given}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
