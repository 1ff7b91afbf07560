"""A release folder, opened for reading."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privmix import _validate
from privmix.foreign.files import MOST_JSON_BYTES, ForeignFolder
from privmix.markup import facts_html
from privmix.mechanism import ReleaseConfig
from privmix.mixer import Rows
from privmix.planning.plan import ReleasePlan, record_facts
from privmix.preprocess import FILE_NAME as PREPROCESSING_NAME
from privmix.preprocess import Preprocessor
from privmix.publishing.certificate import FILE_NAME, UNVERIFIED, Certificate
from privmix.publishing.folder import (
    COMPONENTS,
    WEIGHTS,
    Part,
    is_part_name,
    least_part_bytes,
    part_bounds,
    part_layout,
    part_name,
    part_problem,
)
from privmix.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

    from privmix.synthesis.records import SyntheticRecords
    from privmix.synthesis.synthesizer import Prior


class Parts:
    """The parts of a stranger's release, looked at before they are read.

    Args:
        folder: The release folder.
        mechanism: What the certificate says of the rows.

    """

    def __init__(self, folder: ForeignFolder, mechanism: ReleaseConfig) -> None:
        self._folder, self._mechanism = folder, mechanism
        self._sound: set[str] = set()

    @cached_property
    def layout(self) -> list[tuple[str, Part]]:
        """The parts that the certificate implies, by name, once their sizes are known to be theirs.

        Raises:
            InvalidInputError: Parts that are missing, or of other sizes: what the certificate says
                of rows and their width is not believed before.

        """
        sizes = self._folder.entries().files
        parts = {name: size for name, size in sizes.items() if is_part_name(name)}
        least, found = least_part_bytes(self._mechanism), sum(parts.values())
        position = str(self._folder.path)
        if found < least:
            allowed = f"parts of at least {least} bytes, which the certificate's rows take"
            _validate.fail(position, allowed, found)
        for name, (low, high) in part_bounds(self._mechanism).items():
            if name not in parts:
                _validate.fail(self._folder.position(name), "a part of the release", "no such file")
            if not low <= parts[name] <= high:
                allowed = f"a part of {low} to {high} bytes"
                _validate.fail(self._folder.position(name), allowed, parts[name])
        return [
            (part_name(n), (n, blocks)) for n, blocks in enumerate(part_layout(self._mechanism))
        ]

    def problem(self, name: str, part: Part) -> str | None:
        """Say where a part differs from what its writer makes, if it does."""
        if name in self._sound:
            return None
        problem = part_problem(self._folder, name, self._mechanism, part[1])
        if problem is None:
            self._sound.add(name)
        return problem

    def read(self, number: int) -> Iterator[tuple[str, pa.Table]]:
        """Yield (part, rows of a block) of one table, in order."""
        for name, part in self.layout:
            blocks = [i for i, (table, _) in enumerate(part[1]) if table == number]
            if not blocks:
                continue
            position = self._folder.position(name)
            if (problem := self.problem(name, part)) is not None:
                _validate.fail(position, "a Parquet part of a release", problem)
            try:
                with self._folder.open(name) as file, pq.ParquetFile(file) as opened:
                    for block in blocks:
                        yield position, opened.read_row_group(block)
            except (pa.ArrowException, OSError, KeyError) as error:
                reason = (str(error).splitlines() or ["an error"])[0]
                _validate.fail(position, "a Parquet part of a release", reason)


class Table:
    """One table of a release: its public facts, and its rows, read when asked for.

    Attributes:
        folder: The release folder.
        files: The same, as its files are opened.
        parts: Its parts.
        certificate: The release's certificate.
        certificate_digest: SHA-256 of the certificate's file.
        config: The table's mechanism.

    """

    def __init__(
        self,
        folder: ForeignFolder,
        certificate: Certificate,
        certificate_digest: str,
        parts: Parts,
        number: int = 0,
    ) -> None:
        self.folder, self.certificate = folder.path, certificate
        self.files, self.parts = folder, parts
        self.certificate_digest = certificate_digest
        self.number = number
        self.config = certificate.mechanism.components[number]
        self._facts = certificate.tables[number]

    @property
    def design(self) -> str:
        """How records entered rows."""
        return self.config.design

    @property
    def classes(self) -> tuple[int, ...] | tuple[str, ...]:
        """The classes, in the order of the label weights and of the label indices."""
        return self.certificate.data_schema.classes

    @property
    def schema(self) -> Schema:
        """The public facts about the records."""
        return self.certificate.data_schema

    @property
    def num_classes(self) -> int:
        """Number of classes K, or of outputs."""
        return self.config.num_classes

    @cached_property
    def preprocessor(self) -> Preprocessor | None:
        """What was done to records before they were mixed; None if nothing was.

        Raises:
            InvalidInputError: Results of charged steps that are missing, or not those of the steps.

        """
        empty = empty_preprocessor(self.certificate.to_plan())
        if empty is None:
            return None
        position = self.files.position(PREPROCESSING_NAME)
        content = None
        if empty.is_charged:
            if not self.files.exists(PREPROCESSING_NAME):
                _validate.fail(position, "the results of preprocessing", "no such file")
            content = self.files.read(PREPROCESSING_NAME, empty.size_bounds()[1])
        found = empty.with_results(content, position)
        if not found.is_complete:
            _validate.fail(position, f"results of {len(found.steps)} steps", len(found.results))
        return found

    @property
    def num_features(self) -> int:
        """Width d of a row's features."""
        return self.config.num_features

    @property
    def num_records(self) -> int:
        """Public planning constant n; not the actual number of records."""
        return self.config.num_records

    @property
    def num_mixtures(self) -> int:
        """Number of rows T."""
        return self.config.num_mixtures

    @property
    def mix_size(self) -> float:
        """Planned number of records in a row."""
        return self.config.mix_size

    @property
    def sampling_prob(self) -> float:
        """Probability that a record entered a row (of its class, for ``stratified``)."""
        return self.config.sampling_prob

    @property
    def feature_clip_norm(self) -> float:
        """L2 bound that records were clipped to."""
        return self.certificate.data_schema.feature_clip_norm

    @property
    def feature_noise_stddev(self) -> float:
        """Noise stddev of a published feature value."""
        return self._facts.feature_noise_stddev

    @property
    def label_noise_stddev(self) -> float | None:
        """Noise stddev of a published label weight; None without label weights."""
        return self._facts.label_noise_stddev

    def iter_rows(self) -> Iterator[Rows]:
        """Yield successive stretches of rows, in order.

        Features have shape (rows, num_features), class indices (rows,), label weights
        (rows, num_classes).

        Raises:
            InvalidInputError: A part that is missing or cannot be read, or that is not as its writer makes
                it: other columns, other sizes, something beside the rows.

        """
        for position, table in self.parts.read(self.number):
            yield self._rows(position, table)

    def iter_blocks(
        self,
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32] | NDArray[np.int64]]]:
        """Yield (features, class indices or label weights) of successive stretches of rows.

        Rows without labels have label weights of shape (rows, 0).
        """
        for rows in self.iter_rows():
            if rows.labels is not None:
                yield rows.features, rows.labels
            elif rows.label_weights is not None:
                yield rows.features, rows.label_weights
            else:
                yield rows.features, np.empty((len(rows.features), 0), dtype=np.float32)

    def _rows(self, path: str, table: pa.Table) -> Rows:
        features = _matrix(path, table.column("features"), self.num_features)
        if self.config.labels == "mixed":
            weights = _matrix(path, table.column("label_weights"), self.num_classes)
            return Rows(features, label_weights=weights)
        if self.config.labels == "absent":
            return Rows(features)
        labels = table.column("label").to_numpy()
        if labels.dtype != np.int64 or (labels < 0).any() or (labels >= self.num_classes).any():
            _validate.fail(f"{path}: label", f"class indices below {self.num_classes}", "others")
        return Rows(features, labels=labels)

    @cached_property
    def _all_rows(self) -> Rows:
        parts = list(self.iter_rows())
        found = sum(len(part.features) for part in parts)
        if found != self.config.num_mixtures:
            due = self.config.num_mixtures
            _validate.fail(str(self.folder), f"{due} rows, as certified", found)
        first = parts[0]
        return Rows(
            np.concatenate([part.features for part in parts]),
            None if first.labels is None else np.concatenate([part.labels for part in parts]),
            None
            if first.label_weights is None
            else np.concatenate([part.label_weights for part in parts]),
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas frame: a column for each feature, and the labels.

        Feature columns have the schema's names, or ``x0``, ``x1``, ... Public labels are the classes
        themselves, in ``label``; label weights are columns ``weight of CLASS``. Needs pandas.
        """
        import pandas as pd

        rows, schema = self._all_rows, self.schema
        names = schema.feature_names if self.preprocessor is None else None
        if names is None:
            names = tuple(f"x{j}" for j in range(self.num_features))
        frame = pd.DataFrame(rows.features, columns=list(names))
        told: dict[str, Any] = {}
        if rows.labels is not None:
            told["label"] = np.array(schema.classes)[rows.labels]
        if rows.label_weights is not None:
            told |= {
                f"weight of {name}": rows.label_weights[:, k]
                for k, name in enumerate(schema.classes)
            }
        return pd.concat([frame, pd.DataFrame(told, index=frame.index)], axis=1)

    @property
    def features(self) -> NDArray[np.float32]:
        """All rows' features, shape (num_mixtures, num_features)."""
        return self._all_rows.features

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """All rows' class indices, shape (num_mixtures,); None unless labels are public."""
        return self._all_rows.labels

    @property
    def label_weights(self) -> NDArray[np.float32] | None:
        """All rows' label weights, shape (num_mixtures, num_classes), or None."""
        return self._all_rows.label_weights


class Release(Table):
    """A release folder, opened for reading; arrays are read when first asked for.

    A ``hybrid`` or ``adaptive`` release has two ``tables``. Its own attributes are those of the first,
    the class sums or the signed rows, except ``design`` and ``num_mixtures``; rows are asked of a table,
    since the two have nothing in common.

    Attributes:
        folder: The release folder.
        certificate: Its certificate. Opening a release does not check it: ``privmix.verify`` does.
        certificate_digest: SHA-256 of the certificate's file.
        tables: The tables of the release, one but for ``hybrid`` and ``adaptive``.
        checked: Whether its files and its certificate's statements were checked since it was opened, as
            ``privmix train`` and ``privmix synthesize`` do.

    Example:
        >>> import numpy as np
        >>> from privmix import Release, Schema, plan_release, release
        >>> schema = Schema(classes=[0, 1], num_features=3, num_records=200, feature_clip_norm=1.0)
        >>> plan = plan_release(
        ...     schema, target_epsilon=2.0, target_delta=1e-5, design="poisson", num_mixtures=50
        ... )
        >>> made = release(np.eye(3)[np.arange(200) % 2], np.arange(200) % 2, plan, out="rows")
        >>> again = Release("rows")
        >>> again.design, again.label_weights.shape, again.certificate_digest == made.certificate_digest
        ('poisson', (50, 2), True)

    """

    def __init__(self, folder: str | Path) -> None:
        files = ForeignFolder(folder)
        if not files.exists(FILE_NAME):
            _validate.fail(str(folder), f"a sealed release folder with a {FILE_NAME}", "none")
        content = files.read(FILE_NAME, MOST_JSON_BYTES)
        certificate = Certificate.from_json(content, position=files.position(FILE_NAME))
        digest = hashlib.sha256(content).hexdigest()
        parts = Parts(files, certificate.mechanism)
        super().__init__(files, certificate, digest, parts)
        numbers = range(len(certificate.mechanism.components))
        self.tables = tuple(Table(files, certificate, digest, parts, i) for i in numbers)
        self.checked = False

    def __repr__(self) -> str:
        c = self.certificate
        return (
            f"Release({str(self.folder)!r}, design={self.design!r}, "
            f"rows={c.mechanism.num_mixtures}, {c.statement}, {UNVERIFIED})"
        )

    def _repr_html_(self) -> str:
        """Show the release in a notebook."""
        c = self.certificate
        return facts_html(
            "privmix release",
            {
                "folder": str(self.folder),
                "design": self.design,
                "rows": c.mechanism.num_mixtures,
                "features of a row": self.num_features,
                "classes": len(self.classes),
                "guarantee": f"{c.statement}, {UNVERIFIED}",
                "certificate": self.certificate_digest,
            },
        )

    @cached_property
    def _all_rows(self) -> Rows:
        if len(self.tables) > 1:
            kinds = zip(COMPONENTS[self.design], self.tables, strict=False)
            parts = " or ".join(f"release.tables[{i}] ({n})" for i, (n, _) in enumerate(kinds))
            allowed = f"{parts}; to_pandas() has all rows, synthesize(...) draws labelled records"
            found = f"all rows of a release of design {self.design}"
            _validate.fail("release: rows of one kind", allowed, found)
        return super()._all_rows

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas frame; see ``Table.to_pandas``.

        Of several tables, one after the other: ``component`` says which, and what a table does not
        have is missing.
        """
        if len(self.tables) == 1:
            return super().to_pandas()
        import pandas as pd

        frames = [table.to_pandas() for table in self.tables]
        for name, frame in zip(COMPONENTS[self.design], frames, strict=False):
            frame.insert(0, "component", name)
        return pd.concat(frames, ignore_index=True)

    @property
    def design(self) -> str:
        """How records entered rows."""
        return self.certificate.mechanism.design

    def iter_rounds(self) -> Iterator[Rows]:
        """Yield the rows of each round of design ``adaptive``, with the round's public weights.

        Raises:
            InvalidInputError: Another design, or a part as :meth:`iter_rows` refuses it.

        """
        _validate.one_of("release.design", self.design, ("adaptive",))
        weights = self.parts.read(WEIGHTS)
        for rows, (position, table) in zip(self.tables[1].iter_rows(), weights, strict=True):
            found = _matrix(position, table.column("features"), self.num_features)
            yield rows._replace(weights=found)

    def synthesize(
        self, num_records: int, *, seed: int = 0, class_prior: Prior = None, label: str = "label"
    ) -> SyntheticRecords:
        """Draw synthetic records from the release, at no cost, as :func:`privmix.synthesize` does."""
        from privmix.synthesis.synthesizer import synthesize

        return synthesize(self, num_records, seed=seed, class_prior=class_prior, label=label)

    @property
    def num_mixtures(self) -> int:
        """Number of rows of all tables together."""
        return self.certificate.mechanism.num_mixtures


def empty_preprocessor(plan: ReleasePlan) -> Preprocessor | None:
    """Return a plan's preprocessing before its first step, or None if it has no steps."""
    if not plan.preprocessing or plan.data_schema is None:
        return None
    facts = record_facts(plan.data_schema, plan.mechanism.neighboring_relation)
    return Preprocessor(plan.preprocessing, facts)


def _matrix(path: str, column: pa.ChunkedArray, width: int) -> NDArray[np.float32]:
    kind = column.type
    if not (
        pa.types.is_fixed_size_list(kind)
        and kind.list_size == width
        and kind.value_type == pa.float32()
        and column.null_count == 0
    ):
        _validate.fail(path, f"vectors of {width} float32 without nulls", kind)
    flat = column.combine_chunks().flatten()
    matrix: NDArray[np.float32] = flat.to_numpy().reshape(-1, width)
    if not np.isfinite(matrix).all():
        _validate.fail(path, "finite numbers", "others")
    return matrix
