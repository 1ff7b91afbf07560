"""Tables of linear heads on a frozen backbone: arms, budgets, rates and runs of one table."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from experiments.bao2023 import common
from experiments.bao2023.common import Images, Plan
from experiments.bao2023.run import EfficientNetLite0
from experiments.harness import Experiment, parser
from numpy.typing import NDArray

from privmix import dpsgd

KEYS = ("method", "epsilon", "rate", "run")


class Bench(NamedTuple):
    """Images, backbone and sizes that all tables share.

    The public pool, which stands for synthetic images (method C of appendix B.1), and the validation images
    come out of the training set's end; neither is among the private records.
    """

    dataset: str
    side: int | None
    records: int
    public: int
    judged: int
    num_base: int
    num_mixed: int
    num_synthetic: int
    batch_size: int
    epochs: float
    rates: tuple[float, ...]
    runs: int
    options: Mapping[str, Any] = {}

    def private(self) -> Images:
        """Return the private records."""
        return common.read(self.dataset, "train").part(0, self.records)

    def pool(self) -> Images:
        """Return the public pool."""
        train = common.read(self.dataset, "train")
        return train.part(len(train.images) - self.judged - self.public, self.public)

    def judges(self) -> tuple[Images, Images]:
        """Return validation and test images."""
        train, test = (common.read(self.dataset, name) for name in ("train", "test"))
        return train.part(len(train.images) - self.judged, self.judged), test.part(0, self.judged)

    def plans(self, **changes: Any) -> dict[str, Plan]:
        """Return the four methods' augmentations; ``changes`` are options of all but the plain one."""
        base, mixed, synthetic = self.num_base, self.num_mixed, self.num_synthetic
        options = {**self.options, **changes}
        return {
            "plain": Plan.plain(),
            "Self-Aug": Plan.self_aug(base, **options),
            "DP-Mix-Self": Plan.dp_mix_self(base, mixed, **options),
            "DP-Mix-Diff": Plan.dp_mix_diff(base, mixed, synthetic, **options),
        }


DIGITS: dict[str, Any] = {"transforms": ("crop",), "crop_padding": 1}
QUICK = Bench("mnist", None, 500, 250, 2000, 4, 5, 1, 125, 10, (4.0,), 3, DIGITS)
QUICK_COLOUR = Bench("cifar10", None, 500, 250, 1000, 4, 5, 1, 125, 20, (1.0,), 2)
MIDDLE = Bench("mnist", None, 4000, 2000, 10_000, 8, 9, 1, 1000, 10, (4.0, 16.0), 3, DIGITS)
FULL = Bench("cifar10", 128, 40_000, 5000, 5000, 16, 18, 2, 1000, 10, (0.25, 0.5, 1.0, 2.0), 3)


class Arm(NamedTuple):
    """One method: what records are turned into, and what public images are used for."""

    plan: Plan
    synthetic: Callable[[Bench], Images] | None = None
    clip_norm: float = 1.0
    initial: Callable[[Bench], tuple[NDArray[Any], NDArray[Any]]] | None = None
    cached: bool = True


@cache
def backbone(dataset: str, side: int | None) -> Any:
    """Return the frozen backbone: random filters, or ImageNet's at ``side`` pixels."""
    if side is not None:
        return EfficientNetLite0(side)
    return common.RandomFilters(1 if dataset == "mnist" else 3)


@cache
def shared_head(dataset: str, side: int | None) -> dpsgd.LinearHead:
    """Return a head that keeps views' features for all trainings of a script."""
    return common.head(backbone(dataset, side))


@cache
def judged_features(dataset: str, side: int | None, judged: int) -> list[Any]:
    """Return features and labels of validation and test images."""
    bench = FULL._replace(dataset=dataset, side=side, judged=judged)
    head = shared_head(dataset, side)
    return [(common.features_of(head, part), part.labels) for part in bench.judges()]


