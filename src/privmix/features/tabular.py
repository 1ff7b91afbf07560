"""Rows of a table as bounded vectors, by a public schema of its columns."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import ndtri

from privmix.compiling import kernel
from privmix.features.base import BaseExtractor, make_identity
from privmix.features.decoding import as_decoded
from privmix.inputs.extractor import ExtractorIdentity, InputKind, Progress
from privmix.inputs.raw.blocks import fail_record, object_array
from privmix.inputs.raw.cells import read_cells
from privmix.inputs.raw.frames import Rows, as_rows, plain
from privmix.inputs.tally import Tally
from privmix.schema.table import (
    BooleanColumn,
    CategoricalColumn,
    Column,
    DatetimeColumn,
    FourierFeatures,
    NumericColumn,
    ScaledColumn,
    TableSchema,
)

if TYPE_CHECKING:
    import pandas as pd

_STEP = 4096
_MICROSECONDS = 1e6
_SHARES = 2.0**20


@dataclass(eq=False)
class TabularExtractor(BaseExtractor):
    """Columns side by side: scaled by public bounds, one-hot or hashed, never by what others hold.

    A numeric, ordinal, boolean or datetime value becomes a number in [-1, 1], a category a 1 at its
    place; a missing value is zero there and 1 at the column's last coordinate, if the column is
    nullable. Values beyond the bounds are clamped. Bins stand beside numbers, times and ranks. The last coordinate is 1 where the schema asks for
    a constant. The norm is at most ``table.norm_bound``.

    Attributes:
        table: The public schema of the columns: a :class:`TableSchema`, or its JSON.

    """

    name: ClassVar[str] = "tabular"
    kind: ClassVar[InputKind] = "table"
    table: TableSchema | str

    def __post_init__(self) -> None:
        if isinstance(self.table, str):
            TableSchema.from_json(self.table, "table")

    @cached_property
    def schema(self) -> TableSchema:
        """The columns."""
        if isinstance(self.table, str):
            return TableSchema.from_json(self.table, "table")
        return self.table

    @property
    def num_features(self) -> int:
        """Width of a feature vector."""
        return self.schema.num_features

    @property
    def norm_bound(self) -> float:
        """The largest L2 norm that a vector can have."""
        return self.schema.norm_bound

    @cached_property
    def identity(self) -> ExtractorIdentity:
        """Name, parameters and digest, for the certificate."""
        return make_identity(self.name, {"table": self.schema.model_dump_json()})

    def transform(self, records: Any, progress: Progress | None = None) -> NDArray[np.float32]:
        """Return the features of rows.

        Args:
            records: A pandas, polars or Arrow table with the schema's columns. A row without any
                value, however that is written, is a blank record as a bad one of ``open_records``
                is, and becomes a zero vector.
            progress: Called with (records done, records in all).

        Returns:
            (count, num_features) float32.

        Raises:
            InvalidInputError: A column that is not there, a cell that is no value of its column.

        """
        rows = self._rows(records)
        features = np.empty((rows.num_rows, self.num_features), dtype=np.float32)
        for start in range(0, rows.num_rows, _STEP):
            part = rows.slice(start, _STEP)
            cells, wrong, _ = read_cells(part, self.schema)
            null = _null_rows(part, self.schema)
            for row, problem in sorted(wrong.items()):
                if not null[row]:
                    fail_record(f"records[{start + row}], {problem.field}", problem)
            found = self._encode(cells)
            found[_null_rows(cells, self.schema)] = 0.0  # nothing in it, or texts for nothing
            features[start : start + part.num_rows] = found
            if progress is not None:
                progress(start + part.num_rows, rows.num_rows)
        return features

    def to_pandas(self, records: Any) -> pd.DataFrame:
        """Return records in the form that synthetic rows have, for models that were fitted on those.

        Columns, their order and their types are those of ``SyntheticRecords.to_pandas()`` without its
        labels. Cells are read by the schema: ``yes`` in a boolean column is True, what
        ``missing_values`` lists is missing, texts of numbers and dates are numbers and dates. Numbers
        and times are clamped to their bounds, as before a release; times are days where the bounds are.

        Args:
            records: A pandas, polars or Arrow table with the schema's columns; others are left out. A
                table in this form already stays as it is.

        Returns:
            One row a record, in their order; a pandas frame keeps its index. A category that is not
            listed stays a text, so tell encoders to expect it (``handle_unknown="ignore"``); it
            is missing in an ordinal column, and, if it is no integer, in one whose categories all are.
            A record without any value is a row without any. Schemas whose rows cannot be drawn, such as those
            with hashed columns, do as well.

        Raises:
            InvalidInputError: A column that is not there, a cell that is no value of its column, or a
                missing one in a column that is not nullable.

        """
        rows, parts = self._rows(records), []
        for start in range(0, max(rows.num_rows, 1), _STEP):
            cells, wrong, _ = read_cells(rows.slice(start, _STEP), self.schema)
            for row, problem in sorted(wrong.items()):
                fail_record(f"records[{start + row}], {problem.field}", problem, remedy="")
            parts.append(cells)
        frame = as_decoded(pa.concat_tables(parts), self.schema).to_pandas()
        if hasattr(records, "iloc"):
            frame.index = records.index
        return frame

    def _rows(self, records: Any) -> Rows | pa.Table:
        return as_rows(records, [column.name for column in self.schema.columns])

    def tally(self, records: Any) -> Tally:
        """Count the values of each column that miss the schema: for the data holder's eyes only."""
        rows, found = self._rows(records), Tally()
        for start in range(0, rows.num_rows, _STEP):
            cells = read_cells(rows.slice(start, _STEP), self.schema)
            for name, read in cells.columns.items():
                found.add_values(name, read.num_values, read.num_missed, read.hint)
        return found

    def _features(self, records: Sequence[Any]) -> NDArray[np.float32]:
        names = [column.name for column in self.schema.columns]
        cells = {
            name: object_array([plain(record.get(name)) for record in records]) for name in names
        }
        return self.transform(Rows(cells, len(records)))

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Return a name for each coordinate, as scikit-learn's transformers do."""
        if self.schema.fourier is not None:
            names = [f"fourier{i}" for i in range(self.schema.fourier.num_features)]
        else:
            names = [name for column in self.schema.columns for name in _names(column)]
        return np.array(names + ["constant"] * self.schema.constant, dtype=object)

    def _encode(self, cells: pa.Table) -> NDArray[np.float64]:
        encoded = np.ones((cells.num_rows, self.num_features))  # the constant is the last
        mapped = encoded[:, : self.num_features - self.schema.constant]
        scaled = np.zeros((cells.num_rows, self.schema.width))
        place = 0
        for column in self.schema.columns:
            values = cells[column.name].combine_chunks()
            part = scaled[:, place : place + column.value_width]
            there = values.is_valid().to_numpy(zero_copy_only=False)
            _fill(part, values, there, column)
            if column.nullable:
                scaled[~there, place + column.value_width] = 1.0
            place += column.width
        if self.schema.fourier is None:
            mapped[:] = scaled
        else:
            _fourier_rows(scaled, self._frequencies, mapped)
        return encoded

    @cached_property
    def _frequencies(self) -> NDArray[np.float64]:
        assert self.schema.fourier is not None
        return frequencies(self.schema.fourier, self.schema.width)


