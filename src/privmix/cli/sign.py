"""``privmix sign``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privmix.cli._common import OUT, Json, app, print_facts, print_json
from privmix.cli._signing import PassphraseFile, ask_signing_key


@app.command("sign", no_args_is_help=True)
def sign_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Release or model folder.")],
    key: Annotated[Path, typer.Option(help="Ed25519 private key, as ssh-keygen makes it.")],
    passphrase_file: PassphraseFile = None,
    as_json: Json = False,
) -> None:
    """Sign a release or a model that you made. Checks it first; exit status 1 if anything is wrong.

    Writes certificate.json.sig beside the certificate. Others check it with privmix verify --signer,
    or with ssh-keygen -Y verify -n privmix-certificate.

    Example:
        privmix sign release/ --key ~/.ssh/id_ed25519

    """
    from privmix.dpsgd.model_certificate import is_model_folder, verify_unsigned_model
    from privmix.publishing.allowed_signers import fingerprint
    from privmix.publishing.certificate import FILE_NAME
    from privmix.publishing.signature import check_signature, sign_folder
    from privmix.publishing.verification import verify_unsigned

    signing = ask_signing_key("--key", key, passphrase_file)
    check = verify_unsigned_model if is_model_folder(folder) else verify_unsigned
    outcome = check(folder)
    if not outcome.valid:
        OUT.print("NOT signed, since it is NOT valid:")
        for reason in outcome.reasons:
            OUT.print(f"- {reason}")
        raise typer.Exit(1)
    path = sign_folder(folder, signing, digest=outcome.digest)
    found = check_signature((folder / FILE_NAME).read_bytes(), path.read_bytes())
    result = {
        "signature": str(path),
        "key": fingerprint(found.public_key),
        "namespace": found.namespace,
        "digest": outcome.digest,
    }
    if as_json:
        print_json(result)
    else:
        print_facts(result)
