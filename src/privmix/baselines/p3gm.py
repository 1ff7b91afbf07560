"""A decoder behind noisy principal components and a noisy mixture of Gaussians: P3GM."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.accounting import (
    ComposedEvent,
    GaussianEvent,
    PoissonGaussianEvent,
    calibrate_noise_multiplier,
    epsilon_at,
)
from privmix.baselines.base import (
    BaselineRelease,
    Budget,
    Method,
    Records,
    noisy,
    one_hot,
    projected,
    quantised,
)
from privmix.baselines.second_moments import gram, symmetric
from privmix.clipping import ClippedSum, clipped
from privmix.compiling import kernel
from privmix.dpsgd.grid import network_grid
from privmix.rng import MasterKey
from privmix.sampling import bernoulli_inclusions

Matrix = NDArray[np.float64]
_BLOCK = 1024  # records whose statistics are in memory at a time


class Mixture(NamedTuple):
    """Gaussians with independent coordinates: weights (components,), the others (components, width)."""

    weights: Matrix
    means: Matrix
    variances: Matrix


class Decoder(NamedTuple):
    """x = axes z + output relu(hidden (z - centre) / spread), each matrix with a column for the constant."""

    axes: Matrix
    centre: Matrix
    spread: Matrix
    hidden: Matrix
    output: Matrix

    def decode(self, codes: Matrix) -> Matrix:
        """Return records, (count, width), from codes (count, directions)."""
        inner = (codes - self.centre) / self.spread @ self.hidden[:, :-1].T + self.hidden[:, -1]
        found = np.maximum(inner, 0.0) @ self.output[:, :-1].T + self.output[:, -1]
        return np.asarray(codes @ self.axes.T + found)


@dataclass(frozen=True)
class P3GM(Method):
    """Principal components, a mixture of Gaussians on them, and a decoder, all learnt with noise.

    A record is its features, in clip norms, beside its one-hot label times ``label_weight``: its norm is
    at most C = sqrt(1 + label_weight^2). Under ``add_or_remove_one``, as one composed event:

    1. the sum of v v' over records with Gaussian noise, of sensitivity C^2, whose leading eigenvectors
       are kept;
    2. in each of ``em_steps`` steps the sums of (r_k, r_k z / C, r_k z^2 / C^2) over records, with r_k a
       record's shares in the components and z its projection: the squared norm is at most 3;
    3. ``num_steps`` steps of DP-SGD on Poisson samples for the squared error of the decoder, each record's
       gradient clipped to ``gradient_clip_norm``.

    After P3GM (Takagi et al., arXiv 2006.12101) with its encoder's variance fixed at 0. Changed: the mean is
    not subtracted before the first step, which there costs nothing and is not private; sums are published in
    place of means over a noisy count; the first step of the second part has the classes as components; the
    decoder adds what it learns to the components' own reconstruction, where theirs is trained to
    reproduce it first.

    Attributes:
        num_classes: Number of classes.
        num_records: Public number of records, for planning.
        clip_norm: L2 bound on the features.
        label_weight: Length of a label's part of a record, in clip norms.
        num_directions: Principal components that are kept.
        components_per_class: Gaussians for each class.
        em_steps: Steps of expectation maximisation.
        hidden_size: Width of the decoder's hidden layer.
        batch_size: Planned number of records in a step of DP-SGD.
        num_steps: Steps of DP-SGD; 0 leaves the decoder at the components' reconstruction.
        gradient_clip_norm: L2 bound on a record's gradient.
        learning_rate: Of Adam.
        shares: Shares of the squared GDP parameter of the three parts, about.
        low: Smallest value of a record's entry.
        high: Largest value.

    """

    num_classes: int
    num_records: int
    clip_norm: float = 1.0
    label_weight: float = 0.5
    num_directions: int = 15
    components_per_class: int = 1
    em_steps: int = 4
    hidden_size: int = 100
    batch_size: int = 300
    num_steps: int = 400
    gradient_clip_norm: float = 1.0
    learning_rate: float = 1e-3
    shares: tuple[float, float, float] = (0.4, 0.3, 0.3)
    low: float = 0.0
    high: float = 1.0

    def _publish(
        self, features: NDArray[np.float64], classes: NDArray[np.int64], budget: Budget
    ) -> BaselineRelease:
        """Publish a mixture and a decoder."""
        self._check(features.shape[1])

        def composed(noise_multiplier: float) -> ComposedEvent:
            return self._event(noise_multiplier)

        event = composed(calibrate_noise_multiplier(composed, budget.epsilon, budget.delta))
        epsilon = epsilon_at(event, [budget.delta])[budget.delta]
        key = budget.make_key(event)
        records = self._records(features, classes)
        multipliers: list[float] = [part.noise_multiplier for part in event.events]  # type: ignore[union-attr]
        axes = self._axes(records, multipliers[0], key)
        codes = projected(records, axes)
        mixture = self._mixture(codes, classes, multipliers[1], key)
        decoder = self._start(axes, mixture)
        if self.num_steps:
            decoder = self._train(records, codes, decoder, multipliers[2], key)

        def draw(num_records: int | None, seed: int) -> Records:
            count = self.num_records if num_records is None else num_records
            return self._draw(mixture, decoder, count, seed)

        statistics = {"weights": mixture.weights, "means": mixture.means}
        return budget.release(event, epsilon, draw, {**statistics, "axes": axes})

    def _check(self, num_features: int) -> None:
        for name in ("components_per_class", "hidden_size", "batch_size"):
            _validate.integer(name, getattr(self, name), at_least=1)
        _validate.integer("em_steps", self.em_steps, at_least=1)
        _validate.integer("num_steps", self.num_steps, at_least=0)
        most = num_features + self.num_classes
        _validate.integer("num_directions", self.num_directions, at_least=1, at_most=most)
        _validate.real("learning_rate", self.learning_rate, above=0.0)
        if not isinstance(self.shares, tuple | list) or len(self.shares) != 3:
            _validate.fail("shares", "three numbers", repr(self.shares)[:80])
        for share in self.shares:
            _validate.real("shares", share, above=0.0, below=1.0)

    @property
    def _record_norm(self) -> float:
        return math.sqrt(1 + self.label_weight**2)

    @property
    def _sampling_prob(self) -> float:
        return min(1.0, self.batch_size / self.num_records)

    def _event(self, noise_multiplier: float) -> ComposedEvent:
        """Return the whole for the noise multiplier of one Gaussian mechanism of about the same cost."""
        first, second, third = self.shares
        parts: list[GaussianEvent | PoissonGaussianEvent] = [
            GaussianEvent(noise_multiplier=noise_multiplier / math.sqrt(first)),
            GaussianEvent(
                noise_multiplier=noise_multiplier * math.sqrt(self.em_steps / second),
                count=self.em_steps,
            ),
        ]
        if self.num_steps:
            # Of the central limit, mu^2 = q^2 T (exp(1 / s^2) - 1): a plan alone, the cost is computed.
            step = third / (noise_multiplier * self._sampling_prob) ** 2 / self.num_steps
            parts.append(
                PoissonGaussianEvent(
                    sampling_prob=self._sampling_prob,
                    noise_multiplier=1 / math.sqrt(math.log1p(step)),
                    count=self.num_steps,
                )
            )
        return ComposedEvent(events=tuple(parts))

    def _records(self, features: Matrix, classes: NDArray[np.int64]) -> Matrix:
        """Return features in clip norms, clipped, beside labels."""
        labels = one_hot(classes, self.num_classes) * self.label_weight
        return np.hstack([clipped(features, self.clip_norm) / self.clip_norm, labels])

    def _axes(self, records: Matrix, noise_multiplier: float, key: MasterKey) -> Matrix:
        """Return the leading eigenvectors, (width, num_directions), of the noisy second moments."""
        integers, grid = quantised(records, self._record_norm)
        width = records.shape[1]
        # The Frobenius norm of v v' is |v|^2, which bounds its upper triangle.
        upper = gram(integers)[np.triu_indices(width)]
        published = noisy(upper, float(grid.largest_square), noise_multiplier, key, "moments")
        axes = np.linalg.eigh(symmetric(published, width))[1]
        return np.ascontiguousarray(axes[:, : -self.num_directions - 1 : -1])

    def _mixture(
        self, codes: Matrix, classes: NDArray[np.int64], noise_multiplier: float, key: MasterKey
    ) -> Mixture:
        start = one_hot(classes, self.num_classes).astype(float)
        mixture = self._maximised(codes, start, None, noise_multiplier, key, 0)
        random = np.random.default_rng(0)
        if self.components_per_class > 1:
            weights, means, variances = (
                np.repeat(part, self.components_per_class, axis=0) for part in mixture
            )
            means = means + np.sqrt(variances) * random.normal(size=means.shape)
            mixture = Mixture(weights / self.components_per_class, means, variances)
        for step in range(1, self.em_steps):
            mixture = self._maximised(codes, None, mixture, noise_multiplier, key, step)
        return mixture

    def _maximised(
        self,
        codes: Matrix,
        shares: Matrix | None,
        mixture: Mixture | None,
        noise_multiplier: float,
        key: MasterKey,
        step: int,
    ) -> Mixture:
        """Return the components that records' shares in them make, which a mixture gives or ``shares``."""
        num = self.num_classes if mixture is None else len(mixture.weights)
        width, norm = codes.shape[1], self._record_norm
        total = np.zeros((num, 1 + 2 * width), dtype=np.int64)
        for start in range(0, len(codes), _BLOCK):
            block = codes[start : start + _BLOCK]
            if mixture is None:
                assert shares is not None
                held = shares[start : start + _BLOCK]
            else:
                held = np.empty((len(block), num))
                _share(block, *mixture, held)
            rows = np.empty((len(block), num, 1 + 2 * width))
            rows[:, :, 0] = held
            rows[:, :, 1 : 1 + width] = held[:, :, None] * (block / norm)[:, None]
            rows[:, :, 1 + width :] = held[:, :, None] * ((block / norm) ** 2)[:, None]
            # sum r_k^2 <= 1 and |z| <= C bound the squared norm by 3; the grid holds it in any case.
            integers, grid = quantised(rows.reshape(len(block), -1), math.sqrt(3.0))
            total += integers.sum(axis=0, dtype=np.int64).reshape(total.shape)
        sums = noisy(total, grid.sensitivity, noise_multiplier, key, f"mixture {step}") / grid.scale
        return _components(sums, norm, self.num_records)

    def _start(self, axes: Matrix, mixture: Mixture) -> Decoder:
        """Return the decoder of the components alone, with random public weights behind it."""
        random = np.random.default_rng(1)
        centre = mixture.weights @ mixture.means
        second = mixture.weights @ (mixture.variances + (mixture.means - centre) ** 2)
        hidden = random.normal(size=(self.hidden_size, axes.shape[1] + 1))
        hidden /= math.sqrt(hidden.shape[1])
        output = np.zeros((len(axes), self.hidden_size + 1))
        return Decoder(axes, centre, np.sqrt(second), hidden, output)

    def _train(
        self,
        records: Matrix,
        codes: Matrix,
        decoder: Decoder,
        noise_multiplier: float,
        key: MasterKey,
    ) -> Decoder:
        """Take the steps of DP-SGD, with Adam on the published gradients."""
        grid = network_grid(self.gradient_clip_norm)
        size = decoder.hidden.size
        weights = np.concatenate([decoder.hidden.ravel(), decoder.output.ravel()])
        gradient = np.empty_like(weights)
        mean, square = np.zeros_like(weights), np.zeros_like(weights)
        for step in range(self.num_steps):
            hidden, output = (
                np.ascontiguousarray(part).reshape(like.shape)
                for part, like in (
                    (weights[:size], decoder.hidden),
                    (weights[size:], decoder.output),
                )
            )
            decoder = decoder._replace(hidden=hidden, output=output)
            total = ClippedSum(len(weights), self.gradient_clip_norm, grid.scale)
            for i in self._sample(len(records), step, key):
                _gradient(records[i], codes[i], *decoder, gradient)
                total.add(gradient)
            published = noisy(total.total, grid.sensitivity, noise_multiplier, key, f"step {step}")
            found = published / (grid.scale * self._sampling_prob * self.num_records)
            mean = 0.9 * mean + 0.1 * found
            square = 0.999 * square + 0.001 * found**2
            scale = np.sqrt(square / (1 - 0.999 ** (step + 1))) + 1e-8
            rate = self.learning_rate / (1 - 0.9 ** (step + 1))
            weights = weights - rate * mean / scale
        hidden, output = weights[:size], weights[size:]
        return decoder._replace(
            hidden=hidden.reshape(decoder.hidden.shape), output=output.reshape(decoder.output.shape)
        )

    def _sample(self, count: int, step: int, key: MasterKey) -> NDArray[np.int32]:
        streams = key.stream("sample", block=step), key.stream("sample-extra", block=step)
        return bernoulli_inclusions(*streams, self._sampling_prob, 1, count).records

    def _draw(self, mixture: Mixture, decoder: Decoder, count: int, seed: int) -> Records:
        random = np.random.default_rng(seed)
        chosen = random.choice(len(mixture.weights), count, p=mixture.weights)
        codes = mixture.means[chosen] + np.sqrt(mixture.variances[chosen]) * random.normal(
            size=(count, self.num_directions)
        )
        made = decoder.decode(codes)
        x = np.clip(made[:, : -self.num_classes] * self.clip_norm, self.low, self.high)
        classes = made[:, -self.num_classes :].argmax(axis=1)
        return x.astype(np.float32), one_hot(classes, self.num_classes)


