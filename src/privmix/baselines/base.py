"""What the baselines share: the Protocol, what they publish, and noise on an exact sum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix import _validate
from privmix.accounting import Event, GaussianEvent, calibrate_noise_multiplier, epsilon_at
from privmix.accounting.events import NeighboringRelation
from privmix.clipping import FixedPoint
from privmix.compiling import kernel
from privmix.noise import noise_stddev, rounded_gaussian
from privmix.rng import MasterKey, fresh_secret
from privmix.running.unrecorded import unrecorded

Records = tuple[NDArray[np.float32], NDArray[np.float32]]
# Draws (num_records or None for as many as the method publishes, seed) -> features, label vectors.
Draw = Callable[[int | None, int], Records]


@dataclass(frozen=True)
class BaselineRelease:
    """What a baseline publishes.

    Attributes:
        method: Name of the class that made it.
        event: What it costs, to be accounted for beside other events.
        epsilon: Certified epsilon at ``delta``.
        delta: The delta that was asked for.
        private: False where a test key was used: such a release protects nobody.
        statistics: What was published before any post-processing, by name.

    """

    method: str
    event: Event
    epsilon: float
    delta: float
    private: bool
    statistics: dict[str, NDArray[np.float64]] = field(repr=False)
    draw: Draw = field(repr=False)

    def records(self, num_records: int | None = None, *, seed: int = 0) -> Records:
        """Return labelled records made from what was published; costs no budget.

        Args:
            num_records: How many; None for the method's own number. A method that publishes rows
                gives the first of them, a generator draws.
            seed: Of the generator's draws; no secret.

        Returns:
            Features (num_records, num_features) and label vectors (num_records, num_classes),
            noisy where the method publishes noisy labels.

        """
        if num_records is not None:
            _validate.integer("num_records", num_records, at_least=1)
        _validate.integer("seed", seed, at_least=0)
        return self.draw(num_records, seed)


@runtime_checkable
class Baseline(Protocol):
    """A method that spends (target_epsilon, target_delta) once and publishes."""

    @property
    def num_classes(self) -> int:
        """Number of classes, a public fact."""

    def release(
        self,
        x: ArrayLike,
        y: ArrayLike,
        *,
        target_epsilon: float,
        target_delta: float,
        test_seed: int | None = None,
    ) -> BaselineRelease:
        """Publish labelled records.

        Args:
            x: (records, features), finite.
            y: (records,) integers from 0 to num_classes - 1.
            target_epsilon: Bound on the certified epsilon.
            target_delta: Its delta.
            test_seed: For tests: a key that anybody can guess.

        Raises:
            InvalidInputError: naming ``x``, ``y``, ``target_epsilon`` or ``target_delta``.

        """


@dataclass(frozen=True)
class Budget:
    """What one release may spend, and under which name.

    Attributes:
        method: Name of the class that publishes.
        epsilon: Bound on the certified epsilon.
        delta: Its delta.
        test_seed: For tests: a key that anybody can guess.

    """

    method: str
    epsilon: float
    delta: float
    test_seed: int | None

    def gaussian(self, relation: NeighboringRelation) -> tuple[GaussianEvent, float]:
        """Return the Gaussian mechanism of least noise within the budget, and its certified epsilon."""

        def event(noise_multiplier: float) -> GaussianEvent:
            return GaussianEvent(noise_multiplier=noise_multiplier, neighboring_relation=relation)

        chosen = event(calibrate_noise_multiplier(event, self.epsilon, self.delta))
        return chosen, epsilon_at(chosen, [self.delta])[self.delta]

    def make_key(self, event: Event) -> MasterKey:
        """Return a fresh key, or a guessable one for tests: the budget is spent from here on.

        There is no ledger here: a second time in one process is warned of, as elsewhere.
        """
        context = f"privmix baseline {self.method}".encode()
        if self.test_seed is not None:
            return MasterKey.for_test(self.test_seed, context)
        with unrecorded(event, self.delta, self.method):
            return MasterKey(fresh_secret(), context)

    def release(
        self,
        event: Event,
        epsilon: float,
        draw: Draw,
        statistics: dict[str, NDArray[np.float64]] | None = None,
    ) -> BaselineRelease:
        """Return what was published at the cost of ``event``."""
        private = self.test_seed is None
        return BaselineRelease(
            self.method, event, epsilon, self.delta, private, statistics or {}, draw
        )


def _bound(position: str, value: object) -> None:
    _validate.real(position, value, at_least=1e-9, at_most=1e9)


def _share(position: str, value: object) -> None:
    _validate.real(position, value, above=0.0, below=1.0)


def _ratio(position: str, value: object) -> None:
    _validate.real(position, value, at_least=1e-6, at_most=1e6)


def _seed(position: str, value: object) -> None:
    _validate.integer(position, value, at_least=0)


def _choice(position: str, value: object) -> None:
    if not isinstance(value, bool):
        _validate.fail(position, "True or False", repr(value))


# What several methods can be given, by name; the rest is each method's own.
_CHECKS: dict[str, Callable[[str, Any], object]] = {
    "num_records": _validate.size,
    "clip_norm": _bound,
    "residual_clip_norm": _bound,
    "gradient_clip_norm": _bound,
    "label_balance": _ratio,
    "label_weight": _ratio,
    "moment_share": _share,
    "mix_size": _bound,
    "rows_per_class": _validate.integer,
    "num_directions": _validate.integer,
    "projection_seed": _seed,
    "reconstruct": _choice,
}


class Method(ABC):
    """Base of the baselines here: it checks the records, whose release is each method's own."""

    num_classes: int

    def release(
        self,
        x: Any,
        y: Any,
        *,
        target_epsilon: float,
        target_delta: float,
        test_seed: int | None = None,
    ) -> BaselineRelease:
        """Publish labelled records; see :class:`privmix.baselines.Baseline`."""
        features, classes = checked_records(x, y, self.num_classes)
        for name, check in _CHECKS.items():
            if hasattr(self, name):  # before anything is spent
                check(name, getattr(self, name))
        least = -1e9
        for name in ("low", "high"):
            if hasattr(self, name):
                least = _validate.real(name, getattr(self, name), at_least=least, at_most=1e9)
        budget = Budget(type(self).__name__, target_epsilon, target_delta, test_seed)
        return self._publish(features, classes, budget)

    @abstractmethod
    def _publish(
        self, features: NDArray[np.float64], classes: NDArray[np.int64], budget: Budget
    ) -> BaselineRelease:
        """Publish records of shape (records, features) with classes from 0 to num_classes - 1."""


