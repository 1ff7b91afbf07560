"""The documentation is true: its blocks run, its links, commands, options and names exist."""

from __future__ import annotations

import contextlib
import doctest
import hashlib
import importlib
import io
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import privmix
from privmix import cli, rng
from privmix.cli import _app

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    + list((ROOT / "docs").rglob("*.md"))
)
COMMANDS = {name: _app.load_command(name) for name in _app.COMMANDS}
MODULES = {path.stem for path in Path(privmix.__file__).parent.glob("*.py")}
SAME_TEXT = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

pytestmark = pytest.mark.skipif(
    not (ROOT / "docs").is_dir(), reason="needs a checkout with its documentation"
)


class Block(NamedTuple):
    language: str
    text: str
    line: int


def blocks(path: Path) -> list[Block]:
    found, language, start = [], None, 0
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            if language is None:
                language, start = line[3:].strip(), number
            else:
                found.append(Block(language, "\n".join(lines[start : number - 1]) + "\n", start))
                language = None
    assert language is None, f"{path}: a code block is not closed"
    return found


def prose(path: Path) -> str:
    return re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)


def code_spans(path: Path) -> list[str]:
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(path))]


def command_lines(path: Path) -> Iterator[list[str]]:
    """Every mention of ``privmix COMMAND ...`` in shell blocks and in code spans."""
    lines = [
        line
        for block in blocks(path)
        if block.language in ("bash", "sh")
        for line in block.text.replace("\\\n", " ").splitlines()
    ]
    for line in lines + code_spans(path):
        words = shlex.split(line, comments=True) if line.startswith("privmix ") else []
        if len(words) > 1:
            yield words[1:]


def run_command(words: list[str]) -> str:
    """Run a command line in this process; return what it printed to standard output."""
    if "DIGEST" in words:
        content = Path(words[2], "certificate.json").read_bytes()
        words = [hashlib.sha256(content).hexdigest() if w == "DIGEST" else w for w in words]
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", words)
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        with pytest.raises(SystemExit) as stop:
            cli.main()
    assert not stop.value.code, f"{shlex.join(words)}: {err.getvalue()}"
    return out.getvalue()


def run_page(path: Path) -> dict[str, object]:
    """Run a page's Python and shell blocks in order, in one namespace and in this folder.

    A ``text`` block right after one of them is the output that it must have. An ``sh`` block is
    not run, since it takes long, and a shell block of other programs is not run either.
    """
    namespace: dict[str, object] = {"__name__": "docs"}
    checker = doctest.OutputChecker()
    output = ""
    for block in blocks(path):
        place = f"{path.name}:{block.line}"
        if block.language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block.text, place, "exec"), namespace)
            output = printed.getvalue()
        elif block.language == "bash" and block.text.startswith("privmix "):
            output = "".join(
                run_command(shlex.split(line)) for line in block.text.strip().splitlines()
            )
        elif block.language == "text":
            assert checker.check_output(block.text, output, SAME_TEXT), (
                f"{place}: expected\n{block.text}\nbut got\n{output}"
            )
    return namespace


@pytest.fixture
def workplace(tmp_path, monkeypatch) -> Path:
    """An empty folder, and the same random words in every run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(rng.secrets, "token_bytes", bytes)  # zeros: what varies is fixed
    return tmp_path


def test_the_tutorial_runs_and_prints_what_it_says(workplace):
    result = run_page(ROOT / "docs" / "tutorial.md")
    assert 0.80 <= result["accuracy"] <= 0.86
    assert 0.80 <= result["own_accuracy"] <= 0.86
    loaded = privmix.load_model("model-from-python.safetensors")
    assert loaded.score(result["x_test"], result["y_test"]) == result["accuracy"]


def test_the_readme_runs(workplace):
    tutorial = [b for b in blocks(ROOT / "docs" / "tutorial.md") if b.language == "python"]
    files: dict[str, object] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in tutorial[:2]:  # write the schema and the tables that the commands name
            exec(block.text, files)
    result = run_page(ROOT / "README.md")
    assert 0.80 <= result["model"].score(result["x_test"], result["y_test"]) <= 0.86


@pytest.mark.parametrize(
    "name",
    [
        "docs/security.md",
        "docs/sharp-edges.md",
        "docs/theory/notation.md",
        "docs/theory/random-allocation.md",
        "docs/how-to/choose-features.md",
        "docs/how-to/predict-and-evaluate.md",
        "docs/how-to/preprocessing.md",
        "docs/how-to/tables.md",
        "docs/how-to/train-privately.md",
        "docs/how-to/units-and-targets.md",
        "docs/how-to/use-a-release-without-privmix.md",
    ],
)
def test_other_pages_run(name, workplace):
    run_page(ROOT / name)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        page = (path.parent / name).resolve() if name else path
        assert page.exists(), f"{path.name}: {target}"
        assert page.is_relative_to(ROOT), f"{path.name}: {target}"
        if anchor:
            assert anchor in anchors(page), f"{path.name}: {target}"


def anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", prose(path), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_and_options_exist(path):
    every_option = {option for command in COMMANDS.values() for option in options(command)}
    for words in command_lines(path):
        assert words[0] in COMMANDS, f"{path.name}: privmix {words[0]}"
        for word in words[1:]:
            option = word.partition("=")[0]
            if option.startswith("--"):
                assert option in options(COMMANDS[words[0]]), f"{path.name}: {shlex.join(words)}"
    for span in code_spans(path):
        for option in re.findall(r"(?<!\S)--[a-z][a-z-]*", span):
            assert option in every_option, f"{path.name}: {span}"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"(?:^|`)(?:PYTHON=\S+ )?make ([a-z]+)", text, flags=re.M):
        assert re.search(rf"^{target}:", makefile, flags=re.M), f"{path.name}: make {target}"


def options(command) -> set[str]:
    own = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    inner = getattr(command, "commands", {}).values()
    return own.union(*(options(subcommand) for subcommand in inner))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_names_and_files_exist(path):
    for span in code_spans(path):
        for name in re.findall(r"\bprivmix(?:\.\w+)+", span):
            assert exists(name), f"{path.name}: {name}"
        match = re.fullmatch(r"(\w+)(?:\.\w+)+", span)
        if match and match[1] in MODULES and not span.endswith(".json"):
            assert exists(f"privmix.{span}"), f"{path.name}: {span}"
        if re.fullmatch(r"(src|tests|docs)/[\w/.]+", span):
            assert (ROOT / span).exists(), f"{path.name}: {span}"


def exists(name: str) -> bool:
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for part in parts[size:]:
            if not hasattr(found, part) and part not in getattr(found, "model_fields", {}):
                return False
            found = getattr(found, part, None)
        return True
    return False


def test_every_command_is_documented():
    text = " ".join(path.read_text(encoding="utf-8") for path in PAGES)
    for name in COMMANDS:
        assert f"privmix {name}" in text, name


def test_the_certificate_table_names_every_field():
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    for name, field in privmix.Certificate.model_fields.items():
        if name != "format_version":
            assert f"`{field.alias or name}`" in text, name


def test_the_pages_speak_of_the_project_alone():
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"/(work|home|tmp|root)/", text), path.name
        assert prose(path).isascii(), path.name


@pytest.mark.parametrize("name", ["signed-mixing", "hierarchical-sampling", "optimal-mixing"])
def test_the_pages_of_theory_run(name):
    run_page(ROOT / "docs" / "theory" / f"{name}.md")
