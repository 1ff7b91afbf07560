"""Kernels are compiled when they are first called, once, and compute what their Python code does."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from privmix.accounting import PoissonGaussianEvent, SignedGaussianEvent
from privmix.accounting.pld import epsilon_bounds, lattice
from privmix.compiling import kernel


@kernel(nogil=True)
def total(values: np.ndarray) -> float:
    found = 0.0
    for value in values:
        found += value
    return found


@kernel(patience=5)
def doubled(values: np.ndarray) -> list[float]:
    out = np.empty(len(values))
    for i in range(len(values)):
        out[i] = 2.0 * values[i]
    return out


def test_a_kernel_is_compiled_by_its_first_call_from_any_number_of_threads():
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(total, [np.arange(4.0)] * 8)) == {6.0}
    assert total.interpreted(np.arange(4.0)) == 6.0
    assert total.__name__ == "total" and type(total._compiled).__name__ == "CPUDispatcher"


def test_a_patient_kernel_is_interpreted_at_first():
    for _ in range(2):
        assert np.array_equal(doubled(np.arange(3.0)), [0, 2, 4])
        assert doubled._compiled is None
    assert np.array_equal(doubled(np.arange(3.0)), [0, 2, 4])
    assert doubled._compiled is not None


@pytest.mark.parametrize(
    "event",
    [
        PoissonGaussianEvent(sampling_prob=0.01, noise_multiplier=1.0, count=100),
        SignedGaussianEvent(sampling_prob=0.01, noise_multiplier=0.8, count=300),
    ],
)
def test_interpreted_and_compiled_merges_are_the_same_to_the_last_bit(event, monkeypatch):
    calls = []

    def both(masses, losses, origin, spacing):
        interpreted = merge.interpreted(memoryview(masses), memoryview(losses), origin, spacing)
        merge.compile()
        compiled = merge._compiled(masses, losses, origin, spacing)
        calls.append(all(np.array_equal(a, b) for a, b in zip(interpreted, compiled, strict=True)))
        return compiled

    merge = lattice.merge
    monkeypatch.setattr(lattice, "merge", both)
    epsilon_bounds.cache_clear()
    assert epsilon_bounds(event, 1e-5) is not None
    assert calls and all(calls)


def test_where_compiled_code_cannot_be_kept_it_is_compiled_anew(tmp_path):
    """Neither the module's folder nor the home can be written: numba finds no place for its files."""
    (tmp_path / "loops.py").write_text(
        "from privmix.compiling import kernel\n\n"
        "@kernel()\ndef first(values):\n    return values[0]\n"
    )
    code = """
import sys
import numpy as np
import numba.core.caching as caching
caching.CacheImpl._locator_classes = []
sys.path.insert(0, sys.argv[1])
import loops
print(loops.first(np.array([3.0])))
"""
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "3.0\n"
    assert run.stderr.count("\n") == 1 and "NUMBA_CACHE_DIR" in run.stderr
