"""Options of the commands that sign or check a signature, and the key that they name."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privmix import _validate

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PASSPHRASE_VARIABLE = "PRIVMIX_KEY_PASSPHRASE"

SignKey = Annotated[
    Path | None, typer.Option(help="Sign the certificate with this Ed25519 key of OpenSSH's.")
]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        help=f"File whose first line is the key's passphrase [{PASSPHRASE_VARIABLE}, else asked for]."
    ),
]

ExpectDigest = Annotated[
    str | None, typer.Option(help="Certificate digest as told by the data holder.")
]
Signer = Annotated[
    Path | None,
    typer.Option(help="OpenSSH's file of allowed signers, one of whom must have signed."),
]
Identity = Annotated[
    str | None, typer.Option(help="Which of them, for example alice@example.org [any].")
]


def ask_signing_key(option: str, path: Path, passphrase_file: Path | None) -> Ed25519PrivateKey:
    """Read a key; an encrypted one's passphrase comes from a file, the environment or a person."""
    from privmix.publishing.signature import load_signing_key

    def passphrase() -> str:
        if passphrase_file is not None:
            try:
                return passphrase_file.read_text(encoding="utf-8").split("\n")[0].rstrip("\r")
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "another kind of file"
                allowed = f"a readable file, not {passphrase_file}"
                _validate.fail("--passphrase-file", allowed, reason)
        if PASSPHRASE_VARIABLE in os.environ:
            return os.environ[PASSPHRASE_VARIABLE]
        if not sys.stdin.isatty():
            allowed = f"--passphrase-file or {PASSPHRASE_VARIABLE}, for an encrypted key"
            _validate.fail(option, allowed, "neither, and nobody to ask")
        return str(typer.prompt(f"passphrase of {path}", hide_input=True, err=True))

    return load_signing_key(path, passphrase)
