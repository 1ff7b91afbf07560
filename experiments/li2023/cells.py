"""One point of the papers' utility curves: rows of a setting, their learner, what they cost."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from experiments.harness import Experiment
from experiments.li2023.rows import MIX_SIZE, accuracy, noise_at
from experiments.mixing import Rows, kl_softmax, load, mixing_parser, published, read, spread

import privmix
from utility import DATASETS, DataSet

NAMES = tuple(DATASETS)
Accounting = Literal["claimed", "sound", "none"]
QUICK_RECORDS = 10_003
KEYS = [
    "dataset",
    "epsilon",
    "accounting",
    "mix_size",
    "class_prob",
    "label_balance",
    "learner",
    "records",
    "epochs",
    "seeds",
]


@dataclass(frozen=True)
class Setting:
    """What the papers vary.

    Attributes:
        epsilon: What the rows cost, by ``accounting``.
        accounting: ``claimed``: the noise of the papers' central limit; ``sound``: certified;
            ``none``: rows without noise.
        mix_size: Planned number of records in a row, m.
        class_prob: Share of the rows that a class is open to, p; 1 for Poisson rows.
        label_balance: Label over feature noise multiplier, lambda.

    """

    epsilon: float
    accounting: Accounting
    mix_size: int = MIX_SIZE
    class_prob: float = 1.0
    label_balance: float = 1.0

    def key(self) -> dict[str, Any]:
        """Return the setting as columns of a result."""
        return {**asdict(self), **{name: f"{getattr(self, name):g}" for name in _NUMBERS}}


_NUMBERS = ("epsilon", "class_prob", "label_balance")


def figures(
    data: DataSet, setting: Setting, seeds: int, epochs: int, learner: str = "kl"
) -> dict[str, Any]:
    """Release once a seed; return the mean accuracy in per cent, its spread, and the certified cost.

    ``learner``: ``kl``, the papers' softmax regression, or ``noise-aware``, for which there are no epochs.
    """

    def learnt(release: Any, seed: int) -> float:
        aware = learner == "noise-aware"
        return accuracy(
            release, privmix.NoiseAwareClassifier() if aware else kl_softmax(seed, epochs), data
        )

    if setting.accounting == "none":
        found = [
            learnt(Rows.noiseless(data, setting.mix_size, seed), seed) for seed in range(seeds)
        ]
        return {**spread(found), "noise": 0.0, "certified": float("inf")}
    size, prob = setting.mix_size, setting.class_prob
    sound = setting.accounting == "sound"
    noise = noise_at(setting.epsilon, len(data.x_train), size, prob, sound=sound)
    layout: dict[str, Any] = {"design": "poisson", "mix_size": float(size)}
    if prob < 1:
        layout |= {"design": "hierarchical", "class_prob": prob, "eligibility": "balanced"}
    found = []
    for seed in range(seeds):
        with published(data, noise, label_balance=setting.label_balance, **layout) as release:
            found.append(learnt(release, seed))
    cost = release.certificate.epsilon
    return {**spread(found), "noise": release.feature_noise_stddev, "certified": cost}


def parse(doc: str | None, quick: tuple[str, ...] = ("banking77",)) -> argparse.Namespace:
    """Parse the arguments of a curve; ``quick`` are the data sets of its quick form."""
    found = mixing_parser(doc, NAMES)
    found.set_defaults(datasets=None)
    found.add_argument("--epsilon", type=float, nargs="+", help="[8 with --quick, else 1 2 4 8]")
    found.add_argument("--epochs", type=int, help="[20 with --quick, else 200]")
    found.add_argument("--learner", choices=("kl", "noise-aware"), default="kl")
    found.add_argument("--records", type=int, help="[10,003 with --quick, else all]")
    given = read(found)
    given.datasets = given.datasets or (quick if given.quick else NAMES)
    given.epsilon = given.epsilon or ((8.0,) if given.quick else (1.0, 2.0, 4.0, 8.0))
    given.epochs = given.epochs or (20 if given.quick else 200)
    given.records = given.records or (QUICK_RECORDS if given.quick else None)
    return given


def measure(experiment: Experiment, given: argparse.Namespace, settings: list[Setting]) -> None:
    """Measure settings on every data set; those that do not fit a data set are left out."""
    for name in given.datasets:
        data = load(name, given.cache, given.records)
        n = len(data.x_train)
        for setting in settings:
            if setting.mix_size > setting.class_prob * n:
                continue  # a record would have to enter more often than always
            epochs = given.epochs if given.learner == "kl" else 0
            key = {"dataset": name, **setting.key(), "learner": given.learner, "records": n}
            experiment.measure(
                {**key, "epochs": epochs, "seeds": given.seeds},
                lambda data=data, setting=setting, epochs=epochs: figures(
                    data, setting, given.seeds, epochs, given.learner
                ),
            )


def draw_against(experiment: Experiment, column: str, axes: Any, *apart: str) -> None:
    """Draw accuracy over a column, a line for each value of the columns in ``apart``; infinity is left out."""
    lines: dict[tuple[str, ...], list[tuple[float, float, float]]] = {}
    for row in experiment.rows:
        if math.isfinite(float(row[column])):
            point = (float(row[column]), float(row["accuracy"]), float(row["spread"]))
            lines.setdefault(tuple(row[name] for name in apart), []).append(point)
    for name, points in lines.items():
        x, y, error = zip(*sorted(points), strict=True)
        axes.errorbar(x, y, error, fmt="o-", capsize=2, label=" ".join(name))
    axes.set(xscale="log", xlabel=column.replace("_", " "), ylabel="test accuracy, %")
    axes.legend(fontsize="x-small")


def draw_bars(
    experiment: Experiment, axes: Any, names: tuple[str, ...], value: str, error: str
) -> None:
    """Draw a bar for each row, called by the columns in ``names``."""
    rows = experiment.rows
    axes.barh(
        [" ".join(row[name] for name in names) for row in rows],
        [float(row[value]) for row in rows],
        xerr=[float(row[error]) for row in rows],
    )
    axes.set(xlabel="test accuracy, %")
    axes.tick_params(axis="y", labelsize=5)
