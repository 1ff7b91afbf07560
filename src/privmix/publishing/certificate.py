"""The certificate of a release: what was done and what it guarantees; no private fact.

Everything in it follows from the plan, the library and the published rows, so that another party
can recompute it.
"""

from __future__ import annotations

import hashlib
import math
import platform
import re
from importlib.metadata import version
from typing import ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.accounting import Event, Reading, account, epsilon_at, tradeoff_curve
from privmix.accounting.events import NeighboringRelation
from privmix.clipping import FixedPoint
from privmix.inputs.extractor import ExtractorIdentity
from privmix.mechanism import MixtureConfig, ReleaseConfig
from privmix.planning.plan import ReleasePlan
from privmix.preprocess import Step
from privmix.sampling import WEIGHT_SCALE
from privmix.schema import Schema

FORMAT_VERSION: Literal[1] = 1
FILE_NAME = "certificate.json"
CERTIFIED_DELTAS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)

_LIBRARIES = ("privmix", "cryptography", "numba", "numpy", "pyarrow", "scipy")
_CURVE_POINTS = 33
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!_-]{0,40}")
# Two machines' accountants agree far better than this; a certificate may not claim less.
_TOLERANCE = 1e-6


class TradeoffCurve(FrozenModel):
    """Certified lower bound of the trade-off function (f-DP), point by point."""

    false_positive_rate: tuple[float, ...]
    false_negative_rate: tuple[float, ...]


class TableFacts(FrozenModel):
    """What a published number of one table carries.

    Attributes:
        feature_noise_stddev: Noise stddev of a feature value.
        label_noise_stddev: Noise stddev of a label weight; None without label weights.
        feature_step: Distance between neighbouring feature values.
        label_step: Distance between neighbouring label weights, or None.

    """

    feature_noise_stddev: float
    label_noise_stddev: float | None
    feature_step: float
    label_step: float | None

    @classmethod
    def for_config(cls, config: MixtureConfig, schema: Schema) -> TableFacts:
        """Derive the facts of one table."""
        mixed = config.labels == "mixed"
        unit = config.divisor * (1 if config.weight_clip is None else WEIGHT_SCALE)
        features, labels = FixedPoint(schema.feature_clip_norm), FixedPoint(schema.label_clip_norm)
        label_stddev = config.published_stddev(schema.label_clip_norm, "label") if mixed else None
        return cls(
            feature_noise_stddev=config.published_stddev(schema.feature_clip_norm, "feature"),
            label_noise_stddev=label_stddev,
            feature_step=1 / (features.scale * unit),
            label_step=1 / (labels.scale * unit) if mixed else None,
        )


