"""The release folder: write it, read it.

A folder holds ``certificate.json``, the dataset card ``README.md`` and Parquet parts under
``data/``. Every published value is a fixed function of one released integer.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import stat
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privmix import _validate
from privmix.accounting import ComposedEvent
from privmix.certificate import FILE_NAME, Certificate
from privmix.designs import RowBlock
from privmix.journal import sync
from privmix.mechanism import MixtureConfig, ReleaseConfig
from privmix.plan import ReleasePlan, record_facts
from privmix.preprocess import FILE_NAME as PREPROCESSING_NAME
from privmix.preprocess import Preprocessor
from privmix.schema import Schema, Target

DATA_DIR = "data"
CARD_NAME = "README.md"
_PART_BYTES = 64 << 20

# Names of a hybrid release's tables in its ``component`` column.
COMPONENTS = ("class_sums", "mixtures")


class Rows(NamedTuple):
    """A run of published rows: features, and class indices or label weights or neither."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64] | None = None
    label_weights: NDArray[np.float32] | None = None


Piece = tuple[int, RowBlock]
Part = tuple[int, list[Piece]]  # its number, and what it holds


def part_layout(mechanism: ReleaseConfig) -> list[list[Piece]]:
    """Divide the (table, block) pieces of a release into parts of bounded size, in order.

    The layout follows from the mechanism alone, so that a part can be made again by itself.
    """
    parts: list[list[Piece]] = [[]]
    size = 0
    for table, config in enumerate(mechanism.components):
        for block in config.blocks:
            if size >= _PART_BYTES:
                parts.append([])
                size = 0
            parts[-1].append((table, block))
            size += 4 * block.num_rows * config.row_width
    return parts


def part_name(number: int) -> str:
    """Return the name of a part below the release folder."""
    return f"{DATA_DIR}/part-{number:05d}.parquet"


def write_part(path: Path, mechanism: ReleaseConfig, pieces: Iterable[tuple[int, Rows]]) -> None:
    """Write one Parquet part from its pieces of (table, rows), whole or not at all."""
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    _write_pieces(temporary, mechanism, pieces)
    sync(temporary)
    temporary.rename(path)
    sync(path.parent)


def part_bytes(mechanism: ReleaseConfig, pieces: Iterable[tuple[int, Rows]]) -> bytes:
    """Return what :func:`write_part` writes."""
    sink = io.BytesIO()
    _write_pieces(sink, mechanism, pieces)
    return sink.getvalue()


def _write_pieces(
    sink: Path | io.BytesIO, mechanism: ReleaseConfig, pieces: Iterable[tuple[int, Rows]]
) -> None:
    schema = _columns(mechanism)
    # Noise does not compress; plain pages are the fastest to write and to read.
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(sink, schema, **options) as writer:
        for table, rows in pieces:
            arrays = [_column(name, table, rows) for name in schema.names]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _column(name: str, table: int, rows: Rows) -> pa.Array:
    count = len(rows.features)
    if name == "component":
        return pa.array([COMPONENTS[table]] * count)
    if name == "label":
        return pa.array([None] * count if rows.labels is None else rows.labels, pa.int64())
    return _vectors(getattr(rows, name))


def _columns(mechanism: ReleaseConfig) -> pa.Schema:
    features = pa.field("features", _vector_type(mechanism.num_features), nullable=False)
    if len(mechanism.components) > 1:
        component = pa.field("component", pa.string(), nullable=False)
        return pa.schema([component, features, pa.field("label", pa.int64())])
    if mechanism.components[0].labels == "public":
        return pa.schema([features, pa.field("label", pa.int64(), nullable=False)])
    weights = _vector_type(mechanism.num_classes)
    return pa.schema([features, pa.field("label_weights", weights, nullable=False)])


def _vector_type(width: int) -> pa.DataType:
    # The child is named as Parquet readers name it, so that files and tables agree.
    return pa.list_(pa.field("element", pa.float32(), nullable=False), width)


def _vectors(rows: NDArray[np.float32] | None) -> pa.Array:
    assert rows is not None
    flat = pa.array(np.ascontiguousarray(rows).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, type=_vector_type(rows.shape[1]))


