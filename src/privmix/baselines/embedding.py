"""Noisy mean embeddings of the classes, and a generator trained to match them: DP-MERF and DP-HP."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

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
from privmix.baselines.feature_maps import FeatureMap
from privmix.running.resources import torch_pool

if TYPE_CHECKING:
    import torch

_BLOCK = 64  # records that are embedded at a time, which bounds memory alone


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
        code_size: Length of the normal vectors that it makes records from.
        image_side: Side of square images of one channel, a multiple of 4, whose generator is
            convolutional behind its first layer, as in DP-MERF: neighbouring pixels are drawn
            together. None for any records.
        learning_rate: Of Adam, decayed to a tenth over the training.
        batch_size: Records that are made in a step, at least 2.

    """

    num_classes: int
    num_records: int
    feature_map: FeatureMap
    low: float = 0.0
    high: float = 1.0
    num_steps: int = 2000
    hidden_size: int = 256
    code_size: int = 5
    image_side: int | None = None
    learning_rate: float = 1e-2
    batch_size: int = 500

    def _publish(
        self, features: NDArray[np.float64], classes: NDArray[np.int64], budget: Budget
    ) -> BaselineRelease:
        """Publish the sums."""
        self._check(features.shape[1])
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

    def _check(self, width: int) -> None:
        """Refuse, before anything is spent, what the map or the generator cannot do with such records."""
        side = self.image_side
        if side is not None:
            _validate.integer("image_side", side)
            if side % 4 or side * side != width:
                allowed = f"None, or a multiple of 4 with a square of {width}"
                _validate.fail("image_side", allowed, side)
        for name in ("num_steps", "hidden_size", "code_size"):
            _validate.integer(name, getattr(self, name), at_least=1)
        _validate.integer("batch_size", self.batch_size, at_least=2)  # it normalises its batches
        _validate.real("learning_rate", self.learning_rate, above=0.0)
        given: object = self.feature_map
        if not all(hasattr(given, name) for name in ("embed", "class_sums")):
            allowed = "a map with embed and class_sums"
            _validate.fail("feature_map", allowed, type(given).__name__)
        self.feature_map.embed(np.zeros((1, width)))

    def _sums(
        self, features: NDArray[np.float64], classes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], float, float]:
        sums: NDArray[np.int64] | None = None
        for start in range(0, len(features), _BLOCK):
            embedded = self.feature_map.embed(features[start : start + _BLOCK])
            # Clipping on the grid holds the bound of one, whatever rounding or map.
            integers, grid = quantised(embedded, 1.0)
            if sums is None:
                sums = np.zeros((self.num_classes, integers.shape[1]), dtype=np.int64)
            for k, row in zip(classes[start : start + _BLOCK], integers, strict=True):
                sums[k] += row
        assert sums is not None
        return sums, grid.sensitivity, grid.scale

    def _network(self, width: int) -> Any:
        from torch import nn

        size = self.hidden_size
        return nn.Sequential(
            nn.Linear(self.code_size + self.num_classes, size),
            nn.BatchNorm1d(size),
            nn.ReLU(),
            *self._last_layers(width),
            nn.Sigmoid(),
        )

    def _last_layers(self, width: int) -> list[Any]:
        from torch import nn

        size = self.hidden_size
        if self.image_side is None:
            layers = [
                nn.Linear(size, size),
                nn.BatchNorm1d(size),
                nn.ReLU(),
                nn.Linear(size, width),
            ]
            return list(layers)
        side = self.image_side // 4
        return [
            nn.Linear(size, 16 * side * side),
            nn.BatchNorm1d(16 * side * side),
            nn.ReLU(),
            nn.Unflatten(1, (16, side, side)),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Conv2d(16, 8, 5, padding=2),
            nn.ReLU(),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Conv2d(8, 1, 5, padding=2),
            nn.Flatten(),
        ]

    def _train(self, means: NDArray[np.float64], width: int, seed: int) -> Any:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = self._network(width)
            target = torch.from_numpy(means).float()
            optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate, fused=True)
            decay = torch.optim.lr_scheduler.LambdaLR(
                optimizer, lambda step: 0.1 ** (step / self.num_steps)
            )
            for _ in range(self.num_steps):
                labels = torch.randint(self.num_classes, (self.batch_size,))
                vectors = torch.eye(self.num_classes)[labels]
                made = self._made(network, vectors, torch.randn(self.batch_size, self.code_size))
                sums = self.feature_map.class_sums(made, labels, self.num_classes)
                loss = ((sums / self.batch_size - target) ** 2).sum()
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
        codes = torch.randn(count, self.code_size, generator=random)
        with torch.no_grad():
            return self._made(network, torch.from_numpy(vectors), codes).numpy(), vectors