def _components(sums: Matrix, norm: float, num_records: int) -> Mixture:
    """Return the mixture that noisy sums (components, 1 + 2 * width) describe.

    A component has at least a twentieth of an even share of records, and variances of at least a
    quarter of the average over components, which is less noisy.
    """
    width = (sums.shape[1] - 1) // 2
    counts = np.maximum(sums[:, :1], num_records / (20 * len(sums)))
    means = np.clip(sums[:, 1 : 1 + width] / counts, -1.0, 1.0)
    variances = sums[:, 1 + width :] / counts - means**2
    weights = counts[:, 0] / counts.sum()
    pooled = np.maximum(weights @ variances, 1e-4)
    return Mixture(weights, means * norm, np.maximum(variances, pooled / 4) * norm**2)


@kernel(nogil=True)
def _share(
    codes: Matrix, weights: Matrix, means: Matrix, variances: Matrix, out: Matrix
) -> None:  # pragma: no cover - compiled
    """Compute each record's shares in the components, which add up to one."""
    for i in range(codes.shape[0]):
        largest = -np.inf
        for k in range(len(weights)):
            total = math.log(weights[k])
            for j in range(codes.shape[1]):
                away = codes[i, j] - means[k, j]
                total -= 0.5 * (away * away / variances[k, j] + math.log(variances[k, j]))
            out[i, k] = total
            largest = max(largest, total)
        whole = 0.0
        for k in range(len(weights)):
            out[i, k] = math.exp(out[i, k] - largest)
            whole += out[i, k]
        for k in range(len(weights)):
            out[i, k] /= whole


