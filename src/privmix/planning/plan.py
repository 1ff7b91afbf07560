"""Plans of releases: every number fixed in advance, without a look at the data."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import ConfigDict, Field, model_validator

from privmix import _validate
from privmix._validate import FrozenModel, InvalidInputError
from privmix.accounting import (
    ComposedEvent,
    Event,
    GroupEvent,
    Reading,
    Risk,
    account,
    gdp_mu_from,
    group_epsilon,
    per_record,
)
from privmix.accounting.events import NeighboringRelation
from privmix.accounting.guarantee import Guarantee
from privmix.accounting.stated import stated_epsilon
from privmix.markup import facts_html
from privmix.mechanism import (
    Design,
    ReleaseConfig,
    TableConfig,
)
from privmix.planning.memory import MemoryLayout, memory_layout
from privmix.preprocess import RecordFacts, Step, charged, step_facts
from privmix.running.resources import default_threads
from privmix.schema import Schema

_SIZES = ("num_records", "num_classes", "num_features")


class PrivacyUnit(NamedTuple):
    """Whose presence a release protects: one record, or one owner of several.

    Attributes:
        column: The owners' public name, which is a column of the input; None for records.
        max_records: Most records of an owner that take part; None for records.

    """

    column: str | None = None
    max_records: int | None = None

    def check(self, relation: NeighboringRelation) -> None:
        """Refuse half a unit, and a relation under which nothing follows for units."""
        if (self.column is None) != (self.max_records is None):
            missing = "unit_column" if self.column is None else "max_records_per_unit"
            other = "max_records_per_unit" if self.column is None else "unit_column"
            _validate.fail(missing, f"a value beside {other}", "nothing")
        if self.column is None:
            return
        if not isinstance(self.column, str) or not self.column.strip() or self.column == "record":
            _validate.fail("unit_column", "a name other than 'record'", repr(self.column))
        _validate.size("max_records_per_unit", self.max_records)
        if relation != "add_or_remove_one":
            # Replacing a unit by another changes the number of records.
            allowed = "nothing for a release under replace_one, whose number of records is fixed"
            _validate.fail("unit_column", allowed, self.column)

    def check_given(self, given: bool) -> None:
        """Refuse records without owners where owners are protected, and the other way round."""
        if self.column is None and given:
            _validate.fail("units", "nothing for a plan that protects records", "some")
        if self.column is not None and not given:
            allowed = f"the {self.column!r} of each record, which the plan protects"
            _validate.fail("units", allowed, "nothing")

    def event(self, event: Event) -> Event:
        """Return an event of records as the unit sees it."""
        if self.column is None or self.max_records is None:
            return event
        assert not isinstance(event, GroupEvent)
        return GroupEvent(unit=self.column, group_size=self.max_records, event=event)

    def record_mu(self, epsilon: float, delta: float) -> float:
        """GDP parameter of a record where all of a unit's have (epsilon, delta): by it noise is
        divided and a design is chosen, while the event is accounted for as it is.
        """
        return gdp_mu_from(epsilon, delta) / (self.max_records or 1)


RECORD = PrivacyUnit()


class ReleasePlan(FrozenModel):
    """A mechanism with its guarantee and its cost, ready for ``privmix.release``.

    In JSON the mechanism's fields stand beside the others.

    Attributes:
        mechanism: The design with all its parameters.
        epsilon: Certified privacy loss at ``delta``, with all digits; ``guarantee`` has it as a
            certificate will state it.
        delta: The delta asked for.
        accountants: What each accountant says.
        peak_memory_bytes: Expected peak memory of the release of a file, on this machine.
        disk_bytes: Expected size of the release folder.
        data_schema: The schema (``schema`` in JSON); None for a plan made from sizes alone,
            which cannot be released.
        preprocessing: What is done to records before they are mixed, in order. The mechanism's
            ``num_features`` is the width that the steps leave.
        unit_column: The public name of what owns several records each and is protected as a whole:
            a column of the input, ``patient`` say. None where single records are protected.
        max_records_per_unit: How many records of a unit take part at most; of the others nothing is
            used. None where single records are protected.
        risk: The most that an attacker may gain, if the plan was made for that.

    """

    model_config = ConfigDict(populate_by_name=True)
    _omitted_if_default: ClassVar[tuple[str, ...]] = ("unit_column", "max_records_per_unit", "risk")

    format_version: Literal[1] = 1
    mechanism: ReleaseConfig
    epsilon: float
    delta: float
    accountants: dict[str, Reading | None]
    peak_memory_bytes: int
    disk_bytes: int
    data_schema: Schema | None = Field(default=None, alias="schema")
    preprocessing: tuple[Step, ...] = ()
    unit_column: str | None = None
    max_records_per_unit: int | None = None
    risk: Risk | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        _validate.delta("delta", self.delta)
        self.unit.check(self.mechanism.neighboring_relation)
        for component in self.mechanism.components:
            component.check_noise_range()
        if (schema := self.data_schema) is not None:
            facts = record_facts(schema, self.mechanism.neighboring_relation)
            seen = step_facts(self.preprocessing, facts)
            for name in _SIZES:
                planned, stated = getattr(self.mechanism, name), getattr(seen[-1], name)
                if planned != stated:
                    _validate.fail(f"schema.{name}", f"{planned}, as planned", stated)
            if (target := self.mechanism.target) != schema.target:
                _validate.fail("schema.target", f"{target}, as planned", schema.target)
            for step, reached in zip(self.preprocessing, seen, strict=False):
                step.check_noise_range(reached)
                if target != "class" and step.needs_classes:
                    _validate.fail(
                        "preprocessing", f"steps without classes for target {target}", step.step
                    )
        return self

    @classmethod
    def for_config(
        cls,
        config: ReleaseConfig,
        delta: float,
        schema: Schema | None = None,
        preprocessing: tuple[Step, ...] = (),
        unit: PrivacyUnit = RECORD,
        *,
        max_memory: int | None = None,
        risk: Risk | None = None,
    ) -> ReleasePlan:
        """Account for planned steps and a mechanism, and estimate their cost.

        The peak of memory is that on this machine, for ``max_memory`` bytes if they are given.
        """
        unit.check(config.neighboring_relation)

        def lay_out(threads: int) -> MemoryLayout:
            sizes = (config.num_records, max_memory, threads)
            return _memory(config, schema, preprocessing, *sizes, sampled=unit != RECORD)

        accounting = account(whole_event(preprocessing, config, unit), delta)
        return cls(
            mechanism=config,
            epsilon=accounting.epsilon,
            delta=delta,
            accountants=accounting.accountants,
            peak_memory_bytes=lay_out(_most_threads(lay_out)).peak_bytes,
            disk_bytes=_disk_bytes(config, schema, preprocessing),
            data_schema=schema,
            preprocessing=preprocessing,
            unit_column=unit.column,
            max_records_per_unit=unit.max_records,
            risk=risk,
        )

    def memory(
        self,
        num_records: int,
        max_memory: int | None,
        threads: int,
        *,
        resident_bytes: int = 0,
        position: str = "max_memory",
    ) -> MemoryLayout:
        """Lay the release of ``num_records`` out in memory; see ``memory.memory_layout``."""
        return _memory(
            self.mechanism,
            self.data_schema,
            self.preprocessing,
            num_records,
            max_memory,
            threads,
            sampled=self.unit != RECORD,
            resident_bytes=resident_bytes,
            position=position,
        )

    def most_threads(self, max_memory: int | None) -> int:
        """All processors, or fewer if the planned release then stays within a memory."""
        return _most_threads(
            lambda threads: self.memory(self.mechanism.num_records, max_memory, threads)
        )

    def _repr_html_(self) -> str:
        """Show the plan in a notebook."""
        steps = ", ".join(step.step for step in self.preprocessing) or "none"
        facts = {
            "design": self.design,
            "rows": self.num_mixtures,
            "preprocessing": steps,
            "epsilon, delta": f"{stated_epsilon(self.epsilon)}, {self.delta}",
            "peak memory": f"{self.peak_memory_bytes / 1e6:.0f} MB",
            "disk": f"{self.disk_bytes / 1e6:.1f} MB",
        }
        return facts_html("privmix plan", facts)

    @property
    def unit(self) -> PrivacyUnit:
        """Whose presence is protected."""
        return PrivacyUnit(self.unit_column, self.max_records_per_unit)

    @property
    def guarantee(self) -> Guarantee:
        """What a release of the plan guarantees, in words, with epsilon as it will be stated."""
        return Guarantee.of(
            stated_epsilon(self.epsilon),
            self.delta,
            self.mechanism.neighboring_relation,
            num_records=self.mechanism.num_records,
            unit_column=self.unit_column,
            max_records_per_unit=self.max_records_per_unit,
        )

    @property
    def design(self) -> Design:
        """The mechanism's design."""
        return self.mechanism.design

    @property
    def num_mixtures(self) -> int:
        """Number of rows published."""
        return self.mechanism.num_mixtures

    @property
    def event(self) -> Event:
        """Charged steps and the mechanism, composed, as the accountants see them."""
        return whole_event(self.preprocessing, self.mechanism, self.unit)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data, the mechanism's fields beside the others."""
        data = self.model_dump(by_alias=True, mode="json")
        mechanism = data.pop("mechanism")
        return {**mechanism, **self._summary(), **data}

    def _summary(self) -> dict[str, Any]:
        names = (*_SIZES, "num_mixtures", "neighboring_relation")
        return {name: getattr(self.mechanism, name) for name in names}

    def to_json(self) -> str:
        """Return the plan as JSON, as ``privmix release --plan`` reads it."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str | bytes, position: str | None = None) -> Self:
        """Read what :meth:`to_json` wrote; a plan that contradicts itself is refused."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            _validate.fail(position or "plan", "valid JSON", str(error)[:80])
        _validate.refuse_repeated(position or "plan", text)
        if not isinstance(data, dict):
            _validate.fail(position or "plan", "a JSON object", type(data).__name__)
        own = {field.alias or name for name, field in cls.model_fields.items()}
        mechanism = {name: value for name, value in data.items() if name not in own}
        if "components" in mechanism:
            stated = {name: mechanism.pop(name) for name in list(mechanism) if name in _SUMMARY}
        else:
            stated = {}
        nested = {name: value for name, value in data.items() if name in own}
        plan = super().from_json(json.dumps({**nested, "mechanism": mechanism}), position)
        for name, value in stated.items():
            if (due := plan._summary()[name]) != value:
                _validate.fail(f"{position or 'plan'}.{name}", f"{due!r}, as in components", value)
        return plan

    def digest(self) -> bytes:
        """Return a SHA-256 of the mechanism and the schema; it binds the keys of a release."""
        text = self.model_dump_json(
            by_alias=True, exclude={"accountants", "peak_memory_bytes", "disk_bytes"}
        )
        return hashlib.sha256(b"privmix plan 1" + text.encode()).digest()

    def parameters_digest(self) -> str:
        """Return a SHA-256, in hexadecimal, of what the guarantee follows from, which a certificate keeps.

        The schema's names of classes and columns are not part of it.
        """
        facts = {"data_schema", "epsilon", "accountants", "peak_memory_bytes", "disk_bytes", "risk"}
        text = self.model_dump_json(by_alias=True, exclude=facts)
        return hashlib.sha256(b"privmix plan parameters 1" + text.encode()).hexdigest()


