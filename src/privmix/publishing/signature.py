r"""Signatures under certificates, and what vouches for where a folder comes from.

The file ``certificate.json.sig`` is in OpenSSH's signature format (PROTOCOL.sshsig), made with an
Ed25519 key, so that a stock OpenSSH checks it::

    ssh-keygen -Y verify -f allowed_signers -I alice@example.org -n privmix-certificate \
        -s certificate.json.sig < certificate.json

It proves that a holder of the key signed this certificate, and with it every file whose digest the
certificate has. It does not prove when, nor that the certificate's claims are true.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
)

from privmix import _validate
from privmix._validate import FrozenModel, InvalidInputError
from privmix.foreign.files import read_file
from privmix.publishing.allowed_signers import AllowedSigners, fingerprint, read_allowed_signers
from privmix.publishing.certificate import FILE_NAME, SIGNATURE_NAME
from privmix.running.durable import write_durably

NAMESPACE = "privmix-certificate"

_MAGIC = b"SSHSIG"
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_HASHES = ("sha256", "sha512")
_MOST_BYTES = 16 << 10  # of a signature file, which has some 300
_MOST_KEY_BYTES = 1 << 20
_KEY_TYPE = b"ssh-ed25519"


class Signature(NamedTuple):
    """A signature as its file has it.

    Attributes:
        public_key: The signer's public key in OpenSSH's wire format.
        namespace: What it was made for.
        hash_name: How the content was hashed.
        signed: The 64 bytes of the signature.

    """

    public_key: bytes
    namespace: str
    hash_name: str
    signed: bytes


class Origin(FrozenModel):
    """What vouches for where a folder comes from.

    Attributes:
        digest_expected: Whether the certificate's digest was given, and was found.
        signer: Whom the list of allowed signers names for the key; None without a list.
        key_fingerprint: Fingerprint of the key that signed; None without a signature.
        statement: The same in words.

    """

    digest_expected: bool
    signer: str | None
    key_fingerprint: str | None
    statement: str


def load_signing_key(
    path: str | Path, passphrase: Callable[[], str] | None = None
) -> Ed25519PrivateKey:
    """Read an Ed25519 private key in OpenSSH's format.

    Args:
        path: The key file, as ``ssh-keygen -t ed25519`` writes it.
        passphrase: Called for the passphrase if the key is encrypted.

    Raises:
        InvalidInputError: No such file, another kind of file, such as a pipe, or of key, or a
            passphrase that is missing or wrong.

    """
    position = f"key {path}"
    allowed = "an Ed25519 private key in OpenSSH's format (ssh-keygen -t ed25519)"
    content = read_file(path, _MOST_KEY_BYTES, allowed, position=position)
    key: object
    try:
        key = load_ssh_private_key(content, None)
    except TypeError:  # encrypted
        if passphrase is None:
            _validate.fail(position, "a passphrase for an encrypted key", "none")
        key = _decrypted(content, passphrase().encode(), position)
    except (ValueError, UnsupportedAlgorithm):
        _validate.fail(position, allowed, "another file")
    if not isinstance(key, Ed25519PrivateKey):
        _validate.fail(position, allowed, f"a key of another kind ({type(key).__name__})")
    return key


def _decrypted(content: bytes, passphrase: bytes, position: str) -> object:
    try:
        return load_ssh_private_key(content, passphrase)
    except UnsupportedAlgorithm:
        allowed = "bcrypt, for keys that are encrypted: pip install 'privmix[sign]'"
        _validate.fail(position, allowed, "an environment without it")
    except (ValueError, TypeError):
        _validate.fail(position, "the passphrase of the key", "another one")


def sign(content: bytes, key: Ed25519PrivateKey, namespace: str = NAMESPACE) -> bytes:
    """Return an armoured signature of ``content``, as ``ssh-keygen -Y sign`` writes it."""
    hash_name = "sha512"
    blob = _MAGIC + (1).to_bytes(4, "big")
    public_key = _wire_key(key.public_key())
    signed = key.sign(_message(content, namespace, hash_name))
    for part in (
        public_key,
        namespace.encode(),
        b"",
        hash_name.encode(),
        _string(_KEY_TYPE) + _string(signed),
    ):
        blob += _string(part)
    text = base64.b64encode(blob).decode()
    lines = [text[start : start + 70] for start in range(0, len(text), 70)]
    return "\n".join([_BEGIN, *lines, _END, ""]).encode()


def sign_folder(folder: str | Path, key: Ed25519PrivateKey, *, digest: str | None = None) -> Path:
    """Sign the certificate of a release or a model, and write the signature beside it.

    A signature that is there is replaced. The folder is not checked first: ``privmix sign`` does.

    Args:
        folder: The folder.
        key: The signer's key.
        digest: SHA-256 of the certificate that was checked; whichever there is, by default.

    Returns:
        The signature's file.

    Raises:
        InvalidInputError: No certificate, another than the one that was checked, or one that protects
            nobody.

    """
    certificate = Path(folder) / FILE_NAME
    if not certificate.is_file():
        _validate.fail(str(folder), f"a release or model folder with a {FILE_NAME}", "none")
    content, path = certificate.read_bytes(), Path(folder) / SIGNATURE_NAME
    if digest is not None and hashlib.sha256(content).hexdigest() != digest:
        _validate.fail(str(certificate), "the certificate that was checked", "another one")
    if not _claims_privacy(content):
        _validate.fail(
            str(folder), "a certificate that protects somebody", "one that protects nobody"
        )
    try:
        write_durably(path, sign(content, key))
        # When a run ended depends on its records: the certificate's time says nothing of it.
        when = certificate.stat().st_mtime_ns
        os.utime(path, ns=(when, when))
    except OSError as error:
        _validate.fail(str(path), "a file in a writable folder", error.strerror)
    return path


def _claims_privacy(certificate: bytes) -> bool:
    """Whether a certificate, of a release or a model, says that it is private."""
    try:
        found = json.loads(certificate)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("private") is True


def read_signature(content: bytes) -> Signature:
    """Parse an armoured signature.

    Raises:
        InvalidInputError: Anything but one whole signature by an Ed25519 key.

    """
    position, allowed = SIGNATURE_NAME, "one whole signature in OpenSSH's format"
    try:
        lines = content.decode("ascii").strip().splitlines()
        if lines[:1] != [_BEGIN] or lines[-1:] != [_END]:
            _validate.fail(position, allowed, "a file without its first or last line")
        blob = base64.b64decode("".join(lines[1:-1]), validate=True)
        if blob[: len(_MAGIC)] != _MAGIC or blob[len(_MAGIC) :][:4] != b"\0\0\0\1":
            _validate.fail(position, allowed, "another format or version")
        reader = _Reader(blob[len(_MAGIC) + 4 :])
        public_key, namespace, reserved, hash_name, signed = (reader.string() for _ in range(5))
        inner = _Reader(signed)
        kind, value = inner.string(), inner.string()
        if reader.left or inner.left or reserved:
            _validate.fail(position, allowed, "bytes after its end")
        if kind != _KEY_TYPE or len(value) != 64:
            _validate.fail(position, "a signature by an Ed25519 key", repr(kind.decode()[:40]))
        return Signature(public_key, namespace.decode(), hash_name.decode(), value)
    except (UnicodeDecodeError, binascii.Error, EOFError) as error:
        reason = "a truncated one" if isinstance(error, EOFError) else "another kind of file"
        _validate.fail(position, allowed, reason)


def check_signature(content: bytes, armoured: bytes) -> Signature:
    """Check that an armoured signature is one of ``content``, by whichever key.

    Raises:
        InvalidInputError: It is none, or made for another namespace or other content.

    """
    found = read_signature(armoured)
    if found.namespace != NAMESPACE:
        _validate.fail(f"{SIGNATURE_NAME}: namespace", NAMESPACE, repr(found.namespace[:80]))
    _validate.one_of(f"{SIGNATURE_NAME}: hash", found.hash_name, _HASHES)
    message = _message(content, found.namespace, found.hash_name)
    try:
        _public_key(found.public_key).verify(found.signed, message)
    except InvalidSignature:
        _validate.fail(SIGNATURE_NAME, f"a signature of this {FILE_NAME}", "one of something else")
    return found


def check_origin(
    folder: Path,
    certificate: bytes,
    *,
    expect_digest: str | None = None,
    signers: str | Path | None = None,
    identity: str | None = None,
) -> tuple[Origin, list[str]]:
    """Find what vouches for a folder's origin.

    Args:
        folder: The folder.
        certificate: The bytes of its certificate.
        expect_digest: The digest as its maker told it.
        signers: OpenSSH's file of allowed signers; without one, a signature only has to fit.
        identity: Which of them must have signed; any, by default.

    Returns:
        What vouches for it, and a line for each thing that was wrong.

    Raises:
        InvalidInputError: A file of allowed signers that is none, or an identity without one.

    """
    if identity is not None and signers is None:
        _validate.fail("identity", "nothing without a file of allowed signers", repr(identity))
    allowed = None if signers is None else read_allowed_signers(signers)
    digest = hashlib.sha256(certificate).hexdigest()
    reasons = []
    expected = expect_digest is not None and digest == expect_digest.strip().lower()
    if expect_digest is not None and not expected:
        reasons.append(f"{FILE_NAME}: digest is {digest}, expected {expect_digest}")
    signer = found = None
    try:
        armoured = _read_regular(folder / SIGNATURE_NAME)
        if armoured is None and allowed is not None:
            _validate.fail(SIGNATURE_NAME, f"a signature by one of {signers}", "no such file")
        if armoured is not None:
            found = check_signature(certificate, armoured)
            signer = None if allowed is None else _signer(found, allowed, identity)
    except InvalidInputError as error:
        reasons.append(str(error))
        signer = None
    key = None if found is None else fingerprint(found.public_key)
    made = Origin(
        digest_expected=expected,
        signer=signer,
        key_fingerprint=key,
        statement=_in_words(expected, signer, key),
    )
    return made, reasons


def _signer(found: Signature, allowed: AllowedSigners, identity: str | None) -> str:
    return allowed.find(found.public_key, NAMESPACE, identity, position=SIGNATURE_NAME)


def _in_words(expected: bool, signer: str | None, key: str | None) -> str:
    told = ["the certificate's digest is the one that was expected"] if expected else []
    if signer is not None:
        told.append(f"signed by {signer} with the key {key}")
    if told:
        return "; ".join(told)
    if key is not None:
        return (
            f"signed with the key {key}, of which nothing is known here: --signer says whose keys "
            "are trusted"
        )
    return (
        "nothing vouches for it: compare the digest with the data holder's (--expect-digest), or "
        "have a signature checked (--signer); a forgery that is consistent throughout passes without"
    )


def _read_regular(path: Path) -> bytes | None:
    """Read a small file that a stranger may have made; None if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        _validate.fail(SIGNATURE_NAME, "a regular file that can be read", error.strerror)
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > _MOST_BYTES:
        os.close(descriptor)
        _validate.fail(SIGNATURE_NAME, "a regular file of at most 16 KB", "another one")
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_MOST_BYTES)


