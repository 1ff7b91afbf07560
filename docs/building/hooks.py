"""Hooks of the site's builder: pages that stand outside ``docs/``, links to them,
notebooks, and formulas.

Pages link to each other as files of the repository, so that they work there; on the site a link to
``README.md``, say, leads to the page made of it. A link that leads to neither is an error.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

sys.path.insert(0, str(Path(__file__).parent))
from commands import commands_page

ROOT = Path(__file__).parents[2]
# Files of the repository that are pages of the site, too.
OUTSIDE = {
    "README.md": "readme.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting-a-flaw.md",
    "LICENSE": "license.md",
    "src/privmix/datasets/data/ATTRIBUTION.md": "attribution.md",
}
_COMMANDS = "reference/commands.md"
# The theme lets search work from disk by a script from elsewhere; this one is our own.
_FOREIGN_WORKER = "https://unpkg.com/iframe-worker/shim"
_OWN_WORKER = "assets/javascripts/worker-from-disk.js"
_STYLE = "assets/stylesheets/formulas.css"
# The section of the navigation that a page is added to by its folder, where it is not listed.
_SECTIONS = {"how-to": "How to", "theory": "Theory", "reference": "Reference", "": "Safety"}
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Set blocks of the language ``math`` as formulas: MathML, which browsers draw by themselves."""
    fence = {"name": "math", "class": "math", "format": _formula}
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = [fence]
    config.nav = _whole_nav(config.nav)
    return config


def _whole_nav(nav: list[Any]) -> list[Any]:
    """Add each page that the configuration does not list to the section of its folder."""
    sections = {
        name: pages for part in nav if isinstance(part, dict) for name, pages in part.items()
    }
    listed = {page for pages in sections.values() for page in pages}
    listed |= {page for page in nav if isinstance(page, str)}
    for path in sorted((ROOT / "docs").rglob("*.md")):
        page = path.relative_to(ROOT / "docs").as_posix()
        if page not in listed:
            folder = posixpath.dirname(page)
            sections[_SECTIONS.get(folder, "Project")].append(page)
    return nav


def _formula(source: str, *_: Any, **__: Any) -> str:
    made = convert(" ".join(source.split()), display="block").replace("\\_", "_")
    if "\\" in re.sub(r"<[^>]*>", "", made):
        raise ValueError(f"a formula that is not understood: {source}")
    return f'<div class="formula" tabindex="0" role="region" aria-label="formula">{made}</div>'


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that stand outside."""
    for source, page in OUTSIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if source == "LICENSE":
            text = f"# License\n\n```text\n{text}```\n"
        files.append(File.generated(config, page, content=_linked(text, source, page)))
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        text = _notebook(json.loads(path.read_text(encoding="utf-8")))
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
    files.append(File.generated(config, _COMMANDS, content=commands_page()))
    style = (Path(__file__).parent / "formulas.css").read_text(encoding="utf-8")
    files.append(File.generated(config, _STYLE, content=style))
    script = (Path(__file__).parent / "worker-from-disk.js").read_text(encoding="utf-8")
    files.append(File.generated(config, _OWN_WORKER, content=script))
    return files


def _notebook(content: dict[str, Any]) -> str:
    """Return a notebook as Markdown: its texts, its code, and what the code printed."""
    parts = []
    for cell in content["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        printed = "".join("".join(output["text"]) for output in cell["outputs"])
        if printed:
            parts.append(f"```text\n{printed}```")
    return "\n\n".join(parts) + "\n"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links of a page under ``docs/`` to files outside into links to their pages."""
    uri = page.file.src_uri
    if uri in OUTSIDE.values() or uri.startswith("notebooks/"):
        return markdown
    return _linked(markdown, f"docs/{uri}", uri)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Refuse a formula that was not understood: such a block is left as it was, in silence."""
    if "<code>math\n" in html or 'class="language-math' in html:
        raise PluginError(f"{page.file.src_uri}: a formula that is not understood")
    return html


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Let search use our own script; the page then loads nothing from anywhere."""
    return output.replace(_FOREIGN_WORKER, get_relative_url(_OWN_WORKER, page.url))


def on_post_template(output_content: str, **_: Any) -> str:
    """Do the same for the page of what is not found."""
    return output_content.replace(_FOREIGN_WORKER, f"/{_OWN_WORKER}")


def _linked(text: str, source: str, page: str) -> str:
    """Rewrite the links of a file of the repository for its page; code stays as it is."""

    def rewritten(match: re.Match[str]) -> str:
        start, target, anchor, end = match.groups()
        if ":" in target:
            return match[0]
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        goal = OUTSIDE.get(place)
        if goal is None and place.startswith("docs/"):
            goal = re.sub(r"\.ipynb$", ".md", place.removeprefix("docs/"))
        if goal is None:
            raise PluginError(f"{source}: a link to {target}, which is no page of the site")
        return (
            f"{start}{posixpath.relpath(goal, posixpath.dirname(page) or '.')}{anchor or ''}{end}"
        )

    parts, last = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(rewritten, text[last : fence.start()]), fence[0]]
        last = fence.end()
    return "".join([*parts, _LINK.sub(rewritten, text[last:])])
