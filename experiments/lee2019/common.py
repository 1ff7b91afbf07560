"""What DPMix's experiments share: pixels, rows at the noise of its Theorem 1, and learners."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from experiments.harness import data as data_file
from experiments.mixing import Floats, Rows, load_pixels, published

import privmix
from privmix.accounting import dpmix_paper_stddev
from privmix.learners import dpmix_network
from privmix.mechanism import joint_noise_multiplier
from utility import DataSet

NOISELESS = "inf"
SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
BUDGETS = {"mnist": (20.0, 10.0), "cifar10": (30.0, 20.0)}
HELD = 1000  # real records to choose the epoch by, as the paper assumes there are; in no row
BEST_SIZES = {"mnist": 64, "cifar10": 128}  # the paper's, Table I


@cache
def load(name: str, pooled: bool = False) -> DataSet:
    """Load pixels less 1/2, channels first; ``pooled``: means of 2 x 2 pixels."""
    data = load_pixels() if name == "mnist" else _load_cifar10()
    if not pooled:
        return data
    parts = [pool(x, SHAPES[name]) for x in (data.x_train, data.x_test)]
    return DataSet(parts[0], data.y_train, parts[1], data.y_test)


def _load_cifar10() -> DataSet:
    import pyarrow.parquet as pq
    from PIL import Image

    found: list[Any] = []
    for part in ("train", "test"):
        table = pq.read_table(data_file(f"cifar10-{part}.parquet"))
        images = np.stack(
            [np.asarray(Image.open(io.BytesIO(row["bytes"]))) for row in table["img"].to_pylist()]
        )
        pixels = images.transpose(0, 3, 1, 2).reshape(len(images), -1).astype(np.float32)
        found += [pixels / 255 - np.float32(0.5), np.array(table["label"], dtype=np.int64)]
    return DataSet(*found)


def with_validation(data: DataSet) -> DataSet:
    """Take ``HELD`` records, drawn at random, from the training records and put them before the test records."""
    order = np.random.default_rng(0).permutation(len(data.x_train))
    held, rest = order[:HELD], order[HELD:]
    x_test = np.concatenate([data.x_train[held], data.x_test])
    y_test = np.concatenate([data.y_train[held], data.y_test])
    return DataSet(data.x_train[rest], data.y_train[rest], x_test, y_test)


def pool(features: Floats, shape: tuple[int, int, int]) -> Floats:
    """Average 2 x 2 pixels of (count, d) features."""
    channels, height, width = shape
    parts = features.reshape(-1, channels, height // 2, 2, width // 2, 2)
    return np.ascontiguousarray(parts.mean(axis=(3, 5)).reshape(len(features), -1))


def paper_noise(mix_size: int, epsilon: float, num_records: int, num_features: int = 784) -> float:
    """Return the noise stddev of a published number at which Theorem 1 gives epsilon."""
    return dpmix_paper_stddev(
        1,
        num_records=num_records,
        mix_size=mix_size,
        num_mixtures=num_records,
        num_features=num_features,
        num_classes=10,
        epsilon=epsilon,
        delta=1 / num_records,
    )


@contextmanager
def rows(data: DataSet, mix_size: int, stddev: float) -> Iterator[privmix.Release]:
    """Release as many rows as records, of ``mix_size`` records, with noise of ``stddev``."""
    # Pixels less 1/2 lie in this ball, in which the library's sensitivity is that of Theorem 1.
    clip_norm = math.sqrt(data.x_train.shape[1]) / 2
    # In sums over clip norms; the label of a record has norm 1.
    feature, label = stddev * mix_size / clip_norm, stddev * mix_size
    joint = joint_noise_multiplier(feature, label, "replace_one")
    options: dict[str, Any] = {"design": "uniform", "neighboring_relation": "replace_one"}
    layout = {"label_balance": clip_norm, "mix_size": float(mix_size), **options}
    with published(data, joint, clip_norm=clip_norm, **layout) as release:
        yield release


def noiseless(data: DataSet, mix_size: int, seed: int) -> Rows:
    """Mix records without noise, with no guarantee."""
    return Rows.noiseless(data, mix_size, seed, math.sqrt(data.x_train.shape[1]) / 2)


class Network(torch.nn.Module):
    """The paper's network, in bfloat16 and channels last: four times as fast on one core.

    ``pooled``: on means of 2 x 2 pixels, another four times as fast; the step is inside, so rows
    and records to classify are as published.
    """

    def __init__(self, shape: tuple[int, int, int], pooled: bool = False) -> None:
        super().__init__()
        channels, height, width = shape
        self.shape, self.pooled = shape, pooled
        seen = (channels, height // 2, width // 2) if pooled else shape
        self.network = dpmix_network(seen, 10).to(memory_format=torch.channels_last)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return (count, 10) logits of (count, d) features."""
        images = features.reshape(-1, *self.shape)
        if self.pooled:
            # What is averaged has a quarter of the noise's variance: back to spread one.
            images = 2 * torch.nn.functional.avg_pool2d(images, 2)
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cpu", torch.bfloat16):
            logits = self.network(images)
        return logits.float()


def fully_connected(num_features: int) -> torch.nn.Module:
    """Build the paper's network for projected records: layers of 100, 100 and 10."""
    nn = torch.nn
    hidden = (nn.Linear(num_features, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU())
    return nn.Sequential(*hidden, nn.Linear(100, 10))


def papers_schedule(epochs: int = 50) -> dict[str, Any]:
    """Adam at 1e-4, halved every 10 epochs; batches of 8."""
    halved = {"decay_epochs": range(10, epochs, 10), "decay_factor": 0.5}
    return {"epochs": epochs, "batch_size": 8, "learning_rate": 1e-4, **halved}


def short_schedule(epochs: int) -> dict[str, Any]:
    """For a few epochs: larger batches and steps."""
    return {"epochs": epochs, "batch_size": 128, "learning_rate": 3e-4, "decay_epochs": ()}


def trained(release: Any, module: torch.nn.Module, data: DataSet, **options: Any) -> Any:
    """Train on standardized rows with labels as published: on them as they are it learns far less.

    The epoch is chosen by the first ``HELD`` test records, see :func:`with_validation`.
    """
    torch.set_num_threads(1)
    settings = {"standardize": True, "loss": "cross-entropy"}
    model = privmix.TorchNetworkClassifier(module, **{**settings, **options})
    return model.fit(release, public_validation=(data.x_test[:HELD], data.y_test[:HELD]))


def test_accuracy(model: Any, data: DataSet) -> float:
    """Return the accuracy on the test records that follow those for validation."""
    return float(model.score(data.x_test[HELD:], data.y_test[HELD:]))