def _is_null(cell: object) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def _null_rows(rows: pa.Table | Rows, schema: TableSchema) -> NDArray[np.bool_]:
    empty = np.ones(rows.num_rows, dtype=bool)
    for column in schema.columns:
        cells = rows[column.name]
        if isinstance(cells, np.ndarray):
            empty &= np.array([_is_null(cell) for cell in cells], dtype=bool)
        else:
            empty &= pc.is_null(cells, nan_is_null=True).to_numpy()
    return empty


def _fill(
    part: NDArray[np.float64], values: pa.Array, there: NDArray[np.bool_], column: Column
) -> None:
    """Write a column's values to their coordinates, each row by itself."""
    if isinstance(column, CategoricalColumn):
        places = _places(values, column)
        rows = np.flatnonzero(places >= 0)
        part[rows, places[rows]] = 1.0
    elif isinstance(column, NumericColumn | DatetimeColumn):
        if isinstance(column, DatetimeColumn):
            numbers = values.cast(pa.int64()).fill_null(0).to_numpy() / _MICROSECONDS
        else:
            numbers = values.fill_null(0.0).to_numpy()
        lower, upper = column.limits
        inside = np.clip(numbers, lower, upper)
        # Halving first keeps the difference of far bounds finite.
        middle = lower / 2 + upper / 2
        half = upper / 2 - lower / 2
        scaled = np.clip((inside - middle) / half, -1.0, 1.0)
        _fill_scaled(part, scaled, there, column)
    elif isinstance(column, BooleanColumn):
        truth = values.fill_null(False).to_numpy(zero_copy_only=False)
        part[there, 0] = np.where(truth, 1.0, -1.0)[there]
    else:
        rank = _index(values, column.categories)
        _fill_scaled(part, 2 * rank / (len(column.categories) - 1) - 1, there, column)


