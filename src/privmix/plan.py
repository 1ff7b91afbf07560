"""Plans of releases: every number fixed in advance, without a look at the data."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypedDict, Unpack, cast

from pydantic import ConfigDict, Field, model_validator

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.accounting import (
    ComposedEvent,
    Event,
    GroupEvent,
    Reading,
    account,
    calibrate,
    calibrate_noise_multiplier,
    gdp_epsilon,
    gdp_mu_from,
    group_epsilon,
    per_record,
)
from privmix.mechanism import (
    DESIGNS,
    Design,
    MixtureConfig,
    Relation,
    ReleaseConfig,
    admits,
    check_target,
    hybrid_config,
    mixture_config,
)
from privmix.memory import MemoryLayout, memory_layout
from privmix.planning_rule import recommend_design
from privmix.preprocess import RecordFacts, Step, charged, plan_steps, step_facts
from privmix.resources import default_threads
from privmix.schema import Schema

_MOST_MIXTURES = 10**8
_SIZES = ("num_records", "num_classes", "num_features")


class DesignOptions(TypedDict, total=False):
    """What can be set about a design besides its noise; see :func:`plan_release`."""

    mix_size: float | None
    num_mixtures: int | None
    sampling_prob: float | None
    rows_per_class: int | None
    rows_per_record: int | None
    class_prob: float | None
    eligibility: Literal["balanced", "random"] | None
    feature_budget: float | None
    weight_alpha: float | None
    weight_clip: float | None
    neighboring_relation: Relation | None
    label_balance: float | None


OPTIONS: dict[Design, tuple[str, ...]] = {
    "poisson": ("mix_size", "num_mixtures", "label_balance"),
    "signed": ("mix_size", "num_mixtures", "label_balance"),
    "stratified": ("sampling_prob", "rows_per_class"),
    "hybrid": ("mix_size", "num_mixtures", "feature_budget"),
    "hierarchical": ("mix_size", "num_mixtures", "class_prob", "eligibility", "label_balance"),
    "uniform": ("mix_size", "num_mixtures", "weight_alpha", "weight_clip", "label_balance"),
    "transposed": ("rows_per_record", "num_mixtures", "neighboring_relation", "label_balance"),
}
_DEFAULTS: dict[str, Any] = {
    "sampling_prob": 0.5,
    "rows_per_class": 100,
    "eligibility": "balanced",
    "feature_budget": 0.25,
    "neighboring_relation": "add_or_remove_one",
    "label_balance": math.sqrt(2),
}


class PrivacyUnit(NamedTuple):
    """Whose presence a release protects: one record, or one owner of several.

    Attributes:
        column: The owners' public name, which is a column of the input; None for records.
        max_records: Most records of an owner that take part; None for records.

    """

    column: str | None = None
    max_records: int | None = None

    def check(self, relation: Relation) -> None:
        """Refuse half a unit, and a relation under which nothing follows for units."""
        if (self.column is None) != (self.max_records is None):
            missing = "unit_column" if self.column is None else "max_records_per_unit"
            other = "max_records_per_unit" if self.column is None else "unit_column"
            _validate.fail(missing, f"a value beside {other}", "nothing")
        if self.column is None:
            return
        if not isinstance(self.column, str) or not self.column.strip() or self.column == "record":
            _validate.fail("unit_column", "a name other than 'record'", repr(self.column))
        _validate.integer("max_records_per_unit", self.max_records, at_most=10**6)
        if relation != "add_or_remove_one":
            # Replacing a unit by another changes the number of records.
            allowed = "nothing for a release under replace_one, whose number of records is fixed"
            _validate.fail("unit_column", allowed, self.column)

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
        epsilon: Certified privacy loss at ``delta``.
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

    """

    model_config = ConfigDict(populate_by_name=True)
    _seldom: ClassVar[tuple[str, ...]] = ("unit_column", "max_records_per_unit")

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

    @model_validator(mode="after")
    def _check(self) -> Self:
        _validate.delta("delta", self.delta)
        self.unit.check(self.mechanism.neighboring_relation)
        for part in self.mechanism.components:
            part.check_noise_range()
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
                    _validate.fail("preprocessing", f"none of classes for {target}", step.step)
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
    ) -> ReleasePlan:
        """Account for planned steps and a mechanism, and estimate their cost.

        The peak of memory is that on this machine, for ``max_memory`` bytes if they are given.
        """
        unit.check(config.neighboring_relation)
        accounting = account(whole_event(preprocessing, config, unit), delta)
        return cls(
            mechanism=config,
            epsilon=accounting.epsilon,
            delta=delta,
            accountants=accounting.accountants,
            peak_memory_bytes=_memory(
                config,
                schema,
                preprocessing,
                config.num_records,
                max_memory,
                default_threads(),
                sampled=unit != RECORD,
            ).peak_bytes,
            disk_bytes=_disk_bytes(config, schema, preprocessing),
            data_schema=schema,
            preprocessing=preprocessing,
            unit_column=unit.column,
            max_records_per_unit=unit.max_records,
        )

    def memory(
        self,
        num_records: int,
        max_memory: int | None,
        threads: int,
        *,
        resident_bytes: int = 0,
        place: str = "max_memory",
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
            place=place,
        )

    @property
    def unit(self) -> PrivacyUnit:
        """Whose presence is protected."""
        return PrivacyUnit(self.unit_column, self.max_records_per_unit)

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
    def from_json(cls, text: str | bytes, place: str | None = None) -> Self:
        """Read what :meth:`to_json` wrote; a plan that contradicts itself is refused."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            _validate.fail(place or "plan", "valid JSON", str(error)[:80])
        if not isinstance(data, dict):
            _validate.fail(place or "plan", "a JSON object", type(data).__name__)
        own = {field.alias or name for name, field in cls.model_fields.items()}
        mechanism = {name: value for name, value in data.items() if name not in own}
        if "components" in mechanism:
            stated = {name: mechanism.pop(name) for name in list(mechanism) if name in _SUMMARY}
        else:
            stated = {}
        nested = {name: value for name, value in data.items() if name in own}
        plan = super().from_json(json.dumps({**nested, "mechanism": mechanism}), place)
        for name, value in stated.items():
            if (due := plan._summary()[name]) != value:
                _validate.fail(f"{place or 'plan'}.{name}", f"{due!r}, as in components", value)
        return plan

    def digest(self) -> bytes:
        """Return a SHA-256 of the mechanism and the schema; it binds the keys of a release."""
        text = self.model_dump_json(
            by_alias=True, exclude={"accountants", "peak_memory_bytes", "disk_bytes"}
        )
        return hashlib.sha256(b"privmix plan 1" + text.encode()).digest()


_SUMMARY = (*_SIZES, "num_mixtures", "neighboring_relation")


def record_facts(schema: Schema, relation: Relation) -> RecordFacts:
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


def plan_release(
    schema: Schema,
    *,
    target_epsilon: float,
    target_delta: float,
    design: Design | Literal["auto"] = "auto",
    preprocessing: Sequence[Step] | None = None,
    unit_column: str | None = None,
    max_records_per_unit: int | None = None,
    **options: Unpack[DesignOptions],
) -> ReleasePlan:
    """Plan a release that costs at most (``target_epsilon``, ``target_delta``). Sees no data.

    Args:
        schema: The public facts.
        target_epsilon: Largest epsilon allowed, above 0.
        target_delta: Its delta, in (0, 1).
        design: One of ``mechanism.DESIGNS``, or ``auto``: what
            ``privmix.planning_rule.recommend_design`` puts first among the designs that have the
            options given, with its sizes where none are given. ``stratified``, ``hybrid`` and
            ``hierarchical`` need the target ``class``.
        preprocessing: Steps of ``privmix.preprocess``, in order. Charged ones spend their
            ``budget_share`` of the squared GDP parameter of the target; the mechanism gets what
            they leave. By default none for a given design; with ``auto``, centring where that is
            predicted to help.
        unit_column: Name of what owns several records each, ``patient`` say: the guarantee is then
            for all records of one owner together. Needs ``max_records_per_unit``, and a design
            under add_or_remove_one. ``num_records`` of the schema is what is left of the records
            once at most that many of each owner are.
        max_records_per_unit: How many records of one owner take part at most, chosen at random.
        **options: What the design lets you set, by keyword:

            - ``num_mixtures``: number of rows; ``schema.num_records`` by default (all but
              ``stratified``; ``hybrid``: its signed rows).
            - ``mix_size``: planned number of records in a row; by default 64, or half of all of them (all but
              ``stratified`` and ``transposed``).
            - ``label_balance``: label over feature noise multiplier; sqrt(2) by default (designs
              with noisy labels).
            - ``sampling_prob``, ``rows_per_class``: ``stratified``: probability that a record
              enters a row of its class (0.5), and rows of each class (100).
            - ``rows_per_record``, ``neighboring_relation``: ``transposed``: rows that each record
              enters (64), and ``add_or_remove_one`` or ``replace_one``.
            - ``class_prob``, ``eligibility``: ``hierarchical``: share of the rows that a class is
              open to (no default), and ``balanced`` (default) or ``random``.
            - ``feature_budget``: ``hybrid``: share of the budget for the signed rows (0.25).
            - ``weight_alpha``, ``weight_clip``: ``uniform``: Dirichlet concentration and upper
              bound of random weights; equal weights by default.

    Returns:
        A plan whose certified epsilon is at or below the target.

    Raises:
        InvalidInputError: An argument out of range, or one that the design does not have.

    """
    sizes = planned_sizes(schema)
    unit = PrivacyUnit(unit_column, max_records_per_unit)
    unit.check("add_or_remove_one")
    target = {"target_epsilon": target_epsilon, "target_delta": target_delta}
    steps = None if preprocessing is None else tuple(preprocessing)
    design, options, steps = choose_design(sizes, design, options, steps, **target, unit=unit)
    steps = fix_steps(steps, **target, unit=unit)
    config = calibrate_config(
        sizes | {"num_features": width_after(steps, sizes["num_features"])},
        design,
        options,
        target_epsilon=target_epsilon,
        target_delta=target_delta,
        preprocessing=steps,
        unit=unit,
    )
    return ReleasePlan.for_config(config, target_delta, schema, steps, unit)


def choose_design(
    sizes: dict[str, Any],
    design: Design | Literal["auto"],
    options: DesignOptions,
    preprocessing: tuple[Step, ...] | None,
    *,
    target_epsilon: float,
    target_delta: float,
    unit: PrivacyUnit = RECORD,
) -> tuple[Design, DesignOptions, tuple[Step, ...]]:
    """Replace ``auto`` by a design with options, and None by steps; what is given stays.

    Args:
        sizes: As :func:`planned_sizes` has them: those of raw records, and the target.
        design: A design or ``auto``.
        options: Those given; ``auto`` considers only designs that have them.
        preprocessing: Steps, or None to have ``auto`` decide on centring.
        target_epsilon: Largest epsilon allowed.
        target_delta: Its delta.
        unit: Whose presence is protected.

    """
    if design != "auto":
        return design, options, preprocessing or ()
    given = {name: value for name, value in options.items() if value is not None}
    spent = sum(step.budget_share for step in charged(preprocessing or ()))
    _validate.real("preprocessing: sum of budget_share", spent, below=1.0)
    width = width_after(preprocessing or (), sizes["num_features"])
    epsilon = _validate.real("target_epsilon", target_epsilon, at_least=1e-6, at_most=1e4)
    _validate.delta("target_delta", target_delta)
    if unit != RECORD:
        epsilon = max(gdp_epsilon(unit.record_mu(epsilon, target_delta), target_delta), 1e-6)
    found = recommend_design(
        num_records=sizes["num_records"],
        num_classes=max(2, sizes["num_classes"]),  # one output is as hard to learn as two classes
        num_features=width,
        epsilon=epsilon,
        delta=target_delta,
        budget_share=1 - spent,
        num_mixtures=options.get("num_mixtures"),
    )
    # Centred records are scaled to one length, which keeps directions but not what is linear in x.
    numbers = sizes.get("target") == "regression"
    fitting = [
        alternative
        for alternative in found
        if given.keys() <= set(OPTIONS[alternative.design])
        and admits(alternative.design, sizes.get("target", "class"))
        and (alternative.center_share is None or (preprocessing is None and not numbers))
    ]
    if not fitting:
        names = ", ".join(sorted(given))
        _validate.fail("design", f"one that has the options {names}", "auto, which considers none")
    best = fitting[0]
    chosen = cast(DesignOptions, best.options | given)
    return best.design, chosen, best.preprocessing or preprocessing or ()


def width_after(steps: tuple[Step, ...], num_features: int) -> int:
    """Return the width of records after the steps."""
    for step in steps:
        num_features = step.num_outputs(num_features)
    return num_features


def fix_steps(
    preprocessing: Sequence[Step],
    *,
    target_epsilon: float,
    target_delta: float,
    unit: PrivacyUnit = RECORD,
) -> tuple[Step, ...]:
    """Fix the noise of the steps of a release that costs at most the target."""
    _validate.real("target_epsilon", target_epsilon, at_least=1e-6, at_most=1e4)
    gdp_mu = unit.record_mu(target_epsilon, _validate.delta("target_delta", target_delta))
    return plan_steps(tuple(preprocessing), gdp_mu)


def calibrate_config(
    sizes: dict[str, Any],
    design: Design,
    options: DesignOptions,
    *,
    target_epsilon: float,
    target_delta: float,
    preprocessing: tuple[Step, ...] = (),
    unit: PrivacyUnit = RECORD,
) -> ReleaseConfig:
    """Find the least noise that keeps planned steps and a design at or below the target."""
    _validate.real("target_epsilon", target_epsilon, at_least=1e-6, at_most=1e4)
    _validate.delta("target_delta", target_delta)
    unit.check(configure(sizes, design, options, 1.0).neighboring_relation)

    def event(noise: float) -> Event:
        return whole_event(preprocessing, configure(sizes, design, options, noise), unit)

    joint = calibrate_noise_multiplier(event, target_epsilon, target_delta)
    config = configure(sizes, design, options, joint)
    # The full accounting may take other grids than the search did; it is the one that counts.
    while account(event(joint), target_delta).epsilon > target_epsilon:
        joint *= 1 + 1e-6
        config = configure(sizes, design, options, joint)
    return config


def solve_config(
    sizes: dict[str, Any],
    design: Design,
    options: DesignOptions,
    unknown: Literal["mix_size", "num_mixtures"],
    *,
    noise_multiplier: float,
    target_epsilon: float,
    target_delta: float,
    preprocessing: tuple[Step, ...] = (),
    unit: PrivacyUnit = RECORD,
) -> ReleaseConfig:
    """Find the largest mix size, or number of mixtures, that a given noise affords.

    Args:
        sizes: As :func:`planned_sizes` has them.
        design: A design that has ``unknown`` among its options.
        options: The other options.
        unknown: What to solve for.
        noise_multiplier: Joint noise multiplier.
        target_epsilon: Largest epsilon allowed.
        target_delta: Its delta.
        preprocessing: Planned steps that the release runs before.
        unit: Whose presence is protected.

    Raises:
        InvalidInputError: The design has no such option, or no value meets the target; the error
            names the reachable range.

    """
    _validate.one_of("design", design, DESIGNS)
    if unknown not in OPTIONS[design]:
        _validate.fail("unknown", f"an option of {design}: {', '.join(OPTIONS[design])}", unknown)
    whole = unknown == "num_mixtures" or design == "uniform"
    upper = float(sizes["num_records"]) if unknown == "mix_size" else float(_MOST_MIXTURES)
    if unknown == "mix_size" and options.get("class_prob") is not None:
        upper *= float(options["class_prob"] or 1.0)  # more would include records with certainty

    def with_value(value: float) -> ReleaseConfig:
        known = cast(DesignOptions, {**options, unknown: round(value) if whole else value})
        return configure(sizes, design, known, noise_multiplier)

    value = calibrate(
        lambda value: whole_event(preprocessing, with_value(value), unit),
        unknown,
        target_epsilon=target_epsilon,
        target_delta=target_delta,
        lower=1.0 if whole else min(1e-3, upper),
        upper=upper,
        increasing=True,
        integer=whole,
    )
    return with_value(value)


def configure(
    sizes: dict[str, Any],
    design: Design,
    options: DesignOptions,
    noise_multiplier: float,
) -> ReleaseConfig:
    """Build a mechanism from sizes, a design with its options, and a joint noise multiplier.

    ``hybrid``: ``noise_multiplier`` is one over the GDP parameter that is divided between its
    parts.
    """
    _validate.integer("num_records", sizes["num_records"])
    _validate.integer("num_features", sizes["num_features"])
    _validate.real("noise_multiplier", noise_multiplier, above=0.0, at_most=1e12)
    _validate.one_of("design", design, DESIGNS)
    check_target(design, sizes.get("target", "class"), sizes["num_classes"])
    chosen = _chosen_options(design, options)
    if design == "hybrid":
        sums = _layout("stratified", sizes, {"sampling_prob": 1.0, "rows_per_class": 1})
        rows = _layout("signed", sizes, chosen)
        return hybrid_config(sums, rows, noise_multiplier, chosen["feature_budget"])
    return mixture_config(
        _layout(design, sizes, chosen), noise_multiplier, chosen.get("label_balance")
    )


def _chosen_options(design: Design, options: DesignOptions) -> dict[str, Any]:
    """Check that options belong to the design, and fill in the defaults."""
    given: dict[str, Any] = {name: v for name, v in options.items() if v is not None}
    for name, value in given.items():
        if name not in OPTIONS[design]:
            own = ", ".join(OPTIONS[design])
            _validate.fail(name, f"nothing for design {design}, whose options are {own}", value)
    if design == "hierarchical" and "class_prob" not in given:
        _validate.fail("class_prob", "a probability, for design hierarchical", "nothing")
    return {
        name: given.get(name, _DEFAULTS.get(name))
        for name in OPTIONS[design]
        if name in given or name in _DEFAULTS
    }


def _layout(design: Design, sizes: dict[str, Any], chosen: dict[str, Any]) -> dict[str, Any]:
    """Derive everything but the noise."""
    num_records, num_classes = sizes["num_records"], sizes["num_classes"]
    layout: dict[str, Any] = {"design": design, **sizes}
    if design == "stratified":
        prob = _validate.probability("sampling_prob", chosen["sampling_prob"])
        rows = _validate.integer("rows_per_class", chosen["rows_per_class"])
        size = prob * num_records / num_classes
        return layout | {
            "num_mixtures": rows * num_classes,
            "sampling_prob": prob,
            "mix_size": size,
        }
    mixtures = _validate.integer("num_mixtures", chosen.get("num_mixtures", num_records))
    if design == "transposed":
        given = chosen.get("rows_per_record", min(64, mixtures))
        rows = _validate.integer("rows_per_record", given, at_most=mixtures)
        prob, size = rows / mixtures, rows / mixtures * num_records
        layout |= {"rows_per_record": rows, "neighboring_relation": chosen["neighboring_relation"]}
    else:
        given = chosen.get("mix_size", min(64, max(1, num_records // 2)))
        size = _validate.real("mix_size", given, above=0.0, at_most=num_records)
        prob = size / num_records
    layout |= {"num_mixtures": mixtures, "sampling_prob": prob, "mix_size": float(size)}
    if design == "uniform":
        layout["neighboring_relation"] = "replace_one"
    extras = ("class_prob", "eligibility", "weight_alpha", "weight_clip")
    return layout | {name: chosen[name] for name in extras if name in chosen}


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
    def table(part: MixtureConfig) -> int:
        return part.num_mixtures * (4 * part.row_width + (8 if part.labels == "public" else 0))

    results = sum(_result_sizes(config, schema, preprocessing))
    return sum(map(table, config.components)) + 8 * results + (64 << 10)


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
    place: str = "max_memory",
) -> MemoryLayout:
    """Lay a release out; the largest of the steps' sums is there in four copies."""
    results = 32 * max(_result_sizes(config, schema, preprocessing), default=0)
    return memory_layout(
        config,
        num_records,
        max_memory,
        threads,
        raw_width=schema.num_features if schema is not None and preprocessing else None,
        sampled=sampled,
        other_bytes=resident_bytes + results,
        place=place,
    )
