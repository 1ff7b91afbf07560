"""The list of slow tests names tests, and all of their names are whole."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import slowest
from syntax import syntax_tree

TESTS = Path(__file__).parents[1]


def names_of(path: Path) -> Iterator[str]:
    """Yield the names of a file's tests as pytest has them, from the folder of the tests."""
    for node in syntax_tree(path).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        parts = [path.relative_to(TESTS).as_posix()]
        parts += [node.name] if isinstance(node, ast.ClassDef) else []
        for one in inside:
            if isinstance(one, ast.FunctionDef) and one.name.startswith("test"):
                yield "::".join([*parts, one.name])


def test_every_test_that_is_listed_as_slow_exists():
    known = {name for path in TESTS.rglob("test_*.py") for name in names_of(path)}
    listed = slowest.LIST.read_text(encoding="utf-8").splitlines()
    assert sorted(set(listed)) == listed
    assert not set(listed) - known


def test_the_slowest_are_left_out_first():
    times = slowest.Counter({"a": 1.0, "b": 3.0, "c": 0.5})
    assert slowest.slowest(times, 2.0) == ["b"]
    assert slowest.slowest(times, 9.0) == []
    assert slowest.slowest(times, 0.0) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("classname", "name", "found"),
    [
        ("tests.test_noise", "test_a[1.5-x]", "test_noise.py::test_a"),
        ("tests.cli.test_plan.TestRisk", "test_b", "cli/test_plan.py::TestRisk::test_b"),
    ],
)
def test_names_of_the_times_become_names_of_the_list(classname, name, found):
    case = slowest.ElementTree.Element("testcase", classname=classname, name=name)
    assert slowest.name_of(case) == found
