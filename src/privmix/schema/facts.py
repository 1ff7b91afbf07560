"""The public facts about a data set, stated before anybody looks at it."""

from __future__ import annotations

import math
from collections.abc import Sized
from typing import Any, ClassVar, Literal, NoReturn, Self

from pydantic import field_validator, model_validator

from privmix import _validate
from privmix._validate import FrozenModel, printable
from privmix.markup import facts_html
from privmix.schema.table import TableSchema
from privmix.schema.text_format import PLAIN, TextFormat

Target = Literal["class", "soft", "multilabel", "regression"]
ClassBalance = Literal["equal", "unequal"] | tuple[float, ...] | None
_BALANCES = ("equal", "unequal")
_MOST_SHOWN = 8
_LONGEST_NAME = 40  # of a class, where a schema is shown
SHARES_TOLERANCE = 0.01  # shares are often stated with two digits
TARGETS: tuple[Target, ...] = ("class", "soft", "multilabel", "regression")


class Schema(FrozenModel):
    """Public facts of a labelled data set; frozen, JSON in and out.

    Nothing here may be read from the private records: each field is a constant that the data
    holder is willing to publish.

    Attributes:
        classes: The closed set of labels, integers or strings, all distinct, in a fixed order.
            At least two. A class that no record has is allowed. For ``regression``: the names of
            the outputs, one or more.
        num_features: Width d of a feature vector; follows from ``table`` where there is one.
        num_records: Planning constant for the number of records. The actual count may differ
            and is never published; it only scales the rows.
        feature_clip_norm: L2 bound on a feature vector. Required: without it no noise could be
            calibrated. Longer vectors are scaled down to it. With a ``table`` the default is the
            largest norm that its vectors can have.
        label_clip_norm: L2 bound on a label vector. ``class`` and ``soft``: 1.0, the norm of a
            one-hot label; ``multilabel``: the root of ``max_labels``; ``regression``: the root of
            the number of outputs. A smaller one is allowed but for ``class``; longer label vectors
            are scaled down to it.
        target: What a record's label is: ``class``, one of the classes; ``soft``, a weight for
            each class, none negative, adding up to at most 1; ``multilabel``, 0 or 1 for each
            class; ``regression``, a number for each output.
        max_labels: ``multilabel``: planned largest number of labels of a record. A record with more
            is scaled down to norm ``label_clip_norm``.
        target_bounds: ``regression``: (low, high) of each output. Values are clamped to them, and
            scaled to [-1, 1].
        table: The columns of a table that the features are made of, for the ``tabular`` extractor.
        feature_names: Public names of the features, in their order, where they have any: those of
            a table's columns. A table, to be released or scored, must then have the same columns
            in the same order.
        format: How a file of delimited text is written that holds vectors, or texts; a ``table``
            has a ``format`` of its own.

    Example:
        >>> from privmix import Schema
        >>> schema = Schema(classes=["no", "yes"], num_features=3, num_records=500, feature_clip_norm=1.0)
        >>> schema.num_classes, schema.target, schema.label_clip_norm
        (2, 'class', 1.0)

    """

    _omitted_if_default: ClassVar[tuple[str, ...]] = (
        "table",
        "target",
        "max_labels",
        "target_bounds",
        "feature_names",
        "class_balance",
        "format",
    )

    classes: tuple[int, ...] | tuple[str, ...]
    num_features: int = 0
    num_records: int
    feature_clip_norm: float = 0.0
    label_clip_norm: float = 1.0
    table: TableSchema | None = None
    target: Target = "class"
    max_labels: int | None = None
    target_bounds: tuple[tuple[float, float], ...] | None = None
    feature_names: tuple[str, ...] | None = None
    class_balance: ClassBalance = None
    format: TextFormat = PLAIN

    @model_validator(mode="before")
    @classmethod
    def _require_sizes(cls, value: object) -> object:
        """A table states its width and its norm; without one they have no default."""
        if isinstance(value, dict) and value.get("table") is None:
            for name in ("num_features", "feature_clip_norm"):
                if name not in value:
                    _validate.fail(name, "a value", "nothing")
        return value

    @model_validator(mode="after")
    def _follow_table(self) -> Schema:
        if self.table is not None:
            stated = "num_features" in self.model_fields_set
            if not (stated and self.num_features == self.table.num_features):
                self.__dict__["table"] = self.table.with_usual_bins(self.num_records)
            width, norm = self.table.num_features, self.table.norm_bound
            if "num_features" in self.model_fields_set and self.num_features != width:
                _validate.fail(
                    "num_features", f"{width}, as the table's columns give", self.num_features
                )
            for name, found in (("num_features", width), ("feature_clip_norm", norm)):
                if name not in self.model_fields_set:
                    self.__dict__[name] = found
                    self.__pydantic_fields_set__.add(name)
        return self

    @model_validator(mode="before")
    @classmethod
    def _fill_label_clip_norm(cls, value: object) -> object:
        """The default is the largest norm that a label can have; its parts are checked later."""
        if not isinstance(value, dict) or "label_clip_norm" in value:
            return value
        longest: object = None
        if value.get("target") == "multilabel":
            longest = value.get("max_labels")
        elif value.get("target") == "regression" and isinstance(value.get("classes"), Sized):
            longest = len(value["classes"])
        if isinstance(longest, int) and longest > 0:
            return {**value, "label_clip_norm": math.sqrt(longest)}
        return value

    @field_validator("classes", mode="before")
    @classmethod
    def _check_classes(cls, value: object) -> object:
        if hasattr(value, "tolist"):  # NumPy arrays and scalars
            value = value.tolist()
        if value is None:  # as a template leaves it
            allowed = 'the public list of classes; for example "classes": ["no", "yes"]'
            _validate.fail("classes", allowed, "nothing")
        value = check_classes(value)
        if len(value) < 1 or len(set(value)) != len(value):
            _fail_classes(value)
        return value

    @field_validator("num_features", "num_records")
    @classmethod
    def _check_counts(cls, value: int, info: object) -> int:
        return _validate.size(getattr(info, "field_name", "num_records"), value)

    @field_validator("feature_clip_norm", mode="before")
    @classmethod
    def _check_clip_norm(cls, value: object) -> float:
        # Far beyond any data, and far from where doubles overflow or lose places.
        return _validate.real("feature_clip_norm", value, at_least=1e-30, at_most=1e30)

    @field_validator("label_clip_norm", mode="before")
    @classmethod
    def _check_label_clip_norm(cls, value: object) -> float:
        return _validate.real("label_clip_norm", value, at_least=1e-30, at_most=1e30)

    @field_validator("target_bounds", mode="before")
    @classmethod
    def _check_target_bounds(cls, value: object) -> object:
        if value is None:
            return None
        allowed = "a pair of numbers (low, high) for each output"
        if hasattr(value, "tolist"):
            value = value.tolist()
        if not isinstance(value, list | tuple):
            _validate.fail("target_bounds", allowed, repr(value))
        return tuple(_bounds(i, pair, allowed) for i, pair in enumerate(value))

    @field_validator("feature_names", mode="before")
    @classmethod
    def _check_feature_names(cls, value: object) -> object:
        if hasattr(value, "tolist"):
            value = value.tolist()
        if value is None:
            return None
        names = value if isinstance(value, list | tuple) else ()
        if not names or not all(isinstance(name, str) and name for name in names):
            _validate.fail("feature_names", "a list of names, none empty", repr(value)[:80])
        if len(set(names)) != len(names):
            _validate.fail("feature_names", "distinct names", "a repeated one")
        return tuple(names)

    @field_validator("class_balance", mode="before")
    @classmethod
    def _check_class_balance(cls, value: object) -> object:
        if hasattr(value, "tolist"):
            value = value.tolist()
        if value is None or isinstance(value, str):
            return value if value is None else _validate.one_of("class_balance", value, _BALANCES)
        if not isinstance(value, list | tuple):
            _validate.fail(
                "class_balance", "equal, unequal, or a share for each class", repr(value)
            )
        return tuple(_validate.real("class_balance", share, above=0.0) for share in value)

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        balance = self.class_balance
        if balance is not None and self.target != "class":
            _validate.fail("class_balance", "nothing for targets other than class", balance)
        if isinstance(balance, tuple):
            if len(balance) != len(self.classes):
                allowed = f"{len(self.classes)} shares, one for each class"
                _validate.fail("class_balance", allowed, len(balance))
            if abs(sum(balance) - 1) > SHARES_TOLERANCE:
                _validate.fail("class_balance", "shares that add up to 1", sum(balance))
        return self

    @model_validator(mode="after")
    def _check_number_of_names(self) -> Self:
        if self.feature_names is not None and len(self.feature_names) != self.num_features:
            allowed = f"{self.num_features} names, one for each feature"
            _validate.fail("feature_names", allowed, len(self.feature_names))
        return self

    @model_validator(mode="after")
    def _check_target(self) -> Self:
        target, count = self.target, len(self.classes)
        if count < 2 and target != "regression":
            _fail_classes(self.classes)
        for name, owner in (("max_labels", "multilabel"), ("target_bounds", "regression")):
            if target != owner and (value := getattr(self, name)) is not None:
                _validate.fail(name, f"nothing for target {target}", value)
        if target == "class" and self.label_clip_norm != 1.0:
            _validate.fail(
                "label_clip_norm", "1.0, the norm of a one-hot label", self.label_clip_norm
            )
        most = 1 if target in ("class", "soft") else count
        if target == "multilabel":
            if self.max_labels is not None:
                most = _validate.integer("max_labels", self.max_labels, at_most=count)
            elif "label_clip_norm" not in self.model_fields_set:
                _validate.fail("max_labels", "a number, unless label_clip_norm is given", "nothing")
        if target == "regression":
            if self.target_bounds is None or len(self.target_bounds) != count:
                found = "nothing" if self.target_bounds is None else len(self.target_bounds)
                _validate.fail("target_bounds", f"a pair (low, high) for each of {count}", found)
            if not all(isinstance(name, str) for name in self.classes):
                _validate.fail("classes", "names of the outputs, for regression", self.classes)
        if self.label_clip_norm > math.sqrt(most):
            _validate.fail(
                "label_clip_norm",
                f"at most {math.sqrt(most)!r}, the largest norm of a label",
                self.label_clip_norm,
            )
        return self

    @model_validator(mode="after")
    def _check_format(self) -> Self:
        if self.table is not None and self.format != PLAIN:
            _validate.fail("format", "nothing beside table, whose own format counts", "one")
        return self

    @property
    def text_format(self) -> TextFormat:
        """How its files of delimited text are written, whatever they hold."""
        return self.format if self.table is None else self.table.format

    @classmethod
    def from_dataframe(
        cls, frame: Any, *, label: str, classes: Any, num_records: int, **facts: Any
    ) -> Self:
        """Make a schema of feature vectors from a frame's column names and types, never its values.

        Args:
            frame: A pandas or polars frame of numbers, and the label.
            label: The label column, which is no feature.
            classes: The public set of labels: no fact to be read from the records.
            num_records: Public planning constant, as little to be read from them.
            **facts: The other fields, of which ``feature_clip_norm`` is required.

        Raises:
            InvalidInputError: No such label column, or a feature that is no number: categories are
                a fact that the frame's type does not state (pandas finds those of a ``category`` column in
                the records), so state such a table's columns by ``Schema(..., table=...)``
                (``privmix schema`` writes a form to fill in).

        """
        _validate.name("label", label)
        empty = frame[:0]
        names = [str(name) for name in empty.columns]
        if label not in names:
            _validate.fail("label", f"a column of the frame: {', '.join(names[:8])}", repr(label))
        features = [name for name in names if name != label]
        others = [name for name in features if not _is_numeric(empty[name].dtype)]
        if others:
            more = f", and {len(others) - 1} more such columns" if others[1:] else ""
            allowed = (
                f"numbers; of other columns state what is public, as in {_table_with(others[0])}"
            )
            _validate.fail(f"column {others[0]}", allowed, f"{empty[others[0]].dtype}{more}")
        stated: dict[str, Any] = {"num_features": len(features), "feature_names": tuple(features)}
        return cls(classes=classes, num_records=num_records, **(stated | facts))

    def __repr__(self) -> str:
        told = ", ".join(f"{name}: {value}" for name, value in self._told().items())
        return printable(f"<Schema, {told}>")

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """Show the schema in a notebook."""
        return facts_html("privmix schema", self._told())

    def _told(self) -> dict[str, object]:
        shown = ", ".join(map(_short, self.classes[:_MOST_SHOWN]))
        more = f", ... ({self.num_classes} in all)" if self.classes[_MOST_SHOWN:] else ""
        told: dict[str, object] = {"target": self.target, "classes": shown + more}
        if self.table is not None:
            told["columns"] = len(self.table.columns)
            if bins := self.table.bins:
                told["bins of columns"] = bins
        return told | {
            "features": self.num_features,
            "planned records": self.num_records,
            "feature clip norm": f"{self.feature_clip_norm:.6g}",
            "label clip norm": f"{self.label_clip_norm:.6g}",
        }

    def to_json(self) -> str:
        """Return the schema as JSON, as ``--schema`` reads it."""
        return self.model_dump_json(indent=2)

    @property
    def num_classes(self) -> int:
        """Number of classes K."""
        return len(self.classes)


