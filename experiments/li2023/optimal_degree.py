"""The best mix size of a regression, simulated and by theory: DPFMix's Fig. 2, NeuroMixGDP's Fig. 11.

    python -m experiments.li2023.optimal_degree --quick

``nu`` (Fig. 11): n = 300, T = 3 n, 5 features, mu from 1/27 to 3. ``slope`` (Fig. 2): T = 2 n^gamma,
100 features, mu = 2; the best mix size should grow like n^((2 - gamma) / 2). Medians of 20
repetitions (400 of ``nu``; quick: 5 and 100, and no matrix of more than 4e7 numbers); mix sizes are a
factor of sqrt(2) apart, so the simulated optimum has that resolution.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from experiments.harness import Experiment
from experiments.mixing import arguments

from privmix.theory import optimal_mix_size, simulate_regression

FACTORS = 2.0 ** np.arange(-3.5, 4.0, 0.5)


def simulated(
    num_records: int, num_mixtures: int, gdp_mu: float, features: int, repetitions: int
) -> dict[str, Any]:
    """Return the best mix sizes by theory and by simulation, and how flat the optimum is."""
    theory = optimal_mix_size(num_records, num_mixtures, gdp_mu)
    sizes = [float(m) for m in theory * FACTORS if m < 0.9 * num_records]
    found = simulate_regression(
        sizes,
        num_records=num_records,
        num_mixtures=num_mixtures,
        num_features=features,
        gdp_mu=gdp_mu,
        num_repetitions=repetitions,
    )
    medians = np.median(found.errors, axis=0)
    at_theory = float(medians[int(np.argmin(np.abs(np.log(found.mix_sizes / theory))))])
    return {
        "theory": theory,
        "simulated": found.best_mix_size,
        "ratio": found.best_mix_size / theory,
        "error": float(medians.min()),
        "error_at_theory": at_theory,
        "error_of_zero": float(np.median(found.coefficient_norms)),
        "repetitions": repetitions,
    }


def main() -> None:
    keys = ["figure", "gdp_mu", "gamma", "num_records", "num_mixtures"]
    experiment = Experiment(__file__, keys, arguments(__doc__))
    repetitions, times = 20, 100 if experiment.quick else 400
    for gdp_mu in (1 / 27, 1 / 9, 1 / 3, 1.0, 3.0):
        setting = [300, 900, gdp_mu]
        key = ["nu", f"{gdp_mu:.4g}", "", *setting[:2]]
        experiment.measure(
            dict(zip(keys, key, strict=True)),
            lambda setting=setting, times=times: simulated(*setting, 5, times),
        )
    sizes = (512, 1024, 2048) if experiment.quick else (512, 1024, 2048, 4096)
    for gamma in (1.0, 1.25) if experiment.quick else (1.0, 1.25, 1.5):
        for n in sizes:
            if n**gamma * n > (2e7 if experiment.quick else 1e9):
                continue  # a matrix of n T doubles, drawn for every mix size and repetition
            rows = round(2 * n**gamma)
            key = ["slope", 2, gamma, n, rows]
            times = 5 if experiment.quick else repetitions
            experiment.measure(
                dict(zip(keys, key, strict=True)),
                lambda n=n, rows=rows, times=times: simulated(n, rows, 2.0, 100, times),
            )

    def draw(axes: Any) -> None:
        for gamma in sorted({row["gamma"] for row in experiment.rows if row["gamma"]}):
            rows = [row for row in experiment.rows if row["gamma"] == gamma]
            n = [float(row["num_records"]) for row in rows]
            axes.loglog(n, [float(row["simulated"]) for row in rows], "o", label=f"gamma {gamma}")
            axes.loglog(n, [float(row["theory"]) for row in rows], "--", color="grey")
        axes.set(xlabel="records", ylabel="best mix size (dashed: theory)")
        axes.legend()

    experiment.figure(draw)
    experiment.show("theory", "simulated", "ratio", "error", "error_at_theory", "error_of_zero")
    for gamma, slope in slopes(experiment.rows).items():
        print(f"gamma {gamma}: slope {slope:.2f}, theory {(2 - float(gamma)) / 2:.2f}")


def slopes(rows: list[dict[str, str]]) -> dict[str, float]:
    """Return the slope of log best mix size over log n, by gamma."""
    found = {}
    for gamma in sorted({row["gamma"] for row in rows if row["gamma"]}):
        points = [
            (math.log(float(r["num_records"])), math.log(float(r["simulated"])))
            for r in rows
            if r["gamma"] == gamma
        ]
        if len(points) > 1:
            found[gamma] = float(np.polyfit(*zip(*points, strict=True), 1)[0])
    return found


if __name__ == "__main__":
    main()
