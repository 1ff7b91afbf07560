"""Plans of releases: every number fixed in advance, without a look at the data.

One :class:`ReleaseConfig` yields the row layout, the inclusion probability, the noise and the
accounting event, so that they cannot disagree.
"""

from __future__ import annotations

import hashlib
import math
import os
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.accounting import (
    Event,
    PoissonGaussianEvent,
    Reading,
    account,
    calibrate_noise_multiplier,
)
from privmix.designs import RowBlock, row_blocks
from privmix.noise import MAX_STDDEV
from privmix.schema import Schema

Design = Literal["poisson", "stratified"]
DESIGNS: tuple[Design, ...] = ("poisson", "stratified")

# The noise drawn is this much larger than the noise accounted for, so that no rounding of a
# double on the way makes it smaller.
_ROUNDING_ALLOWANCE = 1 + 1e-12
_MANY_CLASSES = 50
_SHARD_RECORDS = 1 << 16
_BLOCK_BYTES = 4 << 20


def joint_noise_multiplier(feature: float, label: float | None) -> float:
    """Combine feature and label noise multipliers under add_or_remove_one.

    1/s^2 = 1/s_x^2 + 1/s_y^2: in units of each part's noise, one record moves the row by the
    vector (x / (s_x C_x), y / (s_y C_y)), whose squared norm is at most that sum. ``None`` stands
    for public labels, which cost nothing.
    """
    if label is None:
        return feature
    return 1 / math.sqrt(1 / feature**2 + 1 / label**2)


def split_noise_multiplier(joint: float, label_balance: float) -> tuple[float, float]:
    """Split a joint noise multiplier into (feature, label) with label = label_balance * feature."""
    feature = joint * math.sqrt(1 + 1 / label_balance**2)
    return feature, label_balance * feature


