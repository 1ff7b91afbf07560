"""Synthetic records in memory, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privmix import _validate
from privmix._validate import FrozenModel, printable
from privmix.features.decoding import pandas_types
from privmix.features.tabular import TabularExtractor
from privmix.inputs.extractor import ExtractorIdentity
from privmix.markup import facts_html
from privmix.publishing.certificate import UNVERIFIED
from privmix.schema import Target
from privmix.schema.table import TableSchema

STATEMENT = "synthetic: resembles, is not, any record"
_MOST_NAMES = 8

Space = Literal["table", "features", "preprocessed"]
Lengths = Literal["known", "clip norm", "bounds"]


class SyntheticFacts(FrozenModel):
    """What a file of synthetic records says about itself; public, JSON in and out.

    Attributes:
        statement: What the records are.
        release: Name of the release's folder.
        certificate_digest: SHA-256 of its certificate.
        guarantee: The release's guarantee, which holds for the records as well: they are
            post-processing and cost nothing.
        private: False for a release made with a test seed.
        verified: Whether the certificate was found to state what its own parameters give, as
            ``privmix synthesize`` does before it draws; without that the guarantee is its word alone.
        target: What labels are.
        label_columns: Names of the label columns.
        num_records: How many records were asked for.
        seed: Of the draw.
        class_prior: Where the classes' shares are from: ``given``, ``counts``, ``public`` of the
            schema's ``class_balance``, ``estimated`` from label weights or rounds, ``uniform``; None for
            targets that are no classes.
        space: ``table``: rows with the schema's columns; ``features``: vectors as they were given to
            the release; ``preprocessed``: vectors as they were mixed, since a step cannot be undone:
            apply the release's ``preprocessor`` to records to classify.
        lengths: ``known``; or what records' lengths were assumed to follow where a step has scaled
            all to one: the clip norm, or the bounds of numbers.
        notes: What is not as it would be in the table or the records, and which design would serve better.
        extractor: Identity of the release's extractor, or None.

    """

    format_version: Literal[1] = 1
    statement: str = STATEMENT
    release: str | None
    certificate_digest: str | None
    guarantee: str | None
    private: bool
    verified: bool = False
    target: Target
    label_columns: tuple[str, ...] = ()
    num_records: int
    seed: int
    class_prior: str | None
    space: Space
    lengths: Lengths
    notes: tuple[str, ...] = ()
    extractor: ExtractorIdentity | None = None
    privmix_version: str


class Chunk(NamedTuple):
    """A stretch of synthetic records: features, labels, and rows of the table if there is one."""

    features: NDArray[np.float32]
    labels: NDArray[Any]
    table: pa.Table | None

    def take(self, places: NDArray[np.int64]) -> Chunk:
        """Return the records at these places."""
        table = None if self.table is None else self.table.take(pa.array(places))
        return Chunk(self.features[places], self.labels[places], table)

    @staticmethod
    def concatenated(chunks: Sequence[Chunk]) -> Chunk:
        """Return the records of several stretches, one after the other."""
        tables = [chunk.table for chunk in chunks if chunk.table is not None]
        return Chunk(
            np.concatenate([chunk.features for chunk in chunks]),
            np.concatenate([chunk.labels for chunk in chunks]),
            pa.concat_tables(tables) if tables else None,
        )


@dataclass(frozen=True)
class SyntheticRecords:
    """Synthetic records in memory; ``X, y = records`` gives what scikit-learn takes.

    Attributes:
        labels: (count,) classes or numbers, or (count, K) indicators, weights or numbers.
        facts: What they are and where they are from.
        names: Names of the label columns.
        feature_names: Names of the columns of features: the release's, or ``x0``, ``x1`` and so on.
        table: Rows with the schema's columns, an Arrow table; None for features.

    """

    labels: NDArray[Any]
    facts: SyntheticFacts
    names: tuple[str, ...]
    feature_names: tuple[str, ...]
    table: pa.Table | None
    vectors: NDArray[np.float32] | None
    schema: TableSchema | None

    def __repr__(self) -> str:
        told = ", ".join(f"{name}: {value}" for name, value in self._told().items())
        return printable(f"<SyntheticRecords, {told}>")

    def _repr_html_(self) -> str:
        """Show in a notebook what the records are, and no record."""
        told = self._told() | {"certificate": self.facts.certificate_digest or "none"}
        return facts_html("privmix synthetic records", told)

    def _told(self) -> dict[str, object]:
        facts, columns = self.facts, self.feature_names
        if self.schema is not None:
            columns = tuple(column.name for column in self.schema.columns)
        guarantee = facts.guarantee or "none known"
        if facts.guarantee is not None and not facts.verified:
            guarantee += f", {UNVERIFIED}"
        shown = ", ".join(self.names[:_MOST_NAMES]) + ", ..." * bool(self.names[_MOST_NAMES:])
        return {
            "records": len(self),
            "columns" if self.schema else "features": len(columns),
            "labels": shown,
            "target": facts.target,
            "release": facts.release or "none",
            "guarantee": guarantee,
        }

    @cached_property
    def features(self) -> NDArray[np.float32]:
        """(count, d) feature vectors; for a table, those of the ``tabular`` extractor."""
        if self.vectors is not None:
            return self.vectors
        assert self.schema is not None
        return TabularExtractor(self.schema).transform(self.table)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        yield self.features
        yield self.labels

    def __len__(self) -> int:
        return len(self.labels)

    def to_arrow(self) -> pa.Table:
        """Return columns, of the table or of features, and labels as one Arrow table."""
        none = np.zeros((len(self), 0), dtype=np.float32)
        chunk = Chunk(none if self.vectors is None else self.vectors, self.labels, self.table)
        return arrow_table(chunk, self.names, self.feature_names)

    def to_pandas(self) -> Any:
        """Return columns and labels as a pandas data frame.

        Integers and booleans that the schema lets be missing are of pandas' types ``Int64`` and ``boolean``.
        ``TabularExtractor.to_pandas`` brings records of the table into the same form.
        """
        return self.to_arrow().to_pandas()


def arrow_table(chunk: Chunk, names: tuple[str, ...], feature_names: tuple[str, ...]) -> pa.Table:
    """Return a stretch of records as an Arrow table: columns or features, then labels."""
    table = chunk.table
    if table is None:
        vectors = np.ascontiguousarray(chunk.features.T)
        table = pa.table([pa.array(v) for v in vectors], names=list(feature_names))
    labels = chunk.labels[:, None] if chunk.labels.ndim == 1 else chunk.labels
    for j, name in enumerate(names):
        if name in table.column_names:
            _refuse_name(name, names)
        values = pa.array(labels[:, j].tolist() if labels.dtype.kind == "U" else labels[:, j])
        table = table.append_column(pa.field(name, values.type, nullable=False), values)
    if chunk.table is None:
        return table
    return table.replace_schema_metadata(pandas_types(table.schema))


def _refuse_name(name: str, names: tuple[str, ...]) -> NoReturn:
    """Refuse labels that have the name of a column beside them."""
    if len(names) == 1:
        allowed = "a name that no column has (label=..., --label ...)"
        _validate.fail("label", allowed, repr(name))
    allowed = "names that no column has (arrays, and an .npz file, need none)"
    _validate.fail("release.classes", allowed, repr(name))
