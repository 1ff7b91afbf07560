"""What a mechanism did, described once and for all: frozen, JSON in and out.

Events are append-only: a certificate written today must be read in ten years, so a field never
changes its meaning and a new mechanism gets a new name. An event holds no private fact.

Every noise multiplier is the *joint* one: the standard deviation of the noise over the L2
sensitivity of everything published in a step, under the event's own neighbouring relation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator

from privmix import _validate
from privmix._validate import FrozenModel

NeighboringRelation: TypeAlias = Literal["add_or_remove_one", "replace_one"]


RECORD = "record"
_MANY = 24  # distinct mechanisms that are accounted for one by one


class _RecordEvent(FrozenModel):
    """What every mechanism has that is described as one record sees it."""

    @property
    def unit(self) -> str:
        """What the event protects: a record. A :class:`GroupEvent` names who owns several."""
        return RECORD


class _CountedEvent(_RecordEvent):
    """Checks shared by every mechanism that is repeated ``count`` times."""

    noise_multiplier: float
    count: int = 1

    @field_validator("noise_multiplier", mode="before")
    @classmethod
    def _check_noise_multiplier(cls, value: object) -> float:
        return _validate.real("noise_multiplier", value, at_least=1e-4, at_most=1e12)

    @field_validator("count", mode="before")
    @classmethod
    def _check_count(cls, value: object) -> int:
        return _validate.integer("count", value, at_most=10**12)


class _SampledEvent(_CountedEvent):
    """Checks shared by every mechanism that samples records independently."""

    sampling_prob: float

    @field_validator("sampling_prob", mode="before")
    @classmethod
    def _check_sampling_prob(cls, value: object) -> float:
        return _validate.probability("sampling_prob", value)

    @property
    def neighboring_relation(self) -> NeighboringRelation:
        """Independent sampling is accounted for by adding or removing one record."""
        return "add_or_remove_one"


class GaussianEvent(_CountedEvent):
    """The Gaussian mechanism, ``count`` times.

    Attributes:
        noise_multiplier: Noise standard deviation over the L2 sensitivity under
            ``neighboring_relation``.
        count: Number of repetitions.
        neighboring_relation: ``add_or_remove_one`` or ``replace_one``.

    """

    mechanism: Literal["gaussian"] = "gaussian"
    neighboring_relation: NeighboringRelation = "add_or_remove_one"


class PoissonGaussianEvent(_SampledEvent):
    """The Gaussian mechanism on a Poisson sample, ``count`` times, under add_or_remove_one.

    Each record enters each step independently with probability ``sampling_prob``. The plain
    Gaussian mechanism is ``sampling_prob == 1``.
    """

    mechanism: Literal["poisson_gaussian"] = "poisson_gaussian"


class SignedGaussianEvent(_SampledEvent):
    """As :class:`PoissonGaussianEvent`, but each entering record takes a fresh secret random sign.

    Dominated by P = (1-p) N(0, s^2) + p/2 N(1, s^2) + p/2 N(-1, s^2) against Q = N(0, s^2) and
    its reverse, with p the sampling probability and s the noise multiplier.
    """

    mechanism: Literal["signed_gaussian"] = "signed_gaussian"


class EligibleGaussianEvent(_SampledEvent):
    """A sampled Gaussian step that happens by a revealed coin, ``count`` times.

    In each step a public coin makes a record eligible with probability ``eligible_prob``; an
    eligible record enters with probability ``sampling_prob``. The coin is treated as published.
    """

    mechanism: Literal["eligible_gaussian"] = "eligible_gaussian"
    eligible_prob: float

    @field_validator("eligible_prob", mode="before")
    @classmethod
    def _check_eligible_prob(cls, value: object) -> float:
        return _validate.probability("eligible_prob", value)


class UniformGaussianEvent(_CountedEvent):
    """The Gaussian mechanism on ``mix_size`` of ``num_records`` records drawn without replacement.

    Under replace_one; the noise multiplier is relative to the replace-one sensitivity.
    """

    mechanism: Literal["uniform_gaussian"] = "uniform_gaussian"
    num_records: int
    mix_size: int

    @field_validator("num_records", "mix_size", mode="before")
    @classmethod
    def _check_sizes(cls, value: object, info: Any) -> int:
        return _validate.integer(info.field_name, value)

    @model_validator(mode="after")
    def _check_mix_size(self) -> UniformGaussianEvent:
        if self.mix_size > self.num_records:
            _validate.fail("mix_size", f"at most num_records = {self.num_records}", self.mix_size)
        return self

    @property
    def neighboring_relation(self) -> NeighboringRelation:
        """Sampling without replacement needs a fixed number of records."""
        return "replace_one"


class AllocationGaussianEvent(_CountedEvent):
    """Random allocation: each record enters exactly R of T rows with Gaussian noise, by chance.

    The rows are a uniformly random subset, drawn for each record by itself and kept secret.

    Attributes:
        num_rows: T.
        rows_per_record: R, at most T.
        noise_multiplier: Noise standard deviation of a row over what one record changes in a row it
            enters: the norm of its vector under add_or_remove_one, the distance of two such vectors
            under replace_one.
        presence_noise_multiplier: Under replace_one, noise standard deviation over the largest norm
            of a record's vector; None under add_or_remove_one.
        count: Number of repetitions, each with fresh choices.
        neighboring_relation: ``add_or_remove_one`` or ``replace_one``.

    """

    mechanism: Literal["allocation_gaussian"] = "allocation_gaussian"
    num_rows: int
    rows_per_record: int
    presence_noise_multiplier: float | None = None
    neighboring_relation: NeighboringRelation = "add_or_remove_one"

    @field_validator("num_rows", "rows_per_record", mode="before")
    @classmethod
    def _check_sizes(cls, value: object, info: Any) -> int:
        return _validate.integer(info.field_name, value, at_most=10**12)

    @field_validator("presence_noise_multiplier", mode="before")
    @classmethod
    def _check_presence(cls, value: object) -> float | None:
        name = "presence_noise_multiplier"
        return None if value is None else _validate.real(name, value, at_least=1e-4, at_most=1e12)

    @model_validator(mode="after")
    def _check_fields(self) -> AllocationGaussianEvent:
        if self.rows_per_record > self.num_rows:
            allowed = f"at most num_rows = {self.num_rows}"
            _validate.fail("rows_per_record", allowed, self.rows_per_record)
        presence = self.presence_noise_multiplier
        if (presence is None) != (self.neighboring_relation == "add_or_remove_one"):
            need = "a number" if presence is None else "nothing"
            allowed = f"{need} under {self.neighboring_relation}"
            _validate.fail("presence_noise_multiplier", allowed, presence)
        if presence is not None and presence > 2.0 * self.noise_multiplier * (1.0 + 1e-9):
            # Two vectors within a ball are at most its diameter apart.
            allowed = f"at most 2 * noise_multiplier = {2.0 * self.noise_multiplier:g}"
            _validate.fail("presence_noise_multiplier", allowed, presence)
        return self

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """Sizes of the blocks of rows and how many there are of each; see :func:`_blocks`."""
        return _blocks(self.num_rows, self.rows_per_record)


class SignedAllocationGaussianEvent(_CountedEvent):
    """As :class:`AllocationGaussianEvent`, but a record enters each of its rows with a fresh sign.

    Signs are +1 or -1 alike, and secret; under add_or_remove_one.
    """

    mechanism: Literal["signed_allocation_gaussian"] = "signed_allocation_gaussian"
    num_rows: int
    rows_per_record: int

    @field_validator("num_rows", "rows_per_record", mode="before")
    @classmethod
    def _check_sizes(cls, value: object, info: Any) -> int:
        return _validate.integer(info.field_name, value, at_most=10**12)

    @model_validator(mode="after")
    def _check_fields(self) -> SignedAllocationGaussianEvent:
        if self.rows_per_record > self.num_rows:
            allowed = f"at most num_rows = {self.num_rows}"
            _validate.fail("rows_per_record", allowed, self.rows_per_record)
        return self

    @property
    def neighboring_relation(self) -> NeighboringRelation:
        """A record comes or goes."""
        return "add_or_remove_one"

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """Sizes of the blocks of rows and how many there are of each; see :func:`_blocks`."""
        return _blocks(self.num_rows, self.rows_per_record)


def _blocks(num_rows: int, rows_per_record: int) -> tuple[tuple[int, int], ...]:
    """Sizes of R blocks of rows, nearly equal, with the number of blocks of each size.

    The rows in random order, cut into R blocks, one row picked of each, are a uniformly random
    subset of R rows. With the order published, the record picks one row of each block.
    """
    size, longer = divmod(num_rows, rows_per_record)
    pairs = ((size, rows_per_record - longer), (size + 1, longer))
    return tuple((rows, count) for rows, count in pairs if count)


class ComposedEvent(FrozenModel):
    """Several mechanisms on the same records, in any order; all under one neighbouring relation.

    The later ones may be chosen after seeing the outputs of the earlier ones, as long as the
    mechanisms themselves are those written here.
    """

    mechanism: Literal["composed"] = "composed"
    events: tuple[Event, ...]

    @field_validator("events", mode="before")
    @classmethod
    def _check_events(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _check_relations(self) -> ComposedEvent:
        if not self.events:
            _validate.fail("events", "at least one event", "none")
        relations = sorted({event.neighboring_relation for event in self.events})
        if len(relations) > 1:
            _validate.fail(
                "events",
                "events that share one neighboring_relation",
                " and ".join(
                    f"{event.mechanism} under {event.neighboring_relation}" for event in self.events
                ),
            )
        units = sorted({event.unit for event in self.events})
        if len(units) > 1:
            # A guarantee for records says nothing of a person with any number of them.
            _validate.fail("events", "events that protect one kind of unit", " and ".join(units))
        return self

    @property
    def neighboring_relation(self) -> NeighboringRelation:
        """The relation shared by all parts."""
        return self.events[0].neighboring_relation

    @property
    def unit(self) -> str:
        """What all parts protect; see :attr:`_RecordEvent.unit`."""
        return self.events[0].unit


class GroupEvent(FrozenModel):
    """A mechanism as those see it who own up to ``group_size`` of its records each.

    Neighbouring data sets differ by all the records of one owner: they come or go under
    add_or_remove_one.

    Attributes:
        event: The mechanism as one record sees it.
        group_size: Most records of one owner that take part.
        unit: The public name of the kind of owner: ``patient``, say.

    """

    mechanism: Literal["group"] = "group"
    unit: str
    group_size: int
    event: SimpleEvent | ComposedEvent

    @field_validator("group_size", mode="before")
    @classmethod
    def _check_group_size(cls, value: object) -> int:
        return _validate.integer("group_size", value, at_most=10**6)

    @model_validator(mode="after")
    def _check_unit(self) -> GroupEvent:
        if self.event.unit != RECORD:
            _validate.fail("event", "a mechanism as one record sees it", self.event.mechanism)
        if not self.unit.strip() or self.unit == RECORD:
            _validate.fail("unit", f"a name other than {RECORD!r}", repr(self.unit))
        return self

    @property
    def neighboring_relation(self) -> NeighboringRelation:
        """The mechanism's, read for all the records of one owner at once."""
        return self.event.neighboring_relation


