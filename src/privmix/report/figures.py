"""The pictures of a report as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence

from privmix.accounting.guarantee import number
from privmix.accounting.rounding import rounded_up
from privmix.accounting.stated import TradeoffCurve
from privmix.markup import Element, element
from privmix.report.example import RowExample
from privmix.report.facts import AttackerGain

_LEFT, _TOP, _SIZE = 62, 12, 340
_COLUMNS, _CELL, _DOT = 40, 10, 7


def tradeoff_figure(curve: TradeoffCurve) -> Element:
    """Draw what is found at most over the false alarms; the pointer or a slider reads it.

    The vertical axis is one minus the certified curve, so that a higher line is a stronger attacker.
    """

    def place(alarm: float, missed: float) -> str:
        return f"{_LEFT + alarm * _SIZE:.2f},{_TOP + missed * _SIZE:.2f}"

    def across(share: float) -> float:
        return _LEFT + share * _SIZE

    ticks: list[Element] = []
    for percent in (0, 25, 50, 75, 100):
        x, y = across(percent / 100), _TOP + (1 - percent / 100) * _SIZE
        ticks += [
            element("line", x1=x, x2=x, y1=_TOP, y2=_TOP + _SIZE, class_="grid"),
            element("line", x1=_LEFT, x2=_LEFT + _SIZE, y1=y, y2=y, class_="grid"),
            element("text", f"{percent} %", x=x, y=_TOP + _SIZE + 18, text_anchor="middle"),
            element("text", f"{percent} %", x=_LEFT - 6, y=y + 4, text_anchor="end"),
        ]
    # y grows downwards, so that a share found at most of 1 - missed is at TOP + missed * SIZE.
    points = [
        place(alarm, missed)
        for alarm, missed in zip(curve.false_positive_rate, curve.false_negative_rate, strict=True)
    ]
    middle = _TOP + _SIZE / 2
    box = f"{_LEFT} {_TOP} {_SIZE}"
    return element(
        "svg",
        element("title", "The strongest attacker allowed", id="curve-title"),
        element(
            "desc",
            "People in the data who are found at most, over people not in the data who are wrongly "
            f"accused. {_read(curve)} The dashed line is an attacker who only guesses.",
            id="curve-text",
        ),
        ticks,
        element("rect", x=_LEFT, y=_TOP, width=_SIZE, height=_SIZE, class_="axis"),
        element("polyline", points=f"{place(0, 1)} {place(1, 0)}", class_="perfect"),
        element("polyline", points=" ".join(points), class_="certified"),
        element("circle", id="mark", r=5, cx=-20, cy=-20, class_="reading"),
        element(
            "text", "wrongly accused", x=across(0.5), y=_TOP + _SIZE + 38, text_anchor="middle"
        ),
        element(
            "text",
            "found at most",
            x=14,
            y=middle,
            text_anchor="middle",
            transform=f"rotate(-90 14 {middle:g})",
        ),
        id="curve",
        viewBox=f"0 0 {_LEFT + _SIZE + 28} {_TOP + _SIZE + 48}",
        role="img",
        aria_labelledby="curve-title",
        aria_describedby="curve-text",
        data_box=box,
        data_alarms=_numbers(curve.false_positive_rate),
        data_misses=_numbers(curve.false_negative_rate),
    )


def people_figure(gain: AttackerGain, place: int) -> Element:
    """Draw 1,000 people who are in the data: found by guessing, found at most beyond, not found."""
    guessed = round(gain.by_guessing)
    found = max(guessed, min(1000, math.ceil(gain.found_at_most)))
    label = (
        f"1,000 squares: {guessed} found by guessing, at most {found - guessed} more by the strongest "
        f"attacker allowed, {1000 - found} not found"
    )
    return element(
        "svg",
        element("title", label, id=f"people-{place}"),
        _squares(0, guessed, "guess"),
        _squares(guessed, found, "gain"),
        _squares(found, 1000, "rest"),
        viewBox=f"0 0 {_COLUMNS * _CELL} {1000 // _COLUMNS * _CELL}",
        role="img",
        aria_labelledby=f"people-{place}",
    )


def strip_figure(values: Sequence[float], largest: float, label: str, place: int) -> Element:
    """Draw numbers as bars about zero, on a scale from ``-largest`` to ``largest``."""
    width, half = 10, 40.0
    bars = []
    for count, value in enumerate(values):
        height = min(1.0, abs(value) / largest) * half if largest > 0 else 0.0
        top = half - height if value > 0 else half
        x = count * width + 1
        bars.append(
            element("rect", x=x, y=top, width=width - 2, height=max(height, 0.3), class_="bar")
        )
    end = len(values) * width
    return element(
        "svg",
        element("title", label, id=f"strip-{place}"),
        element("line", x1=0, x2=end, y1=half, y2=half, class_="axis"),
        bars,
        viewBox=f"0 0 {end} {2 * half:g}",
        role="img",
        aria_labelledby=f"strip-{place}",
    )


def row_scales(example: RowExample) -> tuple[float, float]:
    """Return the scales of the record, and of its part in a row beside a row."""
    record = max(map(abs, example.record), default=0.0)
    row = max(map(abs, (*example.share, *example.row)), default=0.0)
    return record, row


def _squares(first: int, last: int, kind: str) -> Element | None:
    if first >= last:
        return None
    path = "".join(
        f"M{i % _COLUMNS * _CELL + 1} {i // _COLUMNS * _CELL + 1}h{_DOT}v{_DOT}h-{_DOT}z"
        for i in range(first, last)
    )
    return element("path", d=path, class_=kind)


def _numbers(rates: Sequence[float]) -> str:
    return " ".join(repr(rate) for rate in rates)


def _read(curve: TradeoffCurve) -> str:
    told = [
        f"at {number(100 * rate)} % wrongly accused at most "
        f"{number(rounded_up(min(100.0, 100 * curve.true_positive_rate(rate)), 3))} % found"
        for rate in (0.01, 0.1, 0.5)
    ]
    return "; ".join(told).capitalize() + "."
