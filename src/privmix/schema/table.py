"""The public description of a table: its columns, their types, and the bounds they are scaled by.

Every bound and category is a constant known without looking at the private rows. Each column fills
some coordinates of a vector with a part of norm at most 1, so that a row of C columns has a norm of
at most sqrt(C), exactly. The constant and each column with bins add 1 to the square.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal, TypeGuard

from pydantic import Field, field_validator, model_validator

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.schema.text_format import PLAIN, TextFormat

# A line of the schema for each type, shown when one is incomplete.
EXAMPLES: dict[str, dict[str, Any]] = {
    "numeric": {"lower": 0, "upper": 100},
    "categorical": {"categories": ["a", "b"]},
    "ordinal": {"categories": ["low", "middle", "high"]},
    "boolean": {},
    "datetime": {"earliest": "2000-01-01", "latest": "2030-01-01"},
}
_LARGEST_TABLE = 1_000_000
_MOST_BINS = 1024
# Columns have the first of these by default for which there are _PER_SQUARE times its square records for each of
# them: what bins show beyond a line grows slowly with them, and what noise and sampling cost grows fast.
# Chosen on parts set aside of six tables of 900 to 30,000 records, at epsilon 0.3 to 8 (docs/how-to/tables.md).
_USUAL_BINS = (16, 8, 4)
_PER_SQUARE = 5
_MOST_USUAL = 512  # bins in all: wider vectors cost time and memory that nobody asked for
_LARGEST_INTEGER = 2**53  # up to which floating point has all


class _Column(FrozenModel):
    """What all columns have.

    Attributes:
        name: The column's name in the table.
        nullable: Whether a value may be missing. A missing value has a coordinate of its own;
            where ``nullable`` is false there is none, and a record that lacks the value is bad.
        missing_values: Texts that mean a missing value, beside empty cells, nulls and NaN.

    """

    name: str
    nullable: bool = True
    missing_values: tuple[str, ...] = ()

    @field_validator("missing_values", mode="before")
    @classmethod
    def _check_missing_values(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="before")
    @classmethod
    def _check_placeholders(cls, value: object) -> object:
        """Refuse what a template leaves open, showing the line to write."""
        if isinstance(value, dict):
            needed = EXAMPLES.get(str(value.get("type")), {})
            if "num_buckets" in value:
                needed = {}
            for key, example in needed.items():
                if value.get(key) is None:
                    given = {k: v for k, v in value.items() if v is not None}
                    line = json.dumps({"name": "", "type": "", **needed, **given, key: example})
                    _validate.fail(
                        f"{value.get('name')}.{key}",
                        "a public constant, known without looking at the records; for example "
                        f'"columns": [..., {line}]',
                        "nothing",
                    )
        return value

    @property
    def value_width(self) -> int:
        """Coordinates of a value that is there."""
        return 1

    @property
    def squared_norm(self) -> int:
        """The largest square of the norm of the column's part of a vector."""
        return 1

    @property
    def width(self) -> int:
        """Coordinates of the column, with the one for a missing value."""
        return self.value_width + self.nullable


class ScaledColumn(_Column):
    """Numbers, times or ranks, scaled to [-1, 1]; bins may stand beside them.

    Attributes:
        num_bins: Bins beside the scaled value, for effects that do not rise or fall all the way; 0 for none. Their
            middles divide [-1, 1] evenly, the first and the last on the bounds. A value is shared by the two
            bins between whose middles it lies, the nearer having more of it: 1 in all. None leaves them to the
            :class:`privmix.Schema` that the table is a part of (``usual_bins``); a table by itself has none then.

    """

    num_bins: int | None = None

    _omitted_if_default: ClassVar[tuple[str, ...]] = ("num_bins",)

    @model_validator(mode="after")
    def _check_bins(self) -> ScaledColumn:
        if self.num_bins not in (None, 0) and not 2 <= self.num_bins <= self.most_bins:
            few = self.most_bins < 2
            allowed = "0 for none" if few else f"0 for none, or 2 to {self.most_bins}"
            _validate.fail(f"{self.name}.num_bins", allowed, self.num_bins)
        return self

    @property
    def most_bins(self) -> int:
        """The largest number of bins that there may be."""
        return _MOST_BINS

    @property
    def value_width(self) -> int:
        """Coordinates of a value that is there: the scaled value, and its bins."""
        return 1 + (self.num_bins or 0)

    @property
    def squared_norm(self) -> int:
        """The largest square of the norm of the column's part of a vector."""
        return 2 if self.num_bins else 1


