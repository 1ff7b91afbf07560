"""What the experiments on DP-Mix share: images, backbones, one training."""

from __future__ import annotations

import io
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from experiments.harness import data
from numpy.typing import NDArray

from privmix import dpsgd

Plan = dpsgd.AugmentationPlan
DELTA = 1e-5
CLASSES = tuple(range(10))


class Images(NamedTuple):
    """Images (count, channels, height, width) uint8, and their classes."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def part(self, start: int, count: int) -> Images:
        """Return ``count`` of them."""
        assert start + count <= len(self.images)
        return Images(*(array[start : start + count] for array in self))


@cache
def read(dataset: str, name: str) -> Images:
    """Return ``train`` or ``test`` of ``cifar10`` or ``mnist``, in an order shuffled for good."""
    if dataset == "mnist":
        with np.load(data("mnist.npz")) as file:
            found = Images(file[f"x_{name}"][:, None], file[f"y_{name}"].astype(np.int64))
    else:
        import pyarrow.parquet as pq
        from PIL import Image

        table = pq.read_table(data(f"cifar10-{name}.parquet"))
        images = [
            np.asarray(Image.open(io.BytesIO(row["bytes"]))) for row in table["img"].to_pylist()
        ]
        found = Images(np.stack(images).transpose(0, 3, 1, 2), np.array(table["label"]))
    order = np.random.default_rng(0).permutation(len(found.labels))
    return Images(*(array[order] for array in found))


class RandomFilters(torch.nn.Module):
    """Random 5 x 5 filters, rectified and averaged over 4 x 4 pixels: 1,568 features of MNIST."""

    def __init__(self, channels: int = 1, count: int = 32) -> None:
        super().__init__()
        shape = (count, channels, 5, 5)
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        self.filters = torch.nn.Parameter(drawn / (5 * channels**0.5), requires_grad=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return (count, 1568) features."""
        active = torch.nn.functional.conv2d(images, self.filters, padding=2).relu()
        return torch.nn.functional.avg_pool2d(active, 4).flatten(1)


def head(backbone: torch.nn.Module, **options: Any) -> dpsgd.LinearHead:
    """Return a linear head whose records' views are drawn once, for all trainings with it."""
    return dpsgd.LinearHead(backbone, **{"feature_cache": "views", **options})


def training_plan(
    images: Images, augmentation: Plan, *, epsilon: float | None, epochs: float, **settings: Any
) -> dpsgd.TrainingPlan:
    """Plan a training; epsilon None: noise that changes nothing, and protects nobody."""
    common = {
        "classes": CLASSES,
        "input_shape": images.images.shape[1:],
        "num_records": len(images.images),
        "augmentation": augmentation,
        **settings,
    }
    if epsilon is not None:
        return dpsgd.plan_training(
            target_epsilon=epsilon, target_delta=DELTA, epochs=epochs, **common
        )
    steps = round(epochs * len(images.images) / settings["batch_size"])
    config = dpsgd.TrainingConfig(num_steps=steps, noise_multiplier=1e-3, **common)
    return dpsgd.TrainingPlan.for_config(config, DELTA)


def train(
    images: Images,
    plan: dpsgd.TrainingPlan,
    model: dpsgd.LinearHead | dpsgd.Network,
    run: int,
    public: Images | None = None,
    research: bool = False,
) -> dpsgd.TrainedModel:
    """Train by a seed of the run's, which repeats: these images are public, and nothing is spent."""
    research = research or plan.config.microbatch_size != 1
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trained = dpsgd.fit(
            *images,
            plan,
            model=model,
            out=Path(folder) / "model",
            synthetic=public if plan.config.augmentation.num_synthetic else None,
            research=research,
            test_seed=run,
        )
        if research:
            trained.histograms = (trained.folder / "research.json").read_text()  # type: ignore[attr-defined]
        return trained


def features_of(model: dpsgd.LinearHead, images: Images) -> NDArray[np.float64]:
    """Return features of images as they are, which serve all heads on the same backbone."""
    pixels = torch.from_numpy(images.images).float() / 255
    parts = [model.features(part.to(model.device)).cpu() for part in pixels.split(32)]
    return torch.cat(parts).double().numpy()


def head_accuracy(
    trained: dpsgd.TrainedModel, features: NDArray[np.float64], labels: NDArray[np.int64]
) -> float:
    """Return a head's accuracy in per cent on features from :func:`features_of`."""
    scores = features @ trained.state["coef"].T + trained.state["intercept"]
    return 100 * float(np.mean(scores.argmax(axis=1) == labels))
