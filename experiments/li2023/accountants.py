"""How far the central limit is from the truth: DPFMix's Figures 5 and 6, with certified values.

    python -m experiments.li2023.accountants

At mu = 0.5016 and noise multiplier 0.8441, T rows with the sampling probability at which the central
limit says mu. The papers compare trade-off curves; epsilon at delta = 1e-5 is what the difference
means.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from experiments.harness import Experiment
from experiments.mixing import DELTA, arguments

from privmix.accounting import (
    PoissonGaussianEvent,
    account,
    gdp_tradeoff,
    moments_epsilon,
    tradeoff_curve,
    tradeoff_report,
)
from privmix.theory import step_chi_square

GDP_MU, NOISE = 0.5016, 0.8441
STEPS = (10, 50, 200, 1000, 50_000)


def event_of(num_mixtures: int) -> PoissonGaussianEvent:
    """Return the event whose central limit is GDP_MU."""
    share = GDP_MU / math.sqrt(num_mixtures * step_chi_square(1.0, NOISE))
    return PoissonGaussianEvent(sampling_prob=share, noise_multiplier=NOISE, count=num_mixtures)


def readings(num_mixtures: int) -> dict[str, Any]:
    """Return what each accountant says at delta, and the distances of the trade-off curves."""
    event = event_of(num_mixtures)
    found = account(event, DELTA).accountants
    pld, rdp, gdp = found["pld"], found["rdp"], found["gdp"]
    assert pld is not None and rdp is not None and gdp is not None
    report = tradeoff_report(event)
    return {
        "sampling_prob": event.sampling_prob,
        "gdp": gdp.epsilon,
        "pld_lower": pld.lower,
        "pld": pld.epsilon,
        "rdp": rdp.epsilon,
        "moments": moments_epsilon(event, DELTA),
        "sup_distance": report.gdp_sup_distance,
        "l2_distance": report.gdp_l2_distance,
    }


def draw(axes: Any) -> None:
    rates = np.linspace(0, 1, 401)
    axes.plot(rates, gdp_tradeoff(GDP_MU, rates), "k--", label=f"{GDP_MU}-GDP")
    for steps in STEPS[:3]:
        axes.plot(*tradeoff_curve(event_of(steps)), label=f"T = {steps}")
    axes.set(xlabel="false positives", ylabel="false negatives")
    axes.legend()


def main() -> None:
    experiment = Experiment(__file__, ["num_mixtures"], arguments(__doc__))
    for steps in STEPS:
        experiment.measure({"num_mixtures": steps}, lambda steps=steps: readings(steps))
    experiment.figure(draw)
    experiment.show("gdp", "pld", "rdp", "moments", "sup_distance", "l2_distance")


if __name__ == "__main__":
    main()