_SUMMARY = (*_SIZES, "num_mixtures", "neighboring_relation")


def record_facts(schema: Schema, relation: NeighboringRelation) -> RecordFacts:
    """Return the public facts of raw records."""
    return RecordFacts(
        **{name: getattr(schema, name) for name in _SIZES},
        clip_norm=schema.feature_clip_norm,
        neighboring_relation=relation,
    )


def planned_sizes(schema: Schema) -> dict[str, Any]:
    """Return what a mechanism needs to know of a schema: its sizes, and a target but classes."""
    sizes: dict[str, Any] = {name: getattr(schema, name) for name in _SIZES}
    return sizes if schema.target == "class" else {**sizes, "target": schema.target}


def whole_event(
    preprocessing: tuple[Step, ...], mechanism: ReleaseConfig, unit: PrivacyUnit = RECORD
) -> Event:
    """Compose what the steps cost with the mechanism, and take it as the unit sees it.

    Steps and mechanism see the same sample of a unit's records.
    """
    relation = mechanism.neighboring_relation
    steps = tuple(step.event(relation) for step in charged(preprocessing))
    whole = ComposedEvent(events=(*steps, mechanism.event)) if steps else mechanism.event
    return unit.event(whole)


def cost(event: Event, delta: float, group_size: int | None = None) -> dict[str, Any]:
    """State what a mechanism costs at ``delta``, as plain data.

    Beside the certified epsilon and the accountants' readings: the ``components`` of a composed
    event, each on its own, and ``group_epsilon`` for a person with up to ``group_size`` records.
    """
    told = account(event, delta).to_dict()
    inner, size = per_record(event)
    unit = RECORD
    if inner is not event:
        unit = PrivacyUnit(event.unit, size)
        told |= {"unit_column": event.unit, "max_records_per_unit": size}
    if isinstance(inner, ComposedEvent):
        told["components"] = [
            {"mechanism": part.mechanism, **account(unit.event(part), delta).to_dict()}
            for part in inner.events
        ]
    if group_size is not None:
        told["group_epsilon"] = group_epsilon(event, delta, group_size=group_size)
    return told


