"""Noisy mean embeddings of the classes, and a generator trained to match them: DP-MERF and DP-HP."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.baselines.base import (
    BaselineRelease,
    Budget,
    Method,
    Records,
    noisy,
    one_hot,
    quantised,
)
from privmix.running.resources import torch_pool

if TYPE_CHECKING:
    import torch

_CODE_WIDTH = 16


class FeatureMap(Protocol):
    """A public map of records to vectors of norm at most one, in torch, so that it has a gradient."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map (records, features) to (records, width)."""


@dataclass(frozen=True)
class FourierFeatures:
    """Random Fourier features of the Gaussian kernel exp(-|x - y|^2 / (2 length^2)), of norm one.

    Attributes:
        num_features: Width of a record.
        num_frequencies: Half the width of the embedding.
        length: Of the kernel, in the units of the records; a public choice.
        seed: Of the frequencies, which are public.

    Source: Rahimi & Recht (2007), as in DP-MERF (Harder et al. 2021).

    """

    num_features: int
    num_frequencies: int = 500
    length: float = 10.0
    seed: int = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map (records, num_features) to (records, 2 * num_frequencies)."""
        import torch

        angles = x @ torch.as_tensor(self._frequencies(), dtype=x.dtype)
        both = torch.cat([torch.cos(angles), torch.sin(angles)], dim=1)
        return both / math.sqrt(self.num_frequencies)

    def _frequencies(self) -> NDArray[np.float64]:
        return _frequencies(self.num_features, self.num_frequencies, self.length, self.seed)


@cache
def _frequencies(width: int, count: int, length: float, seed: int) -> NDArray[np.float64]:
    _validate.real("length", length, above=0.0)
    return np.random.default_rng(seed).normal(0, 1 / length, (width, count))


@dataclass(frozen=True)
class HermiteFeatures:
    """Hermite polynomial features of Mehler's kernel, one coordinate at a time, of norm at most one.

    Coordinate v has the entries sqrt((1 - rho) rho^c / N_c) H_c(v) exp(-rho v^2 / (1 + rho)) for
    c = 0..order, N_c = 2^c c! sqrt((1 - rho) / (1 + rho)), whose squares sum to one without the
    truncation of the order. The coordinates' vectors are put side by side and divided by the square
    root of their number: the sum kernel of DP-HP (Vinaroz et al. 2022). Its product kernel is left out.

    Attributes:
        order: Largest degree.
        rho: Of the kernel, between 0 and 1; the larger, the narrower the kernel.
        scale: Records are multiplied by it first.

    """

    order: int = 20
    rho: float = 0.6
    scale: float = 2.0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map (records, features) to (records, features * (order + 1))."""
        import torch

        rho = _validate.real("rho", self.rho, above=0.0, below=1.0)
        values = x * self.scale
        # Hermite functions by their stable recursion: u_c = sqrt(2 / c) v u_(c-1) - sqrt((c-1) / c) u_(c-2),
        # with u_c = H_c / sqrt(2^c c!) times the exponential; rho^(c/2) is multiplied in at the end.
        base = torch.exp(-rho / (1 + rho) * values**2) * ((1 - rho) * (1 + rho)) ** 0.25
        terms = [base, math.sqrt(2) * values * base]
        for c in range(2, self.order + 1):
            terms.append(math.sqrt(2 / c) * values * terms[-1] - math.sqrt((c - 1) / c) * terms[-2])
        powers = [rho ** (c / 2) for c in range(self.order + 1)]
        scaled = [power * term for power, term in zip(powers, terms, strict=False)]
        return torch.cat(scaled, dim=1) / math.sqrt(x.shape[1])


