"""Table 1: microbatches of two, with and without mixup, against single records; trained from scratch.

    PRIVMIX_DATA=data python -m experiments.bao2023.table1 --quick

The five arms of the paper, and a sixth: ``mixup`` adds to each pair of records one mixture of the two.
The sensitivity of a pair's clipped gradient is 2 C, so its noise is twice that of single records. Quick: a
network of 26k parameters on MNIST; in full: WRN-16-4 on CIFAR-10, by the paper's settings.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from experiments.bao2023 import common
from experiments.bao2023.common import Plan
from experiments.harness import Experiment, parser

from privmix import dpsgd

KEYS = ("data", "method", "microbatch", "rate", "run")


class Size(NamedTuple):
    """What is trained on what."""

    dataset: str
    model: str
    records: int
    judged: int
    batch_size: int
    epochs: int
    num_base: int
    rates: tuple[float, ...]
    runs: int

    @property
    def named(self) -> str:
        """The images, in a word."""
        return f"{self.dataset}-{self.records}"


QUICK = Size("mnist", "cnn-26k", 1000, 2000, 250, 8, 4, (2.0,), 1)
MIDDLE = Size("mnist", "cnn-26k", 1000, 5000, 250, 10, 4, (2.0,), 3)
FULL = Size("cifar10", "wrn-16-4", 45_000, 5000, 4096, 200, 16, (1.0, 2.0, 4.0), 3)


def arms(size: Size) -> dict[tuple[str, int], Plan]:
    """Return what each arm turns a record, or a pair, into."""
    options: dict[str, Any] = (
        {"transforms": ("crop",), "crop_padding": 2} if size.dataset == "mnist" else {}
    )
    return {
        ("DP-SGD", 1): Plan.plain(),
        ("Self-Aug", 1): Plan.self_aug(size.num_base, **options),
        ("DP-SGD", 2): Plan.plain(),
        ("mixup", 2): Plan.mixup_of_pairs(),
        ("Self-Aug", 2): Plan.self_aug(size.num_base, **options),
        ("DP-Mix-Self", 1): Plan.dp_mix_self(size.num_base, size.num_base, **options),
    }


def accuracy(
    size: Size, augmentation: Plan, epsilon: float | None, microbatch: int, rate: float, run: int
) -> dict[str, float]:
    """Train a network once and judge it on public images out of the training set, and on test images."""
    train = common.read(size.dataset, "train")
    records = train.part(0, size.records)
    validation = train.part(len(train.images) - size.judged, size.judged)
    test = common.read(size.dataset, "test").part(0, size.judged)
    plan = common.training_plan(
        records,
        augmentation,
        epsilon=epsilon,
        epochs=size.epochs,
        batch_size=size.batch_size,
        learning_rate=rate,
        microbatch_size=microbatch,
    )
    channels = records.images.shape[1]
    network = dpsgd.Network(dpsgd.make_model(size.model, channels, 10, seed=run))
    trained = common.train(records, plan, network, run)
    scores = (100 * trained.score(*judge) for judge in (validation, test))
    return dict(zip(("validation", "accuracy"), scores, strict=True))


def main() -> None:
    """Measure all arms."""
    options = parser(__doc__)
    options.add_argument("--mnist", action="store_true", help="1,000 MNIST images: half an hour")
    arguments = options.parse_args()
    experiment = Experiment(__file__, KEYS, arguments)
    size = QUICK if arguments.quick else MIDDLE if arguments.mnist else FULL
    for rate, run in itertools.product(size.rates, range(size.runs)):
        for (method, microbatch), augmentation in arms(size).items():
            experiment.measure(
                dict(zip(KEYS, (size.named, method, microbatch, rate, run), strict=True)),
                lambda augmentation=augmentation, microbatch=microbatch, rate=rate, run=run: (
                    accuracy(size, augmentation, 8.0, microbatch, rate, run)
                ),
            )
    experiment.show("validation", "accuracy")


if __name__ == "__main__":
    main()
