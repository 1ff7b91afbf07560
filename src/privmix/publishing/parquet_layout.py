"""The bytes of a part: every one of them is accounted for, and none is read before that.

A part holds, for every block of rows in the order of the layout, the pages of every column, one
after another; then the footer. Pages are plain: levels that say where vectors begin, and values.
Versions of pyarrow differ in where they divide pages, in whether a column's facts stand behind it
too, and in a few counts; all of them follow from the rest, and are checked. What another writer
would put in (other codecs, dictionaries, statistics, texts) is not accepted here.
"""

from __future__ import annotations

import io
import os
import re
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privmix.compiling import kernel
from privmix.foreign.thrift import Struct, ThriftError, ThriftReader

_MAGIC = b"PAR1"
_PLAIN, _RLE, _DATA_PAGE = 0, 3, 0
_HEADER_BYTES = 256
_WRITER = re.compile(rb"parquet-cpp-arrow version [0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}(-SNAPSHOT)?")
# A page ends once it has a mebibyte of values, or some thousands of rows.
_LEAST_PAGE_BYTES = 1 << 14
_FOOTER_BYTES = 2048  # of a column in a row group, at most, and of the whole besides


class LayoutError(ValueError):
    """A part that is not laid out as its writer lays it out."""


class Column(NamedTuple):
    """One column of one row group, as the plan's writer writes it.

    Attributes:
        num_rows: Rows of the row group.
        values: All of its values as bytes, or how many bytes they are.
        width: Length of the vectors, or None for single values.
        present: Whether values are there: True, or False for nulls; None where nulls cannot be.

    """

    num_rows: int
    values: bytes | int
    width: int | None = None
    present: bool | None = None

    @property
    def num_values(self) -> int:
        """Number of values, nulls included."""
        return self.num_rows * (1 if self.width is None else self.width)

    @property
    def num_bytes(self) -> int:
        """Bytes of the values."""
        return self.values if isinstance(self.values, int) else len(self.values)

    @property
    def most_bytes(self) -> int:
        """Bound on the bytes of the pages: two bits a value for levels, and what runs of them need."""
        pages = self.num_bytes // _LEAST_PAGE_BYTES + 2
        return self.num_bytes + self.num_values // 2 + 16 * self.num_rows + 512 * pages


class _Leaf(NamedTuple):
    kind: int
    path: list[bytes]


RowGroup = list[Column]


def size_bounds(row_groups: list[RowGroup]) -> tuple[int, int]:
    """Return the least and the most bytes of a part that holds these row groups."""
    columns = [column for row_group in row_groups for column in row_group]
    most = sum(column.most_bytes + 2 * _FOOTER_BYTES for column in columns)
    return sum(column.num_bytes for column in columns), most + 2 * _FOOTER_BYTES


def check_layout(file: BinaryIO, schema: pa.Schema, row_groups: list[RowGroup]) -> None:
    """Check that a file is what the writer makes of these row groups, byte by byte but for free values.

    Raises:
        LayoutError: It is not.

    """
    size = os.fstat(file.fileno()).st_size
    least, most = size_bounds(row_groups)
    if not least <= size <= most:
        raise LayoutError(f"{size} bytes where its rows take {least} to {most}")
    try:
        _Part(file, size, len(schema)).check(_template(schema), row_groups)
    except ThriftError as error:
        raise LayoutError(f"no plain Parquet file: {error}") from None


def _template(schema: pa.Schema) -> Struct:
    """Return the footer of a part without rows, as the pyarrow that is installed writes it."""
    sink = io.BytesIO()
    pq.ParquetWriter(sink, schema, compression="none", write_statistics=False).close()
    content = sink.getvalue()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    return ThriftReader(content, start).struct()


