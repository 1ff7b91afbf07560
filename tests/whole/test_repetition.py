"""No module is long, nothing of six lines or keywords is written twice, and no name hides another."""

from __future__ import annotations

import ast
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import privmix
from syntax import syntax_tree

SOURCE = Path(privmix.__file__).parent
MOST_LINES = 500
BLOCK = 6  # lines, or keywords of a call
# Of `privmix.verify` and `dpsgd.verify_model`: what users read is stated at each.
INHERENT = {
    (
        "folder: str | Path,",
        "*,",
        "expect_digest: str | None = None,",
        "signers: str | Path | None = None,",
        "identity: str | None = None,",
        ") -> Verification:",
    )
}


def sources() -> dict[str, Path]:
    return {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}


def lines(path: Path) -> list[tuple[int, str]]:
    """Return numbers and texts of a file's lines, without blank ones, indentation and imports."""
    imported: set[int] = set()
    for node in ast.walk(syntax_tree(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    texts = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return [
        (number, text.strip()) for number, text in texts if text.strip() and number not in imported
    ]


def repeated_blocks(files: dict[str, Path]) -> list[str]:
    """Tell where each block of lines stands that stands more than once."""
    places = defaultdict(list)
    for name, path in files.items():
        found = lines(path)
        for start in range(len(found) - BLOCK + 1):
            block = tuple(text for _, text in found[start : start + BLOCK])
            places[block].append(f"{name}:{found[start][0]}")
    return [
        f"{' and '.join(where)}: {block[0]} ..."
        for block, where in places.items()
        if len(where) > 1 and block not in INHERENT
    ]


def repeated_keywords(files: dict[str, Path]) -> list[str]:
    """Tell which calls pass the same values by the same keywords, in whatever order."""
    calls = []
    for name, path in files.items():
        for node in ast.walk(syntax_tree(path)):
            if isinstance(node, ast.Call) and len(node.keywords) >= BLOCK:
                given = {ast.unparse(keyword) for keyword in node.keywords}
                calls.append((f"{name}:{node.lineno}", given))
    return [
        f"{one} and {other}: {', '.join(sorted(given & same))}"
        for (one, given), (other, same) in combinations(calls, 2)
        if len(given & same) >= BLOCK
    ]


def redefined(files: dict[str, Path]) -> list[str]:
    """Tell which functions and classes hide earlier ones of the same name: a test that is hidden does not run."""
    found = []
    for name, path in files.items():
        scopes = [
            n for n in ast.walk(syntax_tree(path)) if isinstance(n, ast.Module | ast.ClassDef)
        ]
        for scope in scopes:
            seen = set()
            for node in scope.body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    means = {ast.unparse(decorator) for decorator in node.decorator_list}
                    if node.name in seen and not means & {"overload", f"{node.name}.setter"}:
                        found.append(f"{name}:{node.lineno}: {node.name}")
                    seen.add(node.name)
    return found


def test_no_module_is_long():
    counts = {name: len(path.read_text().splitlines()) for name, path in sources().items()}
    assert [f"{name}: {count}" for name, count in counts.items() if count > MOST_LINES] == []


def test_no_block_of_lines_stands_twice():
    assert repeated_blocks(sources()) == []


def test_no_name_is_given_twice():
    tests = Path(__file__).parents[1]
    files = {path.relative_to(tests).as_posix(): path for path in sorted(tests.rglob("*.py"))}
    assert redefined(sources() | files) == []


def test_a_name_given_twice_is_found(tmp_path):
    path = tmp_path / "one.py"
    path.write_text("class A:\n    @mark\n    def f(self): ...\n    @mark\n    def f(self): ...\n")
    assert redefined({"one.py": path}) == ["one.py:5: f"]


def test_no_calls_pass_the_same_keywords():
    assert repeated_keywords(sources()) == []


def test_a_repetition_is_found(tmp_path):
    """Of six lines, whatever their indentation and blank lines; five are not enough."""
    body = [f"    value = {i}" for i in range(BLOCK)]
    same = ", ".join(f"name{i}=value" for i in range(BLOCK))
    other = ", ".join(f"name{i}=value" for i in reversed(range(BLOCK)))
    one, two, short = (tmp_path / name for name in ("one.py", "two.py", "short.py"))
    one.write_text("\n".join(["def one():", *body, f"    one({same})"]))
    two.write_text(
        "\n\n".join(["if True:", "  def two():", *(f"  {b}" for b in body), f"      two({other})"])
    )
    short.write_text("\n".join(["def short():", *body[1:], f"    short({same[8:]})"]))
    files = {path.name: path for path in (one, two, short)}
    assert repeated_blocks(files) == ["one.py:2 and two.py:5: value = 0 ..."]
    assert [found.partition(": ")[0] for found in repeated_keywords(files)] == [
        "one.py:8 and two.py:17"
    ]
