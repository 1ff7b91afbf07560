"""Master key and keyed streams: the only place randomness comes from.

A release draws one 256-bit master key from the operating system. HKDF-SHA256 (RFC 5869) derives
an independent ChaCha20 key for every (purpose, shard, block), bound to a context: hashes of the
plan and of the input. The same key and context repeat the same bits, on any machine and with any
number of threads; another context gives unrelated ones.
"""

from __future__ import annotations

import hashlib
import secrets
import sys
import uuid

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

KEY_BYTES = 32
# ChaCha20 numbers its 64-byte blocks with 32 bits: past 256 GiB a stream would repeat itself.
_STREAM_LIMIT_BYTES = 64 * 2**32
_ZEROS = memoryview(bytes(1 << 20))


def fresh_secret() -> bytes:
    """Draw a master key's secret from the operating system's entropy source."""
    return secrets.token_bytes(KEY_BYTES)


def fresh_name() -> str:
    """Draw a name that no other run has; it is no secret."""
    return uuid.uuid4().hex


def guessable_secret(seed: int) -> bytes:
    """Derive a secret that is none from a seed, for tests."""
    return hashlib.sha256(f"privmix test seed {seed}".encode()).digest()


class KeyStream:
    """A stream of uniform 64-bit words under one key; not thread-safe, never shared."""

    __slots__ = ("_encryptor", "_left")

    def __init__(self, key: bytes) -> None:
        self._encryptor = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
        self._left = _STREAM_LIMIT_BYTES

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next ``count`` words."""
        words = np.empty(count, dtype=np.uint64)
        self.fill(words)
        return words

    def fill(self, words: NDArray[np.uint64]) -> None:
        """Overwrite a contiguous array with the next words, little-endian on every machine."""
        self._left -= words.nbytes
        if self._left < 0:
            raise RuntimeError("a key stream is exhausted after 256 GiB")
        view = memoryview(words.view(np.uint8).data)
        for start in range(0, words.nbytes, len(_ZEROS)):
            part = view[start : start + len(_ZEROS)]
            self._encryptor.update_into(_ZEROS[: len(part)], part)
        if sys.byteorder == "big":
            words.byteswap(inplace=True)

    def integer(self) -> int:
        """Return the next word as a Python integer."""
        return int(self.words(1)[0])


class MasterKey:
    """The secret of one release, bound to its context.

    Args:
        secret: 32 bytes.
        context: Hash of everything the streams must depend on (the plan and the input).

    """

    __slots__ = ("_context", "_secret")

    def __init__(self, secret: bytes, context: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise ValueError(f"a master key has {KEY_BYTES} bytes, not {len(secret)}")
        self._secret, self._context = secret, context

    def __repr__(self) -> str:
        return "MasterKey(<secret>)"

    def __reduce__(self) -> str:
        raise TypeError("a master key is never serialised")

    def sealed(self, mailbox: bytes) -> bytes:
        """Return the key so that only the :class:`Mailbox` of this address can open it."""
        return seal(self._secret + self._context, mailbox)

    @classmethod
    def opened(cls, sealed: bytes, mailbox: Mailbox) -> MasterKey:
        """Open what :meth:`sealed` made."""
        content = mailbox.open(sealed)
        return cls(content[:KEY_BYTES], content[KEY_BYTES:])

    @classmethod
    def for_test(cls, seed: int, context: bytes) -> MasterKey:
        """Make a key from a seed that anybody can guess: what it makes is not private."""
        return cls(guessable_secret(seed), context)

    def stream(self, purpose: str, *, shard: int = 0, block: int = 0) -> KeyStream:
        """Return the stream of one purpose on one shard of records and one block of rows."""
        info = f"privmix/1/{purpose}/shard={shard}/block={block}".encode()
        kdf = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=self._context, info=info)
        return KeyStream(kdf.derive(self._secret))


class Mailbox:
    """Receives what nobody on the way may read: X25519, HKDF-SHA256, ChaCha20-Poly1305.

    It keeps sealed content out of whatever relays or logs messages. It does not say who sent it,
    nor whose mailbox it is: that is for the transport (TLS).
    """

    __slots__ = ("_private",)

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()

    def __reduce__(self) -> str:
        raise TypeError("a mailbox is never serialised")

    @property
    def address(self) -> bytes:
        """The public key to seal content with."""
        return self._private.public_key().public_bytes_raw()

    def open(self, sealed: bytes) -> bytes:
        """Return the content; ``cryptography.exceptions.InvalidTag`` if it is not for this mailbox."""
        sender = sealed[:KEY_BYTES]
        shared = self._private.exchange(X25519PublicKey.from_public_bytes(sender))
        return _cipher(shared, sender + self.address).decrypt(bytes(12), sealed[KEY_BYTES:], None)


def seal(content: bytes, mailbox: bytes) -> bytes:
    """Encrypt content, less than 2 GiB, for the mailbox of an address, under a key of its own."""
    private = X25519PrivateKey.generate()
    sender = private.public_key().public_bytes_raw()
    shared = private.exchange(X25519PublicKey.from_public_bytes(mailbox))
    return sender + _cipher(shared, sender + mailbox).encrypt(bytes(12), content, None)


def _cipher(shared: bytes, parties: bytes) -> ChaCha20Poly1305:
    kdf = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=parties, info=b"privmix/1/mailbox")
    return ChaCha20Poly1305(kdf.derive(shared))
