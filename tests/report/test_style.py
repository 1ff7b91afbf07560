"""Colours can be told apart by everybody, in light and in dark."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from privmix.report.style import COLORS, SCRIPT, STYLE, content_policy


def luminance(color: str) -> float:
    """Relative luminance of WCAG 2.2."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_formula_at_its_ends():
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#777777") == 1.0
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrast(scheme):
    color = {name: pair[scheme] for name, pair in COLORS.items()}
    for ground in ("page", "panel"):
        for text in ("ink", "soft", "link", "stamp"):
            assert contrast(color[text], color[ground]) >= 4.5, (text, ground)
    for mark in ("gain", "guess", "line", "link"):  # what a figure is read by
        assert contrast(color[mark], color["page"]) >= 3.0, mark
    for mark in ("gain", "guess"):  # found and not found
        assert contrast(color[mark], color["rest"]) >= 3.0, mark


def test_every_colour_is_one_of_the_names():
    used = set(re.findall(r"var\(--([a-z]+)\)", STYLE))
    assert used == set(COLORS)
    sheet = STYLE[STYLE.index("*{box-sizing") :]
    assert not re.search(r"#[0-9a-f]{3,6}\b|rgb", sheet)


def test_the_policy_names_the_very_style_and_script():
    for text in (STYLE, SCRIPT):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in content_policy()


def test_a_page_has_a_look_for_phones_paper_and_the_dark():
    assert "@media print" in STYLE and "prefers-color-scheme:dark" in STYLE
    assert "auto-fit" in STYLE and "overflow-x:auto" in STYLE and ":focus-visible" in STYLE
