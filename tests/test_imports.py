"""A module imports only from modules above it in the design's order; the core needs no extras."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import privmix

SOURCE = Path(privmix.__file__).parent
ORDER = [
    "_validate",
    "columns",
    "resources",
    "schema",
    "extractor",
    "accounting",
    "theory",
    "diagnostics",
    "plotting",
    "rng",
    "journal",
    "sources",
    "units",
    "records",
    "designs",
    "mixing",
    "noise",
    "preprocess",
    "mechanism",
    "memory",
    "planning_rule",
    "plan",
    "planning",
    "ledger",
    "certificate",
    "shared_store",
    "store",
    "verification",
    "backends",
    "engine",
    "readers",
    "raw",
    "features",
    "datasets",
    "learners",
    "dpsgd",
    "demo",
    "cli",
]


def imported_modules(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            names |= {f"{base}.{a.name}" if base == "privmix" else base for a in node.names}
    return {name.split(".")[1] for name in names if name.startswith("privmix.")}


def test_every_module_has_its_place():
    found = {p.stem for p in SOURCE.glob("*.py")} | {p.parent.name for p in SOURCE.glob("*/*.py")}
    assert found - {"__init__", "data"} == set(ORDER)


def test_modules_import_only_from_above():
    for path in SOURCE.rglob("*.py"):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        allowed = set(ORDER[: ORDER.index(part) + 1])
        assert imported_modules(path) <= allowed, f"{path} imports from below"


def test_accounting_sees_no_data_module():
    for path in (SOURCE / "accounting").glob("*.py"):
        assert imported_modules(path) <= {"_validate", "accounting"}


def test_core_needs_no_extra():
    code = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "pandas", "dask", "matplotlib", "kymatio", "PIL", "pooch", "polars", "transformers", "opacus", "kornia"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
import privmix, privmix.cli, privmix.demo, privmix.dpsgd
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
