"""Time of one epsilon and of one calibration, and ratios to the neighbouring accountants.

    python benchmarks/accounting.py [--json]

All in one process, everything computed anew at slightly different parameters each time; the
best of several runs. ``ratio_dp_accounting`` is the time of dp-accounting's generic calibration
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

SAMPLING_PROB, COUNT, DELTA = 64 / 50000, 50000, 1e-5


def event(noise_multiplier: float) -> PoissonGaussianEvent:
    return PoissonGaussianEvent(
        sampling_prob=SAMPLING_PROB, noise_multiplier=noise_multiplier, count=COUNT
    )


def best_seconds(call: Callable[[int], object], repeats: int) -> float:
    seconds = []
    for repeat in range(repeats):
        start = time.perf_counter()
        call(repeat)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


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
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()

    for i in range(8):
        account(event(1.3 + 1e-4 * i), DELTA)
    epsilon_seconds = best_seconds(
        lambda i: account(event(1.26 + 1e-4 * i), DELTA), arguments.repeats
    )
    calibration_seconds = best_seconds(
        lambda i: calibrate_noise_multiplier(event, 1.0 + 1e-4 * i, DELTA), arguments.repeats
    )
    reading = account(event(1.26), DELTA).accountants["pld"]
    assert reading is not None and reading.lower is not None and reading.upper is not None
    result = {
        "epsilon_seconds": epsilon_seconds,
        "calibration_seconds": calibration_seconds,
        "relative_gap": 1.0 - reading.lower / reading.upper,
        "ratio_dp_accounting": best_seconds(dp_accounting_calibration, 1) / calibration_seconds,
        "ratio_prv": best_seconds(prv_epsilon, 3) / epsilon_seconds,
    }
    if arguments.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:24} {value:.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
