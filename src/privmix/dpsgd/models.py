"""Networks for training from scratch, without batch normalisation."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from privmix import _validate
from privmix.dpsgd.training_records import require

if TYPE_CHECKING:
    from torch import nn

_GROUPS = 16


def wrn_16_4(channels: int = 3, num_classes: int = 10) -> nn.Module:
    """Wide residual network of 16 layers and width 4, 2.7 million parameters.

    Group normalisation in place of batch normalisation, and standardised convolution weights.
    Source: Zagoruyko & Komodakis, BMVC 2016; De et al. 2022, section 3.

    """
    import torch
    from torch import nn
    from torch.nn import functional

    class Convolution(nn.Conv2d):
        """A convolution whose filters have mean zero and unit variance over their fan-in."""

        def __init__(self, before: int, after: int, size: int, stride: int) -> None:
            super().__init__(before, after, size, stride, padding=size // 2, bias=False)
            nn.init.kaiming_normal_(self.weight, nonlinearity="relu")

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            mean = self.weight.mean(dim=(1, 2, 3), keepdim=True)
            variance = self.weight.var(dim=(1, 2, 3), keepdim=True, correction=0)
            fan_in = self.weight[0].numel()
            weight = (self.weight - mean) * torch.rsqrt(variance * fan_in + 1e-4)
            return functional.conv2d(inputs, weight, None, self.stride, self.padding)

    class Block(nn.Module):
        def __init__(self, before: int, after: int, stride: int) -> None:
            super().__init__()
            self.norm1 = nn.GroupNorm(min(_GROUPS, before), before)
            self.conv1 = Convolution(before, after, 3, stride)
            self.norm2 = nn.GroupNorm(_GROUPS, after)
            self.conv2 = Convolution(after, after, 3, 1)
            self.skip = None if before == after else Convolution(before, after, 1, stride)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            active = functional.relu(self.norm1(inputs))
            kept = inputs if self.skip is None else self.skip(active)
            inner: torch.Tensor = self.conv2(functional.relu(self.norm2(self.conv1(active))))
            return kept + inner

    class WideResidualNetwork(nn.Sequential):
        pass

    widths = (16, 64, 128, 256)
    blocks: list[nn.Module] = []
    for group, (before, after) in enumerate(itertools.pairwise(widths)):
        blocks += [Block(before, after, 1 if group == 0 else 2), Block(after, after, 1)]
    return WideResidualNetwork(
        Convolution(channels, widths[0], 3, 1),
        *blocks,
        nn.GroupNorm(_GROUPS, widths[-1]),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(widths[-1], num_classes),
    )


def dpmix_cnn(channels: int = 1, num_classes: int = 10) -> nn.Module:
    """DPMix's network for 32 x 32 images: 357,690 parameters with one channel and ten classes.

    Source: DPMix (Lee et al. 2019), appendix; NeuroMixGDP, Table 5.

    """
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 48, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(48 * 8 * 8, 100),
        nn.ReLU(),
        nn.Linear(100, 100),
        nn.ReLU(),
        nn.Linear(100, num_classes),
    )


def _small_cnn(widths: tuple[int, int, int], channels: int, num_classes: int) -> nn.Module:
    from torch import nn

    first, second, hidden = widths
    return nn.Sequential(
        nn.Conv2d(channels, first, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(first, second, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(second * 4 * 4, hidden),
        nn.ReLU(),
        nn.Linear(hidden, num_classes),
    )


def cnn_26k(channels: int = 1, num_classes: int = 10) -> nn.Module:
    """Small network for 28 x 28 images: 26,010 parameters with one channel and ten classes."""
    return _small_cnn((16, 32, 32), channels, num_classes)


def cnn_52k(channels: int = 1, num_classes: int = 10) -> nn.Module:
    """The same with wider layers: 52,040 parameters with one channel and ten classes."""
    return _small_cnn((22, 46, 46), channels, num_classes)


MODELS: dict[str, Callable[..., Any]] = {
    "wrn-16-4": wrn_16_4,
    "dpmix-cnn": dpmix_cnn,
    "cnn-26k": cnn_26k,
    "cnn-52k": cnn_52k,
}


def make_model(name: str, channels: int, num_classes: int, seed: int = 0) -> nn.Module:
    """Make a network with public initial weights, the same for the same seed."""
    require("torch")
    import torch

    make = MODELS[_validate.one_of("model", name, MODELS)]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make(channels, num_classes)  # type: ignore[no-any-return]
