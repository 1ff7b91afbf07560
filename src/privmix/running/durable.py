"""Files that are there whole, or not at all, even after a power cut."""

from __future__ import annotations

import os
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
