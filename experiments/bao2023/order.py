"""What does the order plain < Self-Aug < DP-Mix-Self depend on? An ablation on two backbones.

    PRIVMIX_DATA=data python -m experiments.bao2023.order --quick

The paper's Tables 2 to 5 have DP-Mix-Self above Self-Aug. Here the same three methods train a linear
head, with and without noise, for few epochs and many, with small and large shifts, on few records and
more; at every learning rate of a grid. ``validation`` is on public images out of the training set, on
which a rate may be chosen; ``accuracy`` on test images.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from experiments.bao2023 import common
from experiments.bao2023.common import Images, Plan
from experiments.bao2023.run import EfficientNetLite0
from experiments.harness import Experiment, Row, parser

from privmix import dpsgd

KEYS = ("backbone", "records", "epsilon", "epochs", "padding", "method", "rate", "run")
METHODS = ("plain", "self-aug", "dp-mix-self")
BATCHES_PER_EPOCH = 4


class Scene(NamedTuple):
    """A backbone with the images that it is for."""

    dataset: str
    transforms: tuple[str, ...]


SCENES = {
    "random-filters": Scene("mnist", ("crop",)),
    "efficientnet-64": Scene("cifar10", ("crop", "flip")),
    "efficientnet-128": Scene("cifar10", ("crop", "flip")),
}


def augmentation(method: str, padding: int, transforms: tuple[str, ...]) -> Plan:
    """Return a method's augmentations, 8 views and 9 mixtures (half of the paper's numbers)."""
    options: dict[str, Any] = {"transforms": transforms, "crop_padding": padding}
    return {
        "plain": lambda: Plan.plain(),
        "self-aug": lambda: Plan.self_aug(8, **options),
        "dp-mix-self": lambda: Plan.dp_mix_self(8, 9, **options),
    }[method]()


@cache
def head_of(backbone: str) -> dpsgd.LinearHead:
    """Return a backbone's head, which keeps the features of views that it has seen."""
    if backbone == "random-filters":
        return common.head(common.RandomFilters())
    return common.head(EfficientNetLite0(int(backbone.rpartition("-")[2])))


@cache
def judges(backbone: str, quick: bool) -> tuple[tuple[Any, Any], ...]:
    """Return features and labels of validation and test images."""
    dataset, count = SCENES[backbone].dataset, 10_000 if backbone == "random-filters" else 1000
    train, test = common.read(dataset, "train"), common.read(dataset, "test")
    count = count // 4 if quick else count
    parts = (train.part(len(train.images) - count, count), test.part(0, count))
    return tuple((common.features_of(head_of(backbone), part), part.labels) for part in parts)


def settings(quick: bool) -> Iterator[dict[str, Any]]:
    """Yield what is measured: one factor at a time is moved from a middle setting."""
    scenes = [  # backbone, records, epsilons, epochs, paddings, rates, runs
        ("efficientnet-64", 250, (8.0,), 40, (4, 1), (1.0, 4.0), 6),
        ("efficientnet-64", 250, (None,), 40, (4, 1), (1.0, 4.0), 3),
        ("random-filters", 1000, (8.0, None), 40, (1,), (4.0, 16.0), 3),
        ("random-filters", 250, (8.0,), 40, (1,), (1.0, 4.0), 3),
        ("efficientnet-64", 500, (8.0, 2.0), 40, (1,), (1.0, 4.0), 3),
        ("random-filters", 1000, (8.0,), 10, (1,), (4.0, 16.0), 3),
        ("random-filters", 1000, (None,), 40, (3,), (4.0, 16.0), 3),
        ("efficientnet-64", 1000, (None, 8.0, 1.0), 40, (1, 4), (1.0, 4.0), 3),
        ("efficientnet-128", 1000, (None, 8.0), 40, (1, 4), (1.0, 4.0), 3),
    ]
    if quick:
        scenes = [("random-filters", 250, (None, 8.0), 10, (1, 3), (1.0, 4.0), 1)]
    for backbone, size, epsilons, length, paddings, rates, runs in scenes:
        for eps, padding, method, rate, run in itertools.product(
            epsilons, paddings, METHODS, rates, range(runs)
        ):
            # Plain records are not shifted: they are measured once, beside the smallest shift.
            if method != "plain" or padding == 1:
                values = (backbone, size, eps, length, padding, method, rate, run)
                yield dict(zip(KEYS, values, strict=True))


def measure(key: dict[str, Any], quick: bool) -> dict[str, float]:
    """Train once and judge twice."""
    scene = SCENES[key["backbone"]]
    records: Images = common.read(scene.dataset, "train").part(0, key["records"])
    plan = common.training_plan(
        records,
        augmentation(key["method"], key["padding"], scene.transforms),
        epsilon=key["epsilon"],
        epochs=key["epochs"],
        batch_size=key["records"] // BATCHES_PER_EPOCH,
        learning_rate=key["rate"],
    )
    trained = common.train(records, plan, head_of(key["backbone"]), key["run"])
    validation, test = (
        common.head_accuracy(trained, *judge) for judge in judges(key["backbone"], quick)
    )
    return {"validation": validation, "accuracy": test}


def summary(rows: list[Row]) -> Iterator[tuple[str, ...]]:
    """Yield, for each setting and method, accuracy at the rate that is best on validation images."""
    cells: dict[tuple[str, ...], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        cells[tuple(row[name] for name in KEYS[:-2])][row["rate"]].append(row)
    for cell, rates in cells.items():
        means = {
            r: np.mean([float(one["validation"]) for one in some]) for r, some in rates.items()
        }
        rate = max(means, key=lambda name: means[name])
        found = [float(one["accuracy"]) for one in rates[rate]]
        spread = np.std(found, ddof=1) if len(found) > 1 else 0.0
        yield (*cell, rate, f"{np.mean(found):.1f} ({spread:.1f})")


def main() -> None:
    """Measure all settings and print what each method reaches."""
    arguments = parser(__doc__).parse_args()
    experiment = Experiment(__file__, KEYS, arguments)
    for key in settings(arguments.quick):
        experiment.measure(key, lambda key=key: measure(key, arguments.quick))
    print("  ".join((*KEYS[:-1], "accuracy")))
    for line in summary(experiment.rows):
        print("  ".join(line))


if __name__ == "__main__":
    main()
