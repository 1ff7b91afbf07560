"""Folders and files of strangers: regular files alone, without links, read only up to a stated size.

A name in a stranger's folder can be a link out of it, a pipe that nobody writes to or a device
without end. So a file is opened below its folder's descriptor, one step of its path after the other,
without following links and without waiting, and what was opened is looked at before it is read.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from privmix import _validate

# The largest certificate, plan or schema that is read: parsing takes some forty times as much.
MOST_JSON_BYTES = 16 << 20
_MOST_ENTRIES = 1_000_000
_DEEPEST = 8
_CHUNK_BYTES = 1 << 20
# O_NONBLOCK: opening a pipe does not wait for somebody at its other end.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_FOLDER_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY


class Entries(NamedTuple):
    """What is in a folder, by paths below it.

    Attributes:
        files: Sizes of the regular files.
        others: What is neither a regular file nor a folder: links, pipes, devices.
        folders: Folders, at any depth.

    """

    files: dict[str, int]
    others: list[str]
    folders: list[str]


class ForeignFolder:
    """A folder from anywhere, named by its user; nothing in it is trusted.

    A file that was opened once must be the same whenever it is opened again: what was checked is
    what is read.

    Args:
        path: The folder. It may itself be a link, since the user named it.

    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._seen: dict[str, tuple[int, ...]] = {}

    def __repr__(self) -> str:
        return f"ForeignFolder({str(self.path)!r})"

    def position(self, name: str) -> str:
        """Return how errors name a file."""
        return str(self.path / name)

    def has(self, name: str) -> bool:
        """Whether there is a regular file of this name, reached without links."""
        try:
            with self._opened(name):
                return True
        except (OSError, _validate.InvalidInputError):
            return False

    def exists(self, name: str) -> bool:
        """Whether anything at all has this name, a link or a pipe for example."""
        return os.path.lexists(self.path / name)

    def entries(self) -> Entries:
        """List everything in the folder; links are listed and not followed.

        Raises:
            InvalidInputError: No folder, one that cannot be read, or one with more than a million
                entries or deeper than 8 levels.

        """
        found = Entries({}, [], [])
        try:
            with _descriptor(os.open(self.path, _FOLDER_FLAGS)) as root:
                self._list(root, "", 1, found)
        except OSError as error:
            _validate.fail(str(self.path), "a folder that can be read", error.strerror)
        return found

    def _list(self, folder: int, prefix: str, depth: int, found: Entries) -> None:
        if depth > _DEEPEST:
            _validate.fail(self.position(prefix), f"at most {_DEEPEST} levels of folders", "more")
        with os.scandir(folder) as entries:
            below = []
            for entry in entries:
                name = prefix + entry.name
                facts = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(facts.st_mode):
                    found.files[name] = facts.st_size
                elif stat.S_ISDIR(facts.st_mode):
                    found.folders.append(name)
                    below.append(entry.name)
                else:
                    found.others.append(name)
                if len(found.files) + len(found.others) + len(found.folders) > _MOST_ENTRIES:
                    _validate.fail(str(self.path), f"at most {_MOST_ENTRIES} entries", "more")
        for name in sorted(below):
            handle = os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
            with _descriptor(handle) as inner:
                self._list(inner, f"{prefix}{name}/", depth + 1, found)

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Open a regular file, by its path below the folder.

        Raises:
            InvalidInputError: No such file, no regular file, one behind a link, or another than the
                one that was there when it was opened first.

        """
        try:
            with self._opened(name) as handle, os.fdopen(os.dup(handle), "rb") as file:
                yield file
        except OSError as error:
            _validate.fail(self.position(name), "a file that can be read", error.strerror or error)

    @contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        *outer, last = name.split("/")
        try:
            handle = os.open(self.path, _FOLDER_FLAGS)
        except OSError as error:
            _validate.fail(str(self.path), "a folder that can be read", error.strerror)
        try:
            for part in outer:
                inner = os.open(part, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=handle)
                os.close(handle)
                handle = inner
            file = os.open(last, _FLAGS | os.O_NOFOLLOW, dir_fd=handle)
        except (OSError, ValueError) as error:  # ValueError: a null character in a name
            reason = _what_is_there(self.path / name) or getattr(error, "strerror", str(error))
            _validate.fail(self.position(name), "a regular file, not behind a link", reason)
        finally:
            os.close(handle)
        with _descriptor(file):
            facts = os.fstat(file)
            if not stat.S_ISREG(facts.st_mode):
                kind = _what_is_there(self.path / name) or "another kind of file"
                _validate.fail(self.position(name), "a regular file, not behind a link", kind)
            if self._seen.setdefault(name, _identity(facts)) != _identity(facts):
                allowed = "the file that was there when it was opened first"
                _validate.fail(self.position(name), allowed, "another, or a changed one")
            yield file

    def size(self, name: str) -> int:
        """Return a file's size in bytes; errors as :meth:`open` has them."""
        with self._opened(name) as handle:
            return os.fstat(handle).st_size

    def read(self, name: str, at_most: int) -> bytes:
        """Return a file's bytes; one of more than ``at_most`` is refused before it is read."""
        with self.open(name) as file:
            return _read(file, at_most, self.position(name))

    def digest(self, name: str) -> str:
        """Return the SHA-256 of a file, of as many bytes as it said it has."""
        hasher = hashlib.sha256()
        with self.open(name) as file:
            left = os.fstat(file.fileno()).st_size
            while left:
                chunk = file.read(min(left, _CHUNK_BYTES))
                if not chunk:
                    _validate.fail(
                        self.position(name), "a file of its stated size", "a shorter one"
                    )
                hasher.update(chunk)
                left -= len(chunk)
            if file.read(1):  # a file that grows, or has no size: of a kernel, say
                _validate.fail(self.position(name), "a file of its stated size", "a longer one")
        return hasher.hexdigest()

    def changed(self) -> list[str]:
        """Return the files that were opened and are other ones now."""
        found = []
        for name in sorted(self._seen):
            try:
                with self._opened(name):
                    pass
            except _validate.InvalidInputError:
                found.append(name)
        return found