@kernel(nogil=True)
def _gradient(
    record: Matrix,
    code: Matrix,
    axes: Matrix,
    centre: Matrix,
    spread: Matrix,
    hidden: Matrix,
    output: Matrix,
    out: NDArray[Any],
) -> None:  # pragma: no cover - compiled
    """Write the gradient of half the squared error in ``hidden`` and ``output``, one after the other."""
    width, size, size_in = len(record), hidden.shape[0], hidden.shape[1]
    active = np.empty(size)
    for h in range(size):
        total = hidden[h, size_in - 1]
        for k in range(size_in - 1):
            total += hidden[h, k] * (code[k] - centre[k]) / spread[k]
        active[h] = max(total, 0.0)
    back = np.zeros(size)
    place = size * size_in
    for j in range(width):
        error = output[j, size] - record[j]
        for k in range(size_in - 1):
            error += axes[j, k] * code[k]
        for h in range(size):
            error += output[j, h] * active[h]
        for h in range(size):
            back[h] += error * output[j, h]
            out[place + h] = error * active[h]
        out[place + size] = error
        place += size + 1
    for h in range(size):
        slope = back[h] if active[h] > 0.0 else 0.0
        for k in range(size_in - 1):
            out[h * size_in + k] = slope * (code[k] - centre[k]) / spread[k]
        out[h * size_in + size_in - 1] = slope
