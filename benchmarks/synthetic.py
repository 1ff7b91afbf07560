"""Accuracy of ordinary learners on synthetic records, against the noise-aware one on the release.

    PRIVMIX_DATA=../shared/data python benchmarks/synthetic.py --dataset banking77 --seeds 5

Prints mean and standard deviation over seeds. A seed names a repetition: releases draw fresh secret
randomness; the synthetic records and the learners take it. Learners have scikit-learn's parameters but
for those in ``LEARNERS``, fixed beforehand. ``xgboost`` and ``torch`` need their packages. Test labels are used for the final accuracy only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.svm import LinearSVC

import privmix
from stamp import stamp
from utility import DATASETS, DELTA

RESULTS = Path(__file__).parent / "results"


class TorchNetwork:
    """A network of one hidden layer, trained by Adam: what a torch user would write first."""

    def __init__(self, seed: int, hidden: int = 256, epochs: int = 20) -> None:
        self.seed, self.hidden, self.epochs = seed, hidden, epochs

    def fit(self, x: Any, y: Any) -> TorchNetwork:
        """Train on records and return self."""
        import torch

        torch.manual_seed(self.seed)
        self.classes, places = np.unique(y, return_inverse=True)
        features, labels = torch.from_numpy(np.asarray(x)), torch.from_numpy(places)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(features.shape[1], self.hidden),
            torch.nn.ReLU(),
            torch.nn.Linear(self.hidden, len(self.classes)),
        )
        optimiser = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        for _ in range(self.epochs):
            for some in torch.randperm(len(labels)).split(128):
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(self.net(features[some]), labels[some]).backward()
                optimiser.step()
        return self

    def score(self, x: Any, y: Any) -> float:
        """Return the accuracy."""
        import torch

        with torch.no_grad():
            found = self.net(torch.from_numpy(np.asarray(x))).argmax(dim=1).numpy()
        return float((self.classes[found] == y).mean())


def xgboost(seed: int) -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=50, random_state=seed, n_jobs=1)


LEARNERS: dict[str, Callable[[int], Any]] = {
    "logistic": lambda seed: LogisticRegression(max_iter=300),
    "svc": lambda seed: LinearSVC(random_state=seed),
    "mlp": lambda seed: MLPClassifier(max_iter=30, random_state=seed),
    "forest": lambda seed: RandomForestClassifier(random_state=seed),
    "boosting": lambda seed: HistGradientBoostingClassifier(max_iter=50, random_state=seed),
    "xgboost": xgboost,
    "torch": TorchNetwork,
}


def plan_of(data: Any, epsilon: float, design: str) -> privmix.ReleasePlan:
    """The default plan, or a design with what the planner gives it beside its name."""
    target: dict[str, Any] = {"target_epsilon": epsilon, "target_delta": DELTA}
    return privmix.plan_release(data.schema, design=design, **target)


def run(
    data: Any, plan: privmix.ReleasePlan, seed: int, count: int, names: list[str]
) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "release"
        release = privmix.release(data.x_train, data.y_train, plan, out=out)
        model = privmix.NoiseAwareClassifier().fit(release)
        found = {"noise-aware": float(model.score(data.x_test, data.y_test))}
        x, y = privmix.synthesize(release, count, seed=seed)
    for name in names:
        start = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of steps that did not suffice
            found[name] = float(LEARNERS[name](seed).fit(x, y).score(data.x_test, data.y_test))
        print(
            f"seed {seed} {name} {found[name]:.4f} {time.monotonic() - start:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=DATASETS, default="banking77")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument(
        "--design", choices=("auto", "adaptive", "hybrid", "signed"), default="auto"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--num-records", type=int, default=20_000)
    parser.add_argument(
        "--learners", nargs="+", choices=LEARNERS, default=["logistic", "mlp", "forest"]
    )
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "privmix")
    options = parser.parse_args()
    data = DATASETS[options.dataset](Path(os.environ["PRIVMIX_DATA"]), options.cache)
    plan = plan_of(data, options.epsilon, options.design)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    found = [run(data, plan, s, options.num_records, options.learners) for s in seeds]
    print(
        f"{options.dataset}, epsilon {options.epsilon:g}, {options.num_records} synthetic records"
    )
    for name in found[0]:
        values = [100 * one[name] for one in found]
        spread = f" +- {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        print(f"  {name}: {statistics.mean(values):.1f}{spread}")
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"synthetic-{options.dataset}-{options.epsilon:g}.json"
    runs = [{**stamp(), **one} for one in found]
    path.write_text(json.dumps({"num_records": options.num_records, "runs": runs}, indent=2))


if __name__ == "__main__":
    main()
