"""``privmix schema``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from privmix import _validate
from privmix.cli._common import ERR, OUT, Json, LabelColumns, app, print_json, write_text
from privmix.cli._raw import ExtractorSpec, load_extractor
from privmix.schema import TARGETS

if TYPE_CHECKING:
    from privmix.schema import Target


@app.command("schema", no_args_is_help=True)
def schema_command(
    source: Annotated[
        Path | None, typer.Argument(metavar="INPUT", help="A table: .parquet, .csv or .arrow")
    ] = None,
    label: LabelColumns = None,
    unit_column: Annotated[
        str | None, typer.Option(help="Column that names the records' owners, which is no feature.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help=f"What a label is: {', '.join(TARGETS)} [class, for one --label]."),
    ] = None,
    extractor: ExtractorSpec = None,
    out: Annotated[Path | None, typer.Option(help="Write it here; must not exist.")] = None,
    as_json: Json = False,
) -> None:
    """Write a schema to fill in, from a table's column names and types alone.

    Looks at no record. Replace each null by what is publicly known: classes, number of records,
    bounds, categories. A CSV file states no types, so state them too: numeric, categorical,
    ordinal, boolean or datetime. "num_buckets": N instead of "categories" takes any text.

    Texts and images need no INPUT here: --extractor tells how wide their features are, and their
    largest norm where there is one. Where there is none, state a clip norm from public data.

    Examples:
        privmix schema patients.parquet --label died --out schema.json

        privmix schema patients.csv --label dose --label days --target regression --unit-column name

        privmix schema --extractor sentence --out schema.json

    """
    from privmix.inputs.raw.template import features_template, schema_template

    if target is not None:
        _validate.one_of("--target", target, TARGETS)
    kind = cast("Target | None", target)
    left_out: list[str] = []
    if extractor is not None and extractor != "tabular":
        named = len(label or ()) > 1 or target not in (None, "class")
        _refuse_table(extractor, source, None if named else label, unit_column)
        made = load_extractor(extractor, None)
        bound = getattr(made, "norm_bound", None)
        text = features_template(made.num_features, bound, label or (), target=kind)
    elif source is None:
        _validate.fail(
            "INPUT", "a table, unless --extractor names one of texts or images", "nothing"
        )
    else:
        text, left_out = schema_template(source, label or (), unit_column=unit_column, target=kind)
    if left_out:
        ERR.print(f"left out, since no column type fits: {', '.join(left_out)}")
    if out is not None:
        write_text(out, text, new=True)
    if source is not None and not label:
        told = "every column becomes a feature, the label too: name that by --label, or delete its line"
        ERR.print(f"without --label {told}")
    if as_json:
        print_json({"schema": json.loads(text), "left_out": left_out})
    elif out is None:
        sys.stdout.write(text)
    else:
        OUT.print(f"wrote {out}: {_what_to_do(json.loads(text))}")


def _refuse_table(
    extractor: str, source: Path | None, label: list[str] | None, unit_column: str | None
) -> None:
    """Refuse a table, and its columns, beside an extractor that tells all there is to tell."""
    words = [] if source is None else [str(source)]
    words += [f"--label {name}" for name in label or ()]
    words += [] if unit_column is None else [f"--unit-column {unit_column}"]
    if words:
        allowed = (
            f"no table beside --extractor {extractor}, which tells all there is to tell: drop "
        )
        position = "--label or --unit-column" if source is None else "INPUT"
        _validate.fail(position, allowed + ", ".join(words), ", ".join(words))


def _what_to_do(schema: dict[str, Any]) -> str:
    """Return what is left to do with a template."""
    parts = ["replace every null in it by a public fact"]
    kinds = {column["type"] for column in schema.get("table", {}).get("columns", ())}
    if kinds & {"categorical", None}:
        parts.append('of a categorical column, "num_buckets" may replace "categories"')
    if "num_features" in schema and schema["feature_clip_norm"] is None:
        parts.append("choose feature_clip_norm from public data, since the features have no bound")
    return "; ".join(parts)
