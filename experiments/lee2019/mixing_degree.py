"""Accuracy over the mixing degree on MNIST's pixels: DPMix's Table I and Figure 2.

    python -m experiments.lee2019.mixing_degree --quick

n = T = 60,000 rows of exactly l records, at the noise that Theorem 1 asks for in the paper's own form:
delta = 1/n, equal noise of features and labels, sensitivities sqrt(784) and sqrt(10). Pixels less 1/2 lie
in a ball of radius sqrt(784) / 2, so the library's own sensitivity of the features is the same.
Learners: ``least-squares`` on the rows as they are, ``noise-aware``, and without --quick ``cnn``, the
paper's network with its schedule: Adam at 1e-4, batches of 8, 50 epochs (it falls by ten after 33, where the
paper halves it every 10). Of the
50 epochs the paper takes the best on validation records; here the last one counts.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from experiments.harness import Experiment
from experiments.mixing import load_pixels, mixing_parser, published, read
from scipy.optimize import brentq

import privmix
from privmix.accounting import dpmix_paper_epsilon
from privmix.mechanism import joint_noise_multiplier
from utility import DataSet

CLIP_NORM = math.sqrt(784) / 2


def paper_noise(mix_size: int, epsilon: float, num_records: int) -> float:
    """Return the noise stddev of a published number at which Theorem 1 gives epsilon."""

    def excess(log_stddev: float) -> float:
        stddev = math.exp(log_stddev)
        said = dpmix_paper_epsilon(
            1,
            num_records=num_records,
            mix_size=mix_size,
            num_mixtures=num_records,
            num_features=784,
            num_classes=10,
            feature_noise_stddev=stddev,
            label_noise_stddev=stddev,
            delta=1 / num_records,
        )
        return math.log(said / epsilon)

    return math.exp(brentq(excess, math.log(1e-2), math.log(50), xtol=1e-4))


def least_squares(release: privmix.Release, data: DataSet) -> float:
    """Regress label weights on features, noise and all; return the test accuracy."""
    blocks = [(x.astype(float), y.astype(float)) for x, y in release.iter_blocks()]
    count = sum(len(x) for x, _ in blocks)
    x_mean = sum(x.sum(axis=0) for x, _ in blocks) / count
    y_mean = sum(y.sum(axis=0) for _, y in blocks) / count
    gram = sum((x - x_mean).T @ (x - x_mean) for x, _ in blocks)
    cross = sum((x - x_mean).T @ (y - y_mean) for x, y in blocks)
    scores = (data.x_test - x_mean) @ np.linalg.solve(gram, cross) + y_mean
    return float((scores.argmax(axis=1) == data.y_test).mean())


def cnn(release: privmix.Release, data: DataSet) -> float:
    model = privmix.TorchNetworkClassifier(
        image_shape=(1, 28, 28),
        epochs=50,
        batch_size=8,
        learning_rate=1e-4,
        # The learner's steps fall by ten: after 33 epochs, as five halvings do by then.
        decay_epochs=(33,),
    )
    return float(model.fit(release).score(data.x_test, data.y_test))


def figures(data: DataSet, mix_size: int, epsilon: float, learners: list[str]) -> dict[str, Any]:
    """Release rows of ``mix_size`` records; return the accuracies of the learners."""
    stddev = paper_noise(mix_size, epsilon, len(data.x_train))
    # In sums over clip norms; the label of a record has norm 1.
    feature, label = stddev * mix_size / CLIP_NORM, stddev * mix_size
    joint = joint_noise_multiplier(feature, label, "replace_one")
    options: dict[str, Any] = {"design": "uniform", "neighboring_relation": "replace_one"}
    with published(
        data,
        joint,
        clip_norm=CLIP_NORM,
        label_balance=CLIP_NORM,
        mix_size=float(mix_size),
        **options,
    ) as release:
        found: dict[str, Any] = {"noise": stddev, "certified": release.certificate.epsilon}
        found["least-squares"] = least_squares(release, data)
        found["noise-aware"] = (
            privmix.NoiseAwareClassifier().fit(release).score(data.x_test, data.y_test)
        )
        if "cnn" in learners:
            found["cnn"] = cnn(release, data)
    return found


def main() -> None:
    found = mixing_parser(__doc__)
    found.add_argument("--epsilon", type=float, nargs="+")
    given = read(found)
    experiment = Experiment(__file__, ["epsilon", "mix_size"], given)
    data = load_pixels()
    quick = experiment.quick
    for epsilon in given.epsilon or ((20.0,) if quick else (20.0, 10.0)):
        for size in (16, 32, 64, 128, 256) if quick else [2**k for k in range(10)]:
            experiment.measure(
                {"epsilon": f"{epsilon:g}", "mix_size": size},
                lambda size=size, epsilon=epsilon: figures(
                    data, size, epsilon, [] if quick else ["cnn"]
                ),
            )

    def draw(axes: Any) -> None:
        for epsilon in sorted({row["epsilon"] for row in experiment.rows}):
            rows = [row for row in experiment.rows if row["epsilon"] == epsilon]
            sizes = [float(row["mix_size"]) for row in rows]
            for name in ("least-squares", "noise-aware", "cnn"):
                if all(row.get(name) for row in rows):
                    scores = [float(row[name]) for row in rows]
                    axes.semilogx(sizes, scores, "o-", label=f"{name}, epsilon {epsilon}")
        axes.set(xlabel="mixing degree", ylabel="test accuracy")
        axes.legend()

    experiment.figure(draw)
    experiment.show("noise", "certified", "least-squares", "noise-aware", "cnn")


if __name__ == "__main__":
    main()