def accuracy(
    bench: Bench, arm: Arm, epsilon: float | None, rate: float, run: int
) -> dict[str, Any]:
    """Train once; return accuracies in per cent and seconds of training."""
    records = bench.private()
    plan = common.training_plan(
        records,
        arm.plan,
        epsilon=epsilon,
        epochs=bench.epochs,
        batch_size=bench.batch_size,
        learning_rate=rate / arm.clip_norm,
        clip_norm=arm.clip_norm,
    )
    head = shared_head(bench.dataset, bench.side)
    if arm.initial is not None or not arm.cached:
        initial = None if arm.initial is None else arm.initial(bench)
        own = common.head(
            head.backbone,
            initial=initial,
            feature_cache="views" if arm.cached else "none",
        )
        own.cache = head.cache
        head = own
    public = None if arm.synthetic is None else arm.synthetic(bench)
    start = time.perf_counter()
    trained = common.train(records, plan, head, run, public)
    spent = time.perf_counter() - start
    judges = judged_features(bench.dataset, bench.side, bench.judged)
    scores = [common.head_accuracy(trained, *judge) for judge in judges]
    return {"data": f"{bench.dataset}-{bench.records}", "validation": scores[0],
            "accuracy": scores[1], "training_seconds": round(spent, 1)}  # fmt: skip


def table(
    script: str,
    doc: str | None,
    arms: Callable[[Bench], Mapping[str, Arm]],
    epsilons: Iterable[float | None],
    quick: Bench = QUICK,
    columns: tuple[str, ...] = ("validation", "accuracy"),
) -> Experiment:
    """Measure all arms at all budgets, rates and runs, and print them.

    Args:
        script: ``__file__`` of the script.
        doc: Its docstring.
        arms: From the sizes to the arms.
        epsilons: Budgets; None is no noise. With ``--quick`` the last one alone.
        quick: Sizes with ``--quick``.
        columns: What is printed.

    """
    options = parser(doc)
    options.add_argument("--mnist", action="store_true", help="4,000 MNIST images: minutes an arm")
    arguments = options.parse_args()
    bench = quick if arguments.quick else MIDDLE if arguments.mnist else FULL
    experiment = Experiment(script, ("images", *KEYS), arguments)
    known = list(epsilons)
    for (name, arm), epsilon, rate, run in itertools.product(
        arms(bench).items(),
        known[-1:] if arguments.quick else known,
        bench.rates,
        range(bench.runs),
    ):
        key = dict(zip(KEYS, (name, epsilon, rate, run), strict=True))
        experiment.measure(
            {"images": f"{bench.dataset}-{bench.side or 'filters'}-{bench.records}", **key},
            lambda arm=arm, epsilon=epsilon, rate=rate, run=run: accuracy(
                bench, arm, epsilon, rate, run
            ),
        )
    experiment.show(*columns)
    return experiment


def generated(bench: Bench) -> Images:
    """Return images drawn from a Gaussian for each class, fitted to the public pool in 20 directions.

    They stand for a generator's images: of the right classes, but not of the data's distribution.
    """
    pool, rng = bench.pool(), np.random.default_rng(0)
    found = np.empty(pool.images.shape)
    for label in np.unique(pool.labels):
        chosen = pool.labels == label
        rows = pool.images[chosen].reshape(chosen.sum(), -1).astype(np.float64)
        centred = rows - rows.mean(axis=0)
        _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
        kept = slice(0, 20)
        drawn = rng.standard_normal((len(rows), len(sizes[kept]))) * sizes[kept]
        images = rows.mean(axis=0) + drawn @ directions[kept] / np.sqrt(len(rows))
        found[chosen] = images.reshape(-1, *pool.images.shape[1:])
    return Images(np.rint(found.clip(0, 255)).astype(np.uint8), pool.labels)


def pretrained(bench: Bench) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return weights and intercepts of logistic regression on the public pool, without privacy."""
    from sklearn.linear_model import LogisticRegression

    pool = bench.pool()
    features = common.features_of(shared_head(bench.dataset, bench.side), pool)
    model = LogisticRegression(C=0.1, max_iter=200).fit(features, pool.labels)
    coef, intercept = np.zeros((10, features.shape[1])), np.full(10, -10.0)
    coef[model.classes_], intercept[model.classes_] = model.coef_, model.intercept_
    return coef, intercept
