"""Pictures of mixtures, as published and smoothed: DPMix's Figures 1 and 4.

    python -m experiments.lee2019.samples --quick

Each picture is one row of l records at Theorem 1's noise; below it the same row after the Gaussian filter of
one pixel that the paper trains on. For a few hundred rows, ``signal`` is the spread of the rows without noise about their
mean, ``noise`` that of the noise, and ``error`` the root mean squared distance of the smoothed rows
from those without noise. Quick: fewer degrees and budgets.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from experiments.harness import Experiment
from experiments.lee2019.common import BUDGETS, SHAPES, load, paper_noise
from experiments.mixing import Floats, arguments
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

KEYS = ["dataset", "epsilon", "mix_size"]
ROWS = 300
Images = NDArray[np.float32]


def mixtures(x: Floats, mix_size: int, stddev: float) -> tuple[Floats, Floats]:
    """Return rows without and with noise: pictures to look at, with no guarantee."""
    random = np.random.default_rng(0)
    chosen = (random.choice(len(x), mix_size, replace=False) for _ in range(ROWS))
    plain = np.stack([x[rows].mean(axis=0) for rows in chosen])
    return plain, plain + np.float32(stddev) * random.standard_normal(plain.shape, np.float32)


def smoothed(features: Floats, shape: tuple[int, int, int]) -> Floats:
    """Smooth each channel by a Gaussian filter of unit variance."""
    images = features.reshape(-1, *shape)
    return gaussian_filter(images, sigma=(0, 0, 1, 1), mode="nearest").reshape(features.shape)


def noise_of(epsilon: float, mix_size: int, shape: tuple[int, int]) -> float:
    return 0.0 if math.isinf(epsilon) else paper_noise(mix_size, epsilon, *shape)


def figures(name: str, epsilon: float, mix_size: int) -> dict[str, float]:
    """Measure rows of one degree and budget."""
    x = load(name).x_train
    stddev = noise_of(epsilon, mix_size, x.shape)
    plain, noisy = mixtures(x, mix_size, stddev)
    smooth = smoothed(noisy, SHAPES[name])
    return {
        "signal": float((plain - plain.mean(axis=0)).std()),
        "noise": stddev,
        "error": float(np.sqrt(((smooth - plain) ** 2).mean())),
    }


def tile(name: str, epsilon: float, mix_size: int) -> Images:
    """Return a picture, and below it the same one smoothed: (2 height, width, 3) in [0, 1]."""
    x = load(name).x_train
    noisy = mixtures(x, mix_size, noise_of(epsilon, mix_size, x.shape))[1][:1]
    pair = np.concatenate([noisy, smoothed(noisy, SHAPES[name])]).reshape(-1, *SHAPES[name])
    pictures = np.concatenate(pair.transpose(0, 2, 3, 1)) + 0.5
    return np.broadcast_to(np.clip(pictures, 0, 1), (*pictures.shape[:2], 3))


def main() -> None:
    experiment = Experiment(__file__, KEYS, arguments(__doc__))
    sizes = (1, 16, 64, 256) if experiment.quick else tuple(2**k for k in range(10))
    budgets = {
        name: (math.inf, BUDGETS[name][0]) if experiment.quick else (math.inf, *BUDGETS[name])
        for name in SHAPES
    }
    settings = [(name, epsilon) for name in SHAPES for epsilon in budgets[name]]
    for name, epsilon in settings:
        for size in sizes:
            experiment.measure(
                {"dataset": name, "epsilon": f"{epsilon:g}", "mix_size": size},
                lambda name=name, epsilon=epsilon, size=size: figures(name, epsilon, size),
            )

    def draw(axes: Any) -> None:
        for line, (name, epsilon) in enumerate(settings):
            for column, size in enumerate(sizes):
                picture = tile(name, epsilon, size)
                axes.imshow(picture, extent=(column, column + 0.95, -2 * line - 1.95, -2 * line))
        axes.set(xlim=(0, len(sizes)), ylim=(-2 * len(settings), 0), aspect="equal")
        axes.set_xticks([k + 0.5 for k in range(len(sizes))], [str(size) for size in sizes])
        names = [f"{name}\nepsilon {epsilon:g}" for name, epsilon in settings]
        axes.set_yticks([-2 * k - 1 for k in range(len(settings))], names, fontsize="x-small")
        axes.set(xlabel="mixing degree; below each row, smoothed")

    experiment.figure(draw)
    experiment.show("signal", "noise", "error")


if __name__ == "__main__":
    main()
