"""Imports run down the page: the order of the wings; the core needs no extras."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import privmix

SOURCE = Path(privmix.__file__).parent
# The rooms of the house, from the ground up. A room imports from itself and from those before it,
# wherever in a file the import stands.
ORDER = [
    "_validate",
    "foreign",
    "rng",
    "compiling",
    "accounting",
    "theory",
    "plotting",
    "table_schema",
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
    "dpsgd",
    "spending",
    "datasets",
    "comparing",
    "cli",
]
MOST_FILES = 14  # directly under src/privmix


def imported_modules(path: Path) -> set[str]:
    """Return the dotted names that a file imports, lazy imports too; packages with what is taken."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.partition(".")[0] == "privmix"}


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def modules() -> list[Path]:
    return [p for p in SOURCE.rglob("*.py") if room(p) not in {"__init__", "__main__"}]


def test_every_module_has_its_place():
    assert {room(path) for path in modules()} == set(ORDER)
    files = [path for path in SOURCE.glob("*.py") if path.name != "__main__.py"]
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
