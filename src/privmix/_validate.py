"""Every argument check, with one error template: ``NAME: expected WHAT, got WHAT``.

No maths lives here. All numeric checks are written so that NaN fails them.
"""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

_LONGEST_TEXT = 2000


def printable(text: object, most: int | None = None) -> str:
    r"""Return text as it may be shown: on one line, without a character that a terminal acts on.

    Names, values and messages from elsewhere pass through here before anybody sees them: escape
    sequences, ends of lines, marks that turn the direction of writing and bytes that are no UTF-8
    become ``\x1b``, ``\n``, ``\u202e`` and ``\xff``. What was shown already stays as it is.

    Args:
        text: What to show.
        most: Number of characters after which it is cut off.

    """
    try:
        shown = str(text)
    except ValueError:  # an integer of more digits than Python writes
        shown = f"a very long {type(text).__name__}"
    if most is not None and len(shown) > most:
        shown = f"{shown[:most]}... ({len(shown)} characters)"
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else _escaped(c) for c in shown)


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file name that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


MISSING_COLUMN, NOTHING_TO_RESUME = "missing column", "nothing to resume"


def sentence(position: str, expected: str, got: object) -> str:
    """Return what an error says: ``NAME: expected WHAT, got WHAT``, or a short form of it.

    - Nothing was given: ``NAME: required: WHAT``.
    - Nothing is accepted ("nothing beside --plan", say): ``NAME: not accepted beside --plan, got WHAT``.
    - A column is not there (``MISSING_COLUMN`` and its name), or no run that was cut off
      (``NOTHING_TO_RESUME``): that, and then what was expected.
    """
    where, due, found = (printable(text, _LONGEST_TEXT) for text in (position, expected, got))
    if found == "nothing":
        return f"{where}: required: {due}"
    if due.startswith("nothing "):
        return f"{where}: not accepted {due.removeprefix('nothing ')}, got {found}"
    if found.startswith((MISSING_COLUMN, NOTHING_TO_RESUME)):
        return f"{where}: {found}; expected {due}"
    return f"{where}: expected {due}, got {found}"


class InvalidInputError(ValueError):
    """Bad input, said in one line: the position, what is expected, what was got."""

    def __init__(self, position: str, expected: str, got: object) -> None:
        self.position, self.expected, self.got = position, expected, got
        super().__init__(sentence(position, expected, got))


def fail(position: str, expected: str, got: object) -> NoReturn:
    """Raise :class:`InvalidInputError`; strings are quoted by ``repr`` of the caller's choice."""
    raise InvalidInputError(position, expected, got)


def outside_releases(position: str, path: Path) -> None:
    """Refuse a file to write inside a release or a model folder: verification would find it foreign."""
    if any((parent / "certificate.json").exists() for parent in path.absolute().parents):
        fail(position, "a file outside of any release, which it would break", str(path))


def real(
    position: str,
    value: object,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    below: float = math.inf,
    at_most: float = math.inf,
) -> float:
    """Return ``value`` as a finite float inside the bounds, or fail naming ``position``."""
    parts = [
        text
        for bound, text in (
            (above, f"above {above:g}"),
            (at_least, f"at least {at_least:g}"),
            (below, f"below {below:g}"),
            (at_most, f"at most {at_most:g}"),
        )
        if math.isfinite(bound)
    ]
    allowed = " and ".join(["a finite number", *parts])
    if isinstance(value, bool) or not isinstance(value, Real):
        fail(position, allowed, repr(value))
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the doubles
        fail(position, allowed, "an integer beyond all floating-point numbers")
    inside = above < number < below and at_least <= number <= at_most
    if not (math.isfinite(number) and inside):
        fail(position, allowed, number)
    return number


def integer(position: str, value: object, *, at_least: int = 1, at_most: int | None = None) -> int:
    """Return ``value`` as an int inside the bounds, or fail naming ``position``."""
    allowed = f"an integer of at least {at_least}"
    if at_most is not None:
        allowed += f" and at most {at_most}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        fail(position, allowed, repr(value))
    number = int(value)
    if at_most is None and number >= 2**63:
        fail(position, f"{allowed} and below 2^63", "a larger one")
    if number < at_least or (at_most is not None and number > at_most):
        fail(position, allowed, number if abs(number) < 10**30 else "one of more than 30 digits")
    return number


def numbers(position: str, text: str, allowed: str) -> tuple[float, ...]:
    """Return the finite numbers of a text, as in ``0.9,0.1`` or ``[0.9, 0.1]``."""
    bare = text.strip()
    if bare.startswith("[") and bare.endswith("]"):
        bare = bare[1:-1]
    try:
        found = tuple(float(part) for part in bare.split(","))
    except ValueError:
        found = ()
    if not found or not all(map(math.isfinite, found)):
        fail(position, allowed, repr(text)[:80])
    return found


