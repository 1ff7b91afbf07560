"""The public facts about a data set, stated before anybody looks at it."""

from __future__ import annotations

from pydantic import field_validator, model_validator

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.columns import TableSchema


class Schema(FrozenModel):
    """Public facts of a labelled data set; frozen, JSON in and out.

    Nothing here may be read from the private records: each field is a constant that the data
    holder is willing to publish.

    Attributes:
        classes: The closed set of labels, integers or strings, all distinct, in a fixed order.
            At least two. A class that no record has is allowed.
        num_features: Width d of a feature vector; follows from ``table`` where there is one.
        num_records: Planning constant for the number of records. The actual count may differ
            and is never published; it only scales the rows.
        feature_clip_norm: L2 bound on a feature vector. Required: without it no noise could be
            calibrated. Longer vectors are scaled down to it. With a ``table`` the default is the
            largest norm that its vectors can have.
        label_clip_norm: L2 bound on a label vector; 1.0, the norm of a one-hot label.
        table: The columns of a table that the features are made of, for the ``tabular`` extractor.

    """

    classes: tuple[int, ...] | tuple[str, ...]
    num_features: int = 0
    num_records: int
    feature_clip_norm: float = 0.0
    label_clip_norm: float = 1.0
    table: TableSchema | None = None

    @model_validator(mode="before")
    @classmethod
    def _require_sizes(cls, value: object) -> object:
        """A table states its width and its norm; without one they have no default."""
        if isinstance(value, dict) and value.get("table") is None:
            for name in ("num_features", "feature_clip_norm"):
                if name not in value:
                    _validate.fail(name, "a value (the field is required)", "nothing")
        return value

    @model_validator(mode="after")
    def _follow_table(self) -> Schema:
        if self.table is not None:
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

    @field_validator("classes", mode="before")
    @classmethod
    def _check_classes(cls, value: object) -> object:
        if hasattr(value, "tolist"):  # NumPy arrays and scalars
            value = value.tolist()
        if isinstance(value, list | tuple | range):
            value = tuple(value)
        else:
            _validate.fail("classes", "a list of integers or of strings", repr(value))
        integers = all(isinstance(c, int) and not isinstance(c, bool) for c in value)
        if not integers and not all(isinstance(c, str) for c in value):
            _validate.fail("classes", "all integers or all strings", "a mixture or another type")
        if len(value) < 2 or len(set(value)) != len(value):
            _validate.fail(
                "classes",
                "at least two distinct classes",
                f"{len(value)} classes of which {len(set(value))} are distinct",
            )
        return value

    @field_validator("num_features", "num_records")
    @classmethod
    def _check_counts(cls, value: int, info: object) -> int:
        return _validate.integer(getattr(info, "field_name", "count"), value)

    @field_validator("feature_clip_norm", mode="before")
    @classmethod
    def _check_clip_norm(cls, value: object) -> float:
        # Far beyond any data, and far from where doubles overflow or lose places.
        return _validate.real("feature_clip_norm", value, at_least=1e-30, at_most=1e30)

    @field_validator("label_clip_norm", mode="before")
    @classmethod
    def _check_label_clip_norm(cls, value: object) -> float:
        number = _validate.real("label_clip_norm", value, above=0.0)
        if number != 1.0:
            _validate.fail("label_clip_norm", "1.0, the norm of a one-hot label", number)
        return number

    def to_json(self) -> str:
        """Return the schema as JSON, as ``--schema`` reads it."""
        return self.model_dump_json(indent=2)

    @property
    def num_classes(self) -> int:
        """Number of classes K."""
        return len(self.classes)
