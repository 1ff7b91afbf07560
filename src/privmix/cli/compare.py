"""``privmix compare``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from privmix import _validate
from privmix.accounting.guarantee import NOT_PRIVATE, NotPrivateWarning
from privmix.cli._common import (
    ERR,
    OUT,
    Json,
    app,
    check_new,
    print_json,
    read_schema,
    status_line,
    warn_of,
    write_text,
)


@app.command("compare", no_args_is_help=True)
def compare_command(
    real: Annotated[
        Path, typer.Argument(metavar="REAL", help="The records: .parquet, .csv or .npz.")
    ],
    synthetic: Annotated[
        Path,
        typer.Argument(
            metavar="SYNTHETIC", help="Synthetic records, or a release to draw them from."
        ),
    ],
    label: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of REAL's label column; SYNTHETIC's may be another. One of several labels: "
            "the others are compared as columns [label]."
        ),
    ] = None,
    features_key: Annotated[
        str, typer.Option(help="Array of REAL, an .npz, with the features.")
    ] = "features",
    label_key: Annotated[
        str, typer.Option(help="Array of REAL, an .npz, with the labels.")
    ] = "labels",
    schema: Annotated[
        Path | None,
        typer.Option(
            "--schema",
            help="Schema file (JSON): types of the columns, what is missing, the format of REAL. Without "
            "it, the table that SYNTHETIC's release was made of tells.",
        ),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page here as well.")] = None,
    seed: Annotated[int, typer.Option(help="Of the samples and models.")] = 0,
    as_json: Json = False,
) -> None:
    """Compare records with synthetic ones. For the data holder's eyes only: nothing here is private.

    Of samples of at most 4,000 records: columns, correlations, shares of classes, models trained on either
    and tested on records, and distances to the nearest record beside those of records not seen. Where a table has hashed columns,
    synthetic records are features: the records are then compared as features, too.

    Examples:
        privmix compare patients.parquet synthetic.parquet --label died

        privmix compare patients.csv release/ --label died --html comparison.html

        privmix compare patients.csv others.parquet --label died --schema schema.json

    """
    from privmix.comparing.measures import MOST_SEED, WARNING, compare
    from privmix.comparing.page import to_html, to_text
    from privmix.comparing.sources import (
        in_one_space,
        protects_nobody,
        read_pair,
    )
    from privmix.publishing.release import Release
    from privmix.synthesis.file import sidecar_path

    _validate.integer("--seed", seed, at_least=0, at_most=MOST_SEED)
    if html is not None:
        check_new("--html", html)
        _validate.outside_releases("--html", html)
    if len(names := label or ["label"]) > 1:
        allowed = "one label column, beside which the others are compared as columns"
        _validate.fail("--label", allowed, ", ".join(names))
    facts = None if schema is None else read_schema(schema)
    with status_line("reading"), warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)  # it is said below
        keys = (features_key, label_key)
        records, made = read_pair(real, synthetic, names[0], facts, seed=seed, keys=keys)
        columns = in_one_space(records, made, names[0], synthetic)
    ERR.print(WARNING, markup=False)
    if synthetic.is_dir():
        warn_of(Release(synthetic).certificate.guarantee)
    elif protects_nobody(synthetic):
        ERR.print(f"{NOT_PRIVATE}: these records are of a release that protects nobody")
    if facts is None and synthetic.is_file() and not sidecar_path(synthetic).is_file():
        ERR.print(
            "nothing says what cells mean, neither --schema nor what is beside SYNTHETIC: yes and True are two things here"
        )
    if columns is not records:
        ERR.print("synthetic records are features: the records are compared as features")
    with status_line("comparing"):
        found = compare(columns, made, names[0], seed=seed)
    if html is not None:
        write_text(html, to_html(found), new=True, mode=0o600, option="--html")
    if as_json:
        print_json(found)
    else:
        for line in to_text(found).splitlines():
            OUT.print(line, markup=False)
