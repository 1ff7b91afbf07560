"""What the classes' names are worth to a learner: Banking77, by design and epsilon.

    PRIVMIX_DATA=../shared/data python benchmarks/class_names.py --epsilon 0.25 0.5 1 8 --seeds 5

The names of the intents, encoded by the extractor of the records (extra ``text``), pull noisy classes
towards them; ``permuted`` has them in the order of other classes, as names that say nothing. One
release serves all three columns. Releases draw fresh secret randomness, so that runs differ.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import privmix
from privmix.features import get_extractor
from privmix.running.unrecorded import UnrecordedSpendingWarning
from stamp import stamp
from utility import DELTA, DataSet, load_banking77

COLUMNS = ("without", "names", "permuted")


def encoded_names(path: Path) -> NDArray[np.float32]:
    with np.load(path, allow_pickle=False) as file:
        texts = [re.sub(r"[\W_]+", " ", str(name)).strip() for name in file["classes"]]
    return np.asarray(get_extractor("sentence").transform(texts))


def accuracies(
    data: DataSet, names: NDArray[np.float32], design: str, epsilon: float, seed: int
) -> dict[str, float]:
    plan = privmix.plan_release(
        data.schema, target_epsilon=epsilon, target_delta=DELTA, design=design
    )
    permuted = names[np.random.default_rng(seed).permutation(len(names))]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UnrecordedSpendingWarning)
        release = privmix.release(data.x_train, data.y_train, plan, out=Path(folder) / "release")
        return {
            column: float(
                privmix.NoiseAwareClassifier(class_vectors=vectors)
                .fit(release)
                .score(data.x_test, data.y_test)
            )
            for column, vectors in zip(COLUMNS, (None, names, permuted), strict=True)
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.25, 0.5, 1.0, 8.0])
    parser.add_argument("--designs", nargs="+", default=["auto", "hybrid", "stratified", "signed"])
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    folder = Path(os.environ["PRIVMIX_DATA"])
    data = load_banking77(folder, folder)
    names = encoded_names(folder / "banking77-minilm.npz")
    print(f"accuracy in % (standard deviation), delta {DELTA:g}, seeds {arguments.seeds}")
    print(f"{'design':12}{'epsilon':>8}" + "".join(f"{column:>14}" for column in COLUMNS))
    for design in arguments.designs:
        for epsilon in arguments.epsilon:
            found = [accuracies(data, names, design, epsilon, s) for s in range(arguments.seeds)]
            line = f"{design:12}{epsilon:>8g}"
            for column in COLUMNS:
                values = [100 * one[column] for one in found]
                spread = f" ({statistics.stdev(values):.1f})" if len(values) > 1 else ""
                line += f"{f'{statistics.fmean(values):.1f}{spread}':>14}"
            print(line, flush=True)
    print("commit {commit}, {date}".format(**stamp()))


if __name__ == "__main__":
    main()
