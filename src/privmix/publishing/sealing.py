"""What every certificate is once its folder is sealed: a file with a digest, and one time for all files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Self

from privmix._validate import FrozenModel
from privmix.accounting.guarantee import Guarantee

# 1 January 2000: a date that archives of every kind can hold, the same for every folder.
_FILE_TIME = 946684800


class Sealable(FrozenModel):
    """Base of the certificates, whose words follow from what they state."""

    if TYPE_CHECKING:  # each certificate has them among its own fields, in its own order
        private: bool

    @property
    def guarantee(self) -> Guarantee:
        """What is guaranteed, in words: the one place that says whether anything is."""
        raise NotImplementedError

    def sealed(self, *, private: bool, files: dict[str, str]) -> Self:
        """Return the certificate of these files; its words follow from ``private``."""
        changed = self.model_copy(update={"private": private, "files": files})
        return changed.model_copy(update={"statement": changed.guarantee.statement})

    def to_bytes(self) -> bytes:
        """Return the certificate as the bytes of its file."""
        return (self.model_dump_json(by_alias=True, indent=2) + "\n").encode()

    def digest(self) -> str:
        """Return the SHA-256 of the certificate's file: 64 hexadecimal digits."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def not_private(self) -> list[str]:
        """Return the reason against a certificate that protects nobody."""
        return (
            [] if self.private else [f"certificate: private is false: {self.guarantee.statement}"]
        )


def set_file_times(folder: Path) -> None:
    """Give a folder and all in it one fixed time: how long each file took depends on the records."""
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (_FILE_TIME, _FILE_TIME))
