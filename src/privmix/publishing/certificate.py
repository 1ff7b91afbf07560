"""The certificate of a release: what was done and what it guarantees; no private fact.

Everything in it follows from the plan, the library and the published rows, so that another party
can recompute it.
"""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import version
from typing import Any, ClassVar, Literal, Protocol, Self

from pydantic import ConfigDict, Field, model_validator

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.accounting import Event, Reading
from privmix.accounting.stated import Statement, TradeoffCurve, statements
from privmix.clipping import FixedPoint
from privmix.inputs.extractor import ExtractorIdentity
from privmix.markup import facts_html
from privmix.mechanism import ReleaseConfig, TableConfig
from privmix.planning.plan import ReleasePlan
from privmix.preprocess import Step
from privmix.publishing.sealing import Sealable
from privmix.schema import Schema

FILE_NAME = "certificate.json"
# What is shown of a certificate that nothing was checked of.
UNVERIFIED = "as its certificate says: privmix verify checks it"
SIGNATURE_NAME = "certificate.json.sig"  # of the certificate's bytes, so no file that it lists

_LIBRARIES = ("privmix", "cryptography", "numba", "numpy", "pyarrow", "scipy")
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!_-]{0,40}")
# Of what follows by plain arithmetic: no more than what mathematical libraries differ in.
_TOLERANCE = 1e-12
_STATED = ("epsilon", "accountants", "tradeoff_curve")  # what accountants say, by its position


def check_versions(found: Mapping[str, str], libraries: Collection[str]) -> None:
    """Refuse what are no version numbers of Python and of some libraries: nothing else is said there."""
    for name, number in found.items():
        if name not in (*libraries, "python") or not _VERSION.fullmatch(number):
            _validate.fail("library_versions", "versions of known libraries", repr(name))


class CertifiablePlan(Protocol):
    """What certificates of all kinds state of their plans."""

    @property
    def delta(self) -> float:
        """Where epsilon is certified."""

    @property
    def event(self) -> Event:
        """What is computed from the records, as the accountants see it."""

    @property
    def unit_column(self) -> str | None:
        """The public name of what owns several records; None where records are protected."""

    @property
    def max_records_per_unit(self) -> int | None:
        """How many records of an owner take part at most."""


def stated_fields(
    plan: CertifiablePlan, stated: Statement, libraries: Collection[str]
) -> dict[str, Any]:
    """Return the fields that certificates of all kinds fill alike, by their names."""
    versions = {name: version(name) for name in libraries}
    return {
        "privacy_unit": "record" if plan.unit_column is None else "unit",
        "unit_column": plan.unit_column,
        "max_records_per_unit": plan.max_records_per_unit,
        "epsilon": stated.epsilon,
        "delta": plan.delta,
        "event": plan.event,
        "accountants": stated.accountants,
        "epsilon_by_delta": stated.epsilon_by_delta,
        "tradeoff_curve": stated.tradeoff_curve,
        "library_versions": versions | {"python": platform.python_version()},
    }


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
    def for_config(cls, config: TableConfig, schema: Schema) -> TableFacts:
        """Derive the facts of one table."""
        mixed = config.labels == "mixed"
        unit = config.divisor * config.weight_unit
        features, labels = FixedPoint(schema.feature_clip_norm), FixedPoint(schema.label_clip_norm)
        label_stddev = config.published_stddev(schema.label_clip_norm, "label") if mixed else None
        return cls(
            feature_noise_stddev=config.published_stddev(schema.feature_clip_norm, "feature"),
            label_noise_stddev=label_stddev,
            feature_step=1 / (features.scale * unit),
            label_step=1 / (labels.scale * unit) if mixed else None,
        )


