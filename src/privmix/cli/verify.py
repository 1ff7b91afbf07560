"""``privmix verify``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from privmix import _validate
from privmix.cli._common import OUT, Json, app, print_json
from privmix.cli._plots import Plot, check_plot, draw
from privmix.cli._signing import ExpectDigest, Identity, Signer


@app.command("verify", no_args_is_help=True)
def verify_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Release or model folder.")],
    expect_digest: ExpectDigest = None,
    signer: Signer = None,
    identity: Identity = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Check a release, or a model: its files, its certificate, its rows. Exit status 1 if anything is wrong.

    Says who is protected, how well, and what vouches for where it comes from. ``--plot`` draws the singular
    values of the rows, once they are found sound.

    Examples:
        privmix verify release/ --expect-digest 3f2a...

        privmix verify release/ --signer allowed_signers --identity alice@example.org

        privmix verify release/ --plot rows.svg

    """
    check_plot(plot)
    from privmix.dpsgd.model_certificate import is_model_folder, verify_model
    from privmix.publishing.verification import verify

    if not folder.exists():
        _validate.fail(str(folder), "a release or model folder", "no such folder")
    is_model = is_model_folder(folder)
    if plot is not None and is_model:
        _validate.fail("--plot", "nothing for a model, which has no rows", plot)
    check = verify_model if is_model else verify
    outcome = check(folder, expect_digest=expect_digest, signers=signer, identity=identity)
    if as_json:
        print_json(outcome.model_dump(mode="json"))
    elif outcome.guarantee is not None and outcome.origin is not None:
        OUT.print(f"valid: {outcome.guarantee.statement}")
        for line in (*outcome.guarantee.lines(), f"origin: {outcome.origin.statement}"):
            OUT.print(line)
        OUT.print(f"certificate digest {outcome.digest}")
    else:
        OUT.print("NOT valid:")
        for reason in outcome.reasons:
            OUT.print(f"- {reason}")
    if not outcome.valid:
        raise typer.Exit(1)
    if plot is not None:
        from privmix.plotting import plot_singular_values
        from privmix.publishing.release import Release

        draw(plot, *(partial(plot_singular_values, table) for table in Release(folder).tables))
