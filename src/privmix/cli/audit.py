"""``privmix audit``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privmix import _validate
from privmix.accounting.guarantee import Guarantee, number
from privmix.accounting.rounding import rounded_up
from privmix.cli._common import (
    ERR,
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
    from privmix.auditing import AuditReport
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
        float, typer.Option(help="Least probability with which a sound mechanism passes.")
    ] = 0.999,
    one_run: Annotated[
        bool,
        typer.Option("--one-run", help="One run with 1000 canaries, for plans that take long."),
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

    plan, guarantee, digest = _read_plan(source)
    if one_run:
        refuse_beside("--one-run", {"runs": runs})
    finished = None if out is None else out.with_name(out.name + ".runs")
    taken: list[int] = []
    if one_run:
        with status_line("running once"):
            report = audit_one_run(plan, confidence=confidence, certificate_digest=digest)
    else:
        with progress_bar("runs") as bar:

            def tell(done: int, total: int) -> None:
                if not taken:  # the first call is about the file
                    taken.append(done)
                    if done:
                        ERR.print(f"{done} of {total} runs taken from {finished}, not run again")
                bar(done, total)

            report = audit(
                plan,
                runs=runs,
                confidence=confidence,
                out=finished,
                certificate_digest=digest,
                progress=tell,
            )
    told = report.to_dict()
    if guarantee is not None:
        told["private"] = guarantee.private
    if out is not None:
        write_text(out, json.dumps(told, indent=2) + "\n")
    if as_json:
        print_json(told)
    else:
        for line in (*_stamp(guarantee), *report.lines(), *_left_out(plan), _audited(report)):
            OUT.print(line)
    if report.verdict == "violated":
        raise typer.Exit(1)


def _stamp(guarantee: Guarantee | None) -> list[str]:
    """Return what to say first of an audit of what protects nobody: it ran the code with other keys."""
    if guarantee is None or guarantee.private:
        return []
    return [f"{guarantee.statement}. What is audited is the code of its plan, with secret keys"]


def _audited(report: AuditReport) -> str:
    """Say which certificate, or which plan, the report is of."""
    if report.certificate_digest is not None:
        return f"audited: certificate digest {report.certificate_digest}"
    return f"audited: digest of the plan's parameters {report.parameters_digest}"


def _left_out(plan: ReleasePlan | TrainingPlan) -> list[str]:
    """Say what the plan charges for that is not run, so that its cost is not in what is printed."""
    from privmix.planning.plan import ReleasePlan
    from privmix.preprocess import charged

    if not isinstance(plan, ReleasePlan) or not (steps := charged(plan.preprocessing)):
        return []
    names = ", ".join(step.step for step in steps)
    return [
        f"note: charged preprocessing ({names}) was not run: the certified epsilon above is that of the "
        f"mechanism alone; with preprocessing it is {number(rounded_up(plan.epsilon, 6))}"
    ]


def _read_plan(
    source: Path,
) -> tuple[ReleasePlan | TrainingPlan, Guarantee | None, str | None]:
    """Read a plan from its file, or from the certificate of what it made, with what that guarantees and
    its digest.
    """
    from privmix.dpsgd.model_certificate import is_model_folder, read_certificate
    from privmix.planning.plan import ReleasePlan
    from privmix.publishing.release import Release

    if not source.exists():
        _validate.fail(str(source), "a plan file, or a release or model folder", "nothing there")
    if is_model_folder(source):
        model = read_certificate(source)
        return model.to_plan(), model.guarantee, model.digest()
    if source.is_dir():
        release = Release(source)
        certificate = release.certificate
        return certificate.to_plan(), certificate.guarantee, release.certificate_digest
    return ReleasePlan.from_json(read_text(source), position=str(source)), None, None
