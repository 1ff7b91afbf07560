"""Mechanisms of several tables, released together and accounted for together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator
from scipy.special import expit

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.accounting import ComposedEvent, Event
from privmix.accounting.events import NeighboringRelation
from privmix.mechanism.mixtures import MixtureConfig, mixture_config
from privmix.mechanism.residual import ResidualConfig, learning_rate
from privmix.schema import Target

TableConfig: TypeAlias = MixtureConfig | ResidualConfig


class _Composite(FrozenModel):
    """What mechanisms of two tables have in common."""

    if TYPE_CHECKING:  # fields of the classes below, in the order of their files
        components: Any

    @property
    def num_records(self) -> int:
        """Planning constant n."""
        return int(self.components[0].num_records)

    @property
    def num_classes(self) -> int:
        """Number of classes K."""
        return int(self.components[0].num_classes)

    @property
    def num_features(self) -> int:
        """Width d."""
        return int(self.components[0].num_features)

    @property
    def num_mixtures(self) -> int:
        """Rows of both kinds together."""
        return sum(component.num_mixtures for component in self.components)

    @property
    def target(self) -> Target:
        """What labels are, to both components."""
        target: Target = self.components[0].target
        return target

    @property
    def neighboring_relation(self) -> NeighboringRelation:
        """The relation of both components."""
        return "add_or_remove_one"

    @property
    def event(self) -> Event:
        """Both components composed: every record may be in rows of either."""
        return ComposedEvent(events=tuple(component.event for component in self.components))

    @property
    def claimed_event(self) -> None:
        """No paper claims anything for this design."""
        return None


def _check_budget(stated: float, rows: MixtureConfig, others: float) -> None:
    """Refuse a budget of the signed rows that their noise and that of the ``others`` do not divide so.

    The planned GDP parameters give it back, squared: q^2 T (cosh(1/s^2) - 1), and one over the squared
    noise multiplier of the others together. In logs, since any noise may stand in a file.
    """
    _validate.real("feature_budget", stated, above=0.0, below=1.0)
    half = math.exp(min(max(-2.0 * math.log(rows.noise_multiplier), -700.0), 700.0)) / 2.0
    log_sinh = half + math.log(-math.expm1(-2.0 * half) / 2.0)
    per_row = math.log(2.0) + 2.0 * (math.log(rows.sampling_prob) + log_sinh)
    due = float(expit(per_row + math.log(rows.num_mixtures) + 2.0 * math.log(others)))
    if not math.isclose(stated, due, rel_tol=1e-9):
        _validate.fail("feature_budget", f"{due!r}, which follows from the noise", stated)


def _check_same_sizes(one: TableConfig, other: TableConfig) -> None:
    for name in ("num_records", "num_classes", "num_features", "target"):
        if getattr(one, name) != getattr(other, name):
            _validate.fail(f"components[1].{name}", str(getattr(one, name)), getattr(other, name))


class HybridConfig(_Composite):
    """Class sums and signed feature rows, released together.

    Attributes:
        components: One row of ``stratified`` sums for each class (sampling probability 1), and
            ``signed`` rows without labels.
        feature_budget: Share of the squared GDP parameter that the signed rows were planned with.

    """

    design: Literal["hybrid"] = "hybrid"
    components: tuple[MixtureConfig, MixtureConfig]
    feature_budget: float

    @model_validator(mode="after")
    def _check(self) -> Self:
        sums, rows = self.components
        if (sums.design, sums.sampling_prob, sums.rows_per_class) != ("stratified", 1.0, 1):
            _validate.fail(
                "components[0]", "stratified, every record in one row of its class", sums.design
            )
        if rows.design != "signed" or rows.labels != "absent":
            _validate.fail("components[1]", "signed rows without labels", rows.design)
        _check_same_sizes(sums, rows)
        _check_budget(self.feature_budget, rows, sums.noise_multiplier)
        return self


class AdaptiveConfig(_Composite):
    """Signed feature rows, and rounds of residual mixtures that start from them.

    Attributes:
        components: ``signed`` rows without labels, and the rounds.
        feature_budget: Share of the squared GDP parameter that the signed rows were planned with.

    """

    design: Literal["adaptive"] = "adaptive"
    components: tuple[MixtureConfig, ResidualConfig]
    feature_budget: float

    @model_validator(mode="after")
    def _check(self) -> Self:
        rows, rounds = self.components
        if rows.design != "signed" or rows.labels != "absent":
            _validate.fail("components[0]", "signed rows without labels", rows.design)
        _check_same_sizes(rows, rounds)
        _check_budget(self.feature_budget, rows, rounds.round_multiplier)
        return self


ReleaseConfig: TypeAlias = Annotated[
    MixtureConfig | HybridConfig | AdaptiveConfig, Field(discriminator="design")
]


def hybrid_config(
    sums: dict[str, Any], rows: dict[str, Any], noise_multiplier: float, feature_budget: float
) -> HybridConfig:
    """Split one budget between class sums and signed rows.

    With gdp_mu = 1 / ``noise_multiplier``, the class sums get the Gaussian mechanism with
    squared parameter (1 - f) gdp_mu^2, and the signed rows the noise s for which the central
    limit of their composition, q sqrt(T (cosh(1/s^2) - 1)), is sqrt(f) gdp_mu. The approximation
    only divides the budget: the event is accounted for exactly.
    """
    _validate.real("feature_budget", feature_budget, above=0.0, below=1.0)
    class_noise = noise_multiplier / math.sqrt(1 - feature_budget)
    return HybridConfig(
        components=(
            mixture_config(sums, class_noise, None),
            _signed_rows(rows, noise_multiplier, feature_budget),
        ),
        feature_budget=feature_budget,
    )


def adaptive_config(
    rows: dict[str, Any], rounds: dict[str, Any], noise_multiplier: float, feature_budget: float
) -> AdaptiveConfig:
    """Split one budget between signed rows and J rounds, as :func:`hybrid_config` does.

    The rounds get (1 - f) gdp_mu^2, every round as much as any other.

    Args:
        rows: Layout of the signed rows.
        rounds: Fields of :class:`ResidualConfig` but for the noise and the learning rate.
        noise_multiplier: 1 / gdp_mu.
        feature_budget: f.

    """
    _validate.real("feature_budget", feature_budget, above=0.0, below=1.0)
    together = noise_multiplier / math.sqrt(1 - feature_budget)
    noise = together * math.sqrt(rounds["num_rounds"])
    scale = rounds["residual_clip_norm"] * together / rounds["num_records"]
    return AdaptiveConfig(
        components=(
            _signed_rows(rows, noise_multiplier, feature_budget),
            ResidualConfig(
                **rounds,
                noise_multiplier=noise,
                learning_rate=learning_rate(
                    scale,
                    rounds["num_rounds"],
                    rounds["num_classes"],
                    rounds.get("target", "class"),
                ),
            ),
        ),
        feature_budget=feature_budget,
    )


def _signed_rows(
    rows: dict[str, Any], noise_multiplier: float, feature_budget: float
) -> MixtureConfig:
    rate = feature_budget / (noise_multiplier * rows["sampling_prob"]) ** 2 / rows["num_mixtures"]
    # acosh(1 + rate), kept accurate for small rates
    row_noise = 1 / math.sqrt(math.log1p(rate + math.sqrt(rate * (rate + 2))))
    return mixture_config(rows, row_noise, None)
