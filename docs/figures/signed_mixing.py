"""Draw docs/theory/signed-mixing.svg: what random signs save, step by step and in all.

python docs/figures/signed_mixing.py
"""

from __future__ import annotations

import numpy as np
from _style import panels, save

from privmix.accounting import PoissonGaussianEvent, SignedGaussianEvent, account
from privmix.plotting import CERTIFIED_COLOR, UNCERTIFIED_COLOR
from privmix.theory.noise import step_chi_square

COLORS = {"poisson": UNCERTIFIED_COLOR, "signed": CERTIFIED_COLOR}


def main() -> None:
    """Chi-square of one step, and certified epsilon of 10,003, over the noise multiplier."""
    figure, (left, right) = panels(2)
    noises = np.geomspace(0.5, 8.0, 61)
    for design, color in COLORS.items():
        steps = [step_chi_square(1.0, s, design=design) for s in noises]
        left.plot(noises, steps, color=color, label=design)
    left.set(xscale="log", yscale="log", xlabel="noise multiplier s")
    left.set_ylabel("chi-square of a step / q^2")
    left.legend()
    noises = np.geomspace(0.7, 4.0, 12)
    for event_class, (design, color) in zip(
        (PoissonGaussianEvent, SignedGaussianEvent), COLORS.items(), strict=True
    ):
        epsilons = [
            account(
                event_class(sampling_prob=0.0036, noise_multiplier=float(s), count=10003), 1e-5
            ).epsilon
            for s in noises
        ]
        right.plot(noises, epsilons, color=color, label=design)
    right.set(xscale="log", yscale="log", xlabel="noise multiplier s")
    right.set_ylabel("epsilon, q = 0.0036, T = 10003")
    for axes, ticks in ((left, [0.5, 1, 2, 4, 8]), (right, [0.7, 1, 2, 4])):
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    save(figure, "signed-mixing")


if __name__ == "__main__":
    main()
