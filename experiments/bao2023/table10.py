"""Table 10: how useful are synthetic images? Methods A, B and C of appendix B.1.

    PRIVMIX_DATA=data python -m experiments.bao2023.table10 --quick

A mixes a record's views alone; C mixes with other images of the data set, which count as public: the best
that synthetic images could be. B, between them, mixes with images that a generator made; here the generator
is a Gaussian for each class, fitted to the public images (no diffusion model is at hand).
"""

from __future__ import annotations

from experiments.bao2023.linear import Arm, Bench, generated, table


def arms(bench: Bench) -> dict[str, Arm]:
    """Return the three methods."""
    plans = bench.plans()
    return {
        "A": Arm(plans["DP-Mix-Self"]),
        "B": Arm(plans["DP-Mix-Diff"], generated),
        "C": Arm(plans["DP-Mix-Diff"], Bench.pool),
    }


if __name__ == "__main__":
    table(__file__, __doc__, arms, (2.0,))