def _fill_scaled(
    part: NDArray[np.float64],
    scaled: NDArray[np.float64],
    there: NDArray[np.bool_],
    column: ScaledColumn,
) -> None:
    """Write scaled values, and share them between the two bins around them."""
    part[there, 0] = scaled[there]
    if not column.num_bins:
        return
    last = column.num_bins - 1
    position = (scaled[there] + 1) / 2 * last
    left = np.minimum(position.astype(np.int64), last - 1)
    # In single precision both shares are exact, so that the sum of their squares is at most 1.
    nearer = np.rint((position - left) * _SHARES) / _SHARES
    rows = np.flatnonzero(there)
    part[rows, 1 + left] = 1 - nearer
    part[rows, 2 + left] = nearer


def _places(values: pa.Array, column: CategoricalColumn) -> NDArray[np.int64]:
    """Return each value's coordinate, -1 for none."""
    if column.num_buckets is not None:
        buckets = column.num_buckets
        return _by_text(values, lambda text: bucket(column.name, text, buckets))
    assert column.categories is not None
    index = _index(values, column.categories)
    if column.unknown == "other":
        unknown = (index < 0) & values.is_valid().to_numpy(zero_copy_only=False)
        index[unknown] = len(column.categories)
    return index


def _index(values: pa.Array, categories: Sequence[str]) -> NDArray[np.int64]:
    found = pc.index_in(values, value_set=pa.array(categories, pa.string()), skip_nulls=True)
    return np.asarray(found.fill_null(-1).to_numpy(), dtype=np.int64)


def _by_text(values: pa.Array, place: Callable[[str], int]) -> NDArray[np.int64]:
    coded = values.dictionary_encode()
    table = np.array([*(place(text) for text in coded.dictionary.to_pylist()), -1])
    return np.asarray(table[coded.indices.fill_null(len(table) - 1).to_numpy()], dtype=np.int64)


def bucket(name: str, text: str, num_buckets: int) -> int:
    """Return the bucket of a category: a public hash of the column's name and the text."""
    content = f"{len(name)} {name} {text}".encode()
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "big") % num_buckets


def frequencies(fourier: FourierFeatures, width: int) -> NDArray[np.float64]:
    """Draw the frequencies of random Fourier features from the public seed.

    Returns:
        (num_features / 2, width), Gaussian with standard deviation 1 / bandwidth.

    """
    count = fourier.num_features // 2 * width
    # SHAKE rather than a generator of NumPy's, whose streams may change with its version.
    stream = hashlib.shake_256(f"privmix fourier 1 {fourier.seed}".encode()).digest(8 * count)
    words = np.frombuffer(stream, dtype=">u8") >> 11
    uniform = (words + 0.5) * 2.0**-53
    normal = ndtri(uniform).reshape(fourier.num_features // 2, width)
    return np.asarray(normal / fourier.bandwidth, dtype=np.float64)


@kernel()
def _fourier_rows(
    scaled: NDArray[np.float64], frequencies: NDArray[np.float64], out: NDArray[np.float64]
) -> None:  # pragma: no cover - compiled
    """Map row by row in a fixed order: a matrix product rounds a row by its position in the batch."""
    half = frequencies.shape[0]
    unit = math.sqrt(1.0 / half)
    for row in range(scaled.shape[0]):
        for j in range(half):
            phase = 0.0
            for i in range(scaled.shape[1]):
                phase += frequencies[j, i] * scaled[row, i]
            out[row, j] = unit * math.cos(phase)
            out[row, half + j] = unit * math.sin(phase)


def _names(column: Column) -> list[str]:
    names = [column.name]
    if isinstance(column, CategoricalColumn):
        if column.categories is None:
            names = [f"{column.name}#{i}" for i in range(column.value_width)]
        else:
            names = [f"{column.name}={category}" for category in column.categories]
            names += [f"{column.name}=other"] * (column.unknown == "other")
    elif isinstance(column, ScaledColumn) and column.num_bins:
        names += [f"{column.name}#{i}" for i in range(column.num_bins)]
    return names + [f"{column.name} missing"] * column.nullable