SimpleEvent: TypeAlias = (
    GaussianEvent
    | PoissonGaussianEvent
    | SignedGaussianEvent
    | EligibleGaussianEvent
    | UniformGaussianEvent
    | AllocationGaussianEvent
    | SignedAllocationGaussianEvent
)
Event: TypeAlias = Annotated[
    SimpleEvent | ComposedEvent | GroupEvent, Field(discriminator="mechanism")
]

ComposedEvent.model_rebuild()
GroupEvent.model_rebuild()
_ADAPTER: TypeAdapter[Any] = TypeAdapter(Event)


def event_from_json(document: str | bytes | Mapping[str, Any]) -> Event:
    """Read an event from JSON text or from the mapping it parses to.

    Errors: InvalidInputError naming the field, for an unknown mechanism too.
    """
    text = document if isinstance(document, str | bytes) else json.dumps(document)
    try:
        event: Event = _ADAPTER.validate_json(text)
    except ValidationError as error:
        raise _validate._first_problem("event", error) from None
    return event


def per_record(event: Event) -> tuple[SimpleEvent | ComposedEvent, int]:
    """Return an event as one record sees it, and how many records an owner has in it at most.

    Of several releases with up to k_1, k_2, ... records of one owner, the largest k counts: the
    owner's records leave all the releases together in that many steps, in each of which every
    release loses at most one.
    """
    if isinstance(event, GroupEvent):
        return event.event, event.group_size
    if isinstance(event, ComposedEvent) and event.unit != RECORD:
        parts = [per_record(part) for part in event.events]
        inner = ComposedEvent(events=tuple(part for part, _ in parts))
        return inner, max(size for _, size in parts)
    return event, 1


