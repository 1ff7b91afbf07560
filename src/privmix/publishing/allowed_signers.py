"""OpenSSH's file of allowed signers: whose keys are trusted, for what, and when.

The format is that of ``ssh-keygen(1)``, section ALLOWED SIGNERS. What is not understood is refused,
never skipped: a line that was meant to forbid something must not be lost. Whatever ``ssh-keygen -Y
verify`` refuses is refused here: blanks are spaces and tabs alone, digits ASCII's, patterns those of
bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from privmix import _validate
from privmix.foreign.files import read_file

_KEY_TYPES = re.compile(r"(ssh|ecdsa|sk)-[A-Za-z0-9@.-]+")
_OPTION = re.compile(r'([A-Za-z-]+)(?:="([^"]*)")?(?:,|$)')
_TIME = re.compile(r"([0-9]{8}|[0-9]{12}|[0-9]{14})(Z?)")
_BLANKS = re.compile(r"[ \t]+")
_LONGEST_PATTERN = 1022  # of OpenSSH
_MOST_BYTES = 1 << 20
_FIRST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)  # OpenSSH has none before


class AllowedSigner(NamedTuple):
    """One line of the file.

    Attributes:
        position: File and line.
        principals: Patterns of identities, separated by commas.
        public_key: The key in OpenSSH's wire format.
        options: What the key may be used for.

    """

    position: str
    principals: str
    public_key: bytes
    options: dict[str, str]


class AllowedSigners(NamedTuple):
    """All lines of the file, and where it is."""

    path: str
    signers: tuple[AllowedSigner, ...]

    def find(
        self, public_key: bytes, namespace: str, identity: str | None, *, position: str
    ) -> str:
        """Return whose key it is, or say why it is not to be trusted.

        Args:
            public_key: In OpenSSH's wire format.
            namespace: What the signature was made for.
            identity: Who must have signed; anyone in the file, by default.
            position: What is refused, for errors.

        Raises:
            InvalidInputError: No line has the key, or none that has it allows this.

        """
        key = fingerprint(public_key)
        wanted = f"a signature by {identity or 'someone'} in {self.path}"
        found = [signer for signer in self.signers if signer.public_key == public_key]
        if not found:
            _validate.fail(position, wanted, f"one by the key {key}, which it does not have")
        problems = [_problem(signer, namespace, identity) for signer in found]
        if None not in problems:
            _validate.fail(position, wanted, f"one by the key {key}, whose line {problems[0]}")
        return identity or found[problems.index(None)].principals


def read_allowed_signers(path: str | Path) -> AllowedSigners:
    """Read a file of allowed signers.

    Raises:
        InvalidInputError: No such file, another kind of file, such as a pipe, or a line that is not
            understood.

    """
    position, allowed = f"signers {path}", "OpenSSH's file of allowed signers"
    try:
        text = read_file(path, _MOST_BYTES, allowed, position=position).decode()
    except UnicodeDecodeError:
        _validate.fail(position, allowed, "another kind of file")
    if "\0" in text:
        _validate.fail(position, allowed, "another kind of file")
    stripped = (line.lstrip(" \t").rstrip(" \t\r") for line in text.split("\n"))
    lines = list(enumerate(stripped, 1))
    found = tuple(
        _parsed(f"{path}: line {i}", line) for i, line in lines if line and line[0] != "#"
    )
    if not found:
        _validate.fail(position, "at least one allowed signer", "none")
    return AllowedSigners(str(path), found)


def fingerprint(public_key: bytes) -> str:
    """Return a key's fingerprint as OpenSSH writes it."""
    digest = base64.b64encode(hashlib.sha256(public_key).digest()).decode()
    return f"SHA256:{digest.rstrip('=')}"


