"""Does whitening with a public data set's covariance help a release?

    PRIVMIX_DATA=... python experiments/whitening/public_whitening.py --epsilon 1 8 --seeds 3

Records are MiniLM embeddings of Banking77's training texts. Those of 27 intents, drawn once, stand for the
public set, as near to the private records as one could wish; the other 50 intents are private, four
fifths of them released and one fifth scored. Before the release a record x becomes S^-p (x - m), scaled
to unit norm, with m and S the public mean and covariance, or without m. A power p of 0 leaves
directions as they are. Prints mean and standard deviation of the accuracy over seeds, each of which
draws its own split and its own noise.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import privmix

DELTA = 1e-5
PUBLIC_CLASSES = 27

Matrix = NDArray[np.float64]


def load(folder: Path) -> tuple[Matrix, Matrix, NDArray[np.int64]]:
    """Return public vectors, private vectors, and the classes of the latter from 0 on."""
    with np.load(folder / "banking77-minilm.npz", allow_pickle=False) as data:
        x, names = data["x_train"].astype(np.float64), data["y_train"]
    y = np.unique(names, return_inverse=True)[1]
    order = np.random.default_rng(1).permutation(y.max() + 1)
    public = np.isin(y, order[:PUBLIC_CLASSES])
    return x[public], x[~public], np.unique(y[~public], return_inverse=True)[1]


def whitened(x: Matrix, public: Matrix, power: float, *, centred: bool) -> Matrix:
    """Return S^-power (x - m), or S^-power x, scaled to unit norm."""
    values, vectors = np.linalg.eigh(np.cov(public.T))
    scales = np.maximum(values / values.mean(), 1e-6) ** -power
    rows = (x - public.mean(axis=0) * centred) @ (vectors * scales) @ vectors.T
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def accuracy(x: Matrix, y: NDArray[np.int64], epsilon: float, design: str, seed: int) -> float:
    """Release four fifths of the records and score the others."""
    order = np.random.default_rng(seed).permutation(len(x))
    train, test = np.split(order, [len(x) * 4 // 5])
    schema = privmix.Schema(
        classes=range(y.max() + 1),
        num_features=x.shape[1],
        num_records=len(train),
        feature_clip_norm=1.0,
    )
    plan = privmix.plan_release(schema, target_epsilon=epsilon, target_delta=DELTA, design=design)
    with tempfile.TemporaryDirectory() as folder:
        release = privmix.release(x[train], y[train], plan, out=Path(folder) / "release")
        return (
            LEARNERS.get(plan.design, privmix.NoiseAwareClassifier)()
            .fit(release)
            .score(x[test], y[test])
        )


LEARNERS = {"adaptive": privmix.AdaptiveClassifier}


def rows(arguments: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    """Yield epsilon, design, power, centring and the accuracies' mean and deviation."""
    public, x, y = load(Path(os.environ["PRIVMIX_DATA"]))
    for epsilon in arguments.epsilon:
        for design in arguments.designs:
            for power in arguments.powers:
                for centred in (False, True):
                    made = whitened(x, public, power, centred=centred)
                    found = [
                        100 * accuracy(made, y, epsilon, design, seed)
                        for seed in range(arguments.seeds)
                    ]
                    mean = f"{np.mean(found):.1f} ({np.std(found, ddof=1):.1f})"
                    yield f"{epsilon:g}", design, f"{power:g}", "yes" if centred else "no", mean


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 8.0])
    parser.add_argument("--designs", nargs="+", default=["adaptive", "hybrid"])
    parser.add_argument("--powers", type=float, nargs="+", default=[0.0, 0.05, 0.15])
    parser.add_argument("--seeds", type=int, default=3)
    print("| epsilon | design | power | public mean | accuracy, % |\n|---|---|---|---|---|")
    for row in rows(parser.parse_args()):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