class ReleaseConfig(FrozenModel):
    """The mechanism of a release, all of it public.

    Attributes:
        design: How records enter rows.
        num_records: Planning constant n.
        num_classes: K.
        num_features: d.
        num_mixtures: Number of rows T published.
        sampling_prob: Probability that a record enters a row (``stratified``: a row of its class).
        mix_size: Public divisor of a row: sampling_prob * num_records (``poisson``), over
            num_classes as well (``stratified``).
        noise_multiplier: Joint noise multiplier of features and labels.
        feature_noise_multiplier: Noise stddev of the feature sums in clip norms.
        label_noise_multiplier: Noise stddev of the label sums in clip norms; None where labels
            are public by construction.
        neighboring_relation: What the guarantee compares: data sets that differ by the presence
            of one record.

    """

    model_config = ConfigDict(populate_by_name=True)

    format_version: Literal[1] = 1
    design: Design
    num_records: int
    num_classes: int
    num_features: int
    num_mixtures: int
    sampling_prob: float
    mix_size: float
    noise_multiplier: float
    feature_noise_multiplier: float
    label_noise_multiplier: float | None
    neighboring_relation: Literal["add_or_remove_one"] = "add_or_remove_one"

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("num_records", "num_features", "num_mixtures"):
            _validate.integer(name, getattr(self, name))
        _validate.integer("num_classes", self.num_classes, at_least=2)
        _validate.probability("sampling_prob", self.sampling_prob)
        _validate.real("mix_size", self.mix_size, above=0.0, at_most=self.num_records)
        largest = MAX_STDDEV / 2**16
        for name in ("noise_multiplier", "feature_noise_multiplier", "label_noise_multiplier"):
            if (value := getattr(self, name)) is not None:
                _validate.real(name, value, above=0.0, at_most=largest)
        stratified = self.design == "stratified"
        if stratified != (self.label_noise_multiplier is None):
            _validate.fail(
                "label_noise_multiplier",
                "none for stratified, whose labels are public, and a number for other designs",
                self.label_noise_multiplier,
            )
        if stratified and self.num_mixtures % self.num_classes:
            _validate.fail(
                "num_mixtures", f"a multiple of num_classes = {self.num_classes}", self.num_mixtures
            )
        self._check_derived("mix_size", self.sampling_prob * self._group_records)
        self._check_derived(
            "noise_multiplier",
            joint_noise_multiplier(self.feature_noise_multiplier, self.label_noise_multiplier),
        )
        return self

    def _check_derived(self, name: str, expected: float) -> None:
        value = getattr(self, name)
        if not math.isclose(value, expected, rel_tol=1e-9):
            _validate.fail(name, f"{expected!r}, which follows from the other fields", value)

    @property
    def _group_records(self) -> float:
        """Planned number of records that may enter a row."""
        return self.num_records / (self.num_classes if self.design == "stratified" else 1)

    @property
    def rows_per_class(self) -> int | None:
        """Rows of each class (``stratified``), or None."""
        return self.num_mixtures // self.num_classes if self.design == "stratified" else None

    @property
    def event(self) -> Event:
        """What the release does, as the accountants see it.

        ``stratified``: a record enters only rows of its own class, so one record's presence is
        seen by rows_per_class rows.
        """
        joint = joint_noise_multiplier(self.feature_noise_multiplier, self.label_noise_multiplier)
        return PoissonGaussianEvent(
            sampling_prob=self.sampling_prob,
            noise_multiplier=joint,
            count=self.rows_per_class or self.num_mixtures,
        )

    def feature_noise(self, sensitivity: float) -> float:
        """Noise stddev of feature sums whose per-record norm is at most ``sensitivity``."""
        return self.feature_noise_multiplier * sensitivity * _ROUNDING_ALLOWANCE

    def label_noise(self, sensitivity: float) -> float | None:
        """Noise stddev of label sums whose per-record norm is at most ``sensitivity``."""
        if self.label_noise_multiplier is None:
            return None
        return self.label_noise_multiplier * sensitivity * _ROUNDING_ALLOWANCE

    @property
    def row_width(self) -> int:
        """Published numbers per row that carry noise."""
        labels = 0 if self.label_noise_multiplier is None else self.num_classes
        return self.num_features + labels

    @property
    def blocks(self) -> list[RowBlock]:
        """The layout of the rows; it depends on public sizes only."""
        block_rows = 1 << max(4, min(12, (_BLOCK_BYTES // (4 * self.row_width)).bit_length() - 1))
        return row_blocks(self.num_mixtures, block_rows, self.rows_per_class)

    @property
    def shard_records(self) -> int:
        """Records that are sampled under one key."""
        return _SHARD_RECORDS


class ReleasePlan(ReleaseConfig):
    """A mechanism with its guarantee and its cost, ready for ``privmix.release``.

    Attributes:
        epsilon: Certified privacy loss at ``delta``.
        delta: The delta asked for.
        accountants: What each accountant says.
        peak_memory_bytes: Expected peak memory of the release, input arrays included.
        disk_bytes: Expected size of the release folder.
        data_schema: The schema (``schema`` in JSON); None for a plan made from sizes alone,
            which cannot be released.

    """

    epsilon: float
    delta: float
    accountants: dict[str, Reading | None]
    peak_memory_bytes: int
    disk_bytes: int
    data_schema: Schema | None = Field(default=None, alias="schema")

    @model_validator(mode="after")
    def _check_plan(self) -> Self:
        _validate.delta("delta", self.delta)
        if (schema := self.data_schema) is not None:
            for name in ("num_records", "num_classes", "num_features"):
                if getattr(schema, name) != getattr(self, name):
                    _validate.fail(
                        f"schema.{name}",
                        f"{getattr(self, name)}, as planned",
                        getattr(schema, name),
                    )
        return self

    @classmethod
    def for_config(
        cls, config: ReleaseConfig, delta: float, schema: Schema | None = None
    ) -> ReleasePlan:
        """Account for a mechanism and estimate its cost."""
        accounting = account(config.event, delta)
        return cls(
            **config.model_dump(),
            epsilon=accounting.epsilon,
            delta=delta,
            accountants=accounting.accountants,
            peak_memory_bytes=_peak_memory_bytes(config),
            disk_bytes=_disk_bytes(config),
            data_schema=schema,
        )

    def to_json(self) -> str:
        """Return the plan as JSON, as ``privmix release --plan`` reads it."""
        return self.model_dump_json(by_alias=True, indent=2)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return self.model_dump(by_alias=True, mode="json")

    def digest(self) -> bytes:
        """Return a SHA-256 of the mechanism and the schema; it binds the keys of a release."""
        text = self.model_dump_json(
            by_alias=True, exclude={"accountants", "peak_memory_bytes", "disk_bytes"}
        )
        return hashlib.sha256(b"privmix plan 1" + text.encode()).digest()


def plan_release(
    schema: Schema,
    *,
    target_epsilon: float,
    target_delta: float,
    design: Design | None = None,
    mix_size: float | None = None,
    num_mixtures: int | None = None,
    sampling_prob: float | None = None,
    rows_per_class: int | None = None,
    label_balance: float = math.sqrt(2),
) -> ReleasePlan:
    """Plan a release that costs at most (``target_epsilon``, ``target_delta``). Sees no data.

    Args:
        schema: The public facts.
        target_epsilon: Largest epsilon allowed, above 0.
        target_delta: Its delta, in (0, 1).
        design: ``poisson`` or ``stratified``; by default ``stratified`` for 50 classes and more.
        mix_size: ``poisson``: planned number of records in a row; 64 by default.
        num_mixtures: ``poisson``: number of rows; ``schema.num_records`` by default.
        sampling_prob: ``stratified``: probability that a record enters a row of its class; 0.5 by
            default.
        rows_per_class: ``stratified``: rows of each class; 100 by default.
        label_balance: ``poisson``: label over feature noise multiplier.

    Returns:
        A plan whose certified epsilon is at or below the target.

    Raises:
        InvalidInputError: An argument out of range, or one that the design does not have.

    """
    sizes = {name: getattr(schema, name) for name in ("num_records", "num_classes", "num_features")}
    layout = plan_layout(
        **sizes,
        design=design,
        mix_size=mix_size,
        num_mixtures=num_mixtures,
        sampling_prob=sampling_prob,
        rows_per_class=rows_per_class,
    )
    config = calibrate_config(
        layout,
        target_epsilon=_validate.real("target_epsilon", target_epsilon, above=0.0),
        target_delta=_validate.delta("target_delta", target_delta),
        label_balance=label_balance,
    )
    plan = ReleasePlan.for_config(config, target_delta, schema)
    if plan.epsilon > target_epsilon:
        raise AssertionError("calibration must land at or below its target")
    return plan


def plan_layout(
    *,
    num_records: int,
    num_classes: int,
    num_features: int,
    design: Design | None = None,
    mix_size: float | None = None,
    num_mixtures: int | None = None,
    sampling_prob: float | None = None,
    rows_per_class: int | None = None,
) -> dict[str, Any]:
    """Fill in the parts of a :class:`ReleaseConfig` other than its noise; see ``plan_release``."""
    _validate.integer("num_records", num_records)
    _validate.integer("num_classes", num_classes, at_least=2)
    _validate.integer("num_features", num_features)
    if design is None:
        design = "stratified" if num_classes >= _MANY_CLASSES else "poisson"
    _validate.one_of("design", design, DESIGNS)
    own = {
        "poisson": ("mix_size", "num_mixtures"),
        "stratified": ("sampling_prob", "rows_per_class"),
    }
    given = {
        "mix_size": mix_size,
        "num_mixtures": num_mixtures,
        "sampling_prob": sampling_prob,
        "rows_per_class": rows_per_class,
    }
    for name, value in given.items():
        if value is not None and name not in own[design]:
            _validate.fail(
                name, f"nothing for design {design}, which is set by {own[design]}", value
            )
    if design == "poisson":
        mixtures = (
            num_records if num_mixtures is None else _validate.integer("num_mixtures", num_mixtures)
        )
        size = min(64.0, num_records) if mix_size is None else mix_size
        size = _validate.real("mix_size", size, above=0.0, at_most=num_records)
        prob = size / num_records
    else:
        prob = _validate.probability(
            "sampling_prob", 0.5 if sampling_prob is None else sampling_prob
        )
        rows = (
            100 if rows_per_class is None else _validate.integer("rows_per_class", rows_per_class)
        )
        mixtures = rows * num_classes
        size = prob * num_records / num_classes
    return {
        "design": design,
        "num_records": num_records,
        "num_classes": num_classes,
        "num_features": num_features,
        "num_mixtures": mixtures,
        "sampling_prob": prob,
        "mix_size": size,
    }


def calibrate_config(
    layout: dict[str, Any], *, target_epsilon: float, target_delta: float, label_balance: float
) -> ReleaseConfig:
    """Give a layout the least noise that keeps it at or below the target."""
    config = config_with_noise(layout, 1.0, label_balance)
    joint = calibrate_noise_multiplier(
        lambda s: config_with_noise(layout, s, label_balance).event, target_epsilon, target_delta
    )
    config = config_with_noise(layout, joint, label_balance)
    # Splitting and joining again may round the joint multiplier down by a few units in its last
    # place; what counts is the event of the configuration itself.
    while account(config.event, target_delta).epsilon > target_epsilon:
        joint *= 1 + 1e-9
        config = config_with_noise(layout, joint, label_balance)
    return config


def config_with_noise(
    layout: dict[str, Any], noise_multiplier: float, label_balance: float
) -> ReleaseConfig:
    """Complete a layout by a joint noise multiplier."""
    _validate.real("label_balance", label_balance, above=0.0)
    feature, label = noise_multiplier, None
    if layout["design"] != "stratified":
        feature, label = split_noise_multiplier(noise_multiplier, label_balance)
    return ReleaseConfig(
        **layout,
        noise_multiplier=joint_noise_multiplier(feature, label),
        feature_noise_multiplier=feature,
        label_noise_multiplier=label,
    )


def default_threads() -> int:
    """Number of threads a release uses: the processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _disk_bytes(config: ReleaseConfig) -> int:
    per_row = 4 * config.row_width + (8 if config.label_noise_multiplier is None else 0)
    return config.num_mixtures * per_row + (64 << 10)


def _peak_memory_bytes(config: ReleaseConfig) -> int:
    """Interpreter and libraries, the input as doubles with its quantised copy, blocks in flight."""
    block_rows = max(block.num_rows for block in config.blocks)
    # Per number of a block: sum and noise (int64 each), published value, Arrow copy, file buffer.
    per_block = block_rows * config.row_width * (8 + 8 + 4 + 4 + 4) + (2 << 20)
    inclusions = 16 * block_rows * math.ceil(config.mix_size)
    records = config.num_records * (config.num_features * (8 + 2) + 12)
    return (350 << 20) + records + (default_threads() + 2) * (per_block + inclusions)
