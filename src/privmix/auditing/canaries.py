"""Neighbouring data sets that are as bad as they come, and what shows them apart.

Every canary stands alone on an axis of the features, on the clip norm, in a class of its own; all other
records have no features. So the rows of one release hold a separate test for each canary: noise is
independent from axis to axis, and so is who enters which row. A few more axes stay empty: what is published
there is noise alone.

Rows of ``uniform`` hold a fixed number of records. There all others are what the one canary is replaced by,
its opposite: without it every row has the same known sum, and with it some are the whole sensitivity away.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix import _validate
from privmix.accounting.tradeoff import Array
from privmix.auditing import likelihood
from privmix.mechanism import (
    AdaptiveConfig,
    HybridConfig,
    MixtureConfig,
    ReleaseConfig,
    ResidualConfig,
    joint_noise_multiplier,
)
from privmix.mixer import Rows
from privmix.records.binding import bound_records
from privmix.records.bounded import BoundedRecords
from privmix.schema import Schema

NUM_EMPTY_AXES = 4
MOST_CANARIES = 64  # in one run
_BACKGROUND = 4  # expected records without features in a row: it is never known how many there are
_MOST_BACKGROUND = 20_000
_MOST_BYTES = 1 << 30  # of the features of all records, as doubles

Tables = Sequence[Rows]  # the rows of each table of a release, all its blocks together


def most_canaries(mechanism: ReleaseConfig) -> int:
    """Largest number of canaries in one run."""
    if mechanism.design == "uniform":
        return 1
    return 16 if mechanism.design in ("hierarchical", "adaptive") else MOST_CANARIES


@dataclass(frozen=True)
class CanarySet:
    """Canaries for a mechanism, and the mechanism scaled down to them.

    Attributes:
        mechanism: The mechanism as it is run: the plan's sampling probabilities, noise multipliers, rows
            and rounds, for as many features and classes as there are canaries and few records.
        clip_norm: Of the features.
        num_canaries: Canaries, A; the classes are theirs (two each under replace_one), and one more.

    """

    mechanism: ReleaseConfig
    clip_norm: float
    num_canaries: int

    @classmethod
    def of(cls, mechanism: ReleaseConfig, clip_norm: float, num_canaries: int) -> CanarySet:
        """Scale a mechanism down to ``num_canaries`` features and their classes."""
        config: ReleaseConfig
        if isinstance(mechanism, HybridConfig | AdaptiveConfig):
            parts = tuple(_scaled(component, num_canaries) for component in mechanism.components)
            kind: Any = type(mechanism)
            config = kind(components=parts, feature_budget=mechanism.feature_budget)
        else:
            scaled = _scaled(mechanism, num_canaries)
            assert isinstance(scaled, MixtureConfig)
            config = scaled
        return cls(config, clip_norm, num_canaries)

    @property
    def schema(self) -> Schema:
        """The public facts of the records that are mixed."""
        return Schema(
            classes=tuple(range(self.mechanism.num_classes)),
            num_features=self.mechanism.num_features,
            num_records=self.mechanism.num_records,
            feature_clip_norm=self.clip_norm,
        )

    @property
    def is_replaced(self) -> bool:
        """Whether canaries are exchanged for others instead of coming and going."""
        return self.mechanism.neighboring_relation == "replace_one"

    @property
    def _configs(self) -> Sequence[MixtureConfig | ResidualConfig]:
        configs: Sequence[MixtureConfig | ResidualConfig] = self.mechanism.components
        return configs

    @cached_property
    def crowd(self) -> int:
        """Records without features in each canary's class."""
        config = self.mechanism.components[0]
        if config.design == "stratified":
            if config.sampling_prob == 1.0:
                return _BACKGROUND
            return min(_MOST_BACKGROUND, math.ceil(_BACKGROUND / config.sampling_prob))
        if config.design == "hierarchical":
            assert config.label_noise_multiplier is not None
            return likelihood.crowd_size(config.inclusion_prob, config.label_noise_multiplier)
        return 0

    @cached_property
    def _crowded_labels(self) -> likelihood.CrowdedLabels:
        config = self.mechanism.components[0]
        assert config.label_noise_multiplier is not None
        return likelihood.CrowdedLabels(
            self.crowd, config.inclusion_prob, config.label_noise_multiplier
        )

    @cached_property
    def _others(self) -> int:
        """Records without features in the last class."""
        config = self.mechanism.components[0]
        if config.design in ("stratified", "hierarchical", "uniform"):
            return 0
        return min(_MOST_BACKGROUND, math.ceil(_BACKGROUND / config.sampling_prob))

    @property
    def num_bytes(self) -> int:
        """Bytes of the features of all records, as doubles."""
        count, config = self.num_canaries, self.mechanism.components[0]
        opposites = config.num_records - 1 if config.design == "uniform" else 0
        known = (2 if self.is_replaced else 1) * count + opposites
        return 8 * (known + count * self.crowd + self._others) * self.mechanism.num_features

    def check_size(self) -> None:
        """Refuse canaries whose crowds, of all classes together, are too large to be made."""
        if self.num_bytes <= _MOST_BYTES:
            return
        fits, beyond = 0, self.num_canaries
        while beyond - fits > 1:
            middle = (fits + beyond) // 2
            fewer = self.of(self.mechanism, self.clip_norm, middle)
            fits, beyond = (middle, beyond) if fewer.num_bytes <= _MOST_BYTES else (fits, middle)
        if not fits:
            allowed = "a design whose classes are told apart by fewer records"
            _validate.fail("plan", allowed, f"{self.crowd} for each canary")
        allowed = f"at most {fits}, with {self.crowd} records beside each"
        _validate.fail("num_canaries", allowed, self.num_canaries)

    @cached_property
    def _all_records(self) -> BoundedRecords:
        """All records: canaries there, canaries not there (replace_one), then all others."""
        count, width = self.num_canaries, self.mechanism.num_features
        ahead = np.eye(count, width) * self.clip_norm
        labels = [np.arange(count)]
        features = [ahead]
        if self.is_replaced:
            features.append(-ahead)
            labels.append(count + np.arange(count))
        config = self.mechanism.components[0]
        if config.design == "uniform":
            features.append(np.repeat(-ahead, config.num_records - 1, axis=0))
            labels.append(np.full(config.num_records - 1, count))
        labels.append(np.repeat(np.arange(count), self.crowd))
        labels.append(np.full(self._others, self.mechanism.num_classes - 1))
        whole, known = np.concatenate(labels), sum(map(len, features))
        features.append(np.zeros((len(whole) - known, width)))
        records = bound_records(np.concatenate(features), whole, self.schema, threads=1)
        assert isinstance(records, BoundedRecords)
        return records

    def records(self, present: NDArray[np.bool_]) -> BoundedRecords:
        """Return the data set in which some of the canaries are.

        Args:
            present: (A,) which canaries are there; under replace_one the others are their opposites: the
                negative vector, with another label.

        """
        everyone = self._all_records
        there = np.ones(everyone.count, dtype=bool)
        there[: self.num_canaries] = present
        if self.is_replaced:
            there[self.num_canaries : 2 * self.num_canaries] = ~present
        kept = {name: getattr(everyone, name)[there] for name in ("features", "labels", "blank")}
        return replace(everyone, **kept)

    def digest(self) -> str:
        """Return a SHA-256 of what is run: the mechanism and all records, hexadecimal."""
        text = f"{self.mechanism.model_dump_json()} {self.clip_norm!r} {self.num_canaries}"
        return hashlib.sha256(text.encode() + self._all_records.digest()).hexdigest()

    def scores(self, tables: Tables) -> Array:
        """Return the statistics of every canary, (A, 2): from published rows and public numbers alone.

        The first is the log likelihood ratio of all tables together, the second what the rows of one
        axis spread by; of a table of one row a class there is none.
        """
        total = np.zeros((self.num_canaries, 2))
        for config, rows in zip(self._configs, tables, strict=True):
            if isinstance(config, MixtureConfig):
                total[:, 0] += self._log_ratio(config, rows)
                total[:, 1] += self._spread(config, rows)
            else:
                total[:, 0] += self._rounds_log_ratio(config, rows)
        return total

    def noise(self, tables: Tables) -> list[Array]:
        """Return what was published on the empty axes, (rows, 4) a table, in noise multipliers."""
        return [
            _in_clip_norms(config, rows.features[:, self.num_canaries :], self.clip_norm)
            / (
                config.noise_multiplier
                if isinstance(config, ResidualConfig)
                else config.feature_noise_multiplier
            )
            for config, rows in zip(self._configs, tables, strict=True)
        ]

    def label_noise(self, tables: Tables, records: BoundedRecords) -> Array:
        """Return label weights of classes in which nobody is, of all tables, in noise multipliers, flat."""
        counts = np.bincount(records.labels, minlength=self.mechanism.num_classes)
        nobody = np.flatnonzero(counts == 0)
        found = [np.empty(0)]
        for config, rows in zip(self._configs, tables, strict=True):
            if rows.label_weights is not None:
                assert isinstance(config, MixtureConfig)
                assert config.label_noise_multiplier is not None
                weights = _in_clip_norms(config, rows.label_weights[:, nobody], 1.0)
                found.append(weights.ravel() / config.label_noise_multiplier)
        return np.concatenate(found)

    def grid_stddevs(self) -> list[float]:
        """Standard deviation of each table's noise in points of the grid that it is drawn on, at least."""
        sensitivity = self._all_records.feature_grid.sensitivity
        return [
            config.noise_stddev(sensitivity, "feature")  # of weighted sums more, on a finer grid
            if isinstance(config, MixtureConfig)
            else config.noise_stddev(sensitivity)
            for config in self._configs
        ]

    def _features(self, config: MixtureConfig, rows: Rows) -> Array:
        """Return the canaries' own axes, (rows, A), in clip norms; ``stratified``: of their own rows."""
        own = rows.features[:, : self.num_canaries]
        if config.rows_per_class is not None:
            by_class = own.reshape(config.num_classes, config.rows_per_class, -1)
            axes = np.arange(self.num_canaries)
            own = by_class[axes, :, axes].T
        return _in_clip_norms(config, own, self.clip_norm)

    def _spread(self, config: MixtureConfig, rows: Rows) -> Array:
        return likelihood.spread(self._features(config, rows))

    def _log_ratio(self, config: MixtureConfig, rows: Rows) -> Array:
        x, count = self._features(config, rows), self.num_canaries
        noise, prob = config.feature_noise_multiplier, config.inclusion_prob
        label_noise = config.label_noise_multiplier
        y = None
        if rows.label_weights is not None:
            y = _in_clip_norms(config, rows.label_weights, 1.0)
        if config.design == "signed":
            inner, square = x / noise**2, noise**-2
            if y is not None and label_noise is not None:
                inner, square = inner + y[:, :count] / label_noise**2, square + label_noise**-2
            return likelihood.sampled(likelihood.signed_log_ratio(inner, square), prob)
        there = likelihood.shift_log_ratio(x, noise)
        if config.design == "hierarchical":
            assert y is not None and label_noise is not None
            return self._crowded_labels.log_ratio(
                y[:, :count], there, config.least_class_prob, prob
            )
        if config.design == "uniform":
            ratio = likelihood.shift_log_ratio(x + config.mix_size, noise, 2.0)
            if y is not None and label_noise is not None:
                ratio = ratio + likelihood.shift_log_ratio(y[:, :1], label_noise)
                without = y[:, 1:2] - config.mix_size
                ratio = ratio + likelihood.shift_log_ratio(without, label_noise, -1.0)
            return likelihood.sampled(ratio, prob)
        ratios = [there]
        if self.is_replaced:
            ratios.append(likelihood.shift_log_ratio(-x, noise))
        if y is not None and label_noise is not None:
            for number in range(len(ratios)):
                own = y[:, number * count : (number + 1) * count]
                ratios[number] = ratios[number] + likelihood.shift_log_ratio(own, label_noise)
        if config.rows_per_record is not None:
            found = [likelihood.allocated(ratio, config.rows_per_record) for ratio in ratios]
        else:
            found = [likelihood.sampled(ratio, prob) for ratio in ratios]
        return found[0] - found[1] if self.is_replaced else found[0]

    def _rounds_log_ratio(self, config: ResidualConfig, rows: Rows) -> Array:
        """Return log ratios of rounds, taking a record's residuals to be as long as the clip norm.

        Their direction follows from the weights, which are published. On axes where nobody is, the noise
        along a direction that was known before it is independent of everything else, and a residual that
        is shorter only hides a canary: so canaries err at least as often as independent ones would.
        """
        assert rows.weights is not None
        shape = (config.num_rounds, config.num_classes, config.num_features)
        own = (slice(None), slice(None), slice(self.num_canaries))
        published = _in_clip_norms(config, rows.features, self.clip_norm).reshape(shape)[own]
        scores = rows.weights.astype(np.float64).reshape(shape)[own]
        scores -= scores.max(axis=1, keepdims=True)
        residuals = -np.exp(scores)
        residuals /= -residuals.sum(axis=1, keepdims=True)
        axes = np.arange(self.num_canaries)
        residuals[:, axes, axes] += 1.0
        towards = residuals / np.maximum(np.linalg.norm(residuals, axis=1, keepdims=True), 1e-12)
        along = (published * towards).sum(axis=1)
        return np.asarray(likelihood.shift_log_ratio(along, config.noise_multiplier).sum(axis=0))