# The largest public sizes. Beyond them no release fits on a machine, and planning would not end.
LARGEST = {
    "num_records": 10**8,
    "num_features": 10**6,
    "num_classes": 10**5,
    "num_mixtures": 10**8,
    "max_records_per_unit": 10**4,
}
SMALLEST_MIX_SIZE = 1e-3


def size(name: str, value: object, *, at_least: int = 1, position: str | None = None) -> int:
    """Return a public size within its largest value, by its ``name`` in ``LARGEST``."""
    return integer(position or name, value, at_least=at_least, at_most=LARGEST[name])


def probability(position: str, value: object) -> float:
    """Return a probability in (0, 1]."""
    return real(position, value, above=0.0, at_most=1.0)


def delta(position: str, value: object) -> float:
    """Return a delta in (0, 1), not so small that its logarithm leaves the doubles behind."""
    return real(position, value, at_least=1e-300, below=1.0)


def name(position: str, value: object) -> str:
    """Return a name: text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        fail(position, "a name, text that is not empty", repr(value))
    return value


def one_of(position: str, value: object, allowed: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``allowed``, or fail listing them."""
    names = list(allowed)
    if not isinstance(value, str) or value not in names:
        fail(position, "one of " + ", ".join(names), repr(value))
    return value


def regular_file(path: Path) -> None:
    """Refuse what is there and is no regular file: of a pipe or a device, reading may not end."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        fail(str(path), "an existing file", getattr(error, "strerror", None) or error)
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}
        fail(str(path), "a regular file", kinds.get(stat.S_IFMT(mode), "a device"))


class FrozenModel(BaseModel):
    """Base of the public facts: immutable, closed, strict, JSON in and out.

    Validation errors come out as :class:`InvalidInputError`.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, ser_json_inf_nan="constants"
    )

    # Fields that are written only where they differ from their default, so that what was said
    # before there were such fields is said in the same bytes.
    _omitted_if_default: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _serialise(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        fields = type(self).model_fields
        plain = [
            name for name in self._omitted_if_default if getattr(self, name) == fields[name].default
        ]
        return {name: value for name, value in data.items() if name not in plain}

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise _first_problem(type(self).__name__, error) from None
        except ArithmeticError as error:  # of numbers that no double holds
            fail(type(self).__name__, "numbers to calculate with", error)

    # Only errors are translated above: parsing JSON may go past it, with JSON's own strictness
    # (a list is a tuple there).
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def from_json(cls, text: str | bytes, position: str | None = None) -> Self:
        """Parse JSON; errors name ``position`` (a file name, say) and the field.

        A field that is there twice is refused: of what stands there a reader would see one value,
        and the parser another.
        """
        try:
            parsed = cls.model_validate_json(text)
        except ValidationError as error:
            raise _first_problem(position or cls.__name__, error) from None
        except ArithmeticError as error:
            fail(position or cls.__name__, "numbers to calculate with", error)
        refuse_repeated(position or cls.__name__, text)
        return parsed


def refuse_repeated(position: str, text: str | bytes) -> None:
    """Refuse JSON text in which an object has a field twice."""

    def check(pairs: list[tuple[str, Any]]) -> None:
        seen = set()
        for key, _ in pairs:
            if key in seen:
                fail(position, "each field once", f"{key!r} twice")
            seen.add(key)

    json.loads(text, object_pairs_hook=check)


def _first_problem(position: str, error: ValidationError) -> InvalidInputError:
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InvalidInputError):
        return InvalidInputError(f"{position}.{cause.position}", cause.expected, cause.got)
    where = ".".join([position, *(str(part) for part in first["loc"])])
    if first["type"] == "missing":
        return InvalidInputError(where, "a value", "nothing")
    if first["type"] == "extra_forbidden":
        return InvalidInputError(where, "no field of this name", "one")
    if first["type"] == "json_invalid":
        return InvalidInputError(position, "valid JSON", first["msg"])
    received = _short(first["input"])
    return InvalidInputError(where, first["msg"], received if len(received) < 80 else "a value")


def _short(value: object) -> str:
    """Return the ``repr`` of a value, or something long where the value is large."""
    if isinstance(value, str | bytes | list | tuple | dict) and len(value) > 80:
        return " " * 80
    try:
        return repr(value)
    except (ValueError, RecursionError):  # an integer of too many digits
        return " " * 80
