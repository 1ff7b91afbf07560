"""``privmix audit``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privmix import _validate
from privmix.cli._common import (
    OUT,
    Json,
    app,
    print_json,
    progress_bar,
    read_text,
    refuse_beside,
    status_line,
    write_text,
)

if TYPE_CHECKING:
    from privmix.dpsgd.training_plan import TrainingPlan
    from privmix.planning.plan import ReleasePlan


@app.command("audit", no_args_is_help=True)
def audit_command(
    source: Annotated[
        Path, typer.Argument(metavar="PLAN|DIR", help="Plan file, or release or model folder.")
    ],
    runs: Annotated[
        int | None, typer.Option(help="Runs of the code [as many as make 8192 canaries].")
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Probability with which a sound mechanism passes, at least.")
    ] = 0.999,
    one_run: Annotated[
        bool, typer.Option("--one-run", help="One run with 1000 canaries, for what takes long.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the report here; finished runs go beside it, to go on with."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the code of a plan on worst-case records and bound epsilon from below. Exit status 1 if the
    guarantee is violated.

    Runs have keys of their own and made-up records: nothing private is read, nothing is spent.

    Examples:
        privmix audit plan.json

        privmix audit release/ --runs 2000 --confidence 0.9999 --out audit.json

    """
    from privmix.auditing import audit, audit_one_run

    plan = _read_plan(source)
    if one_run:
        refuse_beside("--one-run", {"runs": runs})
    finished = None if out is None else out.with_name(out.name + ".runs")
    if one_run:
        with status_line("running once"):
            report = audit_one_run(plan, confidence=confidence)
    else:
        with progress_bar("runs") as bar:
            report = audit(plan, runs=runs, confidence=confidence, out=finished, progress=bar)
    if out is not None:
        write_text(out, json.dumps(report.to_dict(), indent=2) + "\n")
    if as_json:
        print_json(report.to_dict())
    else:
        for line in report.lines():
            OUT.print(line)
    if report.verdict == "violated":
        raise typer.Exit(1)


def _read_plan(source: Path) -> ReleasePlan | TrainingPlan:
    """Read a plan from its file, or from the certificate of what it made."""
    from privmix.dpsgd.model_certificate import is_model_folder, read_certificate
    from privmix.planning.plan import ReleasePlan
    from privmix.publishing.release import Release

    if not source.exists():
        _validate.fail(str(source), "a plan file, or a release or model folder", "nothing there")
    if is_model_folder(source):
        return read_certificate(source).to_plan()
    if source.is_dir():
        return Release(source).certificate.to_plan()
    return ReleasePlan.from_json(read_text(source), position=str(source))