class Certificate(Sealable):
    """What a release did and what it guarantees; public, JSON in and out.

    Attributes:
        private: False for a release made with a test seed, which protects nobody.
        statement: The guarantee in words, or that there is none.
        privacy_unit: Whose presence is protected: one ``record``, or one ``unit`` with all of its
            records.
        unit_column: ``unit``: the public name of what a unit is; None for ``record``.
        max_records_per_unit: ``unit``: how many records of a unit took part at most.
        mechanism: The mechanism with all its parameters.
        event: Charged preprocessing and the mechanism, composed, as the accountants see them.
        epsilon: Certified at ``delta``; rounded up, as all bounds here (``accounting.stated``).
        epsilon_by_delta: Certified epsilons at other deltas, which are written in full.
        sampler_error: Total-variation distance between the release and the ideal mechanism, given
            uniform random words: both samplers are exact.
        tables: Noise of the published numbers, one entry for each table of rows.
        preprocessing: What was done to records before they were mixed; ``event`` composes what the
            charged steps cost.
        extractor: Identity of the public feature extractor, or None for features as given.
        files: SHA-256 of every file of the release but this one.

    """

    model_config = ConfigDict(populate_by_name=True)
    _what: ClassVar[Literal["release", "model"]] = "release"
    _omitted_if_default: ClassVar[tuple[str, ...]] = ("unit_column", "max_records_per_unit")

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
        check_versions(self.library_versions, _LIBRARIES)
        return self

    @classmethod
    def for_plan(
        cls,
        plan: ReleasePlan,
        *,
        private: bool,
        files: dict[str, str],
        extractor: ExtractorIdentity | None = None,
        stated: Statement | None = None,
    ) -> Certificate:
        """Certify a plan with a schema, accounting anew unless told what accountants say of it."""
        if stated is None:
            stated, *_ = statements(plan.event, plan.delta)
        if (schema := plan.data_schema) is None:
            _validate.fail("plan.schema", "a schema", "none")
        config = plan.mechanism
        made = cls(
            private=private,
            statement="",
            neighboring_relation=config.neighboring_relation,
            data_schema=schema,
            mechanism=config,
            preprocessing=plan.preprocessing,
            tables=tuple(
                TableFacts.for_config(component, schema) for component in config.components
            ),
            extractor=extractor,
            **stated_fields(plan, stated, _LIBRARIES),
            files=files,
        )
        return made.sealed(private=private, files=files)

    def _repr_html_(self) -> str:
        """Show the certificate in a notebook."""
        facts = {
            "guarantee": f"{self.statement}, {UNVERIFIED}",
            "design": self.mechanism.design,
            "rows": self.mechanism.num_mixtures,
            "private": self.private,
        }
        return facts_html("privmix certificate", facts)

    @property
    def num_records(self) -> int:
        """The public number of records that was planned for."""
        return self.data_schema.num_records

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
        plan = self.to_plan()
        dues = [
            Certificate.for_plan(
                plan,
                private=self.private,
                files=self.files,
                extractor=self.extractor,
                stated=stated,
            )
            for stated in statements(plan.event, plan.delta)
        ]
        reasons = disagreements(self, dues)
        reasons += self.not_private()
        return reasons


def disagreements(found: FrozenModel, dues: Sequence[FrozenModel]) -> list[str]:
    """Say where a certificate states what none of those does that its parameters give."""
    plain = [one.model_dump(exclude={"library_versions"}) for one in (found, *dues)]
    return [
        f"certificate: {position} is {value}, but its parameters give {due}"
        for position, value, due in differences(plain[0], plain[1:])
    ]


def differences(
    found: object, dues: Sequence[object], position: str = ""
) -> list[tuple[str, object, object]]:
    """List (position, found, due) wherever a tree of plain data disagrees with all of several.

    Statements of accountants must be exactly what one of the trees has; other numbers may differ
    from theirs in the last bits. What is due is told by the first of the trees.
    """
    if isinstance(found, dict) and all(isinstance(due, dict) for due in dues):
        trees: list[dict[Any, Any]] = [due for due in dues if isinstance(due, dict)]
        names = sorted(set(found).union(*trees), key=str)
        return [
            difference
            for name in names
            for difference in differences(
                found.get(name),
                [tree.get(name) for tree in trees],
                f"{position}.{name}" if position else str(name),
            )
        ]
    if isinstance(found, tuple | list):
        rows = [due for due in dues if isinstance(due, tuple | list) and len(due) == len(found)]
        if len(rows) == len(dues):
            return [
                difference
                for i, value in enumerate(found)
                for difference in differences(value, [row[i] for row in rows], f"{position}[{i}]")
            ]
    if isinstance(found, float) and not position.startswith(_STATED):
        near = (
            isinstance(due, float) and math.isclose(found, due, rel_tol=_TOLERANCE) for due in dues
        )
        return [] if any(near) else [(position, found, dues[0])]
    return [] if any(found == due for due in dues) else [(position, found, dues[0])]