def claim(claimed_event: Event, delta: float) -> dict[str, Any]:
    """State what a paper's accounting makes of a mechanism: no guarantee, and marked so."""
    claimed = account(claimed_event, delta)
    gdp = claimed.accountants["gdp"]
    return {
        "epsilon": claimed.epsilon,
        "epsilon_central_limit": None if gdp is None else gdp.epsilon,
        "guarantee": False,
    }


def _disk_bytes(
    config: ReleaseConfig, schema: Schema | None, preprocessing: tuple[Step, ...]
) -> int:
    def table(component: TableConfig) -> int:
        numbers = component.row_width * (
            2 if component.design == "residual" else 1
        )  # rows and weights
        return component.num_mixtures * (4 * numbers + (8 if component.labels == "public" else 0))

    results = sum(_result_sizes(config, schema, preprocessing))
    components: tuple[TableConfig, ...] = config.components
    return sum(map(table, components)) + 8 * results + (64 << 10)


def _result_sizes(
    config: ReleaseConfig, schema: Schema | None, preprocessing: tuple[Step, ...]
) -> list[int]:
    """Numbers that each step publishes; without a schema the records' width is not known."""
    if schema is None:
        return []
    seen = step_facts(preprocessing, record_facts(schema, config.neighboring_relation))
    return [
        sum(math.prod(part.shape) for part in step.statistics(facts)) + facts.num_features
        for step, facts in zip(preprocessing, seen, strict=False)
        if step.is_charged
    ]


