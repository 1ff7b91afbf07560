"""The steps of preprocessing: what each computes of private records, and what that costs.

A step sees records that the steps before it have transformed, clipped to the schema's clip norm
each time. A charged step publishes statistics: exact integer sums over records plus rounded
Gaussian noise, whose sensitivity is stated here. What it then does to records is a function of
those published integers, the same whoever is among the records, so that later steps and the
mechanism compose with it adaptively. Public steps look at no private record and cost nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, field_validator, model_validator

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.accounting import GaussianEvent
from privmix.accounting.events import NeighboringRelation
from privmix.clipping import FixedPoint
from privmix.noise import MAX_STDDEV, noise_stddev

_MOST_OUTPUTS = 10**6

# What one record can change of a sum over records, in units of the largest summand's norm. A record
# comes or goes, or is replaced: then a vector may turn into its negative, and a vector of squares,
# of products x x' or of one-hot counts, two of which have no negative inner product, into an
# orthogonal one.
_CHANGE: dict[NeighboringRelation, dict[str, float]] = {
    "add_or_remove_one": dict.fromkeys(
        ("feature_sums", "class_sums", "square_sums", "class_counts", "second_moments"), 1.0
    ),
    "replace_one": {
        "feature_sums": 2.0,
        "class_sums": 2.0,
        "square_sums": math.sqrt(2),
        "class_counts": math.sqrt(2),
        "second_moments": math.sqrt(2),
    },
}


class RecordFacts(FrozenModel):
    """Public facts of the records that a step sees.

    Attributes:
        num_records: Planning constant n.
        num_classes: K.
        num_features: Width of a record as it reaches the step.
        clip_norm: L2 bound of a record.
        neighboring_relation: What the guarantee compares.

    """

    num_records: int
    num_classes: int
    num_features: int
    clip_norm: float
    neighboring_relation: NeighboringRelation

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("num_records", "num_classes", "num_features"):
            _validate.integer(name, getattr(self, name))
        _validate.real("clip_norm", self.clip_norm, at_least=1e-30, at_most=1e30)
        return self


@dataclass(frozen=True)
class Statistic:
    """An integer sum over records that a step publishes with noise.

    Attributes:
        kind: ``feature_sums``: of the quantised features q; ``class_sums``: the same class by
            class; ``square_sums``: of the squares q_j^2; ``class_counts``: of one-hot labels;
            ``second_moments``: of the products q_i q_j, i <= j, row by row.
        shape: Of the published integers.
        sensitivity: L2 norm of what one record can change, in integers.
        share: Of the step's squared privacy parameter; those of a step add up to 1.

    """

    kind: str
    shape: tuple[int, ...]
    sensitivity: float
    share: float

    @classmethod
    def of(cls, kind: str, facts: RecordFacts, share: float = 1.0) -> Statistic:
        """Derive shape and sensitivity.

        A record is an integer vector q with |q| <= S, S the grid's sensitivity. Then the squares'
        vector and the upper triangle of q q' are at most |q|^2 <= S^2 long: the squares since
        sum q_j^4 <= (sum q_j^2)^2, the triangle since it is a part of q q', whose Frobenius norm is
        |q|^2.
        """
        d, k = facts.num_features, facts.num_classes
        longest = FixedPoint(facts.clip_norm).sensitivity
        shape, summand = {
            "feature_sums": ((d,), longest),
            "class_sums": ((k, d), longest),
            "square_sums": ((d,), longest**2),
            "class_counts": ((k,), 1.0),
            "second_moments": ((d * (d + 1) // 2,), longest**2),
        }[kind]
        return cls(kind, shape, _CHANGE[facts.neighboring_relation][kind] * summand, share)

    def noise_stddev(self, noise_multiplier: float) -> float:
        """Noise stddev of each integer, given the step's joint noise multiplier."""
        return noise_stddev(noise_multiplier / math.sqrt(self.share), self.sensitivity)


class _Step(FrozenModel):
    """What all steps share. Public steps keep the defaults below."""

    def num_outputs(self, num_features: int) -> int:
        """Width of a record after the step; fails for a width that the step cannot take."""
        return num_features

    @property
    def is_charged(self) -> bool:
        """Whether the step costs budget."""
        return False

    @property
    def needs_classes(self) -> bool:
        """Whether a record must have one class."""
        return False

    def planned(self, gdp_mu: float) -> Self:
        """Return the step with its noise fixed, for a whole budget of parameter ``gdp_mu``."""
        return self

    def statistics(self, facts: RecordFacts) -> tuple[Statistic, ...]:
        """What the step publishes about private records."""
        return ()

    def check_noise_range(self, facts: RecordFacts) -> None:
        """Refuse noise beyond what the sampler draws."""