class NumericColumn(ScaledColumn):
    """Numbers, clamped to [lower, upper] and scaled to [-1, 1].

    Attributes:
        lower: What -1 stands for; smaller values are clamped.
        upper: What 1 stands for.
        symbols: Texts that may stand before or after a number and say nothing: currencies, units.
        integer: Whether all numbers are whole: synthetic ones are then as well. Vectors do not depend on it.

    """

    type: Literal["numeric"] = "numeric"
    lower: float
    upper: float
    symbols: tuple[str, ...] = ()
    integer: bool = False

    _omitted_if_default: ClassVar[tuple[str, ...]] = ("symbols", "num_bins", "integer")

    @field_validator("symbols", mode="before")
    @classmethod
    def _check_symbols(cls, value: object) -> object:
        value = tuple(value) if isinstance(value, list) else value
        for text in value if isinstance(value, tuple) else ():
            if not isinstance(text, str) or not text.strip() or any(c.isdigit() for c in text):
                _validate.fail("symbols", 'texts beside a number, such as ["$", "%"]', repr(text))
        return value

    @model_validator(mode="after")
    def _check_order(self) -> NumericColumn:
        _validate.real(f"{self.name}.lower", self.lower, at_least=-1e30, at_most=1e30)
        _validate.real(f"{self.name}.upper", self.upper, above=self.lower, at_most=1e30)
        beyond = max(-self.lower, self.upper) > _LARGEST_INTEGER
        if self.integer and (beyond or math.floor(self.upper) < math.ceil(self.lower)):
            allowed = "bounds within 2^53 that have a whole number between them"
            _validate.fail(f"{self.name}.integer", allowed, f"{self.lower} to {self.upper}")
        return self

    @property
    def limits(self) -> tuple[float, float]:
        """What -1 and 1 stand for."""
        return self.lower, self.upper


class DatetimeColumn(ScaledColumn):
    """Dates and times, clamped to [earliest, latest] and scaled to [-1, 1].

    Both are ISO 8601; a time without a zone is taken to be UTC. Texts are ISO 8601 too, unless
    ``format`` says how they are written, as Python's ``strptime`` has it: ``%d.%m.%Y``.
    """

    type: Literal["datetime"] = "datetime"
    earliest: str
    latest: str
    format: str | None = None

    _omitted_if_default: ClassVar[tuple[str, ...]] = ("num_bins", "format")

    @model_validator(mode="after")
    def _check_format(self) -> DatetimeColumn:
        if self.format is not None:
            day = datetime(2013, 11, 24, 17, 58, 42)
            try:
                known = datetime.strptime(day.strftime(self.format), self.format).date()
            except ValueError:
                known = None
            if known != day.date():
                allowed = "year, month and day as strptime has them, such as %d.%m.%Y"
                _validate.fail(f"{self.name}.format", allowed, repr(self.format))
        return self

    @model_validator(mode="after")
    def _check_order(self) -> DatetimeColumn:
        times = []
        for key in ("earliest", "latest"):
            text = getattr(self, key)
            try:
                times.append(_seconds(text))
            except ValueError:
                _validate.fail(f"{self.name}.{key}", "an ISO 8601 date or time", repr(text))
        if times[0] >= times[1]:
            _validate.fail(f"{self.name}.latest", f"a time after {self.earliest}", self.latest)
        return self

    @model_validator(mode="after")
    def _check_written(self) -> DatetimeColumn:
        """Refuse a format in which a bound, and so maybe a value, would be read as another day than was written."""
        for key, seconds in zip(("earliest", "latest"), self.limits, strict=True):
            day = datetime.fromtimestamp(seconds, UTC)
            try:
                same = self.format is None or (
                    datetime.strptime(day.strftime(self.format), self.format).date() == day.date()
                )
            except ValueError:
                same = False
            if not same:
                allowed = (
                    f"a day that {self.format} tells: %y knows 1969 to 2068 alone, %Y four digits"
                )
                _validate.fail(f"{self.name}.{key}", allowed, getattr(self, key))
        return self

    @property
    def limits(self) -> tuple[float, float]:
        """What -1 and 1 stand for, in seconds since 1970."""
        return _seconds(self.earliest), _seconds(self.latest)


