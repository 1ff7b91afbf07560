"""Noise that each accountant asks for: DPFMix's Figure 1, NeuroMixGDP's Figure 10.

    python -m experiments.li2023.noise --quick

n = T = 50,000, epsilon 1, delta 1e-5, equal noise multipliers of features and labels. ``noise`` is that
of a published feature, sigma_x / m, in clip norms. ``poisson-pld`` is certified, as are
``poisson-rdp`` and ``poisson-ma``; the central limits are not. ``uniform-*`` take a record's change as
one clip norm, as the papers do: with replacement of a record that is no guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from experiments.harness import Experiment
from experiments.mixing import DELTA, arguments
from scipy.optimize import brentq
from scipy.special import ndtr

from privmix.accounting import (
    PoissonGaussianEvent,
    UniformGaussianEvent,
    epsilon_at,
    gdp_epsilon,
    gdp_mu_from,
    moments_epsilon,
    rdp_epsilon,
)
from privmix.theory import central_limit_noise_multiplier

SIZE, EPSILON = 50_000, 1.0


def _poisson(mix_size: int, noise: float, size: int) -> PoissonGaussianEvent:
    return PoissonGaussianEvent(sampling_prob=mix_size / size, noise_multiplier=noise, count=size)


def _uniform(mix_size: int, noise: float, size: int) -> UniformGaussianEvent:
    return UniformGaussianEvent(
        num_records=size, mix_size=mix_size, noise_multiplier=noise, count=size
    )


def uniform_gdp_mu(mix_size: int, noise: float, size: int) -> float:
    """The central limit of sampling without replacement: Dong, Roth, Su 2022, Theorem 5.2."""
    step = 1 / noise
    growth = math.expm1(step**2) * ndtr(1.5 * step) + ndtr(1.5 * step) + 3 * ndtr(-step / 2) - 2
    return math.sqrt(2 * growth * size) * mix_size / size


ACCOUNTANTS: dict[str, Callable[[int, float, int], float]] = {
    "poisson-pld": lambda m, s, n: epsilon_at(_poisson(m, s, n), [DELTA])[DELTA],
    "poisson-rdp": lambda m, s, n: rdp_epsilon(_poisson(m, s, n), DELTA),
    "poisson-ma": lambda m, s, n: moments_epsilon(_poisson(m, s, n), DELTA),
    "uniform-gdp": lambda m, s, n: gdp_epsilon(uniform_gdp_mu(m, s, n), DELTA),
    "uniform-rdp": lambda m, s, n: moments_epsilon(_uniform(m, s, n), DELTA),
}
NAMES = ("poisson-gdp", *ACCOUNTANTS)


def noise_multiplier(
    accountant: str, mix_size: int, size: int = SIZE, epsilon: float = EPSILON
) -> float:
    """Return the joint noise multiplier at which an accountant says epsilon, with size = n = T."""
    least = central_limit_noise_multiplier(mix_size / size, size, gdp_mu_from(epsilon, DELTA))
    if accountant == "poisson-gdp":
        return least
    reading = ACCOUNTANTS[accountant]

    def excess(log_noise: float) -> float:
        return math.log(max(reading(mix_size, math.exp(log_noise), size), 1e-9) / epsilon)

    low, high = math.log(least) - 0.1, math.log(least) + 0.5
    while excess(high) > 0:
        high += 0.5
    return math.exp(brentq(excess, low, high, xtol=1e-4))


def figures(accountant: str, mix_size: int) -> dict[str, Any]:
    joint = noise_multiplier(accountant, mix_size)
    return {"noise_multiplier": joint, "noise": math.sqrt(2) * joint / mix_size}


def main() -> None:
    experiment = Experiment(__file__, ["mix_size", "accountant"], arguments(__doc__))
    sizes = (4, 16, 64, 256) if experiment.quick else tuple(2**k for k in range(12))
    for size in sizes:
        for name in NAMES:
            key = {"mix_size": size, "accountant": name}
            experiment.measure(key, lambda size=size, name=name: figures(name, size))

    def draw(axes: Any) -> None:
        for name in NAMES:
            rows = [row for row in experiment.rows if row["accountant"] == name]
            points = sorted((float(r["mix_size"]), float(r["noise"])) for r in rows)
            axes.loglog(*zip(*points, strict=True), "o-", label=name)
        axes.set(xlabel="mix size", ylabel="noise of a published feature")
        axes.legend()

    experiment.figure(draw)
    experiment.show("noise_multiplier", "noise")


if __name__ == "__main__":
    main()
