"""The release folder: write it, read it.

A folder holds ``certificate.json``, the dataset card ``README.md`` and Parquet parts under
``data/``. Every published value is a fixed function of one released integer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privmix import _validate
from privmix.certificate import FILE_NAME, Certificate
from privmix.plan import ReleasePlan

DATA_DIR = "data"
CARD_NAME = "README.md"
_PART_BYTES = 256 << 20

Labels = NDArray[np.float32] | NDArray[np.int64]


class PartWriter:
    """Writes blocks of rows, in order, as Parquet parts of bounded size."""

    def __init__(self, folder: Path, plan: ReleasePlan) -> None:
        self._folder = folder / DATA_DIR
        self._folder.mkdir()
        self._num_features, self._num_classes = plan.num_features, plan.num_classes
        self._public_labels = plan.label_noise_multiplier is None
        self._rows_per_part = max(1, _PART_BYTES // (4 * plan.row_width))
        self._writer: pq.ParquetWriter | None = None
        self._part = 0
        self._rows_in_part = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close_part()

    @property
    def schema(self) -> pa.Schema:
        """The columns of a part."""
        label = (
            pa.field("label", pa.int64(), nullable=False)
            if self._public_labels
            else pa.field("label_weights", _vector_type(self._num_classes), nullable=False)
        )
        return pa.schema(
            [pa.field("features", _vector_type(self._num_features), nullable=False), label]
        )

    def write(self, features: NDArray[np.float32], labels: Labels) -> None:
        """Append one block of rows."""
        if self._writer is None:
            path = self._folder / f"part-{self._part:05d}.parquet"
            # Noise does not compress; plain pages are the fastest to write and to read.
            self._writer = pq.ParquetWriter(
                path, self.schema, compression="none", use_dictionary=False, write_statistics=False
            )
        columns = [
            _vectors(features),
            pa.array(labels) if self._public_labels else _vectors(labels.astype(np.float32)),
        ]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self.schema))
        self._rows_in_part += len(features)
        if self._rows_in_part >= self._rows_per_part:
            self._close_part()

    def _close_part(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer, self._rows_in_part = None, 0
            self._part += 1


def _vector_type(width: int) -> pa.DataType:
    # The child is named as Parquet readers name it, so that files and tables agree.
    return pa.list_(pa.field("element", pa.float32(), nullable=False), width)


def _vectors(rows: NDArray[np.float32]) -> pa.Array:
    flat = pa.array(np.ascontiguousarray(rows).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, type=_vector_type(rows.shape[1]))


def file_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below ``folder`` except the certificate."""
    names = {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if path.is_file() or path.is_symlink()
    }
    names.pop(FILE_NAME, None)
    return {name: _file_digest(names[name]) for name in sorted(names)}


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Release:
    """A release folder, opened for reading; arrays are read when first asked for.

    Attributes:
        folder: The release folder.
        certificate: Its certificate. Opening a release does not check it: ``privmix.verify`` does.

    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        path = self.folder / FILE_NAME
        if not path.is_file():
            _validate.fail(str(folder), f"a sealed release folder with a {FILE_NAME}", "none")
        self.certificate_digest = _file_digest(path)
        self.certificate = Certificate.from_json(path.read_bytes(), place=str(path))

    def __repr__(self) -> str:
        c = self.certificate
        return (
            f"Release({str(self.folder)!r}, design={self.design!r}, rows={self.num_mixtures}, "
            f"epsilon={c.epsilon:.4g}, delta={c.delta:g})"
        )

    @property
    def design(self) -> str:
        """How records entered rows."""
        return self.certificate.mechanism.design

    @property
    def classes(self) -> tuple[int, ...] | tuple[str, ...]:
        """The classes, in the order of the label weights and of the label indices."""
        return self.certificate.data_schema.classes

    @property
    def num_classes(self) -> int:
        """Number of classes K."""
        return self.certificate.mechanism.num_classes

    @property
    def num_features(self) -> int:
        """Width d of a row's features."""
        return self.certificate.mechanism.num_features

    @property
    def num_records(self) -> int:
        """Public planning constant n; not the actual number of records."""
        return self.certificate.mechanism.num_records

    @property
    def num_mixtures(self) -> int:
        """Number of rows T."""
        return self.certificate.mechanism.num_mixtures

    @property
    def mix_size(self) -> float:
        """Public divisor of a row."""
        return self.certificate.mechanism.mix_size

    @property
    def sampling_prob(self) -> float:
        """Probability that a record entered a row (of its class, for ``stratified``)."""
        return self.certificate.mechanism.sampling_prob

    @property
    def feature_clip_norm(self) -> float:
        """L2 bound that records were clipped to."""
        return self.certificate.data_schema.feature_clip_norm

    @property
    def feature_noise_stddev(self) -> float:
        """Noise stddev of a published feature value."""
        return self.certificate.feature_noise_stddev

    @property
    def label_noise_stddev(self) -> float | None:
        """Noise stddev of a published label weight; None for public labels."""
        return self.certificate.label_noise_stddev

    @property
    def _part_paths(self) -> list[Path]:
        return sorted((self.folder / DATA_DIR).glob("*.parquet"))

    @property
    def _label_column(self) -> str:
        return "label" if self.label_noise_stddev is None else "label_weights"

    def iter_blocks(self) -> Iterator[tuple[NDArray[np.float32], Labels]]:
        """Yield (features, labels) of successive runs of rows, in order.

        Features have shape (rows, num_features); labels are class indices of shape (rows,) for
        ``stratified``, label weights of shape (rows, num_classes) otherwise.

        Raises:
            InvalidInputError: A part that cannot be read, or that has other columns.

        """
        for path in self._part_paths:
            try:
                file = pq.ParquetFile(path)
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group, columns=["features", self._label_column])
                    yield self._block(path, table)
            except (pa.ArrowException, OSError, KeyError) as error:
                reason = str(error).splitlines()[0]
                _validate.fail(str(path), "a Parquet part of a release", reason)

    def _block(self, path: Path, table: pa.Table) -> tuple[NDArray[np.float32], Labels]:
        features = _matrix(path, table.column("features"), self.num_features)
        column = table.column(self._label_column)
        if self._label_column == "label_weights":
            return features, _matrix(path, column, self.num_classes)
        labels = column.to_numpy()
        if labels.dtype != np.int64 or (labels < 0).any() or (labels >= self.num_classes).any():
            _validate.fail(f"{path}: label", f"class indices below {self.num_classes}", "others")
        return features, labels

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.float32], Labels]:
        features = np.empty((self.num_mixtures, self.num_features), dtype=np.float32)
        shape = (self.num_mixtures, self.num_classes)
        labels: Labels = (
            np.empty(shape[:1], dtype=np.int64)
            if self.label_noise_stddev is None
            else np.empty(shape, dtype=np.float32)
        )
        stop = 0
        for block_features, block_labels in self.iter_blocks():
            start, stop = stop, stop + len(block_features)
            if stop <= self.num_mixtures:
                features[start:stop], labels[start:stop] = block_features, block_labels
        if stop != self.num_mixtures:
            _validate.fail(str(self.folder), f"{self.num_mixtures} rows, as certified", stop)
        return features, labels

    @property
    def features(self) -> NDArray[np.float32]:
        """All rows' features, shape (num_mixtures, num_features)."""
        return self._arrays[0]

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """All rows' class indices, shape (num_mixtures,); None where labels are mixed."""
        labels = self._arrays[1]
        return labels if labels.dtype == np.int64 else None  # type: ignore[return-value]

    @property
    def label_weights(self) -> NDArray[np.float32] | None:
        """All rows' label weights, shape (num_mixtures, num_classes); None for public labels."""
        labels = self._arrays[1]
        return labels if labels.dtype == np.float32 else None  # type: ignore[return-value]


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
    public_labels = plan.label_noise_multiplier is None
    label = (
        "`label`: the class of all the records in the row, as an index into the classes"
        if public_labels
        else "`label_weights`: the noisy mean of the records' one-hot labels, one number per class"
    )
    layout = (
        f"{plan.rows_per_class} rows of each class, in the order of the classes"
        if public_labels
        else "rows in no particular order"
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

Each row is the sum of a random group of private records plus Gaussian noise, divided by a public
constant. The rows together are ({plan.epsilon:.6g}, {plan.delta:g})-differentially private: adding
or removing any one record changes the probability of any outcome by at most a factor of
exp({plan.epsilon:.6g}), but for a probability of {plan.delta:g}. `certificate.json` states the
mechanism; `privmix verify` recomputes its guarantee from it.

- {plan.num_mixtures} rows ({layout}), design `{plan.design}`
- `features`: {plan.num_features} numbers, the noisy mean of the records' feature vectors, each
  clipped to L2 norm {schema.feature_clip_norm:g}
- {label}
- noise standard deviation of a feature value: \
{plan.feature_noise_multiplier * schema.feature_clip_norm / plan.mix_size:.6g}
- classes: {json.dumps(list(schema.classes), ensure_ascii=False)}

A row can hold many records, one, or none: single rows mean little, and a learner should know the
noise. `privmix train` fits one that does.
"""
