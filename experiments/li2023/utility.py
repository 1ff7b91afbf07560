"""Accuracy of released features: NeuroMixGDP's Tables 2 and 3, DPFMix's Table 3.

    python -m experiments.li2023.utility --quick
    python -m experiments.li2023.utility --datasets mnist-scattering --epsilon 1 --epochs 200

m = 64, label balance 1, n = T, softmax regression by KL: the papers' setting where nothing is tuned.
``claimed`` rows have the noise of the papers' accounting, ``sound`` rows cost what the table says.
Hierarchical rows are open to two classes on average. ``privmix`` is the library's own plan. What each
release really costs is in ``certified``. ``non-private`` is the papers' learner on records. Quick:
4,000 records (all 10,003 of Banking77), epsilon 1 and 8, 20 epochs of ten times the step, and the library's
own plan, whose learner decomposes a matrix of all features, on Banking77 alone.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.harness import Experiment
from experiments.li2023.cells import draw_bars
from experiments.li2023.rows import accuracy, rows
from experiments.mixing import DELTA, Rows, kl_softmax, load, mixing_parser, read, spread

import privmix
from privmix.running.unrecorded import UnrecordedSpendingWarning
from utility import DATASETS, DataSet

NAMES = tuple(DATASETS)
QUICK_RECORDS = 4_000
EPOCHS = {True: 20, False: 200}
Outcome = tuple[float, float]


def papers(data: DataSet, epsilon: float, seed: int, epochs: int, **options: Any) -> Outcome:
    """The papers' rows and learner."""
    with rows(data, epsilon, **options) as release:
        found = accuracy(release, kl_softmax(seed, epochs), data)
        return found, release.certificate.epsilon


def privmix_plan(data: DataSet, epsilon: float, seed: int, epochs: int) -> Outcome:
    """The library's plan and learner."""
    plan = privmix.plan_release(data.schema, target_epsilon=epsilon, target_delta=DELTA)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UnrecordedSpendingWarning)
        made = privmix.release(data.x_train, data.y_train, plan, out=Path(folder) / "release")
        learner = privmix.NoiseAwareClassifier()
        return accuracy(made, learner, data), made.certificate.epsilon


def without_privacy(data: DataSet, epsilon: float, seed: int, epochs: int) -> Outcome:
    """The papers' learner on the records themselves."""
    return accuracy(Rows.of_records(data), kl_softmax(seed, epochs), data), float("inf")


def hierarchical(sound: bool) -> Callable[[DataSet, float, int, int], Outcome]:
    def method(data: DataSet, epsilon: float, seed: int, epochs: int) -> Outcome:
        prob = 2 / data.schema.num_classes
        return papers(data, epsilon, seed, epochs, class_prob=prob, sound=sound)

    return method


METHODS: dict[str, Callable[[DataSet, float, int, int], Outcome]] = {
    "poisson-claimed": papers,
    "poisson-sound": lambda *setting: papers(*setting, sound=True),
    "hierarchical-claimed": hierarchical(sound=False),
    "hierarchical-sound": hierarchical(sound=True),
    "privmix": privmix_plan,
    "non-private": without_privacy,
}


def figures(name: str, data: DataSet, epsilon: float, seeds: int, epochs: int) -> dict[str, Any]:
    found = [METHODS[name](data, epsilon, seed, epochs) for seed in range(seeds)]
    return {**spread([one for one, _ in found]), "certified": found[-1][1]}


def main() -> None:
    found = mixing_parser(__doc__, NAMES)
    found.add_argument("--epsilon", type=float, nargs="+")
    found.add_argument("--methods", nargs="+", choices=METHODS)
    found.add_argument("--epochs", type=int)
    given = read(found)
    keys = ["dataset", "epsilon", "method", "records", "epochs", "seeds"]
    experiment = Experiment(__file__, keys, given)
    most = QUICK_RECORDS if experiment.quick else None
    epochs = given.epochs or EPOCHS[experiment.quick]
    for dataset in given.datasets:
        few = dataset != "banking77"
        data = load(dataset, given.cache, most if few else None)
        for epsilon in given.epsilon or ((1.0, 8.0) if experiment.quick else (1.0, 2.0, 4.0, 8.0)):
            for name in given.methods or METHODS:
                if few and experiment.quick and not given.methods and name == "privmix":
                    continue
                key = [dataset, f"{epsilon:g}", name, len(data.x_train), epochs, given.seeds]
                experiment.measure(
                    dict(zip(keys, key, strict=True)),
                    lambda data=data, epsilon=epsilon, name=name: figures(
                        name, data, epsilon, given.seeds, epochs
                    ),
                )
    names = ("dataset", "epsilon", "method")
    experiment.figure(lambda axes: draw_bars(experiment, axes, names, "accuracy", "spread"))
    experiment.show("accuracy", "spread", "certified")


if __name__ == "__main__":
    main()