def _message(content: bytes, namespace: str, hash_name: str) -> bytes:
    """Return what is signed in place of ``content``."""
    hashed = hashlib.new(hash_name, content).digest()
    parts = (namespace.encode(), b"", hash_name.encode(), hashed)
    return _MAGIC + b"".join(map(_string, parts))


def _string(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def _wire_key(key: Ed25519PublicKey) -> bytes:
    return _string(_KEY_TYPE) + _string(key.public_bytes(Encoding.Raw, PublicFormat.Raw))


def _public_key(wire: bytes) -> Ed25519PublicKey:
    allowed = "a signature by an Ed25519 key"
    try:
        reader = _Reader(wire)
        kind, raw = reader.string(), reader.string()
        if kind != _KEY_TYPE or reader.left:
            _validate.fail(SIGNATURE_NAME, allowed, "one by another kind of key")
        return Ed25519PublicKey.from_public_bytes(raw)
    except (EOFError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        _validate.fail(SIGNATURE_NAME, allowed, "one by a damaged key")


class _Reader:
    """Reads strings with their lengths in front."""

    def __init__(self, content: bytes) -> None:
        self.left = content

    def string(self) -> bytes:
        size = int.from_bytes(self.left[:4], "big")
        if len(self.left) < 4 or len(self.left) - 4 < size:
            raise EOFError
        value, self.left = self.left[4 : 4 + size], self.left[4 + size :]
        return value
