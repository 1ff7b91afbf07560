"""The page in a real browser: nothing requested, nothing complained of, usable by everybody.

Needs Debian's chromium and, from PyPI, playwright and axe-playwright-python.
"""

from __future__ import annotations

import shutil

import pytest

from privmix.report.facts import report_facts
from privmix.report.page import report_page

CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("no chromium on this machine", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe")

# What a browser would ask of the network by itself, and what a container has not.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def pages(released, for_tests, tmp_path_factory):
    """The page of a release whose names are hostile, with everything beside it; and a stamped one."""
    import json

    folder = tmp_path_factory.mktemp("pages")
    classes = json.loads((released / "certificate.json").read_text())["schema"]["classes"]
    scores = {"accuracy": 0.5, "recall": dict.fromkeys(classes, 0.5), "num_test_records": 9}
    told = {"epsilon": 2, "lower_bound": 0.1, "confidence": 0.9, "verdict": "consistent"}
    told["findings"] = [classes[0]]
    for name, value in (("scores", scores), ("audit", told)):
        (folder / f"{name}.json").write_text(json.dumps(value))
    full = report_facts(
        released,
        evaluation=folder / "scores.json",
        audit=folder / "audit.json",
        ledger=released.parent / "ledger.db",
    )
    (folder / "full.html").write_text(report_page(full))
    (folder / "stamped.html").write_text(report_page(report_facts(for_tests)))
    return folder


def opened(browser, path, *, scheme="light", viewport=DESKTOP):
    """Open a page; return it with what it said and what it asked for."""
    tab = browser.new_context(viewport=viewport, color_scheme=scheme).new_page()
    said: list[str] = []
    asked: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(path.as_uri())
    return tab, said, asked


@pytest.mark.parametrize("name", ["full.html", "stamped.html"])
@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wrong_anywhere(browser, pages, name, viewport, scheme):
    tab, said, asked = opened(browser, pages / name, scheme=scheme, viewport=viewport)
    assert said == [] and asked == [(pages / name).as_uri()]
    assert tab.title().startswith("Privacy report") and "evil" not in tab.title()
    wide = tab.evaluate("document.documentElement.scrollWidth")
    assert wide <= viewport["width"], "the page scrolls sideways"
    found = axe.Axe().run(tab).response
    assert found["violations"] == [] and len(found["passes"]) > 20
    tab.close()


def test_the_curve_is_read_by_keyboard_and_pointer(browser, pages):
    tab, said, _ = opened(browser, pages / "full.html")
    before = tab.inner_text("#told")
    assert before.startswith("With 10.0 % false alarms, at most")
    tab.focus("#rate")
    tab.keyboard.press("ArrowRight")
    assert tab.inner_text("#told").startswith("With 10.1 % false alarms")
    box = tab.locator("#curve").bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    read = tab.inner_text("#told")
    assert read != before and tab.input_value("#rate") in read.replace(".", "")
    assert said == []
    tab.close()


def test_what_is_read_bounds_the_certified_curve(browser, pages, released):
    import json

    curve = json.loads((released / "certificate.json").read_text())["tradeoff_curve"]
    tab, _, _ = opened(browser, pages / "full.html")
    for value in (0, 1, 50, 500, 1000):
        tab.locator("#rate").fill(str(value))
        told = float(tab.inner_text("#told").split("at most ")[1].split(" %")[0])
        alarms, misses = curve["false_positive_rate"], curve["false_negative_rate"]
        rate = value / 1000
        place = max(i for i, alarm in enumerate(alarms) if alarm <= rate)
        last = min(place + 1, len(alarms) - 1)
        span = alarms[last] - alarms[place]
        share = (rate - alarms[place]) / span if span else 0.0
        due = 100 * (1 - misses[place] - share * (misses[last] - misses[place]))
        assert due <= told <= due + 0.0101
    tab.close()


def test_the_keyboard_reaches_everything_in_order(browser, pages):
    tab, _, _ = opened(browser, pages / "full.html")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "main"
    tab.close()


def test_paper_shows_all_of_it(browser, pages):
    tab, _, _ = opened(browser, pages / "full.html")
    assert not tab.locator("pre.long").first.is_visible()
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    tab.emulate_media(media="print")
    assert tab.locator("pre.long").first.is_visible() and not tab.locator("nav").is_visible()
    assert tab.pdf(format="A4").startswith(b"%PDF")
    tab.close()


def test_without_scripts_everything_is_there_but_the_slider(browser, pages):
    tab = browser.new_context(java_script_enabled=False).new_page()
    tab.goto((pages / "full.html").as_uri())
    assert not tab.locator(".reader").is_visible() and tab.locator("#curve").is_visible()
    tab.close()