def simple_events(event: SimpleEvent | ComposedEvent) -> list[SimpleEvent]:
    """The distinct mechanisms of an event, counts added up, in an order that depends on nothing.

    Special cases are reduced to the plainer mechanism: sampling with probability one, a coin
    that always shows eligible, a mixture of all records.
    """
    totals: dict[str, tuple[SimpleEvent, int]] = {}
    for part in _walk(event):
        plain = _plainest(part)
        key = plain.model_copy(update={"count": 1}).model_dump_json()
        _, count = totals.get(key, (plain, 0))
        totals[key] = plain, count + plain.count
    return [part.model_copy(update={"count": count}) for _, (part, count) in sorted(totals.items())]


def few_events(parts: Sequence[SimpleEvent]) -> list[SimpleEvent]:
    """At most about 24 distinct mechanisms that together dominate the given ones, few as they are.

    Of many sampled mechanisms, probabilities are rounded up and noise multipliers down to powers of
    a step that is as fine as their number allows: a smaller sample is a mixture of a larger one and
    of nothing, less noise is followed by more noise. What has other parameters stays.
    """
    step = 1.0 + 2.0**-7
    found = list(parts)
    kinds = (PoissonGaussianEvent, SignedGaussianEvent, EligibleGaussianEvent)
    while len(found) > _MANY and step < 4.0:
        rounded = [_rounded(part, step) if isinstance(part, kinds) else part for part in parts]
        found = simple_events(ComposedEvent(events=tuple(rounded)))
        step = 1.0 + 2.0 * (step - 1.0)
    return found


