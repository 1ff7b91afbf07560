"""How files of text are written: marks, blanks and encodings, which are public."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from privmix import _validate
from privmix._validate import FrozenModel

ENCODINGS = (
    "utf-8",
    "utf-16",
    "latin-1",
    "iso-8859-15",
    "cp1250",
    "cp1251",
    "cp1252",
    "gb18030",
    "shift_jis",
    "euc_kr",
)


class TextFormat(FrozenModel):
    """How a table's cells are written where they are text: public facts of its format.

    Attributes:
        delimiter: What stands between the cells of a text file, one character. None: a tab in
            a ``.tsv`` file, else a comma.
        encoding: Encoding of a text file, one of ``ENCODINGS``; a byte order mark is skipped.
        decimal: The decimal mark of numbers.
        thousands: What stands between groups of three digits. A space stands for no-break spaces
            too. Empty: nothing.
        strip: Whether blanks around cells, labels and owners are no part of them.

    """

    delimiter: str | None = None
    encoding: str = "utf-8"
    decimal: Literal[".", ","] = "."
    thousands: Literal["", ".", ",", " ", "'"] = ""
    strip: bool = False

    _omitted_if_default: ClassVar[tuple[str, ...]] = (
        "delimiter",
        "encoding",
        "decimal",
        "thousands",
        "strip",
    )

    @model_validator(mode="after")
    def _check_marks(self) -> TextFormat:
        mark = self.delimiter
        if mark is not None and (len(mark) != 1 or not mark.isascii() or mark in '"\r\n\0'):
            _validate.fail("format.delimiter", "one ASCII character, no quote", repr(mark))
        _validate.one_of("format.encoding", self.encoding, ENCODINGS)
        if self.decimal == self.thousands:
            _validate.fail("format.thousands", "another mark than the decimal one", self.thousands)
        return self


PLAIN = TextFormat()
