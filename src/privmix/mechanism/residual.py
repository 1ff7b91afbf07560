"""The rounds of design ``adaptive``: mixtures of all records, weighted by a public model's residuals."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.accounting import Event, GaussianEvent
from privmix.accounting.events import NeighboringRelation
from privmix.clipping import FixedPoint
from privmix.mechanism.mixtures import check_target
from privmix.noise import MAX_STDDEV, noise_stddev
from privmix.records.bounded import shard_records
from privmix.sampling import RowBlock, row_blocks
from privmix.schema import Target

Link = Literal["softmax", "sigmoid", "identity"]
LINKS: dict[Target, Link] = {
    "class": "softmax",
    "soft": "softmax",
    "multilabel": "sigmoid",
    "regression": "identity",
}
# Noise that the score of a record on the clip norm bears, by link.
_BORNE: dict[Link, float] = {"sigmoid": 1.0, "identity": 0.3}
MOST_ROUNDS = 1000
# What the sampler draws, of a sensitivity of at most 2^30 grid points.
LARGEST_ROUND_NOISE = MAX_STDDEV / 2**30 / (1 + 1e-9)


class ResidualConfig(FrozenModel):
    """J rounds of K rows: row k of a round is the sum of all records, weighted by their residuals.

    With W the round's public weights, a record x of class y has the residual r = e_y - softmax(W x),
    clipped to ``residual_clip_norm``, and adds r_k x to row k. Soft labels stand in e_y's place; several
    labels y have r = y - sigmoid(W x), and numbers, scaled to [-1, 1], r = y - W x. Whatever the link, a
    record's whole contribution to a round, r x', has a Frobenius norm of at most residual_clip_norm *
    clip norm, by the clipping alone. Rows are divided by ``num_records``. See ``docs/theory/adaptive.md``.

    Attributes:
        num_records: Planning constant n.
        num_classes: K.
        num_features: d.
        num_rounds: J.
        residual_clip_norm: L2 bound on a residual, at most 1.
        noise_multiplier: Noise stddev of a round over its sensitivity.
        learning_rate: Step of the public model along directions in which records do not vary, for
            features in clip norms.
        target: What labels are, as the schema states it; it decides the link between scores and labels.

    """

    _omitted_if_default: ClassVar[tuple[str, ...]] = ("target",)

    design: Literal["residual"] = "residual"
    num_records: int
    num_classes: int
    num_features: int
    num_rounds: int
    residual_clip_norm: float
    noise_multiplier: float
    learning_rate: float
    target: Target = "class"

    # What tables of mixtures have and these rows do not.
    label_noise_multiplier: ClassVar[None] = None
    rows_per_class: ClassVar[None] = None
    rows_per_record: ClassVar[None] = None
    weight_clip: ClassVar[None] = None
    labels: ClassVar[Literal["mixed", "public", "absent"]] = "public"
    neighboring_relation: ClassVar[NeighboringRelation] = "add_or_remove_one"
    sampling_prob: ClassVar[float] = 1.0
    inclusion_prob: ClassVar[float] = 1.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("num_records", "num_features"):
            _validate.integer(name, getattr(self, name))
        check_target("adaptive", self.target, self.num_classes)
        _validate.integer("num_rounds", self.num_rounds, at_most=MOST_ROUNDS)
        # Shorter residuals than this would vanish in the noise's own grid.
        _validate.real("residual_clip_norm", self.residual_clip_norm, at_least=1e-3, at_most=1.0)
        _validate.real("noise_multiplier", self.noise_multiplier, above=0.0)
        _validate.real("learning_rate", self.learning_rate, above=0.0, at_most=1e30)
        return self

    def check_noise_range(self) -> None:
        """Refuse noise beyond what the sampler draws; calibration may pass such values on its way."""
        noise = self.noise_multiplier
        _validate.real("noise_multiplier", noise, above=0.0, at_most=LARGEST_ROUND_NOISE)

    @property
    def event(self) -> Event:
        """J Gaussian mechanisms; each round's weights follow from what earlier rounds published."""
        return GaussianEvent(noise_multiplier=self.noise_multiplier, count=self.num_rounds)

    @property
    def num_mixtures(self) -> int:
        """Rows of all rounds."""
        return self.num_rounds * self.num_classes

    @property
    def mix_size(self) -> float:
        """Planned number of records in a row: all of them."""
        return float(self.num_records)

    @property
    def divisor(self) -> float:
        """What sums are divided by."""
        return float(self.num_records)

    @property
    def residual_grid(self) -> FixedPoint:
        """Grid and sensitivity of residuals."""
        return FixedPoint(self.residual_clip_norm)

    @property
    def weight_unit(self) -> float:
        """Grid points that stand for a weight of 1 of a record in a row."""
        return self.residual_grid.scale

    def noise_stddev(self, sensitivity: float) -> float:
        """Noise stddev of the sums of features of norm at most ``sensitivity``, in integers."""
        return noise_stddev(self.noise_multiplier, self.residual_grid.sensitivity * sensitivity)

    def published_stddev(self, clip_norm: float, side: Literal["feature", "label"]) -> float:
        """Noise stddev of a published number, in the units of ``clip_norm``."""
        if side == "label":
            raise ValueError("these rows have no label noise")
        return self.noise_multiplier * self.residual_clip_norm * clip_norm / self.num_records

    @property
    def row_width(self) -> int:
        """Published numbers per row that carry noise."""
        return self.num_features

    @property
    def blocks(self) -> list[RowBlock]:
        """The rounds: block t holds the K rows of round t."""
        return row_blocks(self.num_mixtures, self.num_classes)

    @property
    def shard_records(self) -> int:
        """Records that are read together."""
        return shard_records(self.num_features)

    @property
    def link(self) -> Link:
        """What turns scores into what labels are compared with."""
        return LINKS[self.target]

    @property
    def curvature_divisor(self) -> int:
        """What the loss's curvature along a direction is less than the records' variance, where it matters.

        The link's slope at scores of zero, inverted: K for a softmax, where all classes are likely; 4
        for a sigmoid, the most; 1 for numbers as they are.
        """
        return {"softmax": self.num_classes, "sigmoid": 4, "identity": 1}[self.link]

    @property
    def round_multiplier(self) -> float:
        """Noise multiplier of all rounds together: that of one Gaussian mechanism as costly."""
        return self.noise_multiplier / math.sqrt(self.num_rounds)


def learning_rate(
    noise: float, num_rounds: int, num_classes: int, target: Target = "class"
) -> float:
    """Return the largest step at which the noise of all rounds does not drown the public model.

    Along a direction in which records do not vary, a weight ends as the sum of J steps of noise,
    learning_rate * sqrt(J) * (sqrt(J) * noise) = learning_rate * J * noise. At this rate it is ln K / ln 30,
    but between 1 and 1.3: the score of a record on the clip norm then carries noise of that stddev at most.
    Scores are apart by ln K before a softmax is as sure of a class as of all others together, and it bears
    noise in proportion. Of several labels each is told from its absence, as one of two classes: 1. Numbers
    are on [-1, 1]: their weights are smaller, and bear less.

    Args:
        noise: Noise stddev that the mean of all rounds' rows has, in clip norms.
        num_rounds: J.
        num_classes: K.
        target: What labels are.

    """
    borne = min(max(math.log(num_classes) / math.log(30), 1.0), 1.3)
    if LINKS[target] != "softmax":
        borne = _BORNE[LINKS[target]]
    return borne / (noise * num_rounds)