@dataclass(frozen=True)
class MeanEmbedding(Method):
    """The noisy sum of each class's embedded records; a generator learns to match it.

    An embedded record has norm at most one, and its class's sum alone depends on it: sensitivity one
    under ``add_or_remove_one``. The generator sees the noisy sums and nothing else: ``records`` trains
    it once for each seed and draws from it.

    Attributes:
        num_classes: Number of classes.
        num_records: Public number of records, which turns sums into means.
        feature_map: :class:`FourierFeatures` (DP-MERF) or :class:`HermiteFeatures` (DP-HP).
        low: Smallest value of a record's entry, for the generator's range.
        high: Largest value.
        num_steps: Steps of the generator's training.
        hidden_size: Width of its two hidden layers.
        learning_rate: Of Adam, decayed to a tenth over the training.

    """

    num_classes: int
    num_records: int
    feature_map: FeatureMap
    low: float = 0.0
    high: float = 1.0
    num_steps: int = 2000
    hidden_size: int = 256
    learning_rate: float = 1e-2
    batch_size: int = field(default=500, repr=False)

    def _publish(
        self, features: NDArray[np.float64], classes: NDArray[np.int64], budget: Budget
    ) -> BaselineRelease:
        """Publish the sums."""
        event, epsilon = budget.gaussian("add_or_remove_one")
        key = budget.make_key(event)
        sums, sensitivity, scale = self._sums(features, classes)
        published = noisy(sums, sensitivity, event.noise_multiplier, key, "sums") / scale
        means = published / self.num_records
        width = features.shape[1]

        @cache
        def trained(seed: int) -> Any:
            # One thread: the products are small, and then the bits do not depend on the machine's cores.
            with torch_pool(1) as pool:
                return pool.submit(self._train, means, width, seed).result()

        def draw(num_records: int | None, seed: int) -> Records:
            count = self.num_records if num_records is None else num_records
            return self._draw(trained(seed), count, seed)

        statistics = {"embedding_sums": published}
        return budget.release(event, epsilon, draw, statistics)

    def _sums(
        self, features: NDArray[np.float64], classes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], float, float]:
        import torch

        sums: NDArray[np.int64] | None = None
        for record, k in zip(features, classes, strict=True):
            # One at a time: in a batch, floating-point rounding would depend on a record's companions.
            with torch.no_grad():
                embedded = self.feature_map(torch.from_numpy(record[None]))
            # Clipping on the grid holds the bound of one, whatever rounding or map.
            integers, grid = quantised(embedded.numpy(), 1.0)
            if sums is None:
                sums = np.zeros((self.num_classes, integers.shape[1]), dtype=np.int64)
            sums[k] += integers[0]
        assert sums is not None
        return sums, grid.sensitivity, grid.scale

    def _network(self, width: int) -> Any:
        from torch import nn

        size = self.hidden_size
        return nn.Sequential(
            nn.Linear(_CODE_WIDTH + self.num_classes, size),
            nn.BatchNorm1d(size),
            nn.ReLU(),
            nn.Linear(size, size),
            nn.BatchNorm1d(size),
            nn.ReLU(),
            nn.Linear(size, width),
            nn.Sigmoid(),
        )

    def _train(self, means: NDArray[np.float64], width: int, seed: int) -> Any:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = self._network(width)
            target = torch.from_numpy(means).float()
            optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
            decay = torch.optim.lr_scheduler.LambdaLR(
                optimizer, lambda step: 0.1 ** (step / self.num_steps)
            )
            for _ in range(self.num_steps):
                labels = torch.randint(self.num_classes, (self.batch_size,))
                vectors = torch.eye(self.num_classes)[labels]
                made = self._made(network, vectors, torch.randn(self.batch_size, _CODE_WIDTH))
                mean = vectors.T @ self.feature_map(made) / self.batch_size
                loss = ((mean - target) ** 2).sum()
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                decay.step()
            return network.eval()

    def _made(self, network: Any, vectors: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        import torch

        made: torch.Tensor = network(torch.cat([codes, vectors], dim=1))
        return self.low + (self.high - self.low) * made

    def _draw(self, network: Any, count: int, seed: int) -> Records:
        import torch

        random = torch.Generator().manual_seed(seed)
        classes = np.arange(count) % self.num_classes
        vectors = one_hot(classes, self.num_classes)
        codes = torch.randn(count, _CODE_WIDTH, generator=random)
        with torch.no_grad():
            return self._made(network, torch.from_numpy(vectors), codes).numpy(), vectors
