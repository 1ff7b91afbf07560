"""Fisher's rule on features selected by distance (DFS) and by the t statistic: CIFAR-10 and MNIST.

    PRIVMIX_DATA=data python -m experiments.dfs.fisher --quick

The DFS paper's Figures 3 and 4: test error against the number of selected features, and against
epsilon. ``none``: no noise. ``printed``: Algorithm 1 as it is printed, and for the t statistic the same
noise on all features, which are ranked afterwards; neither is private. ``privmix``: class sums and sums
of squares under the stated budget (delta 1e-5), by ``SelectFeatures`` with squares; ``distance`` is
``FisherClassifier`` on a release, ``t-test`` ranks the same published sums by the other criterion.
"""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from experiments.dfs import common
from experiments.harness import Experiment, parser

from privmix import FisherClassifier, Schema, bound_records, plan_release, release
from privmix.accounting import gdp_mu_from
from privmix.preprocess import Preprocessor, RecordFacts, SelectFeatures
from privmix.rng import MasterKey

KEYS = ("dataset", "noise", "criterion", "epsilon", "selected", "run")
CLASSES = 10
SHARE = 0.95  # of the budget; the rest is the release's, whose rows Fisher's rule does not use


@cache
def split(dataset: str, quick: bool) -> common.Split:
    """Return records of a data set."""
    return common.load(dataset, *((4000, 2000) if quick else (50_000, 10_000)))


def settings(quick: bool) -> Iterator[dict[str, Any]]:
    """Yield what is measured: dimensions at one epsilon, and epsilons at one dimension."""
    runs = range(3)
    for dataset in ("cifar10", "mnist"):
        sizes = (50, 200, 700) if quick else (25, 50, 100, 200, 400, 700)
        epsilons = (1.0, 10.0) if quick else (0.5, 1.0, 2.0, 4.0, 10.0)
        pairs = [(4.0, size) for size in sizes] + [(epsilon, 200) for epsilon in epsilons]
        for noise in ("none", "printed", "privmix"):
            for criterion in ("distance", "t-test"):
                for epsilon, size in dict.fromkeys(pairs):
                    if noise == "none" and epsilon != 4.0:
                        continue
                    for run in runs if noise != "none" else range(1):
                        values = (dataset, noise, criterion, epsilon, size, run)
                        yield dict(zip(KEYS, values, strict=True))


def printed(records: common.Split, key: dict[str, Any]) -> float:
    """Return the error where noise is on every record, as Algorithm 1 has it."""
    rng = np.random.default_rng(key["run"])
    count = key["selected"] if key["criterion"] == "distance" else records.x.shape[1]
    columns, rows = common.algorithm_1(records.x, records.y, CLASSES, count, key["epsilon"], rng)
    found = common.moments(rows, records.y, CLASSES)
    if key["criterion"] == "t-test":
        kept = common.best(common.t_statistic(found), key["selected"])
        columns, found = columns[kept], common.Moments(*(part[..., kept] for part in found))
    return common.fisher_error(found, records.test_x[:, columns], records.test_y)


def by_release(records: common.Split, key: dict[str, Any]) -> float:
    """Return the error of the library's classifier on a release."""
    schema = Schema(
        classes=range(CLASSES),
        num_features=records.x.shape[1],
        num_records=len(records.x),
        feature_clip_norm=1.0,
    )
    step = SelectFeatures(num_selected=key["selected"], with_squares=True, budget_share=SHARE)
    plan = plan_release(
        schema,
        target_epsilon=key["epsilon"],
        target_delta=common.DELTA,
        design="stratified",
        rows_per_class=1,
        preprocessing=[step],
    )
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = release(records.x, records.y, plan, out=f"{folder}/r", test_seed=key["run"])
        model = FisherClassifier().fit(made)
        return 100 * float(np.mean(model.predict(records.test_x) != records.test_y))


def by_sums(records: common.Split, key: dict[str, Any]) -> float:
    """Return the error where published sums are ranked by the t statistic."""
    facts = RecordFacts(
        num_records=len(records.x),
        num_classes=CLASSES,
        num_features=records.x.shape[1],
        clip_norm=1.0,
        neighboring_relation="add_or_remove_one",
    )
    schema = Schema(
        classes=range(CLASSES),
        num_features=facts.num_features,
        num_records=facts.num_records,
        feature_clip_norm=1.0,
    )
    mu = gdp_mu_from(key["epsilon"], common.DELTA) * math.sqrt(SHARE)
    step = SelectFeatures(num_selected=1, with_squares=True, noise_multiplier=1 / mu)
    bounded = bound_records(records.x, records.y, schema)
    secret = bytes([key["run"]]) * 32  # public data: a fixed key makes a run repeatable
    made = Preprocessor((step,), facts).run_next(bounded, MasterKey(secret, b"dfs"))
    found = made.feature_statistics(0)
    assert found.squares is not None and found.square_noise is not None
    between = (found.means**2 - found.mean_noise[:, None] ** 2).mean(axis=0)
    variances = np.maximum(found.squares - between, found.square_noise)
    whole = common.Moments(found.means, variances)
    kept = common.best(common.t_statistic(whole), key["selected"])
    kept_moments = common.Moments(whole.means[:, kept], variances[kept])
    return common.fisher_error(kept_moments, records.test_x[:, kept], records.test_y)


def error(key: dict[str, Any], quick: bool) -> dict[str, float]:
    """Return the test error of one setting, in per cent."""
    records = split(key["dataset"], quick)
    if key["noise"] == "printed":
        return {"error": printed(records, key)}
    if key["noise"] == "privmix":
        run = by_release if key["criterion"] == "distance" else by_sums
        return {"error": run(records, key)}
    found = common.moments(records.x, records.y, CLASSES)
    rank = common.distance if key["criterion"] == "distance" else common.t_statistic
    kept = common.best(rank(found), key["selected"])
    kept_moments = common.Moments(found.means[:, kept], found.variances[kept])
    return {"error": common.fisher_error(kept_moments, records.test_x[:, kept], records.test_y)}


def main() -> None:
    """Measure all settings; draw errors against dimensions."""
    arguments = parser(__doc__).parse_args()
    experiment = Experiment(__file__, KEYS, arguments)
    for key in settings(arguments.quick):
        experiment.measure(key, lambda key=key: error(key, arguments.quick))
    experiment.show("error")

    def draw(axes: Any) -> None:
        for style, dataset in (("-", "cifar10"), ("--", "mnist")):
            for noise in ("none", "printed", "privmix"):
                for criterion in ("distance", "t-test"):
                    known = {"dataset": dataset, "noise": noise, "criterion": criterion}
                    known["epsilon"] = "4.0"
                    points = sorted(
                        (int(row["selected"]), float(row["error"]))
                        for row in experiment.rows
                        if all(row[name] == value for name, value in known.items())
                    )
                    label = f"{dataset}, {noise}, {criterion}"
                    axes.plot(*zip(*points, strict=True), style, label=label)
        axes.set(xlabel="selected features", ylabel="test error (%)", xscale="log")
        axes.legend(fontsize=6)

    experiment.figure(draw)


if __name__ == "__main__":
    main()
