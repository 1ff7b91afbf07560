"""Files that are there whole, or not at all, even after a power cut."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EEXIST
from io import BufferedRandom
from pathlib import Path


def write_durably(
    path: Path, content: bytes, *, mode: int = 0o644, temporary: str | None = None
) -> None:
    """Write a file so that it is there whole, or not at all, even after a power cut.

    Args:
        path: The file.
        content: All of it.
        mode: Its permissions.
        temporary: Its name until it is whole; of a name of their own, several may be written at once.

    """
    unfinished = path.with_name(temporary or f"{path.name}.tmp")
    unfinished.unlink(missing_ok=True)
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:  # a full disk
        unfinished.unlink(missing_ok=True)
        raise
    unfinished.rename(path)
    sync(path.parent)


@contextmanager
def put_in_place(path: Path, *, new: bool = False, mode: int = 0o666) -> Iterator[BufferedRandom]:
    """Yield a file to write and to read again, which gets its name where the block ends well.

    Until then it has a name beside ``path`` that nobody foresees, and is opened only where there is
    nothing of that name: no link is followed, and no other file is touched.

    Args:
        path: The file.
        new: Whether nothing may have its name by then; else it takes that name over.
        mode: Its permissions, less what the umask takes.

    Raises:
        OSError: A folder without room or right to write; for a new file, a name that is taken.

    """
    # Of a long name a part, so that this one is no longer than a file's may be.
    unfinished = path.with_name(f".{path.name[:40]}.{uuid.uuid4().hex[:12]}.tmp")
    handle = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if new:
            name_anew(unfinished, path)
        else:
            unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def name_anew(finished: Path, path: Path) -> None:
    """Give a finished file its name as well, in one step, unless something has that name by now.

    Raises:
        FileExistsError: Something has.

    """
    try:
        path.hardlink_to(finished)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: the last look is a moment before the step
        if os.path.lexists(path):
            raise FileExistsError(EEXIST, os.strerror(EEXIST), str(path)) from None
        finished.replace(path)


def remove_unfinished(folder: Path) -> None:
    """Remove what :func:`write_durably` leaves below a folder where it is cut off."""
    for leftover in folder.rglob("*.tmp"):
        leftover.unlink()


def sync(path: Path) -> None:
    """Force a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