class Certificate(FrozenModel):
    """What a release did and what it guarantees; public, JSON in and out.

    Attributes:
        private: False for a release made with a test seed, which protects nobody.
        privacy_unit: Whose presence is protected: one ``record``, or one ``unit`` with all of its
            records.
        unit_column: ``unit``: the public name of what a unit is; None for ``record``.
        max_records_per_unit: ``unit``: how many records of a unit took part at most.
        mechanism: The mechanism with all its parameters.
        event: Charged preprocessing and the mechanism, composed, as the accountants see them.
        epsilon: Certified at ``delta``.
        epsilon_by_delta: Certified epsilons at other deltas.
        sampler_error: Total-variation distance between the release and the ideal mechanism, given
            uniform random words: both samplers are exact.
        tables: Noise of the published numbers, one entry for each table of rows.
        preprocessing: What was done to records before they were mixed; ``event`` composes what the
            charged steps cost.
        extractor: Identity of the public feature extractor, or None for features as given.
        files: SHA-256 of every file of the release but this one.

    """

    model_config = ConfigDict(populate_by_name=True)
    _seldom: ClassVar[tuple[str, ...]] = ("unit_column", "max_records_per_unit")

    format_version: Literal[1] = FORMAT_VERSION
    private: bool
    privacy_unit: Literal["record", "unit"] = "record"
    unit_column: str | None = None
    max_records_per_unit: int | None = None
    neighboring_relation: NeighboringRelation
    epsilon: float
    delta: float
    data_schema: Schema = Field(alias="schema")
    mechanism: ReleaseConfig
    event: Event
    accountants: dict[str, Reading | None]
    epsilon_by_delta: dict[str, float]
    tradeoff_curve: TradeoffCurve
    sampler_error: Literal[0] = 0
    tables: tuple[TableFacts, ...]
    preprocessing: tuple[Step, ...] = ()
    extractor: ExtractorIdentity | None = None
    library_versions: dict[str, str]
    files: dict[str, str]

    @model_validator(mode="after")
    def _check(self) -> Self:
        due = len(self.mechanism.components)
        if len(self.tables) != due:
            _validate.fail("tables", f"{due}, one for each component", len(self.tables))
        for name, number in self.library_versions.items():
            if name not in (*_LIBRARIES, "python") or not _VERSION.fullmatch(number):
                _validate.fail("library_versions", "versions of known libraries", name)
        return self

    @classmethod
    def for_plan(
        cls,
        plan: ReleasePlan,
        *,
        private: bool,
        files: dict[str, str],
        extractor: ExtractorIdentity | None = None,
    ) -> Certificate:
        """Certify a plan with a schema, accounting anew."""
        if (schema := plan.data_schema) is None:
            _validate.fail("plan.schema", "a schema", "none")
        config, event = plan.mechanism, plan.event
        accounting = account(event, plan.delta)
        return cls(
            private=private,
            privacy_unit="record" if plan.unit_column is None else "unit",
            unit_column=plan.unit_column,
            max_records_per_unit=plan.max_records_per_unit,
            neighboring_relation=config.neighboring_relation,
            epsilon=accounting.epsilon,
            delta=plan.delta,
            data_schema=schema,
            mechanism=config,
            event=event,
            accountants=accounting.accountants,
            epsilon_by_delta=epsilon_by_delta(event) | {_name(plan.delta): accounting.epsilon},
            tradeoff_curve=tradeoff_points(event),
            preprocessing=plan.preprocessing,
            tables=tuple(TableFacts.for_config(part, schema) for part in config.components),
            extractor=extractor,
            library_versions={name: version(name) for name in _LIBRARIES}
            | {"python": platform.python_version()},
            files=files,
        )

    def to_bytes(self) -> bytes:
        """Return the certificate as the bytes of its file."""
        return (self.model_dump_json(by_alias=True, indent=2) + "\n").encode()

    def digest(self) -> str:
        """Return the SHA-256 of the certificate's file: 64 hexadecimal digits."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_plan(self) -> ReleasePlan:
        """Return the plan that the certificate states, without its cost in bytes."""
        return ReleasePlan(
            mechanism=self.mechanism,
            epsilon=self.epsilon,
            delta=self.delta,
            accountants=self.accountants,
            peak_memory_bytes=0,
            disk_bytes=0,
            data_schema=self.data_schema,
            preprocessing=self.preprocessing,
            unit_column=self.unit_column,
            max_records_per_unit=self.max_records_per_unit,
        )

    def recheck(self) -> list[str]:
        """Recompute everything that follows from the parameters; return what does not hold."""
        expected = Certificate.for_plan(
            self.to_plan(), private=self.private, files=self.files, extractor=self.extractor
        )
        reasons = [
            f"certificate: {place} is {found}, but its parameters give {due}"
            for place, found, due in differences(
                self.model_dump(exclude={"library_versions"}),
                expected.model_dump(exclude={"library_versions"}),
            )
        ]
        if not self.private:
            reasons.append("certificate: private is false, the release protects nobody")
        return reasons


def differences(found: object, due: object, place: str = "") -> list[tuple[str, object, object]]:
    """List (place, found, due) wherever two trees of plain data disagree."""
    if isinstance(found, dict) and isinstance(due, dict):
        names = sorted(set(found) | set(due), key=str)
        return [
            difference
            for name in names
            for difference in differences(
                found.get(name), due.get(name), f"{place}.{name}" if place else str(name)
            )
        ]
    if isinstance(found, tuple | list) and isinstance(due, tuple | list) and len(found) == len(due):
        pairs = enumerate(zip(found, due, strict=True))
        return [d for i, (a, b) in pairs for d in differences(a, b, f"{place}[{i}]")]
    if isinstance(found, float) and isinstance(due, float):
        # Rates of the trade-off curve may be zero up to rounding; other numbers have units.
        slack = 1e-9 if place.startswith("tradeoff_curve") else 0.0
        same = math.isclose(found, due, rel_tol=_TOLERANCE, abs_tol=slack)
        return [] if same else [(place, found, due)]
    return [] if found == due else [(place, found, due)]


def _name(delta: float) -> str:
    return f"{delta:g}"


def epsilon_by_delta(event: Event) -> dict[str, float]:
    """Return certified epsilons by delta, as a certificate names it."""
    return {_name(d): epsilon for d, epsilon in epsilon_at(event, CERTIFIED_DELTAS).items()}


def tradeoff_points(event: Event) -> TradeoffCurve:
    """Return the certified trade-off curve of an event."""
    false_positive, false_negative = tradeoff_curve(event, num_points=_CURVE_POINTS)
    return TradeoffCurve(
        false_positive_rate=tuple(map(float, false_positive)),
        false_negative_rate=tuple(map(float, false_negative)),
    )