def _seconds(text: str) -> float:
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


class BooleanColumn(_Column):
    """True and false, as 1 and -1; also 1 and 0, and the texts true/false, yes/no, t/f, y/n."""

    type: Literal["boolean"] = "boolean"


class _CategoryColumn(_Column):
    @field_validator("categories", mode="before", check_fields=False)
    @classmethod
    def _check_categories(cls, value: object) -> object:
        """Write categories as texts: 3 and "3" are the same category."""
        if value is None:
            return value
        if not isinstance(value, list | tuple):
            _validate.fail("categories", "a list of texts or integers", repr(value))
        if not all(isinstance(v, str | int) for v in value):
            _validate.fail("categories", "a list of texts or integers", "another type in it")
        texts = tuple(str(v) for v in value)
        if not texts or len(set(texts)) != len(texts):
            _validate.fail("categories", "at least one category, all distinct", repr(texts))
        return texts


class CategoricalColumn(_CategoryColumn):
    """One of a closed set of categories, one-hot; or any text, hashed to ``num_buckets`` places.

    A category outside the set takes the ``unknown`` place: a coordinate of its own (``other``), or
    none (``zero``). Texts are matched as they are written.
    """

    type: Literal["categorical"] = "categorical"
    categories: tuple[str, ...] | None = None
    num_buckets: int | None = None
    unknown: Literal["other", "zero"] = "other"

    @model_validator(mode="after")
    def _check_kind(self) -> CategoricalColumn:
        if (self.categories is None) == (self.num_buckets is None):
            _validate.fail(self.name, "categories, or num_buckets to hash them to", "both")
        if self.num_buckets is not None:
            _validate.integer(f"{self.name}.num_buckets", self.num_buckets, at_most=1 << 20)
        return self

    @property
    def value_width(self) -> int:
        """Coordinates of a value that is there."""
        if self.categories is None:
            return self.num_buckets or 0
        return len(self.categories) + (self.unknown == "other")


class OrdinalColumn(_CategoryColumn, ScaledColumn):
    """One of a list of categories in order, scaled by its rank to [-1, 1].

    Another category counts as a missing value. There are at most as many bins as categories, and of so many each
    is a category.
    """

    type: Literal["ordinal"] = "ordinal"
    categories: tuple[str, ...]

    @model_validator(mode="after")
    def _check_count(self) -> OrdinalColumn:
        if len(self.categories) < 2:
            _validate.fail(f"{self.name}.categories", "at least two, in order", self.categories)
        return self

    @property
    def most_bins(self) -> int:
        """As many as categories; none of two, which the rank alone tells apart."""
        return min(len(self.categories), _MOST_BINS) if len(self.categories) > 2 else 0


Column = Annotated[
    NumericColumn | DatetimeColumn | BooleanColumn | CategoricalColumn | OrdinalColumn,
    Field(discriminator="type"),
]


class FourierFeatures(FrozenModel):
    """Random Fourier features of the scaled columns, for classes that no plane separates.

    The frequencies are Gaussian with standard deviation 1 / ``bandwidth`` and come from the public
    ``seed`` alone (Rahimi & Recht, 2007). Such a vector has norm 1, exactly.

    Attributes:
        num_features: Width, an even number: cosines, then sines.
        bandwidth: Length over which the kernel exp(-r^2 / (2 bandwidth^2)) decays.
        seed: Public; any integer of 64 bits.

    """

    num_features: int
    bandwidth: float = 1.0
    seed: int = 0

    @model_validator(mode="after")
    def _check(self) -> FourierFeatures:
        _validate.integer("num_features", self.num_features, at_least=2, at_most=_LARGEST_TABLE)
        if self.num_features % 2:
            _validate.fail("num_features", "an even number", self.num_features)
        _validate.real("bandwidth", self.bandwidth, at_least=1e-6, at_most=1e6)
        _validate.integer("seed", self.seed, at_least=0, at_most=2**64 - 1)
        return self


