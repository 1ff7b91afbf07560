"""What is spent without a ledger: a process knows of itself alone, and says so."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import json
import warnings
from multiprocessing import get_context

from privmix.accounting import GaussianEvent
from privmix.running.unrecorded import unrecorded


def spend(times):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(times):
            with unrecorded(GaussianEvent(noise_multiplier=5.0), 1e-5, "A fit"):
                pass
    return [str(one.message) for one in caught]


if __name__ == "__main__":
    with get_context("spawn").Pool(1) as pool:
        print(json.dumps(pool.apply_async(spend, (2,)).get(timeout=100)))
"""


def test_workers_of_a_pool_warn_from_the_first_time_on(tmp_path):
    """As those of a grid search with ``n_jobs``: each counts its own alone."""
    script = tmp_path / "search.py"
    script.write_text(SCRIPT)
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=150)
    assert run.returncode == 0, run.stderr
    first, second = json.loads(run.stdout)
    assert "in one of several processes" in first and "ledger=" in first
    assert "2 times in this process" in second and "all 2 times cost epsilon" in second
