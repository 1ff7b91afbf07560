"""A linear model over the mixing degree, up to all records: DPMix's Figure 2a, and Theorems 2, 5 and 6.

    python -m experiments.lee2019.linear_degree --quick

The paper says that for a linear model more records in a row are better always, up to l = n; it prints no
numbers. Here y = W x on made records in [0, 1]^d with n = T at Theorem 1's noise, delta = 1/n. ``corrected`` is the
excess loss of the minimiser that Theorem 5's descent tends to (second moments less the known noise, without
centring, as in the paper), ``centred`` of the same after the mean row is taken off, ``least-squares`` of
the rows as they are, all relative to the loss of the best constant; medians over seeds. ``bound`` is
Theorem 6's with the constant of Theorem 5 worked out, in the same units. A row of all records is the same row each time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from experiments.harness import Experiment
from experiments.lee2019.common import dpmix_paper_stddev
from experiments.mixing import mixing_parser, read
from numpy.typing import NDArray

from privmix.theory import descent_error_bound, mixed_squared_gradient

EPSILON = 20.0
WIDTH, CLASSES = 5, 1
Matrix = NDArray[np.float64]


def records(size: int, random: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Return x in [0, 1]^d and y in [0, 1], of norms at most 1 in x."""
    x = random.random((size, WIDTH)) / np.sqrt(WIDTH)
    weights = np.linspace(-1, 1, WIDTH)
    y = 0.5 + x @ weights / 2 + 0.05 * random.standard_normal(size)
    return x, np.clip(y, 0, 1)[:, None]


def mixed(parts: list[Matrix], mix_size: int, random: np.random.Generator) -> list[Matrix]:
    """Return the means of exactly ``mix_size`` records in as many rows as records."""
    size, found = len(parts[0]), []
    for start in range(0, size, 500):  # keeps memory small
        keys = random.random((min(500, size - start), size), dtype=np.float32)
        last = np.partition(keys, mix_size - 1, axis=1)[:, mix_size - 1, None]
        inside = keys <= last
        found.append([inside @ part / inside.sum(axis=1, keepdims=True) for part in parts])
    return [np.concatenate(rows) for rows in zip(*found, strict=True)]


def minimiser(x: Matrix, y: Matrix, noise: float, *, center: bool) -> tuple[Matrix, Matrix]:
    """Return weights (d, K) and the intercept that solve the rows' moments less the noise."""
    x_mean, y_mean = (x.mean(axis=0), y.mean(axis=0)) if center else (0 * x[0], 0 * y[0])
    gram = (x - x_mean).T @ (x - x_mean) / len(x) - noise**2 * np.eye(x.shape[1])
    # Directions whose variance does not stand out from the noise of its own estimate say nothing.
    least = 1e-12 + 4 * noise**2 * np.sqrt(x.shape[1] / len(x))
    values, basis = np.linalg.eigh(gram)
    inverse = np.where(values > least, 1 / np.maximum(values, least), 0)
    cross = (x - x_mean).T @ (y - y_mean) / len(x)
    weights = (basis * inverse) @ basis.T @ cross
    return weights, y_mean - x_mean @ weights


def figures(size: int, mix_size: int, epsilon: float, seeds: int) -> dict[str, float]:
    """Learn from mixtures of ``mix_size`` of ``size`` records; return excess losses and the bound."""
    stddev = dpmix_paper_stddev(
        1,
        num_records=size,
        mix_size=mix_size,
        num_mixtures=size,
        num_features=WIDTH,
        num_classes=CLASSES,
        epsilon=epsilon,
        delta=1 / size,
    )
    losses: dict[str, list[float]] = {"corrected": [], "centred": [], "least-squares": []}
    bounds = []
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        x, y = records(size, random)
        constant = float(((y - y.mean()) ** 2).mean())
        x_rows, y_rows = (
            part + stddev * random.standard_normal(part.shape)
            for part in mixed([x, y], mix_size, random)
        )
        # Theorem 5 has no intercept; a constant feature would be one, but gets noise as well.
        for name, noise, center in (
            ("corrected", stddev, False),
            ("centred", stddev, True),
            ("least-squares", 0.0, True),
        ):
            weights, intercept = minimiser(x_rows, y_rows, noise, center=center)
            loss = float(((x @ weights + intercept - y) ** 2).mean())
            best, offset = minimiser(x, y, 0.0, center=center)
            least = float(((x @ best + offset - y) ** 2).mean())
            losses[name].append((loss - least) / constant)
        squared = mixed_squared_gradient(
            mix_size,
            num_features=WIDTH,
            num_classes=CLASSES,
            weight_norm=1.0,
            feature_clip_norm=1.0,
            label_clip_norm=1.0,
            feature_noise_stddev=stddev,
            label_noise_stddev=stddev,
        )
        convexity = float(np.linalg.eigvalsh(x.T @ x / size)[0])
        bound = descent_error_bound(size, squared_gradient=squared, strong_convexity=convexity)
        bounds.append(2 * bound / constant)  # the theorem's loss is half the squared error
    medians = {name: float(np.median(values)) for name, values in losses.items()}
    return {"noise": stddev, **medians, "bound": float(np.median(bounds))}


def main() -> None:
    given = read(mixing_parser(__doc__))
    experiment = Experiment(__file__, ["records", "epsilon", "mix_size", "seeds"], given)
    size, seeds = (4000, 5) if experiment.quick else (20_000, 20)
    sizes = [2**k for k in range(0, size.bit_length(), 2 if experiment.quick else 1)]
    for mix_size in [*sizes, size * 3 // 4, size]:
        experiment.measure(
            {"records": size, "epsilon": EPSILON, "mix_size": mix_size, "seeds": seeds},
            lambda mix_size=mix_size: figures(size, mix_size, EPSILON, seeds),
        )

    def draw(axes: Any) -> None:
        sizes = [int(row["mix_size"]) for row in experiment.rows]
        for name in ("corrected", "centred", "least-squares", "bound"):
            axes.loglog(sizes, [float(row[name]) for row in experiment.rows], "o-", label=name)
        axes.axhline(1, color="grey")  # the best constant
        axes.set(xlabel="mixing degree", ylabel="excess loss over that of the best constant")
        axes.legend()

    experiment.figure(draw)
    experiment.show("noise", "corrected", "centred", "least-squares", "bound")


if __name__ == "__main__":
    main()