def _in_clip_norms(
    config: MixtureConfig | ResidualConfig, published: NDArray[np.float32], clip_norm: float
) -> Array:
    """Turn published numbers into sums in what one record adds at most."""
    unit = clip_norm / config.divisor
    unit *= config.weight_bound if isinstance(config, MixtureConfig) else config.residual_clip_norm
    return np.asarray(published.astype(np.float64) / unit)


def _scaled(config: MixtureConfig | ResidualConfig, count: int) -> MixtureConfig | ResidualConfig:
    replaced = config.neighboring_relation == "replace_one"
    classes = (2 if replaced else 1) * count + 1
    changed: dict[str, Any] = {"num_features": count + NUM_EMPTY_AXES, "num_classes": classes}
    changed["target"] = "class"
    if isinstance(config, MixtureConfig) and isinstance(config.class_prob, tuple):
        # All canaries are of classes like the one that the guarantee is about.
        changed["class_prob"] = (config.least_class_prob,) * classes
    if isinstance(config, ResidualConfig):
        return ResidualConfig(**config.model_dump() | changed)
    changed["noise_multiplier"] = joint_noise_multiplier(
        config.feature_noise_multiplier, config.label_noise_multiplier, config.neighboring_relation
    )
    if config.rows_per_class is not None:
        changed["num_mixtures"] = config.rows_per_class * classes
        changed["mix_size"] = config.sampling_prob * config.num_records / classes
    elif config.design == "uniform":
        size = round(config.mix_size)
        shared = math.gcd(size, config.num_records)
        # The smallest data set of the same share, with enough records to be a crowd.
        times = min(shared, math.ceil(100 * shared / config.num_records))
        changed["mix_size"] = float(size // shared * times)
        changed["num_records"] = config.num_records // shared * times
    return MixtureConfig(**config.model_dump() | changed)
