"""Files of delimited text: the one reader of ``.csv`` and ``.tsv``, compressed or not.

Every cell comes as it is written, in UTF-8 bytes, so that what is made of it does not depend on
other cells. What separates cells and how characters are encoded is declared, never guessed.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from privmix import _validate
from privmix.schema.text_format import PLAIN, TextFormat

TEXT_SUFFIXES = tuple(a + b for b in ("", ".gz", ".zst") for a in (".csv", ".tsv"))
BLOCK_BYTES = 16 << 20  # also the longest row
DECLARED = "in the schema (for --extractor tabular in its table)"
_DELIMITERS = ",;\t|"
_HEADER_BYTES = 1 << 20
_COMPRESSION = {".gz": "gzip", ".zst": "zstd"}
_MARKS = {b"\x1f\x8b": ".csv.gz", b"\x28\xb5\x2f\xfd": ".csv.zst"}
_NUMBERS = {
    mark: rf"^-?[0-9]{{1,19}}(?:{re.escape(mark)}[0-9]{{1,30}})?(?:[eE][-+]?[0-9]{{1,2}})?$"
    for mark in ".,"
}


def suffix_of(path: Path) -> str:
    """Return how a file's name ends, in lower case: ``.csv.gz`` is one ending."""
    name = path.name.lower()
    return next((s for s in TEXT_SUFFIXES[::-1] if name.endswith(s)), path.suffix.lower())


def is_delimited(path: Path) -> bool:
    """Whether a file holds delimited text, by its name."""
    return suffix_of(path) in TEXT_SUFFIXES


def delimiter_of(path: Path, form: TextFormat) -> str:
    """Return what separates cells: what is declared, or what the file's name says."""
    return form.delimiter or ("\t" if suffix_of(path).startswith(".tsv") else ",")


@contextmanager
def readable(path: Path, suffix: str) -> Iterator[None]:
    """Report what Arrow cannot read as an error about the file, without any cell of it."""
    try:
        yield
    except _validate.InvalidInputError:
        raise
    except UnicodeError as error:
        _validate.fail(str(path), 'the encoding that "format" declares', str(error.args[-1]))
    except (pa.ArrowException, OSError) as error:
        reason = re.sub(r"(got \d+|invalid value).*", r"\1", (str(error).splitlines() or [""])[0])
        _validate.fail(str(path), f"a whole {suffix[1:]} table", reason)


def read_header(path: Path, form: TextFormat = PLAIN, wanted: Collection[str] = ()) -> list[str]:
    """Return the names in the first line; nothing else is looked at.

    Args:
        path: A file of delimited text.
        form: How it is written.
        wanted: Columns of which at least one must be there: otherwise the line may be a record.

    Raises:
        InvalidInputError: No such line, other bytes, another delimiter. No name is shown.

    """
    line = _first_line(path, form)
    mark = delimiter_of(path, form)
    names = _split(line, mark)
    allowed = "a first line with the names of the columns"
    if not names or not any(name.strip() for name in names) or all(map(_is_number, names)):
        _validate.fail(str(path), allowed, "none")
    if not _is_utf8(line):
        encodings = f'"format": {{"encoding": ...}} declares another {DECLARED}'
        _validate.fail(
            str(path), f"a first line in {form.encoding.upper()} ({encodings})", "other bytes"
        )
    found = set(wanted) & set(names)
    for other in _DELIMITERS:
        alike = _split(line, other) if other != mark else []
        if (not found and set(wanted) & set(alike)) or (len(alike) > 1 and len(names) == 1):
            shown = "\\t" if other == "\t" else other
            remedy = (
                f'columns separated by {mark!r}, or "format": {{"delimiter": "{shown}"}} {DECLARED}'
            )
            _validate.fail(str(path), remedy, f"columns separated by {other!r}")
    if not wanted and (any(map(_is_number, names)) or len(set(names)) != len(names)):
        _validate.fail(str(path), allowed, "a line that looks like a record")
    return names


