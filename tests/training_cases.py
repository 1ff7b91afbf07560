"""Tiny images, plans and models for the tests of private training."""

from __future__ import annotations

import numpy as np
import torch

from privmix.dpsgd import AugmentationPlan, TrainingConfig, TrainingPlan


class Pooled(torch.nn.Module):
    """A backbone: a fixed convolution and means of patches."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 4, 3, padding=1)
        with torch.no_grad():
            values = torch.arange(self.convolution.weight.numel()) % 7 - 3.0
            self.convolution.weight.copy_(values.reshape(self.convolution.weight.shape) / 9)
            self.convolution.bias.zero_()

    def forward(self, inputs):
        return torch.nn.functional.avg_pool2d(self.convolution(inputs).relu(), 4).flatten(1)


def make_images(count: int, seed: int = 0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(3, size=count)
    images = generator.integers(80, size=(count, 3, 8, 8))
    images[np.arange(count), labels] += 150  # a class has its colour
    return images.astype(np.uint8), labels


def make_config(**changes) -> TrainingConfig:
    settings = {
        "classes": (0, 1, 2),
        "input_shape": (3, 8, 8),
        "num_records": 60,
        "batch_size": 15,
        "num_steps": 4,
        "noise_multiplier": 1.0,
        "augmentation": AugmentationPlan.dp_mix_self(3, 2, crop_padding=2),
    }
    return TrainingConfig(**{**settings, **changes})


def make_plan(**changes) -> TrainingPlan:
    return TrainingPlan.for_config(make_config(**changes), 1e-5)


def make_network() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3, stride=2),
            torch.nn.GroupNorm(2, 4),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(4, 3),
        )
