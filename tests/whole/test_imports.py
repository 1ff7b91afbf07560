"""Imports run down the page: the order of the wings; the core needs no extras."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import privmix
from syntax import syntax_tree

SOURCE = Path(privmix.__file__).parent
# The rooms of the house, from the ground up. A room imports from itself and from those before it,
# wherever in a file the import stands.
ORDER = [
    "_validate",
    "markup",
    "foreign",
    "rng",
    "compiling",
    "precision",
    "accounting",
    "theory",
    "plotting",
    "schema",
    "sampling",
    "noise",
    "mixing",
    "clipping",
    "running",
    "inputs",
    "records",
    "mechanism",
    "preprocess",
    "planning",
    "mixer",
    "rounds",
    "publishing",
    "backends",
    "features",
    "engine",
    "learners",
    "synthesis",
    "dpsgd",
    "attacks",
    "auditing",
    "spending",
    "datasets",
    "baselines",
    "comparing",
    "report",
    "cli",
]
# The exception: `Release.synthesize` takes from a later room what it hands its arguments to. It is a
# convenience, not a dependency: only a call imports it, and all else of the release does without.
CONVENIENCE = {
    "publishing/release.py": {
        "privmix.synthesis.synthesizer.Prior",
        "privmix.synthesis.records.SyntheticRecords",
        "privmix.synthesis.synthesizer.synthesize",
    }
}
MOST_FILES = 14  # directly under src/privmix, `__init__` and `__main__` counted


def imported_modules(path: Path) -> set[str]:
    """Return the dotted names that a file imports, lazy imports too; packages with what is taken."""
    names = set()
    for node in ast.walk(syntax_tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    allowed = CONVENIENCE.get(path.relative_to(SOURCE).as_posix(), set())
    assert allowed <= names, f"{path}: an exception that is none"
    return {name for name in names - allowed if name.partition(".")[0] == "privmix"}


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def modules() -> list[Path]:
    return [p for p in SOURCE.rglob("*.py") if room(p) not in {"__init__", "__main__"}]


def test_every_module_has_its_place():
    assert {room(path) for path in modules()} == set(ORDER)
    files = list(SOURCE.glob("*.py"))
    assert len(files) <= MOST_FILES


def test_modules_import_only_from_rooms_before_theirs():
    for path in modules():
        allowed = set(ORDER[: ORDER.index(room(path)) + 1])
        taken = imported_modules(path)
        assert "privmix" not in taken, f"{path} imports the face of the library"
        assert {name.split(".")[1] for name in taken} <= allowed, f"{path} imports from below"


def test_no_modules_import_each_other_in_a_circle():
    files = {
        ".".join(("privmix", *p.relative_to(SOURCE).with_suffix("").parts)): p for p in modules()
    }
    files |= {n.removesuffix(".__init__"): p for n, p in files.items() if n.endswith("__init__")}
    uses: dict[Path, set[Path]] = {}
    for path in modules():
        found = set()
        for name in imported_modules(path):
            target = files.get(name) or files.get(name.rpartition(".")[0])
            # A package's face hands names of its own modules on; inside the package they are the same.
            if target is not None and target != path and target != path.parent / "__init__.py":
                found.add(target)
        uses[path] = found
    left = dict(uses)
    while left:
        free = [path for path, used in left.items() if not used & set(left)]
        assert free, f"a circle among {sorted(p.relative_to(SOURCE).as_posix() for p in left)}"
        for path in free:
            del left[path]


def test_a_convenience_is_loaded_by_its_call_alone():
    code = "import sys, privmix; privmix.Release; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(run.stdout.split())
    assert "privmix.publishing.release" in loaded
    assert not {"privmix.learners", "privmix.synthesis"} & loaded


def test_accounting_sees_no_data_module():
    for path in (SOURCE / "accounting").rglob("*.py"):
        rooms = {name.split(".")[1] for name in imported_modules(path)}
        assert rooms <= {"_validate", "compiling", "accounting"}


def test_core_needs_no_extra():
    code = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "pandas", "dask", "matplotlib", "kymatio", "PIL", "pooch", "polars", "transformers", "opacus", "kornia"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
import privmix, privmix.cli, privmix.datasets.demo, privmix.dpsgd
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_learners_are_loaded_when_they_are_asked_for():
    """A release does without scikit-learn and its memory."""
    code = """
import sys
import privmix, privmix.cli
assert not {"sklearn", "pandas", "torch"} & set(sys.modules)
assert privmix.NoiseAwareClassifier.__module__ == "privmix.learners.noise_aware"
assert "sklearn" in sys.modules
assert all(hasattr(privmix, name) for name in privmix.__all__)
assert not hasattr(privmix, "NoSuchThing")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def _guarded(tree: ast.Module) -> set[str]:
    """Return the names that a module imports for its annotations alone."""
    blocks = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    aliases = [
        alias
        for block in blocks
        for node in block.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    return {(alias.asname or alias.name).partition(".")[0] for alias in aliases}


class _Uses(ast.NodeVisitor):
    """Collects the names that run, function by function; annotations do not run."""

    def __init__(self, names: set[str]) -> None:
        self.names, self.found = names, set()

    def visit_arg(self, node: ast.arg) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        own = {
            (alias.asname or alias.name).partition(".")[0]
            for inner in ast.walk(node)
            if isinstance(inner, ast.Import | ast.ImportFrom)
            for alias in inner.names
        }
        own |= {
            inner.id
            for inner in ast.walk(node)
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
        }
        own |= {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}
        inside = _Uses(self.names - own)
        for part in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults, *node.body):
            if part is not None:
                inside.visit(part)
        self.found |= inside.found

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self.names:
            self.found.add(node.id)


def test_what_is_imported_for_annotations_alone_is_used_in_them_alone():
    for path in modules():
        tree = syntax_tree(path)
        uses = _Uses(_guarded(tree))
        uses.visit(tree)
        assert not uses.found, f"{path} uses {uses.found}, which it imports for its types alone"
