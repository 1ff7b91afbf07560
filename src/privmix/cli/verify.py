"""``privmix verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix.cli._common import OUT, Json, app, print_json


@app.command("verify", no_args_is_help=True)
def verify_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Release or model folder.")],
    expect_digest: Annotated[
        str | None, typer.Option(help="Certificate digest as told by the data holder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a release, or a model: its files, its certificate, its rows. Exit status 1 if anything is wrong.

    Example:
        privmix verify release/ --expect-digest 3f2a...

    """
    from privmix.dpsgd.model_certificate import is_model_folder, verify_model
    from privmix.publishing.verification import verify

    check = verify_model if is_model_folder(folder) else verify
    outcome = check(folder, expect_digest=expect_digest)
    if as_json:
        print_json(outcome.model_dump(mode="json"))
    elif outcome.valid:
        OUT.print(f"valid: ({outcome.epsilon:.6g}, {outcome.delta:g})-differentially private")
        OUT.print(f"certificate digest {outcome.digest}")
        if expect_digest is None:
            OUT.print("compare the digest with the data holder's: a consistent forgery has another")
    else:
        OUT.print("NOT valid:")
        for reason in outcome.reasons:
            OUT.print(f"- {reason}")
    if not outcome.valid:
        raise typer.Exit(1)
