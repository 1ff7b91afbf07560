"""Options and helpers of the commands that take raw records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow.parquet as pq
import typer

from privmix import _validate
from privmix.cli._common import ERR, progress_bar, refuse_without, status_line
from privmix.inputs.delimited import is_delimited, readable, suffix_of
from privmix.inputs.tally import MAX_BAD_SHARE, MAX_MISSED_SHARE, Shares
from privmix.schema import Schema
from privmix.schema.text_format import PLAIN, TextFormat

if TYPE_CHECKING:
    from privmix.features.extraction import Extracted
    from privmix.inputs.extractor import Extractor, ExtractorIdentity, FeaturesHeader
    from privmix.inputs.raw import RawRecords
    from privmix.inputs.tally import Tally
    from privmix.schema import Target

ExtractorSpec = Annotated[
    str | None,
    typer.Option(
        "--extractor",
        help="Public extractor, NAME:MODEL,key=value,...: sentence[:MODEL] (texts); tabular (rows); of "
        "images efficientnet-lite0[:size=N], scattering and pixels[:size=N,channels=1|3], "
        "vision:MODEL, timm:MODEL, open_clip:ARCHITECTURE/WEIGHTS.",
    ),
]
Device = Annotated[
    str | None, typer.Option(help="Device of the extractor, such as cpu [a GPU if there is one].")
]

AllowDownload = Annotated[
    bool,
    typer.Option(
        "--allow-download", help="Let the extractor that the certificate names be downloaded."
    ),
]
FeaturesAsGiven = Annotated[
    bool,
    typer.Option(
        "--features-as-given", help="Take the file's vectors for the model's kind of features."
    ),
]
MaxBadShare = Annotated[
    float | None,
    typer.Option(
        help="Largest share of bad records that --on-bad-record may blank, leave out or count as wrong "
        f"[{MAX_BAD_SHARE:g}]."
    ),
]
MaxMissedShare = Annotated[
    float | None,
    typer.Option(
        help="tabular: stop where a larger share of a column's values misses the table's schema: "
        f"categories that it does not list, numbers and dates beyond its bounds [{MAX_MISSED_SHARE:g}]."
    ),
]


@dataclass(frozen=True)
class RawFlags:
    """What raw records are, and what makes features of them."""

    extractor: ExtractorSpec = None
    text_column: Annotated[str | None, typer.Option(help="Column of texts.")] = None
    image_column: Annotated[
        str | None,
        typer.Option(help="Column of images (of an .npz: the array); none for a folder."),
    ] = None

    def __bool__(self) -> bool:
        return any(value is not None for value in vars(self).values())

    def refuse_columns(self) -> None:
        """Refuse columns of raw records that nothing makes features of."""
        if self.text_column is not None or self.image_column is not None:
            _validate.fail("--extractor", "an extractor for raw records", "nothing")


@dataclass(frozen=True)
class SourceFacts:
    """What a schema or a model says of a source.

    Attributes:
        target: What labels are.
        classes: What they are among; nothing: they are not checked.
        form: How a file of texts is written; a table's extractor knows how its files are.

    """

    target: Target = "class"
    classes: Any = ()
    form: TextFormat = PLAIN

    @classmethod
    def of_schema(cls, schema: Schema | None) -> SourceFacts:
        """Return what a schema says; without one, what is so by default."""
        return cls() if schema is None else cls(schema.target, schema.classes, schema.text_format)


def asked_shares(
    max_bad_share: float | None,
    max_missed_share: float | None,
    *,
    blanks: bool = True,
    extractor: str | None,
) -> Shares:
    """Return the shares that were asked for; one that nothing would be held against is refused.

    Args:
        max_bad_share: As asked for, or None.
        max_missed_share: Likewise.
        blanks: Whether bad records are blanked, or left out, so that a share of them is allowed.
        extractor: The extractor; ``tabular`` alone knows values that miss its schema.

    """
    for option, value in (
        ("--max-bad-share", max_bad_share),
        ("--max-missed-share", max_missed_share),
    ):
        if value is not None:
            _validate.real(option, value, at_least=0.0, at_most=1.0)
    if not blanks:
        refuse_without("--on-bad-record zero", {"max_bad_share": max_bad_share})
    if extractor != "tabular":
        refuse_without("--extractor tabular", {"max_missed_share": max_missed_share})
    return Shares(
        MAX_BAD_SHARE if max_bad_share is None else max_bad_share,
        MAX_MISSED_SHARE if max_missed_share is None else max_missed_share,
    )


def load_extractor(
    spec: str | ExtractorIdentity, device: str | None, schema: Schema | None = None
) -> Extractor:
    """Build an extractor, and say so, since that takes a while."""
    from privmix.features.named import build_extractor

    with status_line("loading the extractor", always=True):
        return build_extractor(spec, device, schema)


def open_raw(
    source: Path,
    extractor: Extractor,
    raw: RawFlags,
    facts: SourceFacts,
    *,
    label: Sequence[str] | None,
    unit_column: str | None = None,
    on_bad_record: str | None = None,
    shares: Shares = Shares(),  # noqa: B008
) -> RawRecords:
    """Open raw records of the extractor's kind; ``on_bad_record`` where a command has that option."""
    from privmix.inputs.raw import open_records
    from privmix.inputs.readers import label_names

    if extractor.kind == "vector":
        _validate.fail(
            "--extractor", "nothing for a file of feature vectors", extractor.identity.name
        )
    columns = {"text": raw.text_column, "image": raw.image_column}
    for kind, column in columns.items():
        if column is not None and kind != extractor.kind:
            allowed = f"nothing for an extractor of {extractor.kind}s"
            _validate.fail(f"--{kind}-column", allowed, repr(column))
    column = columns.get(extractor.kind)
    if extractor.kind != "table" and column is None and not source.is_dir():
        option = f"--{extractor.kind}-column"
        _validate.fail(option, f"the column of {extractor.kind}s in {source}", "nothing")
    if label is None and facts.target == "class":
        names = []
    elif source.suffix.lower() == ".npz":
        names = list(label or ())
    else:
        names = label_names(label, facts.classes, facts.target)
    records = open_records(
        source,
        kind=extractor.kind,
        column=column,
        label=names,
        unit_column=unit_column,
        target=facts.target,
        table=getattr(extractor, "schema", None) if extractor.kind == "table" else None,
        classes=facts.classes,
        on_bad_record=on_bad_record or "error",  # type: ignore[arg-type]
        max_bad_share=shares.bad,
        max_missed_share=shares.missed,
        form=facts.form,
    )
    if on_bad_record is None:
        records.remedy = ""
    return records


