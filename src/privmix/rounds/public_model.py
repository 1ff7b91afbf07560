"""The public model of design ``adaptive``: each round's weights, from published rows alone.

Nothing here sees a record, so that whoever has the rows can compute the same weights. One thread does
the linear algebra: then the order of additions, and with it every bit, depends on the rows alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privmix.mechanism import AdaptiveConfig, ResidualConfig
from privmix.running.resources import one_blas_thread
from privmix.theory.spectrum import signal_variances

Matrix = NDArray[np.float64]
Weights = NDArray[np.float32]

_CHUNK = 4096  # rows: an update of the second moments costs d^2 however few there are
_WEIGHT_BITS = 23  # of the largest weight, as an integer: single precision holds it exactly
# Other machines' linear algebra rounds otherwise; their weights agree far better than this.
_TOLERANCE = 2.0**-16


@dataclass(frozen=True)
class PublicModel:
    """A softmax regression that is trained by the rounds of a release; of other targets, their link's.

    With W_t the weights of round t and G_t its rows, in clip norms,

        W_(t+1) = W_t + G_t B diag(1 / (v / K + 1 / r)) B'

    where r is the learning rate, and v and B are the variances and directions of the records' second
    moments that the signed rows show, less their noise. v_j / K is the curvature of the loss along
    direction j where all classes are likely, as in Levenberg and Marquardt's method: steps are as long
    as the loss allows where records vary, and as the noise allows where they do not. Several labels
    have v / 4 in its place and numbers v: ``ResidualConfig.curvature_divisor``.

    Attributes:
        config: The rounds' mechanism.
        clip_norm: Of the features.
        variances: v, (d,), in squared clip norms.
        basis: B, (d, d), a direction in each column.

    """

    config: ResidualConfig
    clip_norm: float
    variances: NDArray[np.float64]
    basis: Matrix

    @classmethod
    def of(
        cls, mechanism: AdaptiveConfig, clip_norm: float, rows: Iterable[NDArray[np.float32]]
    ) -> Self:
        """Read the signed rows of a release, in their order."""
        table, rounds = mechanism.components
        gram = np.zeros((table.num_features, table.num_features))
        with one_blas_thread():
            for chunk in _chunks(rows):
                gram += chunk.T @ chunk
            gram *= table.mix_size / table.num_mixtures / clip_norm**2
            eigenvalues, basis = np.linalg.eigh(gram)
        noise = table.published_stddev(1.0, "feature") ** 2 * table.mix_size
        variances = signal_variances(eigenvalues, noise, table.num_mixtures)
        return cls(rounds, clip_norm, variances, basis)

    @property
    def first(self) -> Weights:
        """The weights of the first round: zeros."""
        return np.zeros((self.config.num_classes, self.config.num_features), dtype=np.float32)

    def after(self, weights: Weights, rows: NDArray[np.float32]) -> Weights:
        """Return the weights that follow a round.

        Args:
            weights: Those of the round, (K, d), for features in clip norms.
            rows: The round's published rows, (K, d).

        """
        curvature = self.variances / self.config.curvature_divisor
        with one_blas_thread():
            along = (rows.astype(np.float64) / self.clip_norm) @ self.basis
            step = (along / (curvature + 1 / self.config.learning_rate)) @ self.basis.T
        return _on_grid(weights + step)

    def replay(
        self, rounds: Iterable[tuple[Weights | None, NDArray[np.float32]]]
    ) -> Iterator[tuple[Weights, Weights]]:
        """Yield (found, due) weights of every round, each from what was published before it.

        Args:
            rounds: (weights, rows) of each round, in order.

        """
        due = self.first
        for weights, rows in rounds:
            assert weights is not None
            yield weights, due
            due = self.after(weights, rows)


def same_weights(found: Weights, due: Weights) -> bool:
    """Whether two computations of the same weights agree, on one machine or on two."""
    largest = float(np.abs(due).max(initial=0.0))
    return bool((np.abs(found - due.astype(np.float64)) <= _TOLERANCE * largest).all())


def weight_exponent(weights: NDArray[np.floating]) -> int:
    """Return the e at which weights times 2**e are integers of at most 2**23."""
    return _WEIGHT_BITS - math.frexp(float(np.abs(weights).max(initial=0.0)))[1]


def _on_grid(weights: Matrix) -> Weights:
    """Round weights to single precision of the largest one: integers times a power of two."""
    exponent = weight_exponent(weights)
    return np.ldexp(np.rint(np.ldexp(weights, exponent)), -exponent).astype(np.float32)


def _chunks(rows: Iterable[NDArray[np.float32]]) -> Iterator[Matrix]:
    """Regroup rows in stretches of one size, whatever the stretches they come in."""
    waiting: list[NDArray[np.float32]] = []
    count = 0
    for some in rows:
        waiting.append(some)
        count += len(some)
        if count >= _CHUNK:
            joined = np.concatenate(waiting)
            whole = count - count % _CHUNK
            for start in range(0, whole, _CHUNK):
                yield joined[start : start + _CHUNK].astype(np.float64)
            waiting, count = [joined[whole:]], count - whole
    if count:
        yield np.concatenate(waiting).astype(np.float64)
