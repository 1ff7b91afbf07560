"""Theorem 6 (the error of Fisher's rule under noise) and Lemma 2 (tails of the t statistic), as claimed and measured.

    python -m experiments.dfs.asymptotics --quick

Theorem 6 takes the noise's variance s^2 as a constant and a test record as noisy as the training records.
``claimed`` is its error rate, 1 - Phi(d / (2 sqrt(d + 4 p / n))) with d = |a|^2 / (1 + s^2), for two
classes N(+-a/2, I) of n/2 records each. ``noisy test`` and ``clean test`` are simulations. In ``fixed s`` the
noise is the same for all p; in ``Algorithm 1`` its stddev grows with the largest norm, as the algorithm has it.

Lemma 2 has P(T > x) / (1 - Phi(x)) near 1, for a t statistic of records. ``ratio`` is that of records as they are,
of records with noise each, and of a t statistic whose means and variances are noisy sums (what a private
release has): its tail is no normal one, so that the thresholds of Theorem 8 do not hold for it.
"""

from __future__ import annotations

import math

import numpy as np
from experiments.dfs.common import printed_stddev
from experiments.harness import Experiment, parser
from scipy.stats import norm

from privmix.accounting import gdp_mu_from

RECORDS, SUPPORT, DISTANCE = 400, 10, 1.0


def theorem_6(num_features: int, noise: str, epsilon: float, trials: int) -> dict[str, float]:
    """Compare claimed and simulated errors, in per cent."""
    rng = np.random.default_rng(num_features)
    offset = np.zeros(num_features)
    offset[:SUPPORT] = DISTANCE
    stddev = 1.0
    if noise == "Algorithm 1":
        # The largest norm of N(., I) in p dimensions is close to sqrt(p) and a little.
        stddev = printed_stddev(math.sqrt(num_features) + 3, epsilon)
    variance = 1 + stddev**2
    squared = float(offset @ offset) / variance
    spread = squared + 4 * num_features / RECORDS
    # The means' errors are normal, and the test record's score given them as well: exact, given means.
    errors = {"noisy test": [], "clean test": []}
    for _ in range(trials):
        sampling = math.sqrt(2 * variance / RECORDS) * rng.standard_normal((2, num_features))
        first, second = offset / 2 + sampling[0], -offset / 2 + sampling[1]
        weights, middle = (first - second) / variance, (first + second) / 2
        for name, scale in (("noisy test", math.sqrt(variance)), ("clean test", 1.0)):
            length = scale * np.linalg.norm(weights)
            above = norm.cdf((offset / 2 - middle) @ weights / length)
            below = norm.cdf((middle + offset / 2) @ weights / length)
            errors[name].append(100 * (1 - (above + below) / 2))
    return {
        "claimed": 100 * float(norm.sf(squared / (2 * math.sqrt(spread)))),
        **{name: float(np.mean(found)) for name, found in errors.items()},
        "noise stddev": stddev,
    }


def lemma_2(statistic: str, x: float, draws: int) -> dict[str, float]:
    """Return how many times likelier than normal it is to exceed x, where no means differ."""
    rng = np.random.default_rng(round(10 * x))
    per_class = RECORDS / 2
    noise = 1.0 if statistic == "noisy records" else 0.0
    # Means and variances of normal records are independent: they are drawn, not the records.
    gaps = math.sqrt(2 * (1 + noise**2) / per_class) * rng.standard_normal(draws)
    variances = (1 + noise**2) * rng.chisquare(RECORDS - 2, draws) / (RECORDS - 2)
    stddev = math.sqrt(2 / per_class)
    if statistic == "noisy sums":
        # Half of mu^2 each for sums of class means and of squares, at a norm of sqrt(30).
        mu, clip = gdp_mu_from(4.0, 1e-5) / math.sqrt(2), math.sqrt(30)
        mean_noise = math.sqrt(2) * clip / (mu * per_class)
        gaps = np.hypot(stddev, mean_noise) * rng.standard_normal(draws)
        variances = variances + clip**2 / (mu * RECORDS) * rng.standard_normal(draws)
        # The gap is judged by what is known of it, and estimated variances by their own noise at least.
        variances = np.maximum(variances, clip**2 / (mu * RECORDS))
        stddev = math.hypot(stddev, mean_noise)
    tail = float(np.mean(gaps / (stddev * np.sqrt(variances)) > x))
    return {"ratio": tail / float(norm.sf(x))}


def main() -> None:
    """Print both."""
    arguments = parser(__doc__).parse_args()
    experiment = Experiment(__file__, ("what", "of", "at"), arguments)
    trials, draws = (50, 200_000) if arguments.quick else (1000, 20_000_000)
    for noise in ("fixed s", "Algorithm 1"):
        for size in (20, 100, 500, 2500):
            experiment.measure(
                {"what": "Theorem 6", "of": noise, "at": f"p = {size}"},
                lambda noise=noise, size=size: theorem_6(size, noise, 10.0, trials),
            )
    for statistic in ("records", "noisy records", "noisy sums"):
        for x in (1.0, 2.0, 3.0, 3.5):
            experiment.measure(
                {"what": "Lemma 2", "of": statistic, "at": f"x = {x:g}"},
                lambda statistic=statistic, x=x: lemma_2(statistic, x, draws),
            )
    experiment.show("claimed", "noisy test", "clean test", "noise stddev", "ratio")


if __name__ == "__main__":
    main()
