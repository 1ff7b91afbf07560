"""Mixed label weights of Poisson and hierarchical rows: NeuroMixGDP's Figures 2 and 14.

    python -m experiments.li2023.label_collapse --quick

50,000 records of 10 classes of like size, T = 2,000 of the rows, noise of 50,000 at the claimed
epsilon 1 (central limit). ``open`` is the share of weights above half of 1 / (K p), the weight of an
open class. ``gap`` is the distance of 1 / (K p) from 0 in standard deviations of the label noise: what
a reader of one weight has to tell an open class from a closed one. Poisson rows have p = 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from experiments.harness import Experiment
from experiments.li2023.rows import noise_at
from experiments.mixing import arguments, published

from privmix.theory import label_histogram
from utility import DataSet

SIZE, CLASSES, ROWS = 50_000, 10, 2_000


def weights(mix_size: int, class_prob: float) -> tuple[Any, float]:
    """Return published label weights (T, K) and the standard deviation of their noise."""
    y = np.arange(SIZE) % CLASSES
    x = np.zeros((SIZE, 1), dtype=np.float32)
    noise = noise_at(1.0, SIZE, mix_size, class_prob, sound=False)
    layout: dict[str, Any] = {"design": "poisson", "mix_size": float(mix_size)}
    if class_prob < 1:
        layout |= {"design": "hierarchical", "class_prob": class_prob, "eligibility": "balanced"}
    with published(DataSet(x, y, x[:1], y[:1]), noise, num_mixtures=ROWS, **layout) as release:
        labels = np.concatenate([part for _, part in release.iter_blocks()])
        assert release.label_noise_stddev is not None
        return labels, release.label_noise_stddev


def figures(mix_size: int, class_prob: float) -> dict[str, Any]:
    found, noise = weights(mix_size, class_prob)
    due = 1 / (CLASSES * class_prob)
    return {
        "label_noise": noise,
        "spread": float(found.std()),
        "signal": math.sqrt(max(float(found.var()) - noise**2, 0.0)),
        "gap": due / noise,
        "open": float((found > due / 2).mean()),
    }


def main() -> None:
    experiment = Experiment(__file__, ["mix_size", "class_prob"], arguments(__doc__))
    for size in (256, 1024) if experiment.quick else (128, 256, 512, 1024, 2048, 4096):
        for prob in (0.3, 1.0) if experiment.quick else (0.1, 0.3, 0.5, 1.0):
            experiment.measure(
                {"mix_size": size, "class_prob": prob},
                lambda size=size, prob=prob: figures(size, prob),
            )

    def draw(axes: Any) -> None:
        for prob in (0.3, 1.0):
            counts, edges = label_histogram(weights(1024, prob)[0], bins=80)
            axes.stairs(counts, edges, label="Poisson" if prob == 1 else f"hierarchical, {prob}")
        axes.set(xlabel="published label weight, m = 1024", ylabel="weights")
        axes.legend()

    experiment.figure(draw)
    experiment.show("label_noise", "spread", "signal", "gap", "open")


if __name__ == "__main__":
    main()
