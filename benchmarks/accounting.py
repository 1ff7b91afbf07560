"""Time of one epsilon and of one calibration, and ratios to the neighbouring accountants.

    python benchmarks/accounting.py [--json]

All in one process, everything computed anew at slightly different parameters each time; the
best of several runs, equally many of each, in turn. ``ratio_dp_accounting`` is the time of dp-accounting's generic calibration
(calibrate_dp_mechanism with its PLD accountant at its default grid) over that of ours;
``ratio_prv`` the time of prv-accountant's epsilon at eps_error 0.01 over that of ours. The first
calls, which load compiled code, are not timed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import dp_accounting
from dp_accounting.pld import PLDAccountant
from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

from privmix.accounting import PoissonGaussianEvent, account, calibrate_noise_multiplier
from stamp import stamp

SAMPLING_PROB, COUNT, DELTA = 64 / 50000, 50000, 1e-5


def event(noise_multiplier: float) -> PoissonGaussianEvent:
    return PoissonGaussianEvent(
        sampling_prob=SAMPLING_PROB, noise_multiplier=noise_multiplier, count=COUNT
    )


def best_seconds(calls: dict[str, Callable[[int], object]], repeats: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call(repeat)
            seconds[name].append(time.perf_counter() - start)
    return {name: min(some) for name, some in seconds.items()}


def dp_accounting_calibration(repeat: int) -> float:
    def make_event(noise_multiplier: float) -> dp_accounting.DpEvent:
        step = dp_accounting.GaussianDpEvent(noise_multiplier)
        sampled = dp_accounting.PoissonSampledDpEvent(SAMPLING_PROB, step)
        return dp_accounting.SelfComposedDpEvent(sampled, COUNT)

    return dp_accounting.calibrate_dp_mechanism(
        PLDAccountant,
        make_event,
        1.0 + 1e-4 * repeat,
        DELTA,
        dp_accounting.ExplicitBracketInterval(0.5, 4.0),
        tol=1e-3,
    )


def prv_epsilon(repeat: int) -> float:
    step = PoissonSubsampledGaussianMechanism(
        noise_multiplier=1.26 + 1e-4 * repeat, sampling_probability=SAMPLING_PROB
    )
    accountant = PRVAccountant(
        prvs=[step], max_self_compositions=[COUNT], eps_error=0.01, delta_error=DELTA / 1000
    )
    return accountant.compute_epsilon(delta=DELTA, num_self_compositions=[COUNT])[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()

    for i in range(8):
        account(event(1.3 + 1e-4 * i), DELTA)
    calls: dict[str, Callable[[int], object]] = {
        "epsilon": lambda i: account(event(1.26 + 1e-4 * i), DELTA),
        "calibration": lambda i: calibrate_noise_multiplier(event, 1.0 + 1e-4 * i, DELTA),
        "dp_accounting": dp_accounting_calibration,
        "prv": prv_epsilon,
    }
    seconds = best_seconds(calls, arguments.repeats)
    reading = account(event(1.26), DELTA).accountants["pld"]
    assert reading is not None and reading.lower is not None and reading.upper is not None
    result = {f"{name}_seconds": value for name, value in seconds.items()}
    result |= {
        "relative_gap": 1.0 - reading.lower / reading.upper,
        "ratio_dp_accounting": seconds["dp_accounting"] / seconds["calibration"],
        "ratio_prv": seconds["prv"] / seconds["epsilon"],
        "repeats": arguments.repeats,
    }
    if arguments.json:
        print(json.dumps({**stamp(), **result}))
    else:
        for name, value in result.items():
            print(f"{name:24} {value:.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
