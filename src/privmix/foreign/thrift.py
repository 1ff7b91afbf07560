"""Thrift's compact protocol, read strictly: one value has one form, and bounds hold before memory.

Parquet's page headers and footers are written in it. A reader that skipped what it does not know
would let anything at all pass in there.
"""

from __future__ import annotations

from typing import Any

_DEEPEST = 12
_TRUE, _FALSE, _BYTE, _BINARY, _LIST, _STRUCT = 1, 2, 3, 8, 9, 12
_INTEGERS = (4, 5, 6)

Struct = dict[int, Any]


class ThriftError(ValueError):
    """Bytes that are no value in canonical form."""


class ThriftReader:
    """Reads values from bytes, from an offset on.

    Attributes:
        offset: Where the next value begins.

    """

    def __init__(self, content: bytes, offset: int = 0) -> None:
        self._content, self.offset = content, offset

    def struct(self, depth: int = 0) -> Struct:
        """Read a struct: its fields by number. Integers, texts as bytes, lists, structs, truths.

        Raises:
            ThriftError: Fields that are not in order, numbers written longer than they need be,
                or an end before the end.

        """
        if depth > _DEEPEST:
            raise ThriftError("structs too deep in one another")
        fields: Struct = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            if not step:
                raise ThriftError("fields that are out of order")
            number += step
            fields[number] = self._value(kind, depth)
        return fields

    def _byte(self) -> int:
        if self.offset >= len(self._content):
            raise ThriftError("an early end")
        self.offset += 1
        return self._content[self.offset - 1]

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
            if shift > 63:
                raise ThriftError("a number of more than 64 bits")
        if byte == 0 and shift > 7:
            raise ThriftError("a number that is written too long")
        return value

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _BYTE:
            return self._byte()
        if kind in _INTEGERS:
            value = self._unsigned()
            return (value >> 1) ^ -(value & 1)
        if kind == _BINARY:
            return self._binary()
        if kind == _LIST:
            return self._list(depth)
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise ThriftError(f"a value of kind {kind}")

    def _binary(self) -> bytes:
        size = self._unsigned()
        if size > len(self._content) - self.offset:
            raise ThriftError("an early end")
        self.offset += size
        return self._content[self.offset - size : self.offset]

    def _list(self, depth: int) -> list[Any]:
        if depth > _DEEPEST:
            raise ThriftError("lists too deep in one another")
        head = self._byte()
        size, kind = head >> 4, head & 15
        if size == 15 and (size := self._unsigned()) < 15:
            raise ThriftError("a number that is written too long")
        if size > len(self._content) - self.offset:  # every element takes a byte or more
            raise ThriftError("an early end")
        return [self._value(kind, depth + 1) for _ in range(size)]