def _short(name: object) -> str:
    """Return a class's name, cut where it is long."""
    text = str(name)
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 3] + "..."


def _table_with(name: str) -> str:
    """Return how to state a column of texts."""
    column = {"name": name, "type": "categorical", "categories": ["...", "..."]}
    return f"Schema(classes=..., num_records=..., table={{'columns': [{column}, ...]}})"


def _is_numeric(kind: Any) -> bool:
    """Whether a pandas or a polars type is one of real numbers."""
    if hasattr(kind, "is_numeric"):
        return bool(kind.is_numeric())
    return getattr(kind, "kind", "O") in "biuf"


def check_classes(value: object) -> tuple[int, ...] | tuple[str, ...]:
    """Return classes as a tuple; refuse those that some array would make one of.

    NumPy has no type for integers on both sides of 2^63 but doubles, its arrays of texts drop NULs
    at the end, and half a character has no bytes.
    """
    if not isinstance(value, list | tuple | range):
        _validate.fail("classes", "a list of integers or of strings", repr(value))
    classes = tuple(value)
    if all(isinstance(c, int) and not isinstance(c, bool) for c in classes):
        if not all(-(2**63) <= c < 2**63 for c in classes):
            _validate.fail("classes", "integers of 64 bits with a sign", "a larger one")
    elif not all(isinstance(c, str) for c in classes):
        _validate.fail("classes", "all integers or all strings", "a mixture or another type")
    elif not all(c.isascii() or _is_text(c) for c in classes) or any("\0" in c for c in classes):
        _validate.fail("classes", "texts in UTF-8 without NUL characters", "another")
    return classes


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fail_classes(classes: tuple[int, ...] | tuple[str, ...]) -> NoReturn:
    _validate.fail(
        "classes",
        "at least two distinct classes",
        f"{len(classes)} classes of which {len(set(classes))} are distinct",
    )


def _bounds(output: int, pair: object, allowed: str) -> tuple[float, float]:
    position = f"target_bounds[{output}]"
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        _validate.fail(position, allowed, repr(pair))
    low, high = (_validate.real(position, value, at_least=-1e30, at_most=1e30) for value in pair)
    if not high - low >= 1e-30:
        _validate.fail(position, "low below high, by at least 1e-30", (low, high))
    return low, high
