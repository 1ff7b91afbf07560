"""One table of mixtures: its rows, who enters them, their noise, and what they cost."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.accounting import (
    AllocationGaussianEvent,
    EligibleGaussianEvent,
    Event,
    PoissonGaussianEvent,
    SignedGaussianEvent,
    UniformGaussianEvent,
)
from privmix.accounting.events import NeighboringRelation
from privmix.noise import MAX_STDDEV, noise_stddev
from privmix.records.bounded import shard_records
from privmix.sampling import WEIGHT_SCALE, RowBlock, row_blocks
from privmix.schema import Target

MixtureDesign = Literal["poisson", "signed", "stratified", "hierarchical", "uniform", "transposed"]
Design = Literal[
    "poisson", "signed", "stratified", "hybrid", "adaptive", "hierarchical", "uniform", "transposed"
]
DESIGNS: tuple[Design, ...] = (
    "poisson",
    "signed",
    "stratified",
    "hybrid",
    "adaptive",
    "hierarchical",
    "uniform",
    "transposed",
)

# Large enough that rows of a block share records in the cache, enough of them for many threads, and
# small enough that the draws of a block are few beside its sums.
_BLOCK_BYTES = 16 << 20
_BLOCK_RECORDS = 1 << 22
_NUM_BLOCKS, _FEW_ROWS = 24, 256
# Designs that keep the records of each class apart: a record must have one class.
_CLASS_DESIGNS = ("stratified", "hybrid", "hierarchical")


def squared_change(relation: NeighboringRelation, target: Target = "class") -> tuple[float, float]:
    """What one record can change of a feature sum and of a label sum, squared, in clip norms.

    A record comes or goes, (1, 1); or its vectors are replaced by others of no larger norm C. Then
    features move by at most 2 C, from x to -x, and so do ``regression`` labels. Other labels y, y'
    have no negative entries, so that their inner product is not negative and
    ||y - y'||^2 <= ||y||^2 + ||y'||^2 <= 2 C^2.
    """
    if relation == "add_or_remove_one":
        return 1.0, 1.0
    return 4.0, 4.0 if target == "regression" else 2.0


def joint_noise_multiplier(
    feature: float,
    label: float | None,
    relation: NeighboringRelation = "add_or_remove_one",
    target: Target = "class",
) -> float:
    """Combine feature and label noise multipliers.

    1/s^2 = 1/s_x^2 + 1/s_y^2 under add_or_remove_one: in units of each side's noise, one record
    moves a row by the vector (x / (s_x C_x), y / (s_y C_y)), whose squared norm is at most that
    sum. Under replace_one, x may become -x and y another label: 1/s^2 = 4/s_x^2 + 2/s_y^2, and
    4/s_x^2 + 4/s_y^2 for ``regression`` (see :func:`squared_change`). ``None`` stands for labels
    that are public or absent: they cost nothing.

    Example:
        >>> from privmix.mechanism import joint_noise_multiplier
        >>> round(joint_noise_multiplier(3.0, 4.0), 6)  # 1 / hypot(1/3, 1/4)
        2.4
        >>> joint_noise_multiplier(3.0, None)
        3.0

    """
    feature_change, label_change = squared_change(relation, target)
    label_part = 0.0 if label is None else label_change / label**2
    return 1 / math.sqrt(feature_change / feature**2 + label_part)


def split_noise_multiplier(
    joint: float,
    label_balance: float | None,
    relation: NeighboringRelation = "add_or_remove_one",
    target: Target = "class",
) -> tuple[float, float | None]:
    """Split a joint noise multiplier into (feature, label) with label = label_balance * feature.

    Without a balance there is no label noise.
    """
    feature_change, label_change = squared_change(relation, target)
    if label_balance is None:
        return joint * math.sqrt(feature_change), None
    feature = joint * math.sqrt(feature_change + label_change / label_balance**2)
    return feature, label_balance * feature


def admits(design: str, target: Target) -> bool:
    """Whether a design can mix labels of this kind."""
    return target == "class" or design not in _CLASS_DESIGNS


def check_target(design: Design, target: Target, num_classes: int) -> None:
    """Refuse a design that does not admit such labels, and too few classes or outputs."""
    if not admits(design, target):
        others = ", ".join(name for name in DESIGNS if name not in _CLASS_DESIGNS)
        _validate.fail("design", f"{others} for target {target}: labels are no classes", design)
    _validate.size("num_classes", num_classes, at_least=1 if target == "regression" else 2)


class MixtureConfig(FrozenModel):
    """One table of mixtures.

    Attributes:
        design: How records enter rows.
        num_records: Planning constant n (``uniform``: the exact and public number).
        num_classes: K; the number of outputs for ``regression``.
        num_features: d.
        num_mixtures: Number of rows T published.
        sampling_prob: Probability that a record enters a row (``stratified``: a row of its class).
        mix_size: Planned number of records in a row: sampling_prob * num_records, over num_classes
            as well for ``stratified``; exact for ``uniform``. Rows are divided by it, unless they
            have random weights.
        noise_multiplier: Joint noise multiplier of features and labels.
        feature_noise_multiplier: Noise stddev of the feature sums in clip norms (times weight_clip
            where there are random weights).
        label_noise_multiplier: The same of the label sums; None where labels are public by
            construction (``stratified``) or absent.
        neighboring_relation: What the guarantee compares: data sets that differ by the presence of
            one record, or by one record's value.
        class_prob: ``hierarchical``: share of rows that a class is eligible for; or K of them, one for
            each class, in the order of the schema's classes.
        eligibility: ``hierarchical``: ``balanced``, every class eligible for the same number of
            rows, or ``random``, by independent coins; the latter only with K values of class_prob.
        rows_per_record: ``transposed``: number of rows that a record enters.
        weight_alpha: ``uniform``: concentration of Dirichlet weights, or None for equal ones.
        weight_clip: ``uniform``: upper bound on a weight.
        target: What labels are, as the schema states it; it decides how far one record's label can
            be from another's.

    """

    _omitted_if_default: ClassVar[tuple[str, ...]] = ("target",)

    design: MixtureDesign
    num_records: int
    num_classes: int
    num_features: int
    num_mixtures: int
    sampling_prob: float
    mix_size: float
    noise_multiplier: float
    feature_noise_multiplier: float
    label_noise_multiplier: float | None
    neighboring_relation: NeighboringRelation = "add_or_remove_one"
    class_prob: float | tuple[float, ...] | None = None
    eligibility: Literal["balanced", "random"] | None = None
    rows_per_record: int | None = None
    weight_alpha: float | None = None
    weight_clip: float | None = None
    target: Target = "class"

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("num_records", "num_features", "num_mixtures"):
            _validate.size(name, getattr(self, name))
        check_target(self.design, self.target, self.num_classes)
        _validate.probability("sampling_prob", self.sampling_prob)
        smallest = _validate.SMALLEST_MIX_SIZE
        _validate.real("mix_size", self.mix_size, at_least=smallest, at_most=self.num_records)
        for name in ("noise_multiplier", "feature_noise_multiplier", "label_noise_multiplier"):
            if (value := getattr(self, name)) is not None:
                _validate.real(name, value, above=0.0)
        self._check_design()
        group = self.num_records / (self.num_classes if self.design == "stratified" else 1)
        self._check_derived("mix_size", self.sampling_prob * group)
        self._check_derived("noise_multiplier", self._joint)
        return self

    def check_noise_range(self) -> None:
        """Refuse noise beyond what the sampler draws; calibration may pass such values on its way."""
        largest = MAX_STDDEV / (2**16 * (1 if self.weight_clip is None else WEIGHT_SCALE))
        for name in ("feature_noise_multiplier", "label_noise_multiplier"):
            if (value := getattr(self, name)) is not None:
                _validate.real(name, value, above=0.0, at_most=largest)

    def _check_design(self) -> None:
        """Check what only some designs have: it must be there for them and for no other."""
        own: dict[str, tuple[str, ...]] = {
            "hierarchical": ("class_prob", "eligibility"),
            "transposed": ("rows_per_record",),
        }
        for design, names in own.items():
            for name in names:
                if (getattr(self, name) is None) == (self.design == design):
                    need = "a value" if self.design == design else f"nothing for {self.design}"
                    _validate.fail(name, need, getattr(self, name))
        if (self.weight_alpha is None) != (self.weight_clip is None):
            _validate.fail("weight_clip", "given with weight_alpha, or neither", self.weight_clip)
        if self.weight_clip is not None:
            if self.design != "uniform":
                _validate.fail("weight_clip", f"nothing for {self.design}", self.weight_clip)
            _validate.real("weight_alpha", self.weight_alpha, above=0.0)
            _validate.real("weight_clip", self.weight_clip, at_least=1 / WEIGHT_SCALE, at_most=1.0)
        self._check_relation()
        if self.design == "stratified":
            if self.label_noise_multiplier is not None:
                _validate.fail(
                    "label_noise_multiplier",
                    "nothing for public labels",
                    self.label_noise_multiplier,
                )
            if self.num_mixtures % self.num_classes:
                allowed = f"a multiple of num_classes = {self.num_classes}"
                _validate.fail("num_mixtures", allowed, self.num_mixtures)
        if self.class_prob is not None:
            self._check_class_prob(self.class_prob)
        if self.rows_per_record is not None:
            _validate.integer("rows_per_record", self.rows_per_record, at_most=self.num_mixtures)
            self._check_derived("sampling_prob", self.rows_per_record / self.num_mixtures)
        if self.design == "uniform" and self.mix_size != round(self.mix_size):
            _validate.fail("mix_size", "an integer for uniform", self.mix_size)

    def _check_class_prob(self, given: float | tuple[float, ...]) -> None:
        """Refuse probabilities with which a record could not enter often enough, or too few of them."""
        if isinstance(given, tuple):
            if len(given) != self.num_classes:
                allowed = f"one probability, or {self.num_classes}: one for each class"
                _validate.fail("class_prob", allowed, f"{len(given)} of them")
            # Rows of a class are then as many as its probability says: no one class is the worst at
            # every delta, and no event says "the worst of these". With coins one class is.
            _validate.one_of(
                "eligibility with a class_prob for each class", self.eligibility, ("random",)
            )
        for prob in given if isinstance(given, tuple) else (given,):
            _validate.real("class_prob", prob, at_least=self.sampling_prob, at_most=1.0)

    def _check_relation(self) -> None:
        allowed: tuple[str, ...] = {
            "uniform": ("replace_one",),
            "transposed": ("add_or_remove_one", "replace_one"),
        }.get(self.design, ("add_or_remove_one",))
        _validate.one_of(
            f"neighboring_relation of {self.design}", self.neighboring_relation, allowed
        )

    def _check_derived(self, name: str, expected: float) -> None:
        value = getattr(self, name)
        if not math.isclose(value, expected, rel_tol=1e-9):
            _validate.fail(name, f"{expected!r}, which follows from the other fields", value)

    @property
    def _joint(self) -> float:
        return joint_noise_multiplier(
            self.feature_noise_multiplier,
            self.label_noise_multiplier,
            self.neighboring_relation,
            self.target,
        )

    @property
    def labels(self) -> Literal["mixed", "public", "absent"]:
        """Whether rows carry noisy label weights, the class they belong to, or no label."""
        if self.design == "stratified":
            return "public"
        return "absent" if self.label_noise_multiplier is None else "mixed"

    @property
    def rows_per_class(self) -> int | None:
        """Rows of each class (``stratified``), or None."""
        return self.num_mixtures // self.num_classes if self.design == "stratified" else None

    @property
    def eligible_rows(self) -> int | None:
        """Rows that each class is eligible for (balanced ``hierarchical``), or None."""
        if self.eligibility != "balanced" or not isinstance(self.class_prob, float):
            return None
        return max(1, round(self.class_prob * self.num_mixtures))

    @property
    def inclusion_prob(self) -> float:
        """Probability that a record enters a row it may enter; the largest where classes differ."""
        if self.eligible_rows is not None:
            # The share of eligible rows is a whole number of rows, so that mix_size is kept.
            return min(1.0, self.sampling_prob * self.num_mixtures / self.eligible_rows)
        return self.sampling_prob / self.least_class_prob

    def inclusion_prob_of(self, class_index: int) -> float:
        """Probability that a record of a class enters a row it may enter."""
        if isinstance(self.class_prob, tuple):
            return self.sampling_prob / self.class_prob[class_index]
        return self.inclusion_prob

    @property
    def least_class_prob(self) -> float:
        """Share of rows that the class is eligible for that has the smallest; 1 for other designs."""
        if isinstance(self.class_prob, tuple):
            return min(self.class_prob)
        return 1.0 if self.class_prob is None else self.class_prob

    @property
    def _eligible_event(self) -> EligibleGaussianEvent:
        """What coins with known outcomes cost the record whose class is open least often.

        Write (p, b) for the pair of distributions that bounds one row: a known coin of probability p
        opens the row to the record's class, and there Q = N(0, s^2) stands for its absence,
        P = (1-b) N(0, s^2) + b N(1, s^2) for its presence; where the row is closed, both are Q.

        Theorem. Let b <= b' and p b <= p' b'. Then (p', b') dominates (p, b). Proof: let r = b / b'.
        Where the coin of (p, b) falls open, toss a second one of probability r, and let the record
        enter with b' if that one falls open, and else not: it enters with r b' = b, so that (p, b) is
        this pair with the second coin hidden. Both fall open with probability p r <= p'. So both
        sides come from those of (p', b') by one and the same random map, which does not know whether
        the record is there: an open row is kept with probability p r / p', all others are drawn
        anew from Q, and the two coins are drawn to fit.

        Here p b is sampling_prob for every class: the smallest p, with the largest b, dominates, at
        every delta, in both directions, over all rows, and composed with anything. (NeuroMixGDP's
        Prop. E.3 takes a maximum over classes as well, of p b without the coin: no guarantee.) b is
        rounded; p is raised by more than rounding can make p b of another class the larger.
        """
        prob = self.least_class_prob
        if isinstance(self.class_prob, tuple):
            prob = min(1.0, prob * (1 + 2**-50))
        return EligibleGaussianEvent(
            eligible_prob=prob,
            sampling_prob=self.inclusion_prob,
            noise_multiplier=self._joint,
            count=self.num_mixtures,
        )

    @property
    def event(self) -> Event:
        """What the release does, as the accountants see it; see docs/theory/notation.md.

        ``stratified``: a record enters only rows of its own class, so one record's presence is
        seen by rows_per_class rows. ``hierarchical``: which classes a row is open to is treated as
        published. ``transposed``: the rows that a record enters stay secret (random allocation).
        """
        noise = self._joint
        if self.design == "transposed":
            assert self.rows_per_record is not None
            replaced = self.neighboring_relation == "replace_one"
            presence = joint_noise_multiplier(
                self.feature_noise_multiplier, self.label_noise_multiplier
            )
            return AllocationGaussianEvent(
                num_rows=self.num_mixtures,
                rows_per_record=self.rows_per_record,
                noise_multiplier=noise,
                presence_noise_multiplier=presence if replaced else None,
                neighboring_relation=self.neighboring_relation,
            )
        if self.design == "uniform":
            return UniformGaussianEvent(
                num_records=self.num_records,
                mix_size=round(self.mix_size),
                noise_multiplier=noise,
                count=self.num_mixtures,
            )
        if self.eligibility == "random":
            return self._eligible_event
        kind = SignedGaussianEvent if self.design == "signed" else PoissonGaussianEvent
        return kind(
            sampling_prob=self.inclusion_prob,
            noise_multiplier=noise,
            count=self.rows_per_class or self.eligible_rows or self.num_mixtures,
        )

    @property
    def claimed_event(self) -> Event | None:
        """What NeuroMixGDP's Prop. E.3 takes ``hierarchical`` for: NOT a guarantee."""
        if self.design != "hierarchical":
            return None
        return PoissonGaussianEvent(
            sampling_prob=self.sampling_prob, noise_multiplier=self._joint, count=self.num_mixtures
        )

    @property
    def components(self) -> tuple[MixtureConfig, ...]:
        """The tables of the release: this one."""
        return (self,)

    @property
    def weight_bound(self) -> float:
        """Largest weight of a record in a row, as drawn."""
        if self.weight_clip is None:
            return 1.0
        return math.floor(self.weight_clip * WEIGHT_SCALE) / WEIGHT_SCALE

    @property
    def divisor(self) -> float:
        """What sums are divided by: mix_size, or 1 where random weights add up to about 1."""
        return self.mix_size if self.weight_clip is None else 1.0

    def noise_stddev(self, sensitivity: float, side: Literal["feature", "label"]) -> float:
        """Noise stddev of the sums of vectors of norm at most ``sensitivity``, in its units."""
        return noise_stddev(self._multiplier(side), sensitivity * self.weight_bound)

    def published_stddev(self, clip_norm: float, side: Literal["feature", "label"]) -> float:
        """Noise stddev of a published number, in the units of ``clip_norm``."""
        return self._multiplier(side) * clip_norm * self.weight_bound / self.divisor

    def _multiplier(self, side: Literal["feature", "label"]) -> float:
        if side == "feature":
            return self.feature_noise_multiplier
        if self.label_noise_multiplier is None:
            raise ValueError("these rows have no label noise")
        return self.label_noise_multiplier

    @property
    def weight_unit(self) -> float:
        """Grid points that stand for a weight of 1 of a record in a row."""
        return 1.0 if self.weight_clip is None else float(WEIGHT_SCALE)

    @property
    def row_width(self) -> int:
        """Published numbers per row that carry noise."""
        return self.num_features + (self.num_classes if self.labels == "mixed" else 0)

    @property
    def block_rows(self) -> int:
        """Rows of a block at most; it depends on public sizes only."""
        most = min(_BLOCK_BYTES // (4 * self.row_width), int(_BLOCK_RECORDS / self.mix_size))
        most = min(most, max(_FEW_ROWS, self.num_mixtures // _NUM_BLOCKS))
        return 1 << max(4, min(12, most.bit_length() - 1))

    @property
    def blocks(self) -> list[RowBlock]:
        """The layout of the rows."""
        return row_blocks(self.num_mixtures, self.block_rows, self.rows_per_class)

    @property
    def longest_block(self) -> int:
        """Rows of the longest block, found without a list of all."""
        return min(self.block_rows, self.rows_per_class or self.num_mixtures)

    @property
    def shard_records(self) -> int:
        """Records that are sampled under one key."""
        return shard_records(self.num_features)


def mixture_config(
    layout: dict[str, Any], noise_multiplier: float, label_balance: float | None
) -> MixtureConfig:
    """Complete a layout (everything but the noise) by a joint noise multiplier."""
    if layout["design"] == "stratified":
        label_balance = None
    elif label_balance is not None:
        _validate.real("label_balance", label_balance, above=0.0)
    relation = layout.get("neighboring_relation", "add_or_remove_one")
    target = layout.get("target", "class")
    feature, label = split_noise_multiplier(noise_multiplier, label_balance, relation, target)
    return MixtureConfig(
        **layout,
        noise_multiplier=joint_noise_multiplier(feature, label, relation, target),
        feature_noise_multiplier=feature,
        label_noise_multiplier=label,
    )