def _rounded(
    event: PoissonGaussianEvent | SignedGaussianEvent | EligibleGaussianEvent, step: float
) -> SimpleEvent:
    def power(value: float, up: bool) -> float:
        exponent = math.log(value) / math.log(step)
        return step ** (math.ceil(exponent) if up else math.floor(exponent))

    noise = min(max(power(event.noise_multiplier, False), 1e-4), event.noise_multiplier)
    update = {
        "noise_multiplier": noise,
        "sampling_prob": min(max(power(event.sampling_prob, True), event.sampling_prob), 1.0),
    }
    if isinstance(event, EligibleGaussianEvent):
        prob = event.eligible_prob
        update["eligible_prob"] = min(max(power(prob, True), prob), 1.0)
    return event.model_copy(update=update)


def _walk(event: Event) -> Sequence[SimpleEvent]:
    if isinstance(event, ComposedEvent):
        return [part for inner in event.events for part in _walk(inner)]
    if isinstance(event, GroupEvent):
        raise TypeError("a group has no steps of its own: take per_record first")
    return [event]


def _plainest(event: SimpleEvent) -> SimpleEvent:
    if isinstance(event, EligibleGaussianEvent) and event.eligible_prob == 1.0:
        event = PoissonGaussianEvent(
            sampling_prob=event.sampling_prob,
            noise_multiplier=event.noise_multiplier,
            count=event.count,
        )
    if isinstance(event, AllocationGaussianEvent) and event.rows_per_record == event.num_rows:
        return GaussianEvent(
            noise_multiplier=event.noise_multiplier / math.sqrt(event.num_rows),
            count=event.count,
            neighboring_relation=event.neighboring_relation,
        )
    whole = (isinstance(event, PoissonGaussianEvent) and event.sampling_prob == 1.0) or (
        isinstance(event, UniformGaussianEvent) and event.mix_size == event.num_records
    )
    if whole:
        return GaussianEvent(
            noise_multiplier=event.noise_multiplier,
            count=event.count,
            neighboring_relation=event.neighboring_relation,
        )
    return event
