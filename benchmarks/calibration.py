"""Calibrate random plans of every design; report how close to their targets they land.

    python benchmarks/calibration.py --configs 200 --json

Every plan is accounted for anew. Fails if one lands above its target or more than 1 % below.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np

from privmix import InvalidInputError
from privmix.accounting import account
from privmix.mechanism import DESIGNS, ReleaseConfig
from privmix.planning.solve import calibrate_config
from stamp import stamp


def random_case(rng: np.random.Generator) -> tuple[dict[str, int], str, dict, float, float]:
    sizes = {
        "num_records": int(10 ** rng.uniform(2, 5.5)),
        "num_classes": int(rng.integers(2, 200)),
        "num_features": 10,
    }
    design = str(rng.choice(DESIGNS))
    rows = int(10 ** rng.uniform(0, 5))
    size = float(min(sizes["num_records"] / 4, 10 ** rng.uniform(0, 2.5)))
    options: dict = {"mix_size": size, "num_mixtures": rows}
    if design == "stratified":
        options = {"sampling_prob": float(rng.uniform(0.01, 1)), "rows_per_class": rows}
    elif design == "hierarchical":
        options |= {
            "class_prob": float(rng.uniform(max(0.02, size / sizes["num_records"]), 1)),
            "eligibility": str(rng.choice(["balanced", "random"])),
        }
        options["num_mixtures"] = max(rows, 100)
    elif design == "uniform":
        options["mix_size"] = max(1, int(size))
    elif design == "transposed":
        options = {
            "rows_per_record": int(rng.integers(1, rows + 1)),
            "num_mixtures": rows,
            "neighboring_relation": str(rng.choice(["add_or_remove_one", "replace_one"])),
        }
    return sizes, design, options, 10 ** rng.uniform(-1, 1.2), 10 ** rng.uniform(-9, -3)


def achieved(config: ReleaseConfig, delta: float) -> float:
    return account(config.event, delta).epsilon


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--configs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    ratios, seconds, refused = [], [], 0
    for _ in range(arguments.configs):
        sizes, design, options, epsilon, delta = random_case(rng)
        start = time.perf_counter()
        try:
            config = calibrate_config(
                sizes,
                design,  # type: ignore[arg-type]
                options,  # type: ignore[arg-type]
                target_epsilon=epsilon,
                target_delta=delta,
            )
        except InvalidInputError as error:
            print("refused:", design, sizes, options, epsilon, delta, error, file=sys.stderr)
            refused += 1
            continue
        seconds.append(time.perf_counter() - start)
        ratios.append(achieved(config, delta) / epsilon)
        if not 0.99 <= ratios[-1] <= 1:
            print(
                f"off target: {design} {sizes} {options} {epsilon} {delta} -> {ratios[-1]}",
                file=sys.stderr,
            )
    told = {
        **stamp(),
        "configs": arguments.configs,
        "refused": refused,
        "smallest_ratio": min(ratios),
        "largest_ratio": max(ratios),
        "median_seconds": float(np.median(seconds)),
        "largest_seconds": max(seconds),
    }
    print(json.dumps(told, indent=2) if arguments.json else told)
    sys.exit(not 0.99 <= min(ratios) <= max(ratios) <= 1)


if __name__ == "__main__":
    main()
