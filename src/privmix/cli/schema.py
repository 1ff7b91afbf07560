"""``privmix schema``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from privmix import _validate
from privmix.cli._common import ERR, OUT, Json, Label, app, print_json
from privmix.cli._raw import ExtractorSpec, build_extractor


@app.command("schema", no_args_is_help=True)
def schema_command(
    source: Annotated[
        Path | None, typer.Argument(metavar="INPUT", help="A table: .parquet, .csv or .arrow")
    ] = None,
    label: Label = None,
    extractor: ExtractorSpec = None,
    out: Annotated[Path | None, typer.Option(help="Write it here; must not exist.")] = None,
    as_json: Json = False,
) -> None:
    """Write a schema to fill in, from a table's column names and types alone.

    Looks at no record. Replace each null by what is publicly known: classes, number of records,
    bounds, categories. A CSV file states no types, so state them too: numeric, categorical,
    ordinal, boolean or datetime.

    Texts and images need no INPUT here: --extractor tells how wide their features are.

    Examples:
        privmix schema patients.parquet --label died --out schema.json

        privmix schema patients.csv --label died

        privmix schema --extractor sentence --out schema.json

    """
    from privmix.raw.template import features_template, schema_template

    left_out: list[str] = []
    if extractor is not None and extractor != "tabular":
        for name, value in (("INPUT", source), ("--label", label)):
            if value is not None:
                allowed = (
                    f"nothing beside --extractor {extractor}, which tells all there is to tell"
                )
                _validate.fail(name, allowed, value)
        text = features_template(build_extractor(extractor, None).num_features)
    elif source is None:
        _validate.fail(
            "INPUT", "a table, unless --extractor names one of texts or images", "nothing"
        )
    else:
        text, left_out = schema_template(source, label)
    if left_out:
        ERR.print(f"left out, since no column type fits: {', '.join(left_out)}", markup=False)
    if out is not None:
        try:
            with out.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            _validate.fail("--out", "a new file in a writable folder", f"{out}: {error.strerror}")
    if as_json:
        print_json({"schema": json.loads(text), "left_out": left_out})
    elif out is None:
        OUT.print(text, end="", markup=False)
    else:
        OUT.print(f"wrote {out}: replace every null in it by a public fact", markup=False)