class _Part:
    """Walks through one file."""

    def __init__(self, file: BinaryIO, size: int, num_columns: int) -> None:
        self._file, self._size, self._num_columns = file, size, num_columns
        self._offset = len(_MAGIC)

    def check(self, template: Struct, row_groups: list[RowGroup]) -> None:
        if self._read(0, 4) != _MAGIC or self._read(self._size - 4, 4) != _MAGIC:
            raise LayoutError("no Parquet file")
        length = int.from_bytes(self._read(self._size - 8, 4), "little")
        start = self._size - 8 - length
        if start < 4 or length > _FOOTER_BYTES * (self._num_columns * len(row_groups) + 4):
            raise LayoutError("a footer of another length")
        reader = ThriftReader(self._read(start, length))
        footer = reader.struct()
        if reader.offset != length:
            raise LayoutError("bytes behind the footer")
        groups = self._check_footer(footer, template, row_groups)
        leaves = _leaves(template)
        for number, (group, row_group) in enumerate(zip(groups, row_groups, strict=True)):
            self._check_group(number, group, leaves, row_group)
        if self._offset != start:
            raise LayoutError("bytes between the pages and the footer")

    def _check_footer(
        self, footer: Struct, template: Struct, row_groups: list[RowGroup]
    ) -> list[Struct]:
        if footer.get(2) != template[2] or footer.get(5) != template[5]:
            raise LayoutError("other columns than those of its design, or facts attached to them")
        if not _WRITER.fullmatch(footer.get(6, b"")):
            raise LayoutError("another writer than pyarrow")
        groups = footer.get(4)
        due = {
            **template,
            3: sum(row_group[0].num_rows for row_group in row_groups),
            4: groups,
            6: footer[6],
        }
        if footer != due or not isinstance(groups, list) or len(groups) != len(row_groups):
            raise LayoutError("other rows, or groups of rows, than those of its layout")
        return groups

    def _check_group(
        self, number: int, group: Struct, leaves: list[_Leaf], row_group: RowGroup
    ) -> None:
        start, total = self._offset, 0
        chunks = group.get(1)
        if not isinstance(chunks, list) or len(chunks) != len(row_group):
            raise LayoutError("other columns than those of its design")
        for chunk, leaf, column in zip(chunks, leaves, row_group, strict=True):
            total += self._check_chunk(chunk, leaf, column)
        due = {1: chunks, 2: total, 3: row_group[0].num_rows, 5: start, 6: total}
        if group not in (due, {**due, 7: number}):
            raise LayoutError("facts about a group of rows that do not follow from it")

    def _check_chunk(self, chunk: Struct, leaf: _Leaf, column: Column) -> int:
        """Walk through the pages of a column; return how many bytes they are."""
        start, pages = self._offset, self._walk_pages(column)
        size = self._offset - start
        facts = chunk.get(3)
        due = {
            1: leaf.kind,
            2: [_RLE, _PLAIN],
            3: leaf.path,
            4: 0,
            5: column.num_values,
            6: size,
            7: size,
            9: start,
            13: [{1: _DATA_PAGE, 2: _PLAIN, 3: pages}],
        }
        if facts not in (due, {**due, 16: _level_counts(column)}):
            raise LayoutError("facts about a column that do not follow from it")
        if chunk == {2: 0, 3: facts}:
            return size
        # Before version 18 the facts stand behind the pages too.
        if chunk != {2: self._offset, 3: facts}:
            raise LayoutError("facts about a column that do not follow from it")
        reader = ThriftReader(
            self._read(self._offset, min(_FOOTER_BYTES, self._size - self._offset))
        )
        if reader.struct() != chunk:
            raise LayoutError("facts behind a column that are not its own")
        self._offset += reader.offset
        return size

    def _walk_pages(self, column: Column) -> int:
        done = done_bytes = pages = 0
        most = column.most_bytes // _LEAST_PAGE_BYTES + 2
        while done < column.num_values:
            pages += 1
            window = self._read(self._offset, min(_HEADER_BYTES, self._size - self._offset))
            reader = ThriftReader(window)
            header = reader.struct()
            size, facts = header.get(2), header.get(5)
            count = facts.get(1) if isinstance(facts, dict) else None
            if not isinstance(size, int) or not isinstance(count, int) or pages > most:
                raise LayoutError("another page than one of plain values")
            plain = {1: count, 2: _PLAIN, 3: _RLE, 4: _RLE}
            due = {1: _DATA_PAGE, 2: size, 3: size, 5: facts}
            if header != due or facts not in (plain, {**plain, 5: {}}):
                raise LayoutError("another page than one of plain values")
            self._offset += reader.offset
            if not 0 < count <= column.num_values - done or not 0 <= size <= column.most_bytes:
                raise LayoutError("a page of another size than its values have")
            done_bytes += self._check_page(column, done, count, done_bytes, size)
            done += count
        if done_bytes != column.num_bytes:
            raise LayoutError("other values than those of its rows")
        return pages

    def _check_page(self, column: Column, done: int, count: int, seen: int, size: int) -> int:
        """Check the levels of a page and the values that are known; return the bytes of its values."""
        end = self._offset + size
        if column.width is not None:  # a level of 0 begins a vector
            self._check_levels(done, count, column.width, end)
            self._check_levels(0, count, 0, end)
        elif column.present is not None:
            self._check_levels(0, count, 0 if column.present else 1, end)
        length = end - self._offset
        if isinstance(column.values, int):
            if length != 4 * count:
                raise LayoutError("a page of another size than its values have")
        elif self._read(self._offset, length) != column.values[seen : seen + length]:
            raise LayoutError("classes, or names of tables, other than those of its layout")
        self._offset = end
        return length

    def _check_levels(self, done: int, count: int, period: int, end: int) -> None:
        """Check levels that are 0 at every multiple of ``period`` and 1 elsewhere."""
        length = int.from_bytes(self._read(self._offset, 4), "little")
        self._offset += 4
        if length > end - self._offset:
            raise LayoutError("levels that are longer than their page")
        levels = np.frombuffer(self._read(self._offset, length), np.uint8)
        if not _levels_hold(levels, count, done, period):
            raise LayoutError("nulls, or vectors of another length than its design has")
        self._offset += length

    def _read(self, offset: int, length: int) -> bytes:
        if offset < 0 or offset + length > self._size:
            raise LayoutError("an early end")
        self._file.seek(offset)
        content = self._file.read(length)
        if len(content) != length:
            raise LayoutError("an early end")
        return content


