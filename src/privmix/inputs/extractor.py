"""What a public feature extractor is: its Protocol, and its identity in certificates and models."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field, field_validator

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.markup import markdown
from privmix.schema.table import TableSchema

InputKind = Literal["vector", "image", "text", "table"]
Progress = Callable[[int, int | None], object]


class ExtractorIdentity(FrozenModel):
    """Which extractor made features; public, JSON in and out.

    Attributes:
        name: Its name in ``privmix.features``.
        parameters: What it is built with. A model read from a folder has no name here, so that
            paths of a private machine stay out of certificates.
        digest: SHA-256 over name, parameters that change features, and weights: 64 hexadecimal
            digits. Two extractors are the same if, and only if, their digests are.
        versions: Versions of the libraries that ran it, privmix first. Others may round features
            otherwise, so they are told, and no part of what makes two extractors the same.

    """

    _omitted_if_default: ClassVar[tuple[str, ...]] = ("versions",)

    name: str
    parameters: dict[str, str | int | float | bool] = Field(default_factory=dict)
    digest: str
    versions: dict[str, str] = {}  # noqa: RUF012  (pydantic copies it)

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,40}", value):
            _validate.fail("name", "lower-case letters, digits, - and _", repr(value))
        return value

    @field_validator("parameters")
    @classmethod
    def _check_parameters(cls, value: dict[str, Any]) -> dict[str, Any]:
        for key in value:
            if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", key):
                _validate.fail("parameters", "names of parameters", repr(key)[:80])
        return value

    @field_validator("versions")
    @classmethod
    def _check_versions(cls, value: dict[str, str]) -> dict[str, str]:
        for library, version in value.items():
            if not re.fullmatch(r"[a-z][a-z0-9-]{0,40}", library):
                _validate.fail("versions", "names of libraries", repr(library))
            if not re.fullmatch(r"[0-9][0-9A-Za-z.+!_-]{0,40}", version):
                _validate.fail(f"versions.{library}", "a version", repr(version))
        return value

    def content(self) -> bytes:
        """Return what decides features, without the versions: it binds the keys of a release."""
        return self.model_copy(update={"versions": {}}).model_dump_json().encode()

    @field_validator("digest")
    @classmethod
    def _check_digest(cls, value: str) -> str:
        if not re.fullmatch(r"[0-9a-f]{64}", value):
            _validate.fail("digest", "64 hexadecimal digits", repr(value))
        return value

    def describe(self) -> str:
        """Name, parameters, versions of libraries and the whole digest, in Markdown."""
        parts = [
            f"{key}={markdown(str(value))}"
            for key, value in self.parameters.items()
            if key != "table"
        ]
        called = f"`{self.name}`" + (f" ({', '.join(parts)})" if parts else "")
        libraries = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        run = f", run with {libraries}" if libraries else ""
        return f"{called}{run}; SHA-256 of its weights and parameters: {self.digest}"

    def __str__(self) -> str:
        """Name, parameters but for a whole table, and the first digits of the digest."""
        parts = [f"{key}={value}" for key, value in self.parameters.items() if key != "table"]
        return f"{self.name}({', '.join([*parts, f'digest {self.digest[:12]}'])})"


@runtime_checkable
class Extractor(Protocol):
    """A frozen, public function of one record; a scikit-learn transformer.

    The features of a record depend on that record and on nothing else: bit for bit the same at
    every position, with any companions, in any call, on one machine with the same libraries and
    number of threads. Otherwise the removal of one record would change the others, and no bound
    on a record's influence would hold.
    """

    @property
    def kind(self) -> InputKind:
        """What a record is: a vector, an image, a text, or a row of a table."""

    @property
    def num_features(self) -> int:
        """Width of a feature vector."""

    @property
    def identity(self) -> ExtractorIdentity:
        """Name, parameters and digest, for the certificate."""

    def transform(
        self, records: Sequence[Any], progress: Progress | None = None
    ) -> NDArray[np.float32]:
        """Return the (count, num_features) features of records; a None becomes a zero vector."""


FEATURES_KEY = b"privmix_features"


class FeaturesHeader(FrozenModel):
    """What a Parquet file of extracted features says about itself, in its schema's metadata.

    Attributes:
        extractor: What made the features.
        labels_as_text: Whether labels come from a source that knows texts only (a CSV file, folder
            names), so that the class 7 is the one that is written "7".

    """

    format_version: Literal[1] = 1
    extractor: ExtractorIdentity
    labels_as_text: bool = False

    @classmethod
    def of_file(cls, path: str | Path) -> FeaturesHeader | None:
        """Read the header of a Parquet file; None for anything else, or a file without one."""
        if Path(path).suffix.lower() != ".parquet" or not Path(path).is_file():
            return None
        try:
            metadata = pq.read_schema(path).metadata or {}
        except (pa.ArrowException, OSError):
            return None
        text = metadata.get(FEATURES_KEY)
        return None if text is None else cls.from_json(text, position=f"{path}: header")


def check_table(identity: ExtractorIdentity, stated: TableSchema | None, position: str) -> None:
    """Refuse features of a table's columns that are not the schema's, which finds bins for its own."""
    if identity.name != "tabular" or stated is None:
        return
    table = TableSchema.from_json(str(identity.parameters.get("table")), position)
    if _vectors_of(table) != _vectors_of(stated):
        allowed = "features of TabularExtractor(schema.table), with the schema that was planned for"
        _validate.fail(
            position, allowed, "those of other columns, bounds, bins or Fourier features"
        )


def _vectors_of(table: TableSchema) -> dict[str, object]:
    """Return what vectors follow from; that a number has no bins is said in two ways."""
    columns = [
        {
            name: value
            for name, value in column.model_dump().items()
            if (name, value) != ("num_bins", 0)
        }
        for column in table.columns
    ]
    return table.model_dump(exclude={"columns", "format"}) | {"columns": columns}
