"""Tables 7 and 8: how far augmented images are from training and test images, as a Frechet distance.

    PRIVMIX_DATA=data python -m experiments.bao2023.frechet --quick

The distance is that of the backbone's features (EfficientNet-Lite0's, or random filters' with ``--quick``), not
of an Inception network's: it is no FID, and only orders within the table compare with the paper's. It is an uncharged
function of private records: for research alone.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from experiments.bao2023 import common
from experiments.bao2023.common import Images, Plan
from experiments.bao2023.linear import FULL, QUICK_COLOUR, Bench, generated
from experiments.bao2023.run import EfficientNetLite0
from experiments.harness import Experiment, parser
from numpy.typing import NDArray

from privmix.dpsgd import frechet_distance
from privmix.dpsgd.augmentation import Samples, augment

VIEWS = 4  # of each record, drawn from all its augmentations


@cache
def head(side: int | None) -> common.dpsgd.LinearHead:
    """Return the backbone: eight random filters, or EfficientNet-Lite0 at 64 pixels."""
    return common.head(common.RandomFilters(3, 8) if side is None else EfficientNetLite0(side))


def augmented(bench: Bench, plan: Plan, public: Images | None) -> NDArray[np.float64]:
    """Return features of a few augmentations of each record."""
    records, found = bench.private(), []
    samples = None
    if public is not None and plan.num_synthetic:
        images = torch.from_numpy(public.images).float() / 255
        samples = Samples(images, torch.eye(10)[torch.from_numpy(public.labels)])
    for number, (image, label) in enumerate(zip(*records, strict=True)):
        generator = np.random.default_rng(number)
        tensor, target = torch.from_numpy(image).float() / 255, torch.eye(10)[int(label)]
        inputs = augment(tensor, target, plan, generator, samples).inputs
        chosen = generator.permutation(len(inputs))[:VIEWS]
        found.append(head(bench.side).features(inputs[chosen]))
    return torch.cat(found).double().numpy()


def main() -> None:
    """Measure all pairs."""
    arguments = parser(__doc__).parse_args()
    experiment = Experiment(__file__, ("images",), arguments)
    bench = QUICK_COLOUR._replace(records=500, judged=500) if arguments.quick else FULL
    bench = bench if arguments.quick else bench._replace(records=5000, side=64)
    train, test = (
        common.features_of(head(bench.side), part) for part in (bench.private(), bench.judges()[1])
    )
    plans = bench.plans()
    kinds = {
        "Self-Aug": (plans["Self-Aug"], None),
        "+jitter": (bench.plans(transforms=("crop", "flip", "jitter"))["Self-Aug"], None),
        "DP-Mix-Self": (plans["DP-Mix-Self"], None),
        "DP-Mix-Diff, public": (plans["DP-Mix-Diff"], Bench.pool),
        "DP-Mix-Diff, generated": (plans["DP-Mix-Diff"], generated),
    }

    def distances(features: NDArray[np.float64]) -> dict[str, float]:
        return {
            "to train": frechet_distance(features, train),
            "to test": frechet_distance(features, test),
        }

    experiment.measure({"images": "test"}, lambda: distances(test))
    for name, source in (("public pool", Bench.pool), ("generated", generated)):
        experiment.measure(
            {"images": name},
            lambda source=source: distances(common.features_of(head(bench.side), source(bench))),
        )
    for name, (plan, source) in kinds.items():
        experiment.measure(
            {"images": name},
            lambda plan=plan, source=source: distances(
                augmented(bench, plan, None if source is None else source(bench))
            ),
        )
    experiment.show("to train", "to test")


if __name__ == "__main__":
    main()