def file_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below ``folder`` except the certificate.

    Whatever is no regular file (a link, a pipe, a folder that has no place in a release) is listed
    with a remark in place of a digest. Links are never followed.
    """
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if stat.S_ISREG(path.lstat().st_mode):
            found[name] = _file_digest(path)
        elif path.is_symlink() or not (path.is_dir() and name == DATA_DIR):
            found[name] = "no regular file"
    if found.get(FILE_NAME) != "no regular file":
        found.pop(FILE_NAME, None)
    return found


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_part_name(name: str) -> bool:
    """Whether a file of a release, by its path below the folder, is a part."""
    return re.fullmatch(DATA_DIR + r"/part-\d{5,}\.parquet", name) is not None


def part_problem(path: Path, mechanism: ReleaseConfig) -> str | None:
    """Say what is wrong with a part's columns or with facts attached to them, if anything is."""
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        return str(error).splitlines()[0]
    if schema.metadata or not schema.equals(_columns(mechanism)):
        return "other columns than those of its design"
    return None


class Table:
    """One table of a release: its public facts, and its rows, read when asked for.

    Attributes:
        folder: The release folder.
        certificate: The release's certificate.
        certificate_digest: SHA-256 of the certificate's file.
        config: The table's mechanism.

    """

    def __init__(
        self, folder: Path, certificate: Certificate, certificate_digest: str, number: int = 0
    ) -> None:
        self.folder, self.certificate = folder, certificate
        self.certificate_digest = certificate_digest
        self.number = number
        self.config = certificate.mechanism.components[number]
        self._facts = certificate.tables[number]
        several = len(certificate.mechanism.components) > 1
        self._component = COMPONENTS[number] if several else None

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
        path = self.folder / PREPROCESSING_NAME
        if empty.is_charged and not path.is_file():
            _validate.fail(str(path), "the results of preprocessing", "no such file")
        content = path.read_bytes() if empty.is_charged else None
        found = empty.with_results(content, str(path))
        if not found.is_complete:
            _validate.fail(str(path), f"results of {len(found.steps)} steps", len(found.results))
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
        """Yield successive runs of rows, in order.

        Features have shape (rows, num_features), class indices (rows,), label weights
        (rows, num_classes).

        Raises:
            InvalidInputError: A part that cannot be read, or that has other columns.

        """
        for path in sorted((self.folder / DATA_DIR).glob("*.parquet")):
            try:
                file = pq.ParquetFile(path)
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group)
                    if self._component is not None:
                        table = table.filter(pc.field("component") == self._component)
                    if table.num_rows:
                        yield self._rows(path, table)
            except (pa.ArrowException, OSError, KeyError) as error:
                reason = str(error).splitlines()[0]
                _validate.fail(str(path), "a Parquet part of a release", reason)

    def iter_blocks(
        self,
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32] | NDArray[np.int64]]]:
        """Yield (features, class indices or label weights) of successive runs of rows.

        Rows without labels have label weights of shape (rows, 0).
        """
        for rows in self.iter_rows():
            if rows.labels is not None:
                yield rows.features, rows.labels
            elif rows.label_weights is not None:
                yield rows.features, rows.label_weights
            else:
                yield rows.features, np.empty((len(rows.features), 0), dtype=np.float32)

    def _rows(self, path: Path, table: pa.Table) -> Rows:
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

    A ``hybrid`` release has two ``tables``; its other attributes are those of the first, the class
    sums, except ``design`` and ``num_mixtures``.

    Attributes:
        folder: The release folder.
        certificate: Its certificate. Opening a release does not check it: ``privmix.verify`` does.
        certificate_digest: SHA-256 of the certificate's file.
        tables: The tables of the release, one but for ``hybrid``.

    """

    def __init__(self, folder: str | Path) -> None:
        path = Path(folder) / FILE_NAME
        if not path.is_file():
            _validate.fail(str(folder), f"a sealed release folder with a {FILE_NAME}", "none")
        content = path.read_bytes()
        certificate = Certificate.from_json(content, place=str(path))
        digest = hashlib.sha256(content).hexdigest()
        super().__init__(Path(folder), certificate, digest)
        numbers = range(len(certificate.mechanism.components))
        self.tables = tuple(Table(self.folder, certificate, digest, i) for i in numbers)

    def __repr__(self) -> str:
        c = self.certificate
        return (
            f"Release({str(self.folder)!r}, design={self.design!r}, "
            f"rows={c.mechanism.num_mixtures}, epsilon={c.epsilon:.4g}, delta={c.delta:g})"
        )

    @property
    def design(self) -> str:
        """How records entered rows."""
        return self.certificate.mechanism.design

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


def combine(folders: Iterable[str | Path]) -> ComposedEvent:
    """Compose what several releases of the same people cost together.

    Raises:
        InvalidInputError: A folder without a certificate, or releases under different neighbouring
            relations.

    """
    events = tuple(Release(folder).certificate.event for folder in folders)
    return ComposedEvent(events=events)


def _matrix(path: Path, column: pa.ChunkedArray, width: int) -> NDArray[np.float32]:
    kind = column.type
    if not (
        pa.types.is_fixed_size_list(kind)
        and kind.list_size == width
        and kind.value_type == pa.float32()
        and column.null_count == 0
    ):
        _validate.fail(f"{path}", f"vectors of {width} float32 without nulls", kind)
    flat = column.combine_chunks().flatten()
    matrix: NDArray[np.float32] = flat.to_numpy().reshape(-1, width)
    return matrix


def dataset_card(plan: ReleasePlan) -> str:
    """Write the README.md of a release: a Hugging Face dataset card, from public facts only."""
    schema = plan.data_schema
    assert schema is not None
    tables = "\n".join(_describe(part, schema) for part in plan.mechanism.components)
    columns = {
        "public": "- `label`: the class of all the records in the row, as an index into the classes\n",
        "mixed": f"- `label_weights`: {_LABEL_TEXTS[schema.target]}\n",
    }
    described = columns[plan.mechanism.components[0].labels]
    if plan.design == "hybrid":
        described = (
            f"- `component`: `{COMPONENTS[0]}` or `{COMPONENTS[1]}`\n"
            "- `label`: the class of a class sum, as an index into the classes; null elsewhere\n"
        )
    change = {
        "add_or_remove_one": "adding or removing any one record",
        "replace_one": "replacing any one record by another",
    }[plan.mechanism.neighboring_relation]
    if plan.unit_column is not None:
        change = (
            f"adding or removing all records of any one `{plan.unit_column}`, of which at most "
            f"{plan.max_records_per_unit} took part,"
        )
    return f"""---
