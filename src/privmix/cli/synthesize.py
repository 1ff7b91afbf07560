"""``privmix synthesize``."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Annotated

import typer

from privmix import _validate
from privmix.accounting.guarantee import NotPrivateWarning
from privmix.cli._common import (
    Json,
    app,
    print_facts,
    print_json,
    progress_bar,
    status_line,
    warn_of,
)

_NAMED_PRIORS = ("counts", "estimated", "uniform")
_PRIORS = f"{', '.join(_NAMED_PRIORS)}, or numbers, one a class, as in 0.7,0.3 or [0.7, 0.3]"


@app.command("synthesize", no_args_is_help=True)
def synthesize_command(
    folder: Annotated[Path, typer.Argument(metavar="RELEASE", help="Release folder.")],
    num_records: Annotated[int, typer.Option(help="Records to draw.")],
    out: Annotated[Path, typer.Option(help="New file: .parquet, .csv or .npz.")],
    seed: Annotated[int, typer.Option(help="The same seed gives the same records.")] = 0,
    class_prior: Annotated[
        str | None,
        typer.Option(
            help="Shares of the classes: counts, estimated, uniform, or numbers, one a class "
            "[the first of these that the release allows]."
        ),
    ] = None,
    label: Annotated[str, typer.Option(help="Name of the label column.")] = "label",
    as_json: Json = False,
) -> None:
    """Draw labelled synthetic records from a release, for any learner or tool.

    They follow from the published rows alone: no record is read, and no budget is spent. A table
    gets its columns back, by the public schema. OUT.json says what the records are.

    Examples:
        privmix synthesize release/ --num-records 10000 --out synthetic.parquet

        privmix synthesize release/ --num-records 10000 --seed 7 --out synthetic.csv

    """
    from privmix.publishing.release import Release
    from privmix.publishing.verification import require_stated
    from privmix.synthesis.file import check_target, write_synthetic
    from privmix.synthesis.synthesizer import Synthesizer

    _validate.size("num_records", num_records, position="--num-records")
    check_target(out)
    published = Release(folder)
    with status_line("checking the certificate"):
        require_stated(published)
    warn_of(published.certificate.guarantee)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)  # it was said just now
        source = Synthesizer(published, seed=seed, class_prior=_prior(class_prior), label=label)
    with progress_bar("records") as progress:
        facts = write_synthetic(source, num_records, out, progress)
    stated = {"file": str(out)} | json.loads(facts.model_dump_json(exclude={"extractor"}))
    if as_json:
        print_json(stated)
    else:
        print_facts({name: value for name, value in stated.items() if value not in (None, [])})


def _prior(text: str | None) -> str | tuple[float, ...] | None:
    if text is None or text in _NAMED_PRIORS:
        return text
    return _validate.numbers("--class-prior", text, _PRIORS)