def _step_bytes(
    config: ReleaseConfig, schema: Schema | None, preprocessing: tuple[Step, ...]
) -> int:
    """Most bytes that the steps hold: one's sums at a time, and the matrices of all projections.

    Sums are there in four copies. Those of second moments become a whole matrix of which the
    eigenvectors are found: 14 numbers for each of half a matrix, measured.
    """
    if schema is None:
        return 0
    charged = [step for step in preprocessing if step.is_charged]
    sizes = _result_sizes(config, schema, preprocessing)
    sums = [
        (112 if step.step == "subspace" else 32) * size
        for step, size in zip(charged, sizes, strict=True)
    ]
    seen = step_facts(preprocessing, record_facts(schema, config.neighboring_relation))
    matrices = [
        16 * step.num_directions * facts.num_features
        for step, facts in zip(preprocessing, seen, strict=False)
        if step.step == "random_projection"
    ]
    return max(sums, default=0) + sum(matrices)


def _most_threads(lay_out: Callable[[int], MemoryLayout]) -> int:
    for threads in range(default_threads(), 1, -1):
        with suppress(InvalidInputError):
            lay_out(threads)
            return threads
    return 1


def _memory(
    config: ReleaseConfig,
    schema: Schema | None,
    preprocessing: tuple[Step, ...],
    num_records: int,
    max_memory: int | None,
    threads: int,
    *,
    sampled: bool,
    resident_bytes: int = 0,
    position: str = "max_memory",
) -> MemoryLayout:
    """Lay a release out, with what the steps hold."""
    return memory_layout(
        config,
        num_records,
        max_memory,
        threads,
        raw_width=schema.num_features if schema is not None and preprocessing else None,
        sampled=sampled,
        other_bytes=resident_bytes + _step_bytes(config, schema, preprocessing),
        position=position,
    )