def checked_records(
    x: Any, y: Any, num_classes: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return features and classes, or fail naming what is wrong with them."""
    _validate.size("num_classes", num_classes, at_least=2)
    features = np.asarray(x)
    if features.ndim != 2 or 0 in features.shape or features.dtype.kind not in "biuf":
        _validate.fail(
            "x", "numbers of shape (records, features)", f"{features.dtype} {features.shape}"
        )
    features = np.ascontiguousarray(features, dtype=np.float64)
    if not np.isfinite(features).all():
        _validate.fail("x", "finite numbers", "NaN or infinity")
    classes = np.asarray(y)
    if classes.shape != (len(features),) or classes.dtype.kind not in "iu":
        _validate.fail("y", f"{len(features)} integers", f"{classes.dtype} {classes.shape}")
    if classes.min() < 0 or classes.max() >= num_classes:
        _validate.fail("y", f"classes from 0 to {num_classes - 1}", "another class")
    return features, classes.astype(np.int64)


def projected(records: NDArray[Any], axes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the products of records (records, width) with axes (width, directions), record by record.

    A product of matrices would round by what stands beside a record.
    """
    if records.shape[1] != len(axes):  # the loops below have no bounds of their own
        _validate.fail("features", f"(records, {len(axes)})", records.shape)
    out = np.zeros((len(records), axes.shape[1]))
    _project(np.ascontiguousarray(records), axes, out)
    return out


@kernel(nogil=True)
def _project(
    records: NDArray[Any], axes: NDArray[Any], out: NDArray[Any]
) -> None:  # pragma: no cover - compiled
    for i in range(records.shape[0]):
        for j in range(records.shape[1]):
            value = records[i, j]
            if value != 0.0:
                for k in range(axes.shape[1]):
                    out[i, k] += value * axes[j, k]


def quantised(
    vectors: NDArray[np.float64], clip_norm: float
) -> tuple[NDArray[np.int16], FixedPoint]:
    """Clip each vector to ``clip_norm`` and put it on the grid: its norm is bounded exactly."""
    grid = FixedPoint(clip_norm)
    integers = np.empty(vectors.shape, dtype=np.int16)
    grid.quantise(np.ascontiguousarray(vectors), integers)
    return integers, grid


def noisy(
    sums: NDArray[np.int64],
    sensitivity: float,
    noise_multiplier: float,
    key: MasterKey,
    purpose: str,
) -> NDArray[np.float64]:
    """Add rounded Gaussian noise to exact integers.

    Args:
        sums: Integers, of any shape. Private.
        sensitivity: L2 bound on what one record changes of all of them together, in grid points.
        noise_multiplier: Noise per sensitivity.
        key: Of the release.
        purpose: Names the stream; each is used once.

    """
    stddev = noise_stddev(noise_multiplier, sensitivity)
    noise = rounded_gaussian(key.stream(purpose), key.stream(f"{purpose} extra"), stddev, sums.size)
    return (sums + noise.reshape(sums.shape)).astype(np.float64)


def class_sums(
    integers: NDArray[Any], classes: NDArray[np.int64], num_classes: int
) -> NDArray[np.int64]:
    """Return the exact sum of each class's vectors, (num_classes, width).

    A record is in one class: adding or removing it changes the sums by its own vector.
    """
    sums = np.zeros((num_classes, integers.shape[1]), dtype=np.int64)
    for k in range(num_classes):
        sums[k] = integers[classes == k].sum(axis=0, dtype=np.int64)
    return sums


def prototype_rows(prototypes: NDArray[np.float32], num_records: int | None) -> Records:
    """Return the classes' prototypes with their labels, in turn; None for one a class."""
    num_classes = len(prototypes)
    chosen = np.arange(num_classes if num_records is None else num_records) % num_classes
    return prototypes[chosen], one_hot(chosen, num_classes)


def one_hot(classes: NDArray[np.int64], num_classes: int) -> NDArray[np.float32]:
    """Return label vectors."""
    return np.eye(num_classes, dtype=np.float32)[classes]
