"""The faults still apply to the source; the script itself puts them in."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))
try:
    from faults import FAULTS
finally:
    sys.path.remove(str(FOLDER))

pytestmark = pytest.mark.skipif(not (ROOT / "src").is_dir(), reason="needs a checkout")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_applies_and_leaves_a_program(fault):
    text = (ROOT / fault.file).read_text(encoding="utf-8")
    ast.parse(fault.applied(text))
    assert fault.find != fault.replace
    for test in fault.tests:
        file, *names = test.split("::")
        tests = (ROOT / file).read_text(encoding="utf-8")
        assert all(f"def {name}(" in tests or f"class {name}" in tests for name in names), test


def test_there_are_many_and_each_has_its_name():
    assert len(FAULTS) >= 40
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
