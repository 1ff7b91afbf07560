"""What hierarchical sampling costs, as claimed and in truth, at the settings of NeuroMixGDP.

    python -m experiments.li2023.hierarchical_cost --quick

n = T = 50,000, m = 64, noise as the papers' accounting has it. The claim (Prop. E.3) takes a record's
inclusions for independent of the other records of its class.
"""

from __future__ import annotations

from experiments.harness import Experiment
from experiments.mixing import DELTA, arguments

from privmix.accounting import gdp_mu_from
from privmix.theory import central_limit_noise_multiplier, hierarchical_cost

SIZE, MIX_SIZE = 50_000, 64


def costs(claimed: float, class_prob: float) -> dict[str, float]:
    """Return the certified epsilons of rows whose claimed one is given, and those of the claim."""
    noise = central_limit_noise_multiplier(MIX_SIZE / SIZE, SIZE, gdp_mu_from(claimed, DELTA))
    found = hierarchical_cost(
        num_records=SIZE,
        num_mixtures=SIZE,
        mix_size=MIX_SIZE,
        class_prob=class_prob,
        noise_multiplier=noise,
        delta=DELTA,
    )
    return {"noise_multiplier": noise, **found._asdict()}


def main() -> None:
    experiment = Experiment(__file__, ["claimed_epsilon", "class_prob"], arguments(__doc__))
    for claimed in (1.0, 8.0) if experiment.quick else (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0):
        for prob in (0.03, 0.2, 1.0) if experiment.quick else (0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0):
            experiment.measure(
                {"claimed_epsilon": claimed, "class_prob": prob},
                lambda claimed=claimed, prob=prob: costs(claimed, prob),
            )
    experiment.show("claimed_central_limit", "claimed", "balanced", "random")


if __name__ == "__main__":
    main()
