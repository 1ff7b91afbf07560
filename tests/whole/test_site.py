"""The documentation site is built without a warning, holds together, and loads nothing from anywhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from privmix.cli._app import COMMANDS

ROOT = Path(__file__).parents[2]
pytest.importorskip("material", reason="needs the extra docs")
pytest.importorskip("mkdocstrings", reason="needs the extra docs")
pytestmark = pytest.mark.skipif(
    not (ROOT / "mkdocs.yml").is_file(), reason="needs a checkout with its documentation"
)


class Links(HTMLParser):
    """What a page refers to, what it loads, and the names that others may refer to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") not in ("next", "prev", "canonical"):
            self.loads.append(found["href"])
        elif found.get("src"):
            self.loads.append(found["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site")
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    assert run.returncode == 0, run.stderr
    assert "WARNING" not in run.stderr
    return out


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Links]:
    return {
        path.resolve(): Links(path.read_text(encoding="utf-8"))
        for path in site.rglob("*.html")
        if path.name != "404.html"  # for servers: its addresses start at the root
    }


def goal_of(page: Path, link: str) -> tuple[Path, str] | None:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    path = page if not parts.path else (page.parent / unquote(parts.path)).resolve()
    return (path / "index.html" if path.is_dir() else path), unquote(parts.fragment)


def test_every_link_inside_resolves(pages):
    broken, inside = [], 0
    for page, found in pages.items():
        for link in found.links:
            if (goal := goal_of(page, link)) is None:
                continue
            path, anchor = goal
            inside += 1
            known = pages.get(path)
            lost = not path.is_file() if known is None else bool(anchor) and anchor not in known.ids
            if lost:
                broken.append(f"{page.name}: {link}")
    assert broken == [] and inside > 1000


def test_nothing_is_loaded_from_elsewhere(site, pages):
    for page, found in pages.items():
        for load in found.loads:
            goal = goal_of(page, load)
            assert goal is not None, f"{page.name} loads {load}"
            assert goal[0].is_file(), f"{page.name}: no {load}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"@import|url\(\s*['\"]?https?:", sheet.read_text(encoding="utf-8"))


def test_every_page_of_the_repository_is_there(site):
    for path in (ROOT / "docs").rglob("*.md"):
        page = site / path.relative_to(ROOT / "docs").with_suffix(".html")
        assert page.is_file(), path
    for name in ("readme", "changelog", "contributing", "reporting-a-flaw"):
        assert (site / f"{name}.html").is_file()


def test_every_public_name_is_in_the_reference(pages):
    import privmix

    ids = set().union(*(found.ids for found in pages.values()))
    modules = set(privmix._MODULES)
    missing = {name for name in privmix.__all__ if f"privmix.{name}" not in ids} - modules
    assert missing == set()
    assert {name for name in privmix.dpsgd.__all__ if f"privmix.dpsgd.{name}" not in ids} <= {
        "check_training",
        "frechet_distance",
        "is_model_folder",
    }


def test_search_works_from_disk(site):
    """A browser finds a word in the pages opened from disk, and asks nobody else."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    asked: list[str] = []
    with playwright.sync_playwright() as started:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = started.chromium.launch(executable_path=chromium, args=arguments)
        tab = browser.new_page()
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto((site / "how-to" / "tables.html").as_uri())
        tab.keyboard.press("/")
        tab.keyboard.type("hybrid")
        tab.wait_for_selector(".md-search-result__item", timeout=30_000)
        assert "matching documents" in tab.inner_text(".md-search-result__meta")
        browser.close()
    outside = [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))]
    assert outside == []


def test_every_command_stands_on_the_page_of_commands_with_its_options_and_examples(site):
    page = re.sub("<[^>]*>", "", (site / "reference" / "commands.html").read_text(encoding="utf-8"))
    for name in COMMANDS:
        assert f"privmix {name}" in page
    for words in (
        "--max-reconstruction",
        "privmix ledger reserve",
        "--identity",
        "privmix verify release/",
    ):
        assert words in page
