"""How fast this processor is now: what takes seconds of its time is judged by that."""

from __future__ import annotations

import time

MOST = 8.0  # times slower than this no processor is taken to be
NOMINAL = 0.010  # seconds that the loop below takes on an idle desktop of 2024


def slowness() -> float:
    """How much slower this processor is than the nominal one, at least 1: neighbours share its cores."""
    start = time.process_time()
    total = 0.0
    for i in range(300_000):
        total += 0.5 * i
    return min(max(1.0, (time.process_time() - start) / NOMINAL), MOST)