class _ChargedStep(_Step):
    """A step that spends ``budget_share`` of the squared GDP parameter of the whole budget.

    Attributes:
        budget_share: In (0, 1). It sets the noise, unless that is given; the event is accounted for exactly.
            No guarantee follows from it, and it does not follow from what is certified.
        noise_multiplier: Noise stddev over the joint sensitivity of what the step publishes, under
            the release's neighbouring relation. None until planned.

    """

    step: str
    budget_share: float
    noise_multiplier: float | None = None

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        _validate.real("budget_share", self.budget_share, above=0.0, below=1.0)
        if self.noise_multiplier is not None:
            _validate.real("noise_multiplier", self.noise_multiplier, at_least=1e-4, at_most=1e12)
        return self

    @property
    def is_charged(self) -> bool:
        """Yes: the step costs budget."""
        return True

    def planned(self, gdp_mu: float) -> Self:
        """Return the step with its noise fixed, unless it is already."""
        if self.noise_multiplier is not None:
            return self
        noise = 1 / (math.sqrt(self.budget_share) * gdp_mu)
        return self.model_copy(update={"noise_multiplier": min(max(noise, 1e-4), 1e12)})

    def stddevs(self, facts: RecordFacts) -> tuple[float, ...]:
        """Noise stddev of each statistic, in integers."""
        return tuple(part.noise_stddev(self.joint_noise) for part in self.statistics(facts))

    def check_noise_range(self, facts: RecordFacts) -> None:
        """Refuse noise beyond what the sampler draws."""
        noise, largest = self.joint_noise, max(self.stddevs(facts))
        allowed = noise * MAX_STDDEV / largest
        _validate.real(f"{self.step}.noise_multiplier", noise, above=0.0, at_most=allowed)

    @property
    def joint_noise(self) -> float:
        """The noise multiplier; fails for a step that has not been planned."""
        if self.noise_multiplier is None:
            _validate.fail("preprocessing.noise_multiplier", "a number, set by a plan", "none")
        return self.noise_multiplier

    def event(self, relation: NeighboringRelation) -> GaussianEvent:
        """One Gaussian mechanism.

        In units of each statistic's noise, one record moves everything that the step publishes
        by a vector of squared norm sum(share) / noise_multiplier^2.
        """
        return GaussianEvent(noise_multiplier=self.joint_noise, neighboring_relation=relation)


class _StepByClass(_ChargedStep):
    """A step that counts records, or adds them up, by their class."""

    @property
    def needs_classes(self) -> bool:
        """Yes: records are counted or added up by their class."""
        return True


class Center(_ChargedStep):
    """Subtract a noisy mean of all records, so that what all share takes up no clip norm.

    The mean is the noisy sum over ``num_records``. Follow it by :class:`UnitNorm`, or records are
    only clipped again.
    """

    step: Literal["center"] = "center"
    budget_share: float = 0.02

    def statistics(self, facts: RecordFacts) -> tuple[Statistic, ...]:
        """What the step publishes about private records."""
        return (Statistic.of("feature_sums", facts),)


class ClassCounts(_StepByClass):
    """Publish the noisy number of records of each class. Features stay as they are."""

    step: Literal["class_counts"] = "class_counts"
    budget_share: float = 0.02

    def statistics(self, facts: RecordFacts) -> tuple[Statistic, ...]:
        """What the step publishes about private records."""
        return (Statistic.of("class_counts", facts),)


class SelectFeatures(_StepByClass):
    """Keep the features in which the noisy class means differ most (the DFS paper, Algorithm 1).

    A feature's criterion is the largest distance between two classes' means, for any number of
    classes. Means are noisy class sums over the counts of an earlier :class:`ClassCounts`, or over
    ``num_records / num_classes``. Unlike the paper, the ranking sees nothing but noisy sums, and
    records are clipped at a public norm.

    Attributes:
        num_selected: Features to keep.
        with_squares: Also publish the noisy sum of each feature's squares, with half of the
            step's budget, for :class:`privmix.learners.FisherClassifier`.

    """

    step: Literal["select_features"] = "select_features"
    budget_share: float = 0.1
    num_selected: int
    with_squares: bool = False

    @field_validator("num_selected")
    @classmethod
    def _check_selected(cls, value: int) -> int:
        return _validate.integer("num_selected", value)

    def num_outputs(self, num_features: int) -> int:
        """Width of a record after the step; fails for one that the step cannot take."""
        return _validate.integer("num_selected", self.num_selected, at_most=num_features)

    def statistics(self, facts: RecordFacts) -> tuple[Statistic, ...]:
        """What the step publishes about private records."""
        if not self.with_squares:
            return (Statistic.of("class_sums", facts),)
        kinds = ("class_sums", "square_sums")
        return tuple(Statistic.of(kind, facts, 0.5) for kind in kinds)


class Subspace(_ChargedStep):
    """Project onto the leading eigenvectors of the noisy second moments (Dwork et al. 2014).

    Attributes:
        num_directions: Dimension of the subspace.

    """

    step: Literal["subspace"] = "subspace"
    budget_share: float = 0.1
    num_directions: int

    @field_validator("num_directions")
    @classmethod
    def _check_directions(cls, value: int) -> int:
        return _validate.integer("num_directions", value)

    def num_outputs(self, num_features: int) -> int:
        """Width of a record after the step; fails for one that the step cannot take."""
        return _validate.integer("num_directions", self.num_directions, at_most=num_features)

    def statistics(self, facts: RecordFacts) -> tuple[Statistic, ...]:
        """What the step publishes about private records."""
        return (Statistic.of("second_moments", facts),)


