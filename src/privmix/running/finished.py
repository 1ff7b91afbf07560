"""Which files a run has finished, by their digests: a run that goes on takes no damaged file for finished.

Kept in the run folder beside the journal. A digest is recorded before its file gets its name, so that a
file without one is not finished.
"""

from __future__ import annotations

import hashlib
import stat
import warnings
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.running.durable import write_durably
from privmix.running.journal import RunFolder

STATE_NAME = "finished.json"
_DIGEST_BYTES = 32


class DamagedFileWarning(UserWarning):
    """A file of a run that was cut off is not as it was written, and is made again."""


class _State(FrozenModel):
    digests: dict[str, str] = Field(default_factory=dict)


class FinishedFiles:
    """The finished files of a run.

    Args:
        run: Its folder.

    """

    def __init__(self, run: RunFolder) -> None:
        self._path = run.folder / STATE_NAME
        content = read_checked(self._path)
        if content is None and self._path.exists():
            warn_of_damage(STATE_NAME)
        state = _State() if content is None else _State.from_json(content, position=STATE_NAME)
        self._digests = dict(state.digests)

    def digest(self, name: str) -> str | None:
        """Return the recorded digest of a file, or None."""
        return self._digests.get(name)

    def knows(self, stem: str, digest: str) -> bool:
        """Whether a file of several states, recorded as ``stem: state``, is in one of them."""
        return any(
            due == digest and name.startswith(f"{stem}: ") for name, due in self._digests.items()
        )

    def latest(self, stem: str) -> str | None:
        """Return the digest of the last state of a file of several, ``stem: 1`` and so on, or None."""
        states = {
            int(name.removeprefix(f"{stem}: ")): digest
            for name, digest in self._digests.items()
            if name.startswith(f"{stem}: ")
        }
        return states[max(states)] if states else None

    def is_whole(self, path: Path, name: str) -> bool:
        """Whether a file is there as it was recorded; what is not is removed, and said so if damaged.

        A link is no such file. It is removed, and what it leads to is not touched.
        """
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            return False
        due = self._digests.get(name)
        if due is not None:
            if stat.S_ISREG(mode) and file_digest(path) == due:
                return True
            warn_of_damage(name)
        if stat.S_ISDIR(mode):
            _validate.fail(str(path), "a file of the run", "a folder")
        path.unlink()
        return False

    def record(self, name: str, digest: str) -> None:
        """Record a file that is finished.

        Raises:
            InvalidInputError: It was finished before with another content: parts of two versions do not
                make one release.

        """
        due = self._digests.get(name)
        if due == digest:
            return
        check_made_again(name, digest, due)
        self._digests[name] = digest
        content = _State(digests=self._digests).model_dump_json().encode()
        write_checked(self._path, content)


def check_made_again(name: str, digest: str, due: str | None) -> None:
    """Refuse a file that was made again with another content than the ``due`` one, if there is any."""
    if due not in (None, digest):
        allowed = (
            "the bits that it had when it was made first; resume on the machine and with the "
            "libraries that began the run, or start anew after removing its folder"
        )
        _validate.fail(f"resuming: {name}", allowed, "others")


def check_sealed(
    run: RunFolder, stated: Mapping[str, str], elsewhere: Mapping[str, str] | None = None
) -> None:
    """Compare a sealed folder with its certificate, where the key is gone.

    Args:
        run: The run.
        stated: Digests of the certificate by name.
        elsewhere: Those of files that are not in the folder.

    Raises:
        InvalidInputError: A file that is damaged. It cannot be made again.

    """
    for name in sorted(set(stated) - set(elsewhere or ())):
        path = run.release_folder / name
        regular = path.is_file() and not path.is_symlink()
        if not regular or file_digest(path) != stated[name]:
            allowed = (
                "a file as it was sealed; its key is destroyed, so that it cannot be made again, and "
                f"the budget is spent: restore {path} from a copy, or remove {run.folder}"
            )
            _validate.fail(f"resuming {run.out}: {name}", allowed, "a damaged one")


def warn_of_damage(name: str) -> None:
    """Say that a file is made again."""
    told = f"{name} was damaged after it was written; it is made again, to the same bits"
    warnings.warn(told, DamagedFileWarning, stacklevel=2)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_checked(path: Path, content: bytes) -> None:
    """Write a private file with its own digest in front, durably."""
    write_durably(path, hashlib.sha256(content).digest() + content, mode=0o600)


def read_checked(path: Path) -> bytes | None:
    """Return what :func:`write_checked` wrote; None if it is not there, or is not as it was written."""
    if not path.is_file() or path.is_symlink():
        return None
    whole = path.read_bytes()
    content = whole[_DIGEST_BYTES:]
    return content if hashlib.sha256(content).digest() == whole[:_DIGEST_BYTES] else None