def propose_format(path: Path) -> TextFormat:
    """Return how a file seems to be written, by its first line alone: no record is looked at.

    Its encoding by a byte order mark, or by names that are no UTF-8; its delimiter by what cuts the
    first line into most names.
    """
    data = _beginning(path, PLAIN)
    encoding = "utf-8"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif not _is_utf8(_cut(data.decode(errors="surrogateescape"))):
        encoding = "cp1252"
    line = _first_line(path, TextFormat(encoding=encoding))
    usual = delimiter_of(path, PLAIN)
    best = max((usual, *_DELIMITERS), key=lambda mark: len(_split(line, mark)))
    return TextFormat(encoding=encoding, delimiter=None if best == usual else best)


def refuse_nameless(path: Path, names: Sequence[str]) -> None:
    """Refuse a column without a name where every column is used."""
    for number, name in enumerate(names, 1):
        if not name.strip():
            allowed = "a name for every column (pandas: to_csv(index=False) leaves its index out)"
            _validate.fail(str(path), allowed, f"none: column {number} has no name")


def fail_column(
    option: str, source: str, names: Sequence[str], wanted: str, known: bool
) -> NoReturn:
    """Report a column that is not there.

    The names that are there are shown only if they are ``known`` to be names: the first line of a
    file without a header is a record.
    """
    if known:
        more = f", ... ({len(names)} in all)" if names[8:] else ""
        allowed = f"a column of {source}: {', '.join(names[:8])}{more}"
    else:
        near = get_close_matches(wanted, names, 1, 0.8)
        hint = f" (perhaps {near[0]!r})" if near else ""
        allowed = (
            f"a column that the first line of {source} names{hint}, which has {len(names)}; "
            "without a first line of names, add one"
        )
    _validate.fail(option, allowed, f"{_validate.MISSING_COLUMN} {wanted!r}")


def scan_text(
    path: Path, columns: Sequence[str], form: TextFormat = PLAIN, block_bytes: int = BLOCK_BYTES
) -> Iterator[pa.Table]:
    """Yield the rows of a file in order, all cells as bytes; an empty one without quotes is null."""
    convert = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(columns, pa.binary()),
        include_columns=list(columns),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    with (
        _opened(path, form) as stream,
        pa.csv.open_csv(
            stream,
            read_options=pa.csv.ReadOptions(block_size=block_bytes, use_threads=False),
            parse_options=pa.csv.ParseOptions(
                delimiter=delimiter_of(path, form), newlines_in_values=True
            ),
            convert_options=convert,
        ) as reader,
    ):
        yield from (pa.Table.from_batches([batch]) for batch in reader)