pretty_name: Private mixtures
tags:
- differential-privacy
- mixup
configs:
- config_name: default
  data_files: data/*.parquet
---

# Private mixtures

Each row is a sum of private records, chosen at random, plus Gaussian noise, divided by a public
constant. The rows together are ({plan.epsilon:.6g}, {plan.delta:g})-differentially private:
{change} changes the probability of any outcome by at most a factor of
exp({plan.epsilon:.6g}), but for a probability of {plan.delta:g}. `certificate.json` states the
mechanism; `privmix verify` recomputes its guarantee from it.

Design `{plan.design}`:

{tables}
{_describe_steps(plan)}
Columns:

- `features`: {plan.mechanism.num_features} numbers, the noisy sum of the records' feature vectors, each
  clipped to L2 norm {schema.feature_clip_norm:g}, over the constant
{described}
{_describe_classes(schema)}

To load the rows: `datasets.load_dataset("FOLDER")`, `pandas.read_parquet("FOLDER/data")`,
`polars.read_parquet("FOLDER/data")`, `privmix.Release("FOLDER")`.

A row can hold many records, one, or none: single rows mean little, and a learner should know the
noise. `privmix train` fits one that does.
"""


def _describe_steps(plan: ReleasePlan) -> str:
    if not plan.preprocessing:
        return ""
    names = ", ".join(f"`{step.step}`" for step in plan.preprocessing)
    paid = any(step.is_charged for step in plan.preprocessing)
    source = f" with the noisy results in `{PREPROCESSING_NAME}`" if paid else ""
    return f"""
Before they were mixed, records went through {names}{source}. Records to classify
must go through the same: `privmix.Release("FOLDER").preprocessor.transform(x)`. The learners of
privmix do that by themselves.
"""


_LABEL_TEXTS: dict[Target, str] = {
    "class": "the noisy sum of the records' one-hot labels over the same constant, one number per "
    "class",
    "soft": "the noisy sum of the records' class weights over the same constant, one number per "
    "class",
    "multilabel": "the noisy sum of the records' labels, 0 or 1 for each class and together of "
    "limited norm, over the same constant",
    "regression": "the noisy sum of the records' targets, each clamped to its bounds and scaled to "
    "[-1, 1], over the same constant, one number per output",
}


def _describe_classes(schema: Schema) -> str:
    names = json.dumps(list(schema.classes), ensure_ascii=False)
    if schema.target_bounds is None:
        return f"Classes: {names}"
    bounds = ", ".join(f"[{low:g}, {high:g}]" for low, high in schema.target_bounds)
    return f"Outputs: {names}, with bounds {bounds}"


def _describe(config: MixtureConfig, schema: Schema) -> str:
    layout = ""
    if config.rows_per_class is not None:
        rows = "row" if config.rows_per_class == 1 else "rows"
        layout = f", {config.rows_per_class} {rows} of each class in the order of the classes"
    noise = config.published_stddev(schema.feature_clip_norm, "feature")
    return (
        f"- {config.num_mixtures} rows (`{config.design}`{layout}), divided by "
        f"{config.divisor:.6g}; noise standard deviation of a feature value: {noise:.6g}"
    )
