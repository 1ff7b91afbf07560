"""Keys that sign certificates, and the files that hold them."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

KEY = Ed25519PrivateKey.generate()
OTHER = Ed25519PrivateKey.generate()


def public_line(key) -> str:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def write_key(path: Path, key=KEY, passphrase: bytes | None = None) -> Path:
    how = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, how))
    path.chmod(0o600)
    return path
