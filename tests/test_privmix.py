"""The public names of the library, and its submodules by their names."""

from __future__ import annotations

import subprocess
import sys

import pytest

import privmix


def test_every_public_name_is_there_and_nothing_else():
    assert dir(privmix) == sorted([*privmix.__all__, "__version__"])
    assert all(getattr(privmix, name) is not None for name in dir(privmix))
    with pytest.raises(AttributeError, match="no attribute 'NoSuchThing'"):
        privmix.NoSuchThing


def test_every_wing_that_is_public_is_loaded_by_its_name():
    code = """
import privmix
for wing in ("accounting", "datasets", "dpsgd", "features", "learners", "planning", "plotting", "preprocess", "synthesis", "theory"):
    assert getattr(privmix, wing).__name__ == f"privmix.{wing}"
    assert wing in dir(privmix)
from privmix import *
assert release is privmix.release and callable(release)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
