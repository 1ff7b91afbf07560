"""Units of privacy that own several records: a patient, a customer. At most k records of each take part.

Which of a unit's records take part follows from the release's key, the unit's identifier and the
unit's own records in their own order. So a unit that comes or goes, wherever its records stand,
changes nothing about any other unit's.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix import _validate
from privmix.inputs.arrays import from_categories, to_array
from privmix.inputs.missing import is_missing

if TYPE_CHECKING:
    from privmix.rng import KeyStream

_KEY_WORDS = 8  # 64 bytes, the longest key of BLAKE2b
_DIGEST_BYTES = 16


@dataclass(frozen=True, repr=False)
class Units:
    """Who owns each record. Private: never shown, never written.

    Attributes:
        codes: (count,) int64 positions in ``names``; -1 where the owner is missing.
        names: The distinct identifiers, as bytes that tell integers and strings apart.

    """

    codes: NDArray[np.int64]
    names: tuple[bytes, ...]

    def __repr__(self) -> str:
        return "Units(<private>)"

    @property
    def missing(self) -> NDArray[np.bool_]:
        """(count,) whether the owner of a record is missing."""
        return self.codes < 0

    def digest(self) -> bytes:
        """Return a SHA-256 of who owns what, never published."""
        hasher = hashlib.sha256(b"privmix units 1")
        for name in self.names:
            hasher.update(len(name).to_bytes(8, "little") + name)
        hasher.update(self.codes.astype("<i8").tobytes())
        return hasher.digest()

    def num_taking_part(self, max_records: int) -> int:
        """Return how many records take part if at most ``max_records`` of each unit do."""
        counts = np.bincount(self.codes[~self.missing], minlength=len(self.names))
        return int(np.minimum(counts, max_records).sum())

    def chosen(self, stream: KeyStream, max_records: int) -> NDArray[np.int64]:
        """Return the positions of the records that take part, in order.

        Of each unit all records, if there are at most ``max_records``, else that many, chosen
        uniformly: those whose keyed hashes are the lowest. Records without an owner are left out,
        since they could be anybody's.
        """
        key = stream.words(_KEY_WORDS).astype("<u8").tobytes()
        taking_part = ~self.missing
        order = np.argsort(self.codes, kind="stable")  # a unit's records in their own order
        bounds = np.searchsorted(self.codes[order], np.arange(len(self.names) + 1))
        for unit in np.flatnonzero(np.diff(bounds) > max_records):
            own = order[bounds[unit] : bounds[unit + 1]]
            taking_part[own] = False
            taking_part[own[_lowest(key, self.names[unit], own.size, max_records)]] = True
        return np.flatnonzero(taking_part)


def _lowest(key: bytes, name: bytes, count: int, max_records: int) -> list[int]:
    """Return which of a unit's ``count`` records have the lowest keyed hashes."""
    whose = hashlib.blake2b(
        len(name).to_bytes(8, "little") + name, digest_size=_DIGEST_BYTES, key=key
    )

    def hash_of(occurrence: int) -> bytes:
        hasher = whose.copy()
        hasher.update(occurrence.to_bytes(8, "little"))
        return hasher.digest()

    return sorted(range(count), key=lambda i: (hash_of(i), i))[:max_records]


class Owned:
    """Base of records that may have owners, of whose records a sample must be taken first."""

    units: Units | None

    def check_sampled(self) -> None:
        """Raise ValueError for records of units of which a sample must be taken first."""
        if self.units is not None:
            raise ValueError("of records with units a sample must be taken before they are used")


def match_units(ids: ArrayLike, *, strict: bool = True) -> Units:
    """Tell the owners of records apart.

    Identifiers are all integers or all strings, and are the same only where they are equal,
    character by character. A column of both kinds is refused, since 1 and "1" may be one owner or two,
    and either reading would be unsafe if wrong. Floating-point numbers are refused as well: they
    may have lost the digits that told two owners apart.

    Args:
        ids: (count,) integers or strings. None, NaN among other objects, blank strings, and what
            programs write instead ("NA", "nan", "NULL", "None") stand for a missing owner, and so do
            bytes that are not UTF-8, which readers leave as they are.
        strict: Refuse a missing owner, naming its position.

    Raises:
        InvalidInputError: Another shape or kind, or a missing owner under ``strict``.

    """
    values = _identifiers(ids)
    index: dict[Any, int] = {}
    codes = np.empty(values.size, dtype=np.int64)
    kinds: set[type] = set()
    for i, value in enumerate(values.tolist()):
        value = value.item() if isinstance(value, np.generic) else value
        if is_missing(value) or _is_no_text(value):
            codes[i] = -1
            continue
        kind = type(value)
        if kind is not int and kind is not str:
            _validate.fail(f"units[{i}]", "an integer or a string", f"a {kind.__name__}")
        kinds.add(kind)
        codes[i] = index.setdefault(value, len(index))
    if len(kinds) > 1:
        _validate.fail("units", "all integers or all strings", "both")
    if strict and (codes < 0).any():
        _validate.fail(
            f"units[{int(np.flatnonzero(codes < 0)[0])}]",
            "an identifier (on_bad_record='zero', --on-bad-record zero, leaves such records out)",
            "nothing, or bytes that are no text",
        )
    prefix = b"i" if int in kinds else b"s"
    names = tuple(prefix + str(name).encode("utf-8", "surrogatepass") for name in index)
    return Units(codes, names)


def _identifiers(ids: ArrayLike) -> NDArray[Any]:
    ids = from_categories(ids)
    # Of a list that mixes kinds NumPy would make strings throughout.
    values = to_array("units", ids) if hasattr(ids, "dtype") else _objects(ids)
    if values.ndim != 1:
        _validate.fail("units", "shape (records,)", f"shape {values.shape}")
    if values.dtype.kind not in "iuUO":
        allowed = "integers or strings, one identifier for each record"
        _validate.fail("units", allowed, f"an array of {values.dtype}")
    return values


def _objects(ids: ArrayLike) -> NDArray[Any]:
    if isinstance(ids, str | bytes) or not isinstance(ids, list | tuple):
        _validate.fail("units", "a sequence of integers or of strings", type(ids).__name__)
    return np.fromiter(ids, dtype=object, count=len(ids))


def _is_no_text(value: object) -> bool:
    if not isinstance(value, bytes):
        return False
    try:
        value.decode()
    except UnicodeDecodeError:
        return True
    return False