class RandomProjection(_Step):
    """Multiply by a matrix of random signs over sqrt(num_directions) (Achlioptas 2003).

    Public: the signs follow from ``seed`` alone, which protects nothing. Squared norms are kept on
    average.

    Attributes:
        num_directions: Numbers per record afterwards.
        seed: Any integer from 0 on.

    """

    step: Literal["random_projection"] = "random_projection"
    num_directions: int
    seed: int = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        _validate.integer("num_directions", self.num_directions, at_most=_MOST_OUTPUTS)
        _validate.integer("seed", self.seed, at_least=0, at_most=2**63)
        return self

    def num_outputs(self, num_features: int) -> int:
        """Width of a record after the step; fails for one that the step cannot take."""
        return self.num_directions


class PublicStatistics(_Step):
    """Standardise with the statistics of a public data set: (x - mean) / stddev.

    Public if, and only if, the data set is: nobody can check that from the release.

    Attributes:
        dataset: Name of the public data set, with its version.
        mean: One number for each feature.
        stddev: The same, above 0; None leaves scales as they are.

    """

    step: Literal["public_statistics"] = "public_statistics"
    dataset: str
    mean: tuple[float, ...]
    stddev: tuple[float, ...] | None = None

    @field_validator("mean", "stddev", mode="before")
    @classmethod
    def _take_arrays(cls, value: Any) -> Any:
        if hasattr(value, "tolist"):
            value = value.tolist()
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.dataset.strip():
            _validate.fail("dataset", "the name of a public data set", repr(self.dataset))
        for value in self.mean:
            _validate.real("mean", value, at_least=-1e30, at_most=1e30)
        if self.stddev is not None:
            if len(self.stddev) != len(self.mean):
                _validate.fail("stddev", f"{len(self.mean)} numbers, as mean", len(self.stddev))
            for value in self.stddev:
                _validate.real("stddev", value, at_least=1e-30, at_most=1e30)
        return self

    def num_outputs(self, num_features: int) -> int:
        """Width of a record after the step; fails for one that the step cannot take."""
        if len(self.mean) != num_features:
            _validate.fail("mean", f"{num_features} numbers, one a feature", len(self.mean))
        return num_features


class UnitNorm(_Step):
    """Scale every record to the clip norm, whatever its length; zero stays zero.

    Public: each record is scaled by itself.
    """

    step: Literal["unit_norm"] = "unit_norm"


class Intercept(_Step):
    """Append a constant to every record: last, so that what is linear in it has an intercept.

    Before :class:`UnitNorm` it shows by how much a record was scaled, so that lengths are not lost.

    Public: features are scaled by sqrt(1 - share), and sqrt(share) clip norms follow, so that the
    clip norm holds. A record replaced by zero stays zero.

    Attributes:
        share: Of the squared clip norm, in (0, 1).

    """

    step: Literal["intercept"] = "intercept"
    share: float = 1 / 64

    @model_validator(mode="after")
    def _check(self) -> Self:
        _validate.real("share", self.share, above=0.0, below=1.0)
        return self

    def num_outputs(self, num_features: int) -> int:
        """Width of a record after the step."""
        return num_features + 1


Step: TypeAlias = Annotated[
    Center
    | ClassCounts
    | SelectFeatures
    | Subspace
    | RandomProjection
    | PublicStatistics
    | UnitNorm
    | Intercept,
    Field(discriminator="step"),
]
ChargedStep: TypeAlias = Center | ClassCounts | SelectFeatures | Subspace


def charged(steps: tuple[Step, ...]) -> tuple[ChargedStep, ...]:
    """Return the steps that cost budget, in order."""
    return tuple(step for step in steps if isinstance(step, _ChargedStep))


def step_facts(steps: tuple[Step, ...], facts: RecordFacts) -> tuple[RecordFacts, ...]:
    """Return the facts of the records that each step sees, and after the last those it leaves."""
    found = [facts]
    for number, step in enumerate(steps):
        try:
            width = step.num_outputs(found[-1].num_features)
        except _validate.InvalidInputError as error:
            position = f"preprocessing[{number}].{error.position}"
            _validate.fail(position, error.expected, error.got)
        found.append(found[-1].model_copy(update={"num_features": width}))
    return tuple(found)


def plan_steps(steps: tuple[Step, ...], gdp_mu: float) -> tuple[Step, ...]:
    """Fix the noise of every step for a whole budget of parameter ``gdp_mu``.

    Raises:
        InvalidInputError: Shares that leave nothing for the mechanism.

    """
    total = sum(step.budget_share for step in charged(steps))
    _validate.real("preprocessing: sum of budget_share", total, below=1.0)
    return tuple(step.planned(gdp_mu) for step in steps)