def read_file(
    path: str | Path,
    at_most: int,
    allowed: str = "a readable file",
    *,
    position: str | None = None,
) -> bytes:
    """Read a file that its user named; links are followed, and nothing but a regular file is read.

    Args:
        path: The file.
        at_most: Largest size that is read.
        allowed: What errors say is allowed.
        position: What they call the file; its path by default.

    Raises:
        InvalidInputError: No such file, another kind of file, or a larger one.

    """
    position = str(path) if position is None else position
    try:
        with os.fdopen(os.open(path, _FLAGS), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                _validate.fail(position, allowed, _what_is_there(Path(path)) or "no regular file")
            return _read(file, at_most, position)
    except (OSError, ValueError) as error:  # ValueError: a null character in a name
        if isinstance(error, _validate.InvalidInputError):
            raise
        _validate.fail(position, allowed, getattr(error, "strerror", None) or error)


def _read(file: BinaryIO, at_most: int, position: str) -> bytes:
    size = os.fstat(file.fileno()).st_size
    if size > at_most:
        _validate.fail(position, f"at most {at_most} bytes", size)
    content = file.read(size + 1)
    if len(content) != size:
        _validate.fail(
            position, f"{size} bytes, as the file says it has", f"{len(content)} or more"
        )
    return content


def _identity(facts: os.stat_result) -> tuple[int, ...]:
    # The time of the last change to an inode cannot be set by whoever writes to it.
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def _what_is_there(path: Path) -> str | None:
    """Say what kind of thing a path is, without opening it; None if that does not tell."""
    try:
        mode = path.lstat().st_mode
    except (OSError, ValueError):
        return None
    kinds = (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
        (stat.S_ISDIR, "a folder"),
    )
    return next((kind for is_kind, kind in kinds if is_kind(mode)), None)


@contextmanager
def _descriptor(handle: int) -> Iterator[int]:
    try:
        yield handle
    finally:
        os.close(handle)
