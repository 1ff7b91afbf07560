from __future__ import annotations

import pytest

from ledger_cases import COST
from privmix.running.ledger import Ledger


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger.db").open_dataset("d", epsilon_limit=3 * COST, delta=1e-6)
