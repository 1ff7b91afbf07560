"""Match labels to the schema, record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix import _validate
from privmix.compiling import kernel
from privmix.inputs.arrays import from_categories, to_array
from privmix.inputs.missing import is_nothing
from privmix.schema import Target

BadRecordPolicy = Literal["error", "zero"]


FIRST_ROUNDED = 2**53  # from here on doubles skip integers


EXACT_TYPES = "integers or texts (pandas: dtype 'Int64' or 'string')"


REMEDY = " (on_bad_record='zero', --on-bad-record zero, blanks such records)"


def _is_soft(vectors: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Weights that were rounded to single precision may add up to a little more than 1."""
    with np.errstate(invalid="ignore"):
        fits = _row_totals(vectors) <= 1 + 1e-5
        return np.isfinite(vectors) & (vectors >= 0) & fits[:, None]


class LabelRule(NamedTuple):
    """What a label vector's numbers must be, in words, and (count, K) whether they are."""

    expected: str
    holds: Callable[[NDArray[np.float64]], NDArray[np.bool_]]


LABEL_RULES: dict[Target, LabelRule] = {
    "soft": LabelRule("weights of at least 0 that add up to at most 1", _is_soft),
    "multilabel": LabelRule("0 or 1", lambda vectors: (vectors == 0) | (vectors == 1)),
    "regression": LabelRule("a finite number", np.isfinite),
}


@kernel(nogil=True)
def _row_totals(vectors: NDArray[np.float64]) -> NDArray[np.float64]:  # pragma: no cover - compiled
    """Add each row up from left to right, so that no row changes the order of another's additions."""
    totals = np.zeros(vectors.shape[0])
    for row in range(vectors.shape[0]):
        for j in range(vectors.shape[1]):
            totals[row] += vectors[row, j]
    return totals


def match_labels(
    labels: ArrayLike,
    classes: Sequence[int] | Sequence[str],
    *,
    strict: bool = True,
    remedy: str = "",
) -> NDArray[np.int32]:
    """Match labels to the classes by value: 3, 3.0 and NumPy's 3 are the class 3, "3" is not.

    Args:
        labels: (count,) array or sequence; of a sequence each is read as what it is.
        classes: The schema's classes.
        strict: Refuse a label that is no class, naming its position; otherwise it becomes -1.
        remedy: What the refusal advises.

    Returns:
        (count,) int32 indices into ``classes``.

    Raises:
        InvalidInputError: Another shape or kind, a label that is no class under ``strict``, or
            floating-point labels where a class is an integer of magnitude 2^53 or more.

    """
    labels = from_categories(labels)
    refuse_floats("labels", labels, classes)
    values = to_array("labels", _one_by_one(labels))
    if values.ndim != 1:
        _validate.fail("labels", "shape (records,)", f"shape {values.shape}")
    if values.dtype.kind not in "iufbUO":
        _validate.fail("labels", "integers or strings", f"an array of {values.dtype}")
    index: dict[object, int] = {value: i for i, value in enumerate(classes)}
    if values.dtype == object:
        found = np.array([_lookup(value, index) for value in values], dtype=np.int32)
    else:
        distinct, inverse = np.unique(values, return_inverse=True)
        codes = np.array([_lookup(value, index) for value in distinct.tolist()], dtype=np.int32)
        found = codes[inverse] if codes.size else np.empty(0, dtype=np.int32)
    if strict and (found < 0).any():
        first = int(np.flatnonzero(found < 0)[0])
        kind = "integer" if isinstance(classes[0], int) else "string"
        shown = ", ".join(map(repr, classes[:5])) + (", ..." if len(classes) > 5 else "")
        received = values[first].item() if isinstance(values[first], np.generic) else values[first]
        _validate.fail(
            f"labels[{first}]",
            f"one of the schema's {len(classes)} {kind} classes ({shown}){label_remedy(received, classes)}{remedy}",
            repr(received),
        )
    return found


def refuse_missing(labels: ArrayLike) -> None:
    """Refuse labels, (count,) or (count, K), of which one is missing, naming its position."""
    # NumPy would write NaN among texts as "nan".
    values = np.asarray(labels, dtype=None if hasattr(labels, "dtype") else object)
    missing = np.zeros(values.shape, dtype=bool)
    if values.dtype.kind == "f":
        missing = np.isnan(values)
    elif values.dtype.kind == "O":
        missing = np.asarray(np.frompyfunc(is_nothing, 1, 1)(values), dtype=bool)
    if missing.any():
        first = tuple(int(i) for i in np.argwhere(missing)[0])
        shown = ", ".join(map(str, first))
        _validate.fail(f"labels[{shown}]", "a label in every record", repr(values[first]))


def refuse_floats(position: str, labels: Any, classes: Iterable[object]) -> None:
    """Refuse labels of a floating-point type where they cannot tell the classes apart.

    From 2^53 on doubles skip integers (single precision: from 2^24 on), and one missing label makes
    pandas turn the integers of all other records into them. The type and the public classes decide
    here; pandas may have found that type in the values.
    """
    kind = str(getattr(labels, "dtype", getattr(labels, "type", ""))).lower()
    if "float" not in kind and "double" not in kind:
        return
    single = "32" in kind or kind == "float"  # as Arrow calls it
    bits = 11 if "16" in kind or "half" in kind else 24 if single else 53
    if any(isinstance(c, int) and abs(c) >= 1 << bits for c in classes):
        allowed = f"{EXACT_TYPES} where integers of 2^{bits} or more are classes, or could be"
        _validate.fail(position, allowed, f"a column of {kind}")


def is_rounded(value: object) -> bool:
    """Whether a number is a floating-point one so large that it may stand for several integers."""
    return isinstance(value, float) and abs(value) >= FIRST_ROUNDED


def _one_by_one(labels: ArrayLike) -> Any:
    """Return labels without a NumPy type as objects.

    NumPy would find one type for all of them: a single text would make texts of every label, so
    that one bad record made all others bad, and numbers beside it those classes of that name.
    """
    if isinstance(getattr(labels, "dtype", None), np.dtype):
        return labels
    for to_list in ("to_pylist", "to_list"):  # Arrow's; and pandas' and polars', with their nulls
        if hasattr(labels, to_list):
            labels = getattr(labels, to_list)()
    if not isinstance(labels, list | tuple):
        return labels
    return np.fromiter(labels, dtype=object, count=len(labels))


def label_remedy(label: object, classes: Sequence[int] | Sequence[str]) -> str:
    """Say what to do about a label that is a class written in another way; else nothing."""
    if not isinstance(label, str):
        return ""
    written = {str(value) for value in classes}
    if label.strip() in written:
        return (
            '; blanks around labels come off with "format": {"strip": true} in the schema\'s table, '
            "for --extractor tabular; of other files they are to be removed"
        )
    try:
        number = {"true": 1.0, "false": 0.0}.get(label.strip().lower())
        number = float(label) if number is None else number
    except ValueError:
        return ""
    if number.is_integer() and str(int(number)) in written:
        return (
            f'; a label that is text is the class written so: state "classes" as {label!r} is '
            "written, or write integers"
        )
    return ""


def _lookup(value: Any, index: dict[object, int]) -> int:
    try:
        value = value.item() if hasattr(value, "item") else value
        return -1 if is_rounded(value) else index.get(value, -1)
    except (TypeError, ValueError, RuntimeError):  # unhashable, or an array or tensor of several
        return -1