def check_source(source: Path) -> None:
    """Refuse a path that leads nowhere, before anything else is done."""
    try:
        found = source.exists()
    except OSError as error:  # a name that is too long, a folder that is shut
        _validate.fail(str(source), "an existing file or folder", error.strerror)
    if not found:
        _validate.fail(str(source), "an existing file or folder", "no such file")
    if not source.is_dir():
        _validate.regular_file(source)


def check_columns(source: Path, header: FeaturesHeader | None, schema: Schema | None) -> None:
    """Ask for ``--extractor tabular`` where a file has the schema's table, and for vectors of that table."""
    from privmix.inputs.extractor import check_table
    from privmix.inputs.raw.opening import SUFFIXES, column_types

    suffix = suffix_of(source)
    table = None if schema is None else schema.table
    if header is not None and header.extractor is not None:
        check_table(header.extractor, table, str(source))
    if table is None or header is not None or suffix not in SUFFIXES or not source.is_file():
        return
    with readable(source, suffix):
        names = {column.name for column in table.columns}
        found = column_types(source, table.format, names).names
    if names <= set(found):
        allowed = f"--extractor tabular, since {source} has the columns of the schema's table"
        _validate.fail("--extractor", allowed, "nothing")


def check_owners(
    source: Path,
    header: FeaturesHeader | None,
    label: Sequence[str] | None,
    unit_column: str | None,
    *,
    classes: Any,
    target: Target,
) -> None:
    """Refuse a column of owners that would be taken for features, saying what to add."""
    from privmix.inputs.readers import label_names

    if header is None or unit_column is not None:
        return
    if others := other_columns(source, header, label_names(label, classes, target)):
        allowed = (
            f"the column of owners in {source}, with --max-records-per-unit, to protect owners; "
            "to protect records, features that were extracted without it"
        )
        _validate.fail("--unit-column", allowed, f"nothing, beside the column {others}")


def other_columns(source: Path, header: FeaturesHeader | None, labels: Sequence[str]) -> str:
    """Name what an extracted file has beside features and labels: the owners; or nothing."""
    if header is None:
        return ""
    names = pq.read_schema(source).names
    others = [name for name in names if name not in ("features", *labels)]
    return ", ".join(map(repr, others)) if set(labels) <= set(names) else ""


def is_raw(source: Path, header: FeaturesHeader | None, due: ExtractorIdentity | None) -> bool:
    """Whether a source holds raw records although no column of them is named: images in folders,
    rows for ``tabular``.
    """
    return header is None and due is not None and (knows_labels(source) or due.name == "tabular")


def tell(text: str) -> None:
    """Say on standard error what only the data holder may know."""
    ERR.print(f"for your eyes only: {text}")


def extract_with_progress(
    records: RawRecords, extractor: Extractor, out: Path, **options: Any
) -> Extracted:
    """Extract to a file, and tell the data holder on standard error what only she may know."""
    from privmix.features.extraction import extract

    with progress_bar("records") as progress:
        counts = extract(records, extractor, out, progress=progress, **options)
    bad = f", {counts.num_bad} bad ones blanked" if counts.num_bad else ""
    tell(f"features of {counts.num_records} records extracted{bad}")
    report_tally(records.tally)
    return counts


def report_tally(tally: Tally) -> None:
    """Say on standard error which columns have bad cells, and values that miss the schema."""
    for line in [*tally.faults(), *tally.misses()]:
        tell(line)


def knows_labels(source: Path) -> bool:
    """Whether a source is a folder of images, whose labels are its folders' names."""
    from privmix.inputs.parquet import parquet_files

    return source.is_dir() and not parquet_files(source)


def knows_texts_only(source: Path) -> bool:
    """Whether labels of a source are texts whatever the classes are: CSV files, folder names."""
    return is_delimited(source) or knows_labels(source)