class TableSchema(FrozenModel):
    """The columns of a table and how they become a vector; frozen, JSON in and out.

    Attributes:
        columns: The columns used, in the order of their coordinates. Others are not looked at.
        fourier: Random Fourier features to map the scaled columns to, or none.
        constant: Whether vectors end with a 1: the intercept of a linear model whose rows show no
            means, as those of ``signed`` do.
        format: How cells are written where they are text.

    """

    columns: tuple[Column, ...]
    fourier: FourierFeatures | None = None
    constant: bool = False
    format: TextFormat = PLAIN

    _omitted_if_default: ClassVar[tuple[str, ...]] = ("constant", "format")

    @field_validator("columns", mode="before")
    @classmethod
    def _check_columns(cls, value: object) -> object:
        value = tuple(value) if isinstance(value, list) else value
        for column in value if isinstance(value, tuple) else ():
            if isinstance(column, dict) and column.get("type") not in list(EXAMPLES):
                _validate.fail(
                    f"{column.get('name')}.type",
                    "one of " + ", ".join(EXAMPLES),
                    "nothing" if column.get("type") is None else repr(column["type"]),
                )
        return value

    @model_validator(mode="after")
    def _check_table(self) -> TableSchema:
        names = [column.name for column in self.columns]
        if not names or len(set(names)) != len(names):
            _validate.fail("columns", "at least one column, with distinct names", names)
        if self.width > _LARGEST_TABLE:
            _validate.fail("columns", f"at most {_LARGEST_TABLE} coordinates in all", self.width)
        return self

    def with_usual_bins(self, num_records: int) -> TableSchema:
        """Return the table with a number of bins for every column of numbers, times or ranks that leaves it open.

        It follows from public facts alone: how many records are planned, and how many columns there are. Ranks of
        3 to 16 categories have a bin for each, where the records bear so many of all columns of such ranks.
        Random Fourier features bend already, so that they take numbers as they are.
        """
        if self.fourier is not None:
            return self
        bins = usual_bins(num_records, sum(map(_leaves_bins_open, self.columns)))
        most = usual_bins(num_records, sum(map(_is_short, self.columns))) or 0
        columns = tuple(_with_bins(column, bins, most) for column in self.columns)
        return self.model_copy(update={"columns": columns})

    @property
    def width(self) -> int:
        """Coordinates of the scaled columns."""
        return sum(column.width for column in self.columns)

    @property
    def bins(self) -> str:
        """How many bins columns have, for people; empty where none has any."""
        counts = {column.num_bins for column in self.columns if isinstance(column, ScaledColumn)}
        *fewer, most = [str(count) for count in sorted(count for count in counts if count)] or [""]
        return f"{', '.join(fewer)} or {most}" if fewer else most

    @property
    def num_features(self) -> int:
        """Width of the vectors."""
        mapped = self.width if self.fourier is None else self.fourier.num_features
        return mapped + self.constant

    @property
    def norm_bound(self) -> float:
        """The largest L2 norm that a vector can have: a clip norm at which nothing is clipped."""
        mapped = sum(column.squared_norm for column in self.columns)
        if self.fourier is not None:
            mapped = 1
        return math.sqrt(mapped + self.constant)


def _is_short(column: Column) -> TypeGuard[OrdinalColumn]:
    """Tell whether a column has ranks of so few categories that each may be a bin: fewer bins hardly show shares."""
    return isinstance(column, OrdinalColumn) and 0 < column.most_bins <= _USUAL_BINS[0]


def _leaves_bins_open(column: Column) -> bool:
    if not isinstance(column, ScaledColumn) or column.num_bins is not None:
        return False
    return column.most_bins > _USUAL_BINS[0]


def _with_bins(column: Column, bins: int | None, most: int) -> Column:
    """State the bins of a column that leaves them open: a number of them, or one for each category where there may be
    so many.
    """
    if _is_short(column) and column.num_bins is None and column.most_bins <= most:
        return column.model_copy(update={"num_bins": column.most_bins})
    if isinstance(column, ScaledColumn) and _leaves_bins_open(column):
        return column.model_copy(update={"num_bins": bins})
    return column


def usual_bins(num_records: int, num_columns: int) -> int | None:
    """Return how many bins each of some columns has that may have them and state none: 16, 8, 4, or None for none."""
    for bins in _USUAL_BINS:
        per_column = min(num_records / (_PER_SQUARE * bins), _MOST_USUAL) / bins
        if num_columns <= per_column:
            return bins
    return None
