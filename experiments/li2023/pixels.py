"""Mixing pixels or features: DPFMix's Tables 1, 2, 6, NeuroMixGDP's Tables 1, 6, 7, with a linear learner.

    python -m experiments.li2023.pixels --quick

m = 64, label balance 1, n = T, records of unit norm, softmax regression by KL. ``u-rdp`` rows have the
noise that Renyi accounting asks of sampling without replacement (DPMix), ``p-gdp`` rows that of the
papers' central limit; ``none`` rows have no noise. The papers train networks on pixels and pick m by test
accuracy; here neither is done. Quick: 4,000 records, 20 epochs of ten times the step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.harness import Experiment
from experiments.li2023.cells import draw_against
from experiments.li2023.noise import noise_multiplier
from experiments.li2023.rows import MIX_SIZE, accuracy
from experiments.mixing import (
    Rows,
    kl_softmax,
    load,
    load_unit_pixels,
    mixing_parser,
    published,
    read,
    spread,
)

from utility import DataSet

NAMES = ("mnist-pixels", "cifar10-pixels", "cifar10-efficientnet")
ACCOUNTANTS = {"u-rdp": "uniform-rdp", "p-gdp": "poisson-gdp"}


def records(name: str, cache: Path, most: int | None) -> DataSet:
    """Load pixels or features."""
    if name.endswith("-pixels"):
        return load_unit_pixels(name.removesuffix("-pixels"), most)
    return load(name, cache, most)


def figures(
    data: DataSet, accounting: str, epsilon: float, seeds: int, epochs: int
) -> dict[str, Any]:
    """Release once a seed; return the mean accuracy in per cent, its spread, noise and true cost."""
    found, joint, noise, cost = [], 0.0, 0.0, float("inf")
    if accounting != "none":
        joint = noise_multiplier(ACCOUNTANTS[accounting], MIX_SIZE, len(data.x_train), epsilon)
    for seed in range(seeds):
        learner = kl_softmax(seed, epochs)
        if accounting == "none":
            found.append(accuracy(Rows.noiseless(data, MIX_SIZE, seed), learner, data))
            continue
        with published(data, joint, design="poisson", mix_size=float(MIX_SIZE)) as release:
            found.append(accuracy(release, learner, data))
            noise, cost = release.feature_noise_stddev, release.certificate.epsilon
    return {**spread(found), "noise": noise, "certified": cost}


def main() -> None:
    found = mixing_parser(__doc__, NAMES)
    found.add_argument("--epochs", type=int, help="[20 with --quick, else 200]")
    given = read(found)
    epochs = given.epochs or (20 if given.quick else 200)
    keys = ["dataset", "epsilon", "accounting", "records", "epochs", "seeds"]
    experiment = Experiment(__file__, keys, given)
    for dataset in given.datasets:
        data = records(dataset, given.cache, 4_000 if given.quick else None)
        settings = [(float("inf"), "none")]
        for epsilon in (1.0, 8.0) if given.quick else (1.0, 2.0, 4.0, 8.0):
            settings += [(epsilon, name) for name in ACCOUNTANTS]
        for epsilon, name in settings:
            key = [dataset, f"{epsilon:g}", name, len(data.x_train), epochs, given.seeds]
            experiment.measure(
                dict(zip(keys, key, strict=True)),
                lambda data=data, rest=(name, epsilon): figures(data, *rest, given.seeds, epochs),
            )
    experiment.figure(
        lambda axes: draw_against(experiment, "epsilon", axes, "dataset", "accounting")
    )
    experiment.show("accuracy", "spread", "noise", "certified")


if __name__ == "__main__":
    main()
