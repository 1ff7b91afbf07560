"""``privmix report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix import _validate
from privmix.cli._common import (
    ERR,
    OUT,
    Json,
    app,
    check_new,
    print_json,
    status_line,
    warn_of,
    write_text,
)
from privmix.cli._signing import ExpectDigest, Identity, Signer


@app.command("report", no_args_is_help=True)
def report_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Release or model folder.")],
    out: Annotated[
        Path | None, typer.Option(help="Page to write; must not exist. Optional beside --json.")
    ] = None,
    evaluation: Annotated[
        Path | None, typer.Option(help="What privmix evaluate --json printed.")
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(help="What privmix audit --out wrote."),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(help="Ledger that it was charged to. What it says is private to its holder."),
    ] = None,
    expect_digest: ExpectDigest = None,
    signer: Signer = None,
    identity: Identity = None,
    as_json: Json = False,
) -> None:
    """Write a page about a release, or a model, that people can read, check and sign.

    It is verified first; without success there is no report. One that states itself that it protects
    nobody, made with a test seed or for research, gets a report with that stamp. The page says who is
    protected, how strongly, what an attacker gains and what is not protected, how to check that it is
    genuine and how to load it, and answers a checklist after NIST SP 800-226. It loads nothing from
    anywhere.

    Examples:
        privmix report release/ --out report.html

        privmix report release/ --evaluation scores.json --ledger ledger.db --out report.html

        privmix report release/ --signer allowed_signers --identity alice@example.org --out report.html

    """
    from privmix.report.facts import report_facts
    from privmix.report.page import report_page

    if out is None and not as_json:
        _validate.fail("--out", "a new file, unless --json is given", "nothing")
    if out is not None:
        check_new("--out", out)
    with status_line("verifying"):
        facts = report_facts(
            folder,
            evaluation=evaluation,
            audit=audit,
            ledger=ledger,
            expect_digest=expect_digest,
            signers=signer,
            identity=identity,
        )
    warn_of(facts.guarantee)
    if facts.audit is not None and facts.audit.contradicts:
        ERR.print("the audit found more than the certificate allows: do not hand this out")
    if out is not None:
        write_text(out, report_page(facts), new=True)
    if as_json:
        print_json(facts.model_dump(mode="json"))
    else:
        OUT.print(f"report of {facts.kind} {facts.name}: {out}")
