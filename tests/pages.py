"""A page as a reader gets it: its text, headings, landmarks, links and what it would load."""

from __future__ import annotations

from html.parser import HTMLParser
from itertools import pairwise

VOID = {"br", "col", "hr", "img", "input", "link", "meta"}
LANDMARKS = {"header", "nav", "main", "footer"}
LOADS = {"src", "srcset", "poster", "data", "action", "background", "xlink:href"}


class ReadPage(HTMLParser):
    """Parses strictly: every element is closed by its own end tag."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[tuple[int, str]] = []
        self.landmarks: list[str] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self._open: list[str] = []
        self._starts: list[int] = []
        self.feed(text)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), f"<{tag}> has an attribute twice"
        if tag in LANDMARKS:
            self.landmarks.append(tag)
        if tag in VOID:
            return
        self._open.append(tag)
        if tag in {"h1", "h2", "h3", "h4"}:
            self.headings.append((int(tag[1]), ""))
            self._starts += [len(self.texts)] * (tag == "h2")

    def handle_endtag(self, tag):
        assert self._open and self._open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        if "script" in self._open:
            self.scripts.append(data)
        elif "style" not in self._open:
            self.texts.append(data)
            if self._open and self._open[-1] in {"h1", "h2", "h3", "h4"}:
                level, before = self.headings[-1]
                self.headings[-1] = (level, before + data)

    @property
    def text(self) -> str:
        """What is read aloud, as one line."""
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def ids(self) -> list[str]:
        return [a["id"] for _, a in self.elements if a.get("id") is not None]

    def section(self, title: str) -> str:
        """The text from a heading of the second level to the next one."""
        titles = [name for level, name in self.headings if level == 2]
        place = titles.index(title)
        ends = [*self._starts, len(self.texts)]
        return " ".join(" ".join(self.texts[ends[place] : ends[place + 1]]).split())


def check_structure(page: ReadPage) -> None:
    """Assert what a page needs whatever it says: for a keyboard, a screen reader, and no network."""
    levels = [level for level, _ in page.headings]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(text.strip() for _, text in page.headings)
    assert sorted(page.landmarks) == ["footer", "header", "main", "nav"]
    assert len(page.ids) == len(set(page.ids))
    assert page.all("html")[0]["lang"] == "en" and page.all("title")
    for tag, attributes in page.elements:
        assert not LOADS & set(attributes), f"<{tag}> loads something"
        assert tag not in {"link", "iframe", "object", "embed", "img", "base", "form"}
        assert not any(name.startswith("on") for name in attributes), f"<{tag}> has a handler"
        for name in ("aria-labelledby", "aria-describedby", "for"):
            if name in attributes:
                assert attributes[name] in page.ids
        if "href" in attributes:
            assert tag == "a" and attributes["href"][1:] in page.ids
            assert attributes["href"].startswith("#")
        if tag == "svg":
            assert attributes["role"] == "img" and attributes["aria-labelledby"]
        if tag == "th":
            assert attributes["scope"] in {"row", "col"}
    assert len(page.all("caption")) == len(page.all("table"))