def _parsed(position: str, line: str) -> AllowedSigner:
    allowed = "PRINCIPALS [OPTIONS] KEY-TYPE KEY, as in ssh-keygen(1), ALLOWED SIGNERS"
    quoted = re.match(r'"([^"]+)"[ \t]+|([^ \t"]+)[ \t]+', line)
    if quoted is None:
        _validate.fail(position, allowed, "something else")
    principals, rest = quoted[1] or quoted[2], line[quoted.end() :]
    options: dict[str, str] = {}
    if _KEY_TYPES.fullmatch(_BLANKS.split(rest, maxsplit=1)[0]) is None:
        stated = re.match(r'((?:[^ \t"]|"[^"]*")+)[ \t]+', rest)
        if stated is None:
            _validate.fail(position, allowed, "something else")
        options, rest = _options(position, stated[1]), rest[stated.end() :]
    words = _BLANKS.split(rest)
    try:
        if len(words) < 2 or _KEY_TYPES.fullmatch(words[0]) is None:
            raise ValueError
        key = base64.b64decode(words[1], validate=True)
        kind = words[0].encode()
        if key[: 4 + len(kind)] != len(kind).to_bytes(4, "big") + kind:
            raise ValueError
    except (ValueError, binascii.Error):
        _validate.fail(position, allowed, "no key of its type")
    return AllowedSigner(position, principals, key, options)


def _options(position: str, text: str) -> dict[str, str]:
    names = ("cert-authority", "namespaces", "valid-after", "valid-before")
    found: dict[str, str] = {}
    start = 0
    while start < len(text):
        one = _OPTION.match(text, start)
        name = "" if one is None else one[1].lower()
        if one is None or name not in names or name in found:
            _validate.fail(position, f"options out of {', '.join(names)}, each once", repr(text))
        if (one[2] is None) != (name == "cert-authority"):
            _validate.fail(position, 'cert-authority alone, others as NAME="VALUE"', repr(text))
        found[name] = one[2] or ""
        start = one.end()
    for name in ("valid-after", "valid-before"):
        if name in found:
            _moment(position, found[name])
    return found


def _problem(signer: AllowedSigner, namespace: str, identity: str | None) -> str | None:
    """Say why a line does not allow a signature, or None if it does."""
    options = signer.options
    if "cert-authority" in options:
        return "is for a certificate authority, which signs keys and nothing else"
    if "namespaces" in options and not _matches(namespace, options["namespaces"]):
        return f"is for the namespaces {options['namespaces']}, not {namespace}"
    now = datetime.now(UTC)
    if "valid-after" in options and now < _moment(signer.position, options["valid-after"]):
        return f"is valid only after {options['valid-after']}"
    if "valid-before" in options and now > _moment(signer.position, options["valid-before"]):
        return f"was valid only before {options['valid-before']}"
    if identity is not None and not _matches(identity, signer.principals):
        return f"is for {signer.principals}"
    if identity is None and not _names_someone(signer.principals):
        return f"is for nobody: {signer.principals}"
    return None


def _names_someone(patterns: str) -> bool:
    """Whether patterns admit one of them that is taken for an identity, as they stand."""
    admitting = [one for one in patterns.split(",") if one and not one.startswith("!")]
    return any(_matches(one, patterns) for one in admitting)


def _matches(name: str, patterns: str) -> bool:
    """Match as OpenSSH does: patterns with * and ?, for bytes, separated by commas; ! forbids."""
    found = False
    name = _bytewise(name)
    for pattern in _bytewise(patterns).split(","):
        if len(pattern) > _LONGEST_PATTERN:
            return False
        plain = pattern.removeprefix("!").replace("[", "[[]")  # brackets mean nothing there
        if fnmatchcase(name, plain):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _bytewise(text: str) -> str:
    """Return a text of one character for each byte."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def _moment(position: str, text: str) -> datetime:
    """Read YYYYMMDD, YYYYMMDDHHMM or YYYYMMDDHHMMSS; local time unless a Z follows."""
    form = _TIME.fullmatch(text)
    try:
        if form is None:
            raise ValueError
        when = datetime.strptime(form[1].ljust(14, "0"), "%Y%m%d%H%M%S")
        when = when.replace(tzinfo=UTC) if form[2] else when.astimezone(UTC)
        if when < _FIRST_MOMENT:
            raise ValueError
    except (ValueError, OverflowError):  # beyond the years of Python where it is in local time
        _validate.fail(position, "times from 1970 on, as YYYYMMDD[HHMM[SS]][Z]", repr(text))
    return when
