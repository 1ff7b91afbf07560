"""Raw records before extraction: images, texts or table rows, read in blocks, each judged alone.

Whether a record is bad, and what becomes of it, depends on that record and on public limits only, so
that no record changes what is made of another.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privmix import _validate
from privmix._validate import InvalidInputError
from privmix.inputs.labels import LABEL_RULES, BadRecordPolicy, is_rounded, label_remedy
from privmix.inputs.missing import is_missing, is_nothing
from privmix.inputs.tally import Shares, Tally, stop
from privmix.schema import Target

Kind = Literal["image", "text", "table"]
Label = Any  # an integer or a string, or the numbers of a label vector; None where there is none

_BLOCK_BYTES = 256 << 20
REMEDY = "on_bad_record='zero', --on-bad-record zero, blanks such records"


class BadRecord(Exception):
    """A record that cannot be used: where in the record, what is expected, what was got."""

    def __init__(self, expected: str, got: object, field: str = "") -> None:
        super().__init__(expected, got)
        self.expected, self.got, self.field = expected, got, field


@dataclass(frozen=True)
class Limits:
    """Public bounds on a raw record; a record beyond them is bad.

    Attributes:
        max_image_pixels: Height times width of an image, read off its header before it is decoded.
        max_image_aspect: Long side of an image over its short one; a processor that scales the short
            side up would make a strip of a few pixels too large for the memory.
        max_image_bytes: Size of an encoded image.
        max_text_chars: Length of a text in characters. Extractors look at a window of their own.

    """

    max_image_pixels: int = 1 << 25
    max_image_aspect: int = 100
    max_image_bytes: int = 1 << 26
    max_text_chars: int = 100_000

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            _validate.integer(name, getattr(self, name))


class RawBlock(NamedTuple):
    """A run of consecutive records.

    Attributes:
        start: Position of the first record in the source.
        records: ``image``: list of (height, width, 1 or 3) uint8 arrays. ``text``: list of str.
            ``table``: an Arrow table with the schema's columns. An image or text of a bad record
            is None; a bad row's cells are null.
        labels: (count,) object array, None for a bad record. For other targets than ``class``:
            (count, K) numbers, NaN for a bad record. Or None for a source without labels.
        bad: (count,) bool, the records that the policy ``zero`` blanks.
        units: (count,) object array of the records' owners, None for a bad record; or None for a
            source without them.

    """

    start: int
    records: Sequence[Any] | pa.Table
    labels: NDArray[Any] | None
    bad: NDArray[np.bool_]
    units: NDArray[Any] | None = None


class RawRecords(ABC):
    """A source of raw records of one kind, read from any position on, as often as needed.

    Attributes:
        kind: ``image``, ``text`` or ``table``.
        count: Number of records where it is known beforehand (private), else None.
        on_bad_record: ``error`` stops at a bad record and names it; ``zero`` blanks it.
        target: What a label is; see ``Schema``.
        classes: Classes that labels must be among; empty if labels are not checked here. For
            other targets than ``class``: what the numbers of a label stand for.
        remedy: What an error about a bad record advises; empty where ``zero`` cannot be asked for.
        shares: Above which shares of bad records and of missed values the reading stops.
        tally: Counts of the last pass from the first record on: for the data holder's eyes only.

    """

    kind: Kind
    count: int | None
    on_bad_record: BadRecordPolicy
    target: Target
    classes: Sequence[int] | Sequence[str]
    remedy: str = REMEDY
    shares: Shares = Shares()
    tally: Tally
    _refused: InvalidInputError | None = None
    _reads_on = False  # past a record that is refused, to tell of all that is wrong

    def blocks(self, size: int, start: int = 0) -> Iterator[RawBlock]:
        """Yield the records from position ``start`` on, at most ``size`` at a time.

        A block of images is shorter where ``size`` of them would take more than 256 MiB or so.

        Raises:
            InvalidInputError: A bad record under ``error``; notes tell of each column. At the end,
                if the pass began at the first record: too many bad records, or too many values of
                a column that miss the schema.

        """
        self._begin()
        blocks = self._blocks(size, start)
        for block in blocks:
            self._count(block)
            if self._refused is not None:
                with suppress(InvalidInputError):
                    for more in blocks if self._reads_on else ():
                        self._count(more)
                stop_at(self._refused, self.tally)
            yield block
        if start == 0:
            self.tally.check(self.name, self.shares)

    def _begin(self) -> None:
        self.tally, self._refused = Tally(), None

    def _count(self, block: RawBlock) -> None:
        self.tally.num_records += len(block.bad)
        self.tally.num_bad += int(block.bad.sum())
        if self.count is None or self.on_bad_record == "error":
            return
        if self.tally.num_bad > self.shares.bad * self.count:  # it can only become worse
            self.tally.check(self.name, self.shares)

    @property
    @abstractmethod
    def name(self) -> str:
        """What errors call the source."""

    @abstractmethod
    def _blocks(self, size: int, start: int) -> Iterator[RawBlock]:
        """Yield the records, bad ones blanked, whatever the policy is."""

    @abstractmethod
    def position(self, index: int) -> str:
        """Say where record ``index`` is found, for the data holder's eyes only."""

    def _judge(
        self,
        start: int,
        items: Sequence[Any],
        convert: Callable[[Any], Any],
        labels: Sequence[Label] | None,
        units: Sequence[Any] | None = None,
    ) -> Iterator[RawBlock]:
        """Judge records one by one.

        Yields one block, or several where the images of one would fill the memory.
        """
        records: list[Any] = []
        kept: list[Label] = []
        owners: list[Any] = []
        bad: list[bool] = []
        size = 0
        for row, item in enumerate(items):
            try:
                record = convert(item)
                label = None if labels is None else self._label(labels[row])
                owner = None if units is None else self._unit(start + row, units[row])
                bad.append(False)
            except BadRecord as problem:
                self._refuse(start + row, problem)
                record, label, owner = None, None, None
                bad.append(True)
            records.append(record)
            kept.append(label)
            owners.append(owner)
            size += getattr(record, "nbytes", 0)
            if size >= _BLOCK_BYTES or row == len(items) - 1:
                yield RawBlock(
                    start + row + 1 - len(bad),
                    records,
                    None if labels is None else self._label_array(kept),
                    np.array(bad),
                    None if units is None else object_array(owners),
                )
                records, kept, owners, bad, size = [], [], [], [], 0

    def _label(self, label: Label) -> Label:
        """Check that a label is there and is one of the classes, if any, or a vector as it must be."""
        if self.target != "class":
            return self._label_vector(label)
        label = decoded(label, "label")
        if is_nothing(label):
            raise BadRecord("a label", "nothing", "label")
        if not isinstance(label, Hashable) or isinstance(label, tuple):
            raise BadRecord("a single integer or string", shown(label), "label")
        if not len(self.classes):
            return label
        known = self._class_index()
        if label not in known or is_rounded(label):
            some = ", ".join(map(repr, self.classes[:5])) + (", ..." if self.classes[5:] else "")
            allowed = f"one of the schema's {len(self.classes)} classes ({some})"
            raise BadRecord(allowed + label_remedy(label, self.classes), shown(label), "label")
        return known[label]  # the class itself, where the label is 1.0 and the class 1

    def _label_vector(self, label: Label) -> NDArray[np.float64]:
        cells = label if isinstance(label, list | tuple | np.ndarray) else [label]
        if len(cells) != len(self.classes):
            raise BadRecord(f"{len(self.classes)} numbers", len(cells), "label")
        vector = np.array([to_number(cell, "label") for cell in cells])
        rule = LABEL_RULES[self.target]
        if not rule.holds(vector[None]).all():
            raise BadRecord(rule.expected, vector.tolist(), "label")
        return vector

    def _label_array(self, labels: Sequence[Label]) -> NDArray[Any]:
        if self.target == "class":
            return object_array(labels)
        missing = np.full(len(self.classes), np.nan)
        return np.stack([missing if label is None else label for label in labels])

    def _unit(self, index: int, value: Any) -> int | str:
        """Check that a record has an owner; two that cannot be told apart must not become one."""
        value = decoded(value, "unit")
        if is_missing(value):
            raise BadRecord("an identifier", "nothing", "unit")
        if type(value) is not int and type(value) is not str:
            allowed = "an integer or a string"
            _validate.fail(
                f"{self.position(index)}, {self._field('unit')}",
                allowed,
                f"a {type(value).__name__}",
            )
        return value

    def _field(self, field: str) -> str:
        """Say where in a record something is wrong, by the name that the data holder gave it."""
        return field

    def _class_index(self) -> dict[int | str, int | str]:
        return {value: value for value in self.classes}

    def _refuse(self, index: int, problem: BadRecord) -> None:
        """Note a bad record; under ``error`` the first is what the reading ends with."""
        field = self._field(problem.field) if problem.field else ""
        if not self._counts_cells or problem.field in ("label", "unit"):
            name = field or self.kind
            self.tally.add_bad(name, 1, self.position(index), problem.expected, problem.got)
        if self.on_bad_record == "error" and self._refused is None:
            position = f"{self.position(index)}{field and ', '}{field}"
            more = f" ({self.remedy})" if self.remedy else ""
            self._refused = InvalidInputError(position, problem.expected + more, problem.got)

    _counts_cells = False  # whether bad cells are counted where they are read


