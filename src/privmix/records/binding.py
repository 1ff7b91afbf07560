"""Clip, quantise and label-match private records; the result carries its sensitivity.

See ``docs/theory/fixed-point.md``. Everything here is decided record by record from public
constants, so that no record changes what is made of another.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privmix import _validate
from privmix._validate import InvalidInputError
from privmix.clipping import FixedPoint
from privmix.inputs.arrays import Source, as_source, to_array
from privmix.inputs.labels import LABEL_RULES, REMEDY, BadRecordPolicy, match_labels
from privmix.inputs.owners import Units, match_units
from privmix.inputs.tally import MAX_BAD_SHARE, Shares, Tally, stop
from privmix.records.bounded import (
    BoundedRecords,
    Progress,
    StreamedRecords,
    _BadCells,
    _batch_digest,
    _bound,
    _stretches,
    batch_records,
)
from privmix.running.resources import default_threads
from privmix.schema import Schema


def bound_records(
    features: ArrayLike | Source,
    labels: ArrayLike,
    schema: Schema,
    on_bad_record: BadRecordPolicy = "error",
    *,
    units: ArrayLike | None = None,
    max_bad_share: float = MAX_BAD_SHARE,
    in_memory: bool = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> BoundedRecords | StreamedRecords:
    """Clip, quantise and label-match private records.

    Args:
        features: (count, num_features) real numbers, or a source of them. ``count`` need not be
            ``num_records``.
        labels: (count,) values out of ``schema.classes``, matched by value; or (count, num_classes)
            numbers for other targets, and (count,) for a single output.
        schema: The public facts.
        on_bad_record: ``error`` refuses NaN, infinity, labels outside the schema and missing units,
            naming the first record of each column; ``zero`` replaces such a record by zero, record
            by record.
        units: (count,) identifiers of the records' owners, for a plan that protects units.
        max_bad_share: With ``zero``, a larger share of bad records is refused.
        in_memory: Whether to keep the bounded features, or to read them again whenever needed.
        threads: Number of threads; all processors by default.
        progress: Called with (records read, records in all).

    Raises:
        InvalidInputError: A wrong shape, a bad record under ``error``, or too many of them; notes
            tell of each column.

    Example:
        >>> import numpy as np
        >>> from privmix import Schema, bound_records
        >>> schema = Schema(classes=["a", "b"], num_features=2, num_records=3, feature_clip_norm=1.0)
        >>> records = bound_records(np.array([[3.0, 4.0], [0.5, 0.0]]), ["b", "a"], schema)
        >>> records.features  # on a grid of 2^-14; the first record was shortened to length 1
        array([[ 9830, 13107],
               [ 8192,     0]], dtype=int16)
        >>> records.labels
        array([1, 0], dtype=int32)

    """
    _validate.one_of("on_bad_record", on_bad_record, ("error", "zero"))
    shares = Shares(bad=max_bad_share)
    source = feature_source(features, schema.num_features)
    strict = on_bad_record == "error"
    label_grid = FixedPoint(schema.label_clip_norm)
    refused: InvalidInputError | None = None
    try:
        bounded = _bound_labels(labels, schema, label_grid, strict)
    except InvalidInputError as error:
        refused = error
        bounded = _bound_labels(labels, schema, label_grid, False)  # or raises again: a wrong shape
    count, width = source.shape[0], schema.num_features
    if count != (found := len(bounded.values)):
        _validate.fail("labels", f"one label for each of the {count} records", found)
    owners: Units | None = None
    try:
        owners = None if units is None else match_units(units, strict=strict)
    except InvalidInputError as error:
        refused = refused or error
        owners = match_units(units, strict=False)  # type: ignore[arg-type]
    tally = Tally(num_records=count)
    _count(tally, "labels", bounded.bad, "a label of the schema's")
    blank = bounded.bad
    if owners is not None:
        if (found := owners.codes.size) != count:
            _validate.fail("units", f"one identifier for each of the {count} records", found)
        _count(tally, "units", owners.missing, "an identifier")
        blank = blank | owners.missing
    grid = FixedPoint(schema.feature_clip_norm)
    kept = np.empty((count, width) if in_memory else (0, width), dtype=np.int16)

    def bound(run: tuple[int, int]) -> tuple[int, list[_BadCells], bytes]:
        start, stop = run
        own = kept[start:stop] if in_memory else np.empty((stop - start, width), dtype=np.int16)
        clipped, wrong = _bound(source, start, stop, blank[start:stop], grid, own)
        return clipped, wrong, b"" if in_memory else _batch_digest(own)

    num_clipped, digests = 0, []
    workers = 1 if source.in_order else threads or default_threads()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for clipped, wrong, digest in pool.map(
                bound, _stretches(0, count, batch_records(width))
            ):
                num_clipped += clipped
                for cells in wrong:
                    name = _feature_name(source, cells.column)
                    position = f"features[{cells.row}, {cells.column}]"
                    tally.add_bad(name, cells.num_cells, position, "a finite number", cells.value)
                if strict and wrong and refused is None:
                    first = min(wrong, key=lambda cells: (cells.row, cells.column))
                    position = f"features[{first.row}, {first.column}]"
                    refused = InvalidInputError(position, "a finite number" + REMEDY, first.value)
                digests.append(digest)
                if progress is not None:
                    progress(min(len(digests) * batch_records(width), count), count)
        finally:
            pool.shutdown(cancel_futures=True)
    tally.num_bad = int(blank.sum())
    if refused is not None:
        told = [f"{tally.num_bad} of {count} records are bad", *tally.faults()]
        stop(refused.position, refused.expected, refused.got, told if tally.num_bad > 1 else [])
    tally.check("records", shares)
    bounded.values[blank] = -1 if schema.target == "class" else 0
    facts: dict[str, Any] = {
        "labels": bounded.values,
        "blank": blank,
        "feature_grid": grid,
        "label_grid": label_grid,
        "num_clipped": num_clipped,
        "num_replaced": int(blank.sum()),
        "num_labels_clipped": bounded.num_clipped,
        "units": owners,
    }
    if in_memory:
        return BoundedRecords(features=kept, **facts)
    return StreamedRecords(source=source, digests=tuple(digests), **facts)


def _count(tally: Tally, name: str, bad: NDArray[np.bool_], allowed: str) -> None:
    """Count records that are bad for their label or their owner."""
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        tally.add_bad(name, int(bad.sum()), f"{name}[{first}]", allowed, "another, or nothing")


def _feature_name(source: Source, column: int) -> str:
    names = getattr(source, "names", ())
    return repr(names[column]) if names else f"feature {column}"


class _Labels(NamedTuple):
    """Bounded labels, as ``Records`` have them, and which of them are bad."""

    values: NDArray[Any]
    bad: NDArray[np.bool_]
    num_clipped: int


def _bound_labels(labels: ArrayLike, schema: Schema, grid: FixedPoint, strict: bool) -> _Labels:
    if schema.target == "class":
        indices = match_labels(labels, schema.classes, strict=strict, remedy=REMEDY)
        return _Labels(indices, indices < 0, 0)
    vectors = _label_matrix(labels, schema)
    rule = LABEL_RULES[schema.target]
    wrong = ~rule.holds(vectors)
    bad = np.asarray(wrong.any(axis=1))
    if strict and bad.any():
        first = int(np.flatnonzero(bad)[0])
        column = int(np.flatnonzero(wrong[first])[0])
        allowed = rule.expected + REMEDY
        _validate.fail(f"labels[{first}, {column}]", allowed, vectors[first, column])
    vectors[bad] = 0.0
    clamped = np.zeros(len(vectors), dtype=bool)
    if schema.target_bounds is not None:
        low, high = np.array(schema.target_bounds).T
        with np.errstate(over="ignore"):
            vectors = (vectors - (low / 2 + high / 2)) / (high / 2 - low / 2)
        clamped = (np.abs(vectors) > 1.001).any(axis=1) & ~bad
        vectors = np.clip(vectors, -1.0, 1.0)
    integers = np.empty(vectors.shape, dtype=np.int16)
    shortened = grid.quantise(vectors, integers)
    return _Labels(integers, bad, shortened + int(clamped.sum()))


def _label_matrix(labels: ArrayLike, schema: Schema) -> NDArray[np.float64]:
    values = to_array("labels", labels)
    if values.dtype == object:  # a table's rows, with None for what is missing
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            _validate.fail("labels", "an array of real numbers", "other objects")
    if values.dtype.kind not in "fiub":
        _validate.fail("labels", "an array of real numbers", f"an array of {values.dtype}")
    if values.ndim == 1 and schema.num_classes == 1:
        values = values[:, None]
    if values.ndim != 2 or values.shape[1] != schema.num_classes:
        allowed = f"shape (records, {schema.num_classes})"
        _validate.fail("labels", allowed, f"shape {values.shape}")
    return np.array(values, dtype=np.float64, order="C")


def feature_source(features: ArrayLike | Source, num_features: int) -> Source:
    """Turn features into a source, and check its shape and type."""
    source = as_source("features", features)
    if source.dtype.kind not in "fiub":
        _validate.fail("features", "an array of real numbers", f"an array of {source.dtype}")
    if len(source.shape) != 2 or source.shape[1] != num_features:
        _validate.fail("features", f"shape (records, {num_features})", f"shape {source.shape}")
    if source.shape[0] == 0:
        _validate.fail("features", "at least one record", "none")
    return source