def plain_numbers(
    cells: pa.Array, decimal: str = ".", *, but: Sequence[str] = ()
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Read the cells that are numbers in plain digits, correctly rounded, as ``float`` has them.

    Args:
        cells: Texts or bytes.
        decimal: The decimal mark.
        but: Texts that are left alone.

    Returns:
        (count,) numbers, 0 where there is none, and whether there is one. A cell that is not read
        may still be a number that is written in another way.

    """
    done = pc.match_substring_regex(cells, _NUMBERS[decimal]).fill_null(False)
    if but:
        excluded = pc.is_in(cells, pa.array(list(but)).cast(cells.type)).fill_null(False)
        done = pc.and_not(done, excluded)
    there = np.asarray(done.to_numpy(zero_copy_only=False), dtype=bool)
    texts = cells if there.all() else cells.filter(done)
    if decimal != ".":
        texts = pc.replace_substring(texts, decimal, ".")
    text = pa.large_string() if pa.types.is_large_binary(texts.type) else pa.string()
    found = texts.cast(text).cast(pa.float64()).to_numpy(zero_copy_only=False)
    if there.all():
        return np.array(found), there
    numbers = np.zeros(len(there))
    numbers[there] = found
    return numbers, there


def without_marks(text: str, form: TextFormat) -> str:
    """Write a number with a decimal point and nothing between digits.

    Raises:
        ValueError: Groups that are not of three digits, or another mark.

    """
    group = r"[ \u00a0\u202f]" if form.thousands == " " else re.escape(form.thousands)
    whole = f"[0-9]{{1,3}}(?:{group}[0-9]{{3}})+|[0-9]*" if form.thousands else "[0-9]*"
    mark = re.escape(form.decimal)
    found = re.fullmatch(f"([+-]?)({whole})(?:{mark}([0-9]*))?([eE][+-]?[0-9]+)?", text)
    if found is None:
        raise ValueError
    sign, digits, fraction, exponent = (part or "" for part in found.groups())
    return f"{sign}{re.sub('[^0-9]', '', digits)}.{fraction}{exponent}"


def read_numbers(
    cells: pa.Array, other: Callable[[bytes | None], float], decimal: str = "."
) -> NDArray[np.float64]:
    """Read all cells as numbers, those that are not in plain digits by ``other``, one by one."""
    numbers, done = plain_numbers(cells, decimal)
    if not done.all():
        rest = cells.filter(pa.array(~done)).to_pylist()
        numbers[~done] = [other(cell) for cell in rest]
    return numbers


def _beginning(path: Path, form: TextFormat) -> bytes:
    """Return the first bytes of a file, with the first line at least."""
    with readable(path, suffix_of(path)), _opened(path, form) as stream:
        data: bytes = stream.read(_HEADER_BYTES)
        if b"\n" not in data and b"\r" not in data:
            data += stream.read(BLOCK_BYTES)
    for mark, name in _MARKS.items():
        if data.startswith(mark):
            allowed = f"a name that ends in {name} for a compressed file"
            _validate.fail(str(path), allowed, "another")
    return data


def _first_line(path: Path, form: TextFormat) -> str:
    """Return the first line; bytes that are no character as surrogates."""
    data = _beginning(path, form)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in data[:1024]:
        allowed = f'a first line in UTF-8, or "format": {{"encoding": "utf-16"}} {DECLARED}'
        _validate.fail(str(path), allowed, "other bytes, such as UTF-16 has")
    return _cut(data.removeprefix(codecs.BOM_UTF8).decode(errors="surrogateescape"))


def _cut(text: str) -> str:
    """Return a text up to the end of its first line; an end in quotes is none."""
    quotes = 0
    for match in re.finditer('["\r\n]', text):
        quotes += match[0] == '"'
        if match[0] != '"' and quotes % 2 == 0:
            return text[: match.start()]
    return text


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _split(line: str, mark: str) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(line, newline=""), delimiter=mark), [])
    except csv.Error:
        return []


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _opened(path: Path, form: TextFormat) -> Any:
    """Open a file as a stream of UTF-8."""
    compression = _COMPRESSION.get(path.suffix.lower())
    stream = pa.input_stream(str(path), compression=compression)
    if form.encoding == "utf-8":
        return stream
    return pa.PythonFile(_Recoded(stream, form.encoding), mode="r")


class _Recoded(io.RawIOBase):
    """A stream in another encoding, read as UTF-8.

    What is no character there becomes bytes that are no UTF-8: a fault of its own record alone.
    """

    def __init__(self, stream: Any, encoding: str) -> None:
        self._stream = stream
        errors = "surrogatepass" if encoding == "utf-16" else "surrogateescape"
        self._decoder = codecs.getincrementaldecoder(encoding)(errors)
        self._left = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        wanted = BLOCK_BYTES if size is None or size < 0 else size
        while len(self._left) < wanted:
            data = self._stream.read(max(1 << 16, wanted))
            text = self._decoder.decode(data, final=not data)
            self._left += text.encode("utf-8", "surrogatepass")
            if not data:
                break
        found, self._left = self._left[:wanted], self._left[wanted:]
        return found

    def close(self) -> None:
        self._stream.close()
        super().close()
