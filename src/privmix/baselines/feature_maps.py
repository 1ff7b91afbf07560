"""Public maps of records to vectors of norm at most one, whose class sums mean embeddings are.

What is done to records is done one record at a time, by loops of a fixed order or on a copy of its own, so that a
record's vector owes nothing to other records, to the last bit; what a generator made is mapped as is quickest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.baselines.base import projected
from privmix.compiling import kernel

if TYPE_CHECKING:
    import torch


class FeatureMap(Protocol):
    """A public map of records to vectors of norm at most one."""

    def embed(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Map (records, features) to (records, width), each row by itself."""

    def class_sums(self, x: torch.Tensor, classes: torch.Tensor, num_classes: int) -> torch.Tensor:
        """Return the sum of the vectors of each class, (num_classes, width), which has a gradient in x."""


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

    def embed(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Map (records, num_features) to (records, 2 * num_frequencies), each record by itself."""
        # Not as a product of matrices: in one, floating-point rounding depends on a record's companions.
        angles = projected(x, self._frequencies())
        both = np.empty((len(x), 2 * self.num_frequencies))
        _waves(angles, both)
        return both / math.sqrt(self.num_frequencies)

    def class_sums(self, x: torch.Tensor, classes: torch.Tensor, num_classes: int) -> torch.Tensor:
        """Return the sum of the vectors of each class, (num_classes, 2 * num_frequencies)."""
        import torch

        return torch.eye(num_classes, dtype=x.dtype)[classes].T @ self(x)

    def _frequencies(self) -> NDArray[np.float64]:
        for name in ("num_features", "num_frequencies"):
            _validate.integer(name, getattr(self, name))
        _validate.real("length", self.length, at_least=1e-9, at_most=1e9)
        _validate.integer("seed", self.seed, at_least=0)
        return _frequencies(self.num_features, self.num_frequencies, self.length, self.seed)


@cache
def _frequencies(width: int, count: int, length: float, seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(0, 1 / length, (width, count))


@kernel(nogil=True)
def _waves(angles: NDArray[Any], out: NDArray[Any]) -> None:  # pragma: no cover - compiled
    """Write the cosines of a row beside its sines."""
    count = angles.shape[1]
    for i in range(angles.shape[0]):
        for k in range(count):
            out[i, k] = math.cos(angles[i, k])
            out[i, count + k] = math.sin(angles[i, k])


@dataclass(frozen=True)
class HermiteFeatures:
    """Hermite polynomial features of Mehler's kernel, one coordinate at a time, of norm at most one.

    Coordinate v has the entries sqrt((1 - rho) rho^c / N_c) H_c(v) exp(-rho v^2 / (1 + rho)) for
    c = 0..order, N_c = 2^c c! sqrt((1 - rho) / (1 + rho)), whose squares sum to one without the
    truncation of the order. The coordinates' vectors are put side by side and divided by the square
    root of their number: the sum kernel of DP-HP (Vinaroz et al. 2022). Its product kernel, of pairs of
    coordinates that are drawn anew in each epoch, is left out.

    Attributes:
        order: Largest degree.
        rho: Of the kernel, between 0 and 1; the larger, the narrower the kernel.
        scale: Records are multiplied by it first.

    """

    order: int = 20
    rho: float = 0.6
    scale: float = 2.0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map (records, features) to (records, (order + 1) * features), degree by degree."""
        import torch

        return self.class_sums(x, torch.arange(len(x)), len(x))

    def embed(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Map (records, features) to (records, (order + 1) * features), each record by itself."""
        return self._sums(np.ascontiguousarray(x), np.arange(len(x)), len(x))

    def class_sums(self, x: torch.Tensor, classes: torch.Tensor, num_classes: int) -> torch.Tensor:
        """Return the sum of the vectors of each class, (num_classes, (order + 1) * features)."""
        sums: torch.Tensor = _function().apply(x, classes, num_classes, self)
        return sums

    def _sums(self, x: NDArray[Any], classes: NDArray[np.int64], num: int) -> NDArray[Any]:
        sums = np.zeros((num, self.order + 1, x.shape[1]), dtype=x.dtype)
        _add_features(x, classes, *self._constants(), sums)
        sums /= math.sqrt(x.shape[1])
        return sums.reshape(num, -1)

    def _slopes(
        self, x: NDArray[Any], classes: NDArray[np.int64], by_sum: NDArray[Any]
    ) -> NDArray[Any]:
        """Return the gradient in x of a function whose gradient in the sums is ``by_sum``."""
        weights = by_sum.reshape(len(by_sum), self.order + 1, x.shape[1]) / math.sqrt(x.shape[1])
        slopes = np.zeros_like(x)
        _add_slopes(x, classes, *self._constants(), weights.astype(x.dtype), slopes)
        return slopes

    def _constants(self) -> tuple[float, float, NDArray[np.float64]]:
        rho = _validate.real("rho", self.rho, above=0.0, below=1.0)
        _validate.integer("order", self.order, at_least=1)
        scale = _validate.real("scale", self.scale, at_least=1e-9, at_most=1e9)
        return rho, scale, _factors(self.order + 1, rho)


def _factors(count: int, rho: float) -> NDArray[np.float64]:
    """Return sqrt(2 / c), sqrt((c - 1) / c) and rho^(c / 2) for each c."""
    degrees = np.maximum(np.arange(count, dtype=np.float64), 1.0)
    powers = rho ** (np.arange(count) / 2)
    return np.column_stack([np.sqrt(2 / degrees), np.sqrt((degrees - 1) / degrees), powers])


@kernel(nogil=True)
def _add_features(
    x: NDArray[Any],
    classes: NDArray[np.int64],
    rho: float,
    scale: float,
    factors: NDArray[np.float64],
    sums: NDArray[Any],
) -> None:  # pragma: no cover - compiled
    """Add each record's features to its class's sums, (num_classes, order + 1, features).

    Hermite functions by their stable recursion: u_c = sqrt(2 / c) v u_(c-1) - sqrt((c-1) / c) u_(c-2),
    with u_c = H_c / sqrt(2^c c!) times the exponential; rho^(c/2) is multiplied in at the end.
    All coordinates of a degree in turn: such loops run several at a time.
    """
    width = x.shape[1]
    start = ((1 - rho) * (1 + rho)) ** 0.25
    v, u, before = np.empty(width), np.empty(width), np.empty(width)
    for i in range(x.shape[0]):
        out = sums[classes[i]]
        for j in range(width):
            v[j] = x[i, j] * scale
            u[j] = start * math.exp(-rho / (1 + rho) * v[j] * v[j])
            before[j] = 0.0
            out[0, j] += u[j]
        for c in range(1, sums.shape[1]):
            a, b, power = factors[c, 0], factors[c, 1], factors[c, 2]
            for j in range(width):
                after = a * v[j] * u[j] - b * before[j]
                before[j] = u[j]
                u[j] = after
                out[c, j] += power * after


@kernel(nogil=True)
def _add_slopes(
    x: NDArray[Any],
    classes: NDArray[np.int64],
    rho: float,
    scale: float,
    factors: NDArray[np.float64],
    weights: NDArray[Any],
    slopes: NDArray[Any],
) -> None:  # pragma: no cover - compiled
    """Add sum over c of weights[class, c, j] times the derivative of feature c, for every x[i, j].

    H_c' = 2 c H_(c-1), so that u_c' = sqrt(2 c) u_(c-1) - 2 rho / (1 + rho) v u_c.
    """
    width = x.shape[1]
    start = ((1 - rho) * (1 + rho)) ** 0.25
    v, u, before = np.empty(width), np.empty(width), np.empty(width)
    lower, same = np.empty(width), np.empty(width)
    for i in range(x.shape[0]):
        weight = weights[classes[i]]
        for j in range(width):
            v[j] = x[i, j] * scale
            u[j] = start * math.exp(-rho / (1 + rho) * v[j] * v[j])
            before[j] = 0.0
            lower[j], same[j] = 0.0, weight[0, j] * u[j]
        for c in range(1, weights.shape[1]):
            a, b, power = factors[c, 0], factors[c, 1], factors[c, 2]
            root = math.sqrt(2.0 * c)
            for j in range(width):
                after = a * v[j] * u[j] - b * before[j]
                before[j] = u[j]
                u[j] = after
                lower[j] += power * root * weight[c, j] * before[j]
                same[j] += power * weight[c, j] * after
        for j in range(width):
            slopes[i, j] += scale * (lower[j] - 2.0 * rho / (1 + rho) * v[j] * same[j])


@cache
def _function() -> Any:
    """Return the class of the sums as an operation of torch, which is loaded only here."""
    import torch

    class ClassSums(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any, x: torch.Tensor, classes: torch.Tensor, num: int, features: HermiteFeatures
        ) -> torch.Tensor:
            ctx.save_for_backward(x, classes)
            ctx.features = features
            array = np.ascontiguousarray(x.detach().numpy())
            return torch.from_numpy(features._sums(array, classes.numpy(), num))

        @staticmethod
        def backward(ctx: Any, *by: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
            x, classes = ctx.saved_tensors
            array = np.ascontiguousarray(x.detach().numpy())
            slopes = ctx.features._slopes(array, classes.numpy(), by[0].detach().numpy())
            return torch.from_numpy(slopes), None, None, None

    return ClassSums
