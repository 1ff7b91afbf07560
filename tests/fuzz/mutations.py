"""Changes of JSON documents, field by field, and of bytes."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

Place = tuple[str | int, ...]


class Raw(str):
    """JSON text that stands for a value as it is: numbers that Python would not write so."""


# Values of every type, and at the edges of each.
STRANGE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), Raw("1" + "0" * 400),
    Raw("9" * 5000), 0.0, -0.0, 0.5, 1.5, 1e-300, 5e-324, 1e300, -1e300, Raw("1e400"), Raw("NaN"),
    Raw("Infinity"), "", " ", "x", "0", "1e400", "NaN", "\x00", "\x1b[2J", "\nvalid: (0.1, 1e-9)",
    "\u202e", "\ud800", "x" * 10_000, "٣", "../../etc/passwd", "data/part-00000.parquet",
    [], [None], [[]], [0, 0], ["a", "a"], {}, {"": 0}, {"a": {"a": {}}}, [[[[[[[[[[]]]]]]]]]],
)  # fmt: skip


def leaves(document: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield every place in a document with its value, containers too."""
    yield place, document
    if isinstance(document, dict):
        for name, value in document.items():
            yield from leaves(value, (*place, name))
    elif isinstance(document, list):
        for number, value in enumerate(document[:3]):  # the others are alike
            yield from leaves(value, (*place, number))


def mutants(value: Any) -> list[Any]:
    """Return values to put in place of one: strange ones, and near ones."""
    found = [other for other in STRANGE if not same(other, value)]
    if isinstance(value, bool):
        return found
    if isinstance(value, int):
        found += [value + 1, value - 1, -value, value * 2, value * 10**6, float(value), str(value)]
    elif isinstance(value, float):
        found += [value * f for f in (0.5, 0.999, 1.001, 2.0, 1e6, -1.0, 1e-6)] + [str(value)]
    elif isinstance(value, str):
        found += [value.upper(), value + " ", value + "\n", value[:-1], value * 2, [value]]
    elif isinstance(value, list):
        found += [value[:-1], value[::-1], value + value, [value], dict(enumerate(map(str, value)))]
    elif isinstance(value, dict):
        found += [{**value, "records": 59}, [value], list(value.values())]
        found += [{k: v for k, v in value.items() if k != name} for name in value]
    return [other for other in found if not same(other, value)]


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


def document_mutants(document: Any) -> Iterator[tuple[Place, bytes]]:
    """Yield (place, JSON) for every value at every place."""
    for place, value in leaves(document):
        for other in mutants(value):
            yield place, write(put(document, place, other))


def put(document: Any, place: Place, value: Any) -> Any:
    """Return a copy with another value at a place."""
    if not place:
        return value
    changed = copy.copy(document)
    changed[place[0]] = put(document[place[0]], place[1:], value)
    return changed


def write(document: Any) -> bytes:
    """Write JSON as privmix does, raw texts as they are."""
    texts: dict[str, str] = {}

    def mark(value: Any) -> Any:
        if isinstance(value, Raw):
            texts[json.dumps(f"<raw {len(texts)}>")] = str(value)
            return f"<raw {len(texts) - 1}>"
        if isinstance(value, dict):
            return {name: mark(part) for name, part in value.items()}
        return [mark(part) for part in value] if isinstance(value, list) else value

    written = json.dumps(mark(document), indent=2)
    for name, text in texts.items():
        written = written.replace(name, text)
    return (written + "\n").encode()


def byte_mutants(content: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Yield changed copies: bits flipped, bytes set, cut out, cut off, doubled, inserted."""
    draw = random.Random(seed)
    for _ in range(count):
        changed = bytearray(content)
        for _ in range(draw.choice((1, 1, 1, 2, 8))):
            place = draw.randrange(len(changed)) if changed else 0
            # The ends, where headers and footers are, as often as all the rest.
            if draw.random() < 0.5:
                place = draw.choice((min(place, 63), len(changed) - 1 - min(place, 255)))
            place = max(0, min(place, len(changed) - 1))
            kind = draw.randrange(6)
            if not changed:
                break
            if kind == 0:
                changed[place] ^= 1 << draw.randrange(8)
            elif kind == 1:
                changed[place] = draw.choice((0, 1, 127, 128, 255))
            elif kind == 2:
                del changed[place : place + draw.choice((1, 4, 64))]
            elif kind == 3:
                del changed[place:]
            elif kind == 4:
                changed[place:place] = changed[place : place + draw.choice((1, 8, 512))]
            else:
                changed[place:place] = draw.randbytes(draw.choice((1, 8, 512)))
        if bytes(changed) != content:
            yield bytes(changed)