def stop_at(error: InvalidInputError, tally: Tally) -> NoReturn:
    """Refuse a bad record, with notes on all columns where there is more to tell."""
    faults = tally.faults()
    told = [f"{tally.num_bad} of {tally.num_records} records read are bad", *faults]
    stop(error.position, error.expected, error.got, told if tally.num_bad > 1 else [])


def fail_record(position: str, problem: BadRecord, remedy: str = REMEDY) -> NoReturn:
    """Report a bad record with the remedy, if there is one."""
    more = f" ({remedy})" if remedy else ""
    _validate.fail(position, problem.expected + more, problem.got)


def python_value(scalar: pa.Scalar, field: str = "") -> Any:
    """Return an Arrow value as Python's.

    Raises:
        BadRecord: A string that is not UTF-8, or a date or time beyond the years of Python.

    """
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        raise BadRecord("text in UTF-8", "other bytes", field) from None
    except (OverflowError, ValueError):
        raise BadRecord("a value in Python's range", f"another {scalar.type}", field) from None


def decoded(value: Any, field: str = "") -> Any:
    """Return bytes as the text that they are in UTF-8, and any other value as it is.

    Raises:
        BadRecord: Other bytes, half a character, or a value that was found bad when it was read.

    """
    if isinstance(value, BadRecord):
        raise value
    try:
        if isinstance(value, str):
            value.encode()
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        raise BadRecord("text in UTF-8", "other bytes", field) from None
    except UnicodeEncodeError:
        raise BadRecord("text in UTF-8", "a lone surrogate", field) from None


def shown(value: object) -> str:
    """Return the beginning of a value's text; its type where Python refuses to write it."""
    try:
        return repr(value)[:80]
    except ValueError:  # an integer of thousands of digits
        return f"a value of type {type(value).__name__}"


def to_number(value: object, name: str) -> float:
    """Read a finite number, also from a text."""
    try:
        if isinstance(value, str) and "_" in value:  # Python's own way of writing numbers
            raise ValueError
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise BadRecord("a number", shown(value), name) from None
    if not math.isfinite(number):
        raise BadRecord("a finite number", shown(value), name)
    return number


def object_array(values: Sequence[Any]) -> NDArray[Any]:
    """Return a (count,) object array, also of values that are sequences themselves."""
    array = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        array[i] = value
    return array
