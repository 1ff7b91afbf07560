from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def one_thread(one_torch_thread):
    """Every test of private training computes in one thread."""