def _leaves(template: Struct) -> list[_Leaf]:
    """Return what each column's values are, and the names that lead to them."""
    leaves: list[_Leaf] = []
    path: list[bytes] = []
    for element in template[2][1:]:
        path.append(element[4])
        if 5 not in element:  # no children: what stands here are values
            leaves.append(_Leaf(element[1], path))
            path = []
    return leaves


def _level_counts(column: Column) -> Struct:
    """Return how often each level occurs, and how many bytes texts have, as newer versions count."""
    rows, values = column.num_rows, column.num_values
    if column.width is not None:
        return {2: [rows, values - rows], 3: [0, values]}
    if column.present is not None:
        return {2: [], 3: [0, rows] if column.present else [rows, 0]}
    if isinstance(column.values, bytes) and column.num_bytes != 8 * rows:
        return {1: column.num_bytes - 4 * rows, 2: [], 3: []}
    return {2: [], 3: []}


@kernel(nogil=True)
def _levels_hold(
    levels: NDArray[np.uint8], count: int, done: int, period: int
) -> bool:  # pragma: no cover - compiled
    """Whether runs of one-bit levels say what is due, and end where the bytes end.

    A run has a header h: h >> 1 equal levels, of which one byte follows; or, for odd h, h >> 1
    bytes of eight levels each, of which the last may have zeros behind the last level.
    """
    offset, seen = 0, 0
    while seen < count:
        header, shift = np.int64(0), 0
        while True:
            if offset >= levels.size or shift > 28:
                return False
            byte = np.int64(levels[offset])
            offset += 1
            header |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if header < 2:
            return False
        if header & 1:
            groups = header >> 1
            if offset + groups > levels.size or seen + 8 * (groups - 1) >= count:
                return False
            for _ in range(groups):
                byte = np.int64(levels[offset])
                offset += 1
                for bit in range(8):
                    found = (byte >> bit) & 1
                    due = np.int64(0)
                    if seen < count:
                        due = np.int64(1) if period == 0 or (done + seen) % period else np.int64(0)
                    if found != due:
                        return False
                    seen += 1
        else:
            length = header >> 1
            if offset >= levels.size or length > count - seen:
                return False
            found = np.int64(levels[offset])
            offset += 1
            for _ in range(length):
                due = np.int64(1) if period == 0 or (done + seen) % period else np.int64(0)
                if found != due:
                    return False
                seen += 1
    return offset == levels.size
