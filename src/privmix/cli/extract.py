"""``privmix extract``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix import _validate
from privmix.cli._common import (
    Json,
    LabelColumns,
    SchemaFile,
    UnitColumn,
    app,
    check_new,
    print_facts,
    print_json,
    read_schema,
)
from privmix.cli._flags import with_flags
from privmix.cli._raw import (
    Device,
    MaxBadShare,
    MaxMissedShare,
    RawFlags,
    SourceFacts,
    asked_shares,
    check_source,
    extract_with_progress,
    knows_texts_only,
    load_extractor,
    open_raw,
)


@app.command("extract", no_args_is_help=True)
@with_flags
def extract_command(
    *,
    source: Annotated[
        Path, typer.Argument(metavar="INPUT", help="Folder of images, or a table of records.")
    ],
    out: Annotated[Path, typer.Option(help="Parquet file of features to write.")],
    raw: RawFlags,
    label: LabelColumns = None,
    unit_column: UnitColumn = None,
    schema: SchemaFile = None,
    on_bad_record: Annotated[
        str, typer.Option(help="error: stop at a bad record; zero: blank it and go on.")
    ] = "error",
    max_bad_share: MaxBadShare = None,
    max_missed_share: MaxMissedShare = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Turn images, texts or tables into feature vectors. A second run resumes one that was cut off.

    The features are as private as the records. --schema gives tabular its columns, checks labels,
    and says which of them are numbers or weights. The column of owners is kept beside the features.

    Examples:
        privmix extract train.csv --text-column text --label intent --extractor sentence
        --out features.parquet

        privmix extract photos/ --extractor efficientnet-lite0 --out features.parquet

    """
    if raw.extractor is None:
        _validate.fail("--extractor", "the name of an extractor", "nothing")
    check_source(source)
    _validate.one_of("--on-bad-record", on_bad_record, ("error", "zero"))
    blanks = on_bad_record == "zero"
    shares = asked_shares(max_bad_share, max_missed_share, blanks=blanks, extractor=raw.extractor)
    check_new("--out", out)
    facts = None if schema is None else read_schema(schema)
    made = load_extractor(raw.extractor, device, facts)
    records = open_raw(
        source,
        made,
        raw,
        SourceFacts.of_schema(facts),
        label=label,
        unit_column=unit_column,
        on_bad_record=on_bad_record,
        shares=shares,
    )
    names = label or ["label"]
    if facts is not None and facts.target != "class" and len(names) != facts.num_classes:
        names = [str(name) for name in facts.classes]
    extract_with_progress(
        records,
        made,
        out,
        label=names,
        unit=unit_column or "unit",
        replace=False,
        labels_as_text=facts is None and knows_texts_only(source),
    )
    result = {
        "out": str(out),
        "num_features": made.num_features,
        "extractor": made.identity.model_dump(),
    }
    if as_json:
        print_json(result)
    else:
        print_facts({**result, "extractor": str(made.identity)})
