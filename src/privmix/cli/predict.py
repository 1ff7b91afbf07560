"""``privmix predict``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import pyarrow.csv
import pyarrow.parquet as pq
import typer

from privmix import _validate
from privmix.accounting.guarantee import NOT_PRIVATE
from privmix.cli._common import (
    ERR,
    FeaturesKey,
    FormatOf,
    Json,
    app,
    print_facts,
    print_json,
    progress_bar,
    reader_of,
    status_line,
    text_format,
)
from privmix.cli._flags import with_flags
from privmix.cli._raw import (
    AllowDownload,
    Device,
    FeaturesAsGiven,
    RawFlags,
    SourceFacts,
    check_source,
    is_raw,
    open_raw,
)
from privmix.running.durable import put_in_place


@app.command("predict", no_args_is_help=True)
@with_flags
def predict_command(
    *,
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Model file of train, or model folder of fit.")
    ],
    source: Annotated[
        Path, typer.Argument(metavar="INPUT", help="Raw records, or a file of feature vectors.")
    ],
    out: Annotated[Path, typer.Option(help="File to write: .csv or .parquet.")],
    features_key: FeaturesKey = None,
    raw: RawFlags,
    device: Device = None,
    schema: FormatOf = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="Column of INPUT that is no feature; may be repeated.")
    ] = None,
    allow_download: AllowDownload = False,
    features_as_given: FeaturesAsGiven = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the file.")] = False,
    as_json: Json = False,
) -> None:
    """Predict the labels of records. Costs nothing; the file that it writes reveals INPUT's records.

    The file has a row for each record, in their order: label, its probability and that of every class;
    of a model of numbers, a column for each output; of several labels, 0 or 1 and a probability for each.

    INPUT is raw where the model's certificate names an extractor, which is then applied, or a file of
    features that privmix extract made with it.

    Examples:
        privmix predict model.safetensors customers.csv --out predicted.csv

        privmix predict model.safetensors questions.csv --text-column text --out predicted.parquet

    """
    from privmix.dpsgd.opening import load_model
    from privmix.dpsgd.trainer import TrainedModel
    from privmix.features.extraction import transform_records
    from privmix.features.named import check_features_header, same_extractor
    from privmix.inputs.extractor import FeaturesHeader
    from privmix.inputs.unlabelled import read_features
    from privmix.learners.predictions import num_features, prediction_table

    _validate.one_of("--out, its ending", out.suffix, (".csv", ".parquet"))
    taken = os.path.lexists(out) and not replace
    if taken or out.is_dir() or not out.absolute().parent.is_dir():
        allowed = "a new file in an existing folder; --replace replaces one"
        _validate.fail("--out", allowed, str(out))
    if any(out.exists() and given.exists() and out.samefile(given) for given in (source, model)):
        _validate.fail("--out", "another file than INPUT and MODEL", str(out))
    _validate.outside_releases("--out", out)
    opened = load_model(model, device=device or "cpu")
    if opened.private_ is False:
        ERR.print(f"{NOT_PRIVATE}: this model protects nobody", markup=False)
    check_source(source)
    header = FeaturesHeader.of_file(source)
    features: Any
    if raw or (is_raw(source, header, opened.extractor_) and not features_as_given):
        with status_line("loading the extractor", always=True):
            maker = same_extractor(opened.extractor_, raw.extractor, device, allow_download)
            maker = reader_of(maker, source)
        facts = SourceFacts(form=text_format(schema, maker))
        records = open_raw(source, maker, raw, facts, label=None)
        with progress_bar("records") as progress:
            features, _ = transform_records(records, maker, progress)
    else:
        if not features_as_given:
            check_features_header(str(source), header, opened.extractor_)
        names = (
            opened.certificate.feature_names
            if isinstance(opened, TrainedModel)
            else tuple(getattr(opened, "feature_names_in_", ())) or None
        )
        names = ("features",) if header is not None else names
        features = read_features(
            source,
            names=names,
            width=num_features(opened),
            key=features_key,
            ignore=ignore or (),
            form=text_format(schema),
        )
    table = prediction_table(opened, features)
    try:
        with put_in_place(out, new=not replace, mode=0o600) as file:  # they reveal INPUT's records
            if out.suffix == ".csv":
                pyarrow.csv.write_csv(table, file)
            else:
                pq.write_table(table, file)
    except OSError as error:
        _validate.fail("--out", "a file in a writable folder", f"{out}: {error.strerror}")
    result = {
        "predictions": str(out),
        "num_records": table.num_rows,
        "model_private": opened.private_,
        "note": "the predictions reveal INPUT's records: they are not private",
    }
    if as_json:
        print_json(result)
    else:
        print_facts(result)
