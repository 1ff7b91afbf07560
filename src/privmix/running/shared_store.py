"""A shared store: a folder or an object store that the workers of a cluster write a release's parts to.

Only finished rows go there, with their noise and as a whole part. What happens to a worker changes
nothing: a file appears in one step (a rename in a folder, one upload in an object store), a part that
is made twice is overwritten with the same bytes, and a part counts only once its digest has come back
to the data holder's process and is in the run folder. When all parts are there, they are read back and
compared; the certificate comes last. The key and the journal stay with the holder.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, cast
from urllib.parse import urlsplit

from pydantic import Field

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.rng import fresh_name
from privmix.running.durable import write_durably
from privmix.running.finished import check_made_again
from privmix.running.journal import RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspec import AbstractFileSystem

FORMAT_VERSION: Literal[1] = 1
STATE_NAME = "parts.json"
CLAIM_NAME = ".claim"
_UNFINISHED = ".tmp"
# An upload to these is there as a whole or not at all. ``memory`` is of one process, for tests.
OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory")


class Files(Protocol):
    """Files by name; a name may have slashes."""

    @property
    def location(self) -> str:
        """Where they are."""

    def make(self) -> None:
        """Make the store, if it needs to be made."""

    def put(self, name: str, content: bytes) -> None:
        """Write or replace a file, in one step."""

    def get(self, name: str) -> bytes | None:
        """Return a file's content, or None if there is no such file."""

    def digest(self, name: str) -> str | None:
        """Return the SHA-256 of a file, or None if there is no such file."""

    def remove(self, name: str) -> None:
        """Remove a file."""

    def names(self) -> list[str]:
        """Return the names of all files."""


class Folder(NamedTuple):
    """Files of a folder that several machines see."""

    location: str

    def make(self) -> None:
        """Make the folder, in one that exists."""
        Path(self.location).mkdir(exist_ok=True)

    def put(self, name: str, content: bytes) -> None:
        """Write or replace a file, in one step."""
        target = Path(self.location, name)
        target.parent.mkdir(exist_ok=True)
        # Two workers may write one part at the same time.
        write_durably(target, content, temporary=f"{target.name}.{fresh_name()}{_UNFINISHED}")

    def get(self, name: str) -> bytes | None:
        """Return a file's content, or None if there is no such file."""
        try:
            return Path(self.location, name).read_bytes()
        except FileNotFoundError:
            return None

    def digest(self, name: str) -> str | None:
        """Return the SHA-256 of a file, or None if there is no such file."""
        try:
            with Path(self.location, name).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        """Remove a file."""
        Path(self.location, name).unlink()

    def names(self) -> list[str]:
        """Return the names of all files."""
        root = Path(self.location)
        found = (path for path in root.rglob("*") if not path.is_dir())
        return sorted(path.relative_to(root).as_posix() for path in found)


class Objects(NamedTuple):
    """Objects of a store, below a URL, through fsspec."""

    location: str

    def make(self) -> None:
        """Do nothing: objects have no folders."""

    def _opened(self) -> tuple[AbstractFileSystem, str]:
        from fsspec.core import url_to_fs

        files, root = url_to_fs(self.location)
        return files, root.rstrip("/")

    def put(self, name: str, content: bytes) -> None:
        """Write or replace an object, in one step."""
        files, root = self._opened()
        files.pipe_file(f"{root}/{name}", content)

    def get(self, name: str) -> bytes | None:
        """Return an object's content, or None if there is no such object."""
        files, root = self._opened()
        try:
            return cast(bytes, files.cat_file(f"{root}/{name}"))
        except FileNotFoundError:
            return None

    def digest(self, name: str) -> str | None:
        """Return the SHA-256 of an object, or None if there is no such object."""
        files, root = self._opened()
        files.invalidate_cache()
        try:
            with files.open(f"{root}/{name}", "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        """Remove an object."""
        files, root = self._opened()
        files.rm_file(f"{root}/{name}")

    def names(self) -> list[str]:
        """Return the names of all objects."""
        files, root = self._opened()
        files.invalidate_cache()
        return sorted(path.removeprefix(f"{root}/") for path in files.find(root))


class SharedStore(NamedTuple):
    """A store, and the name of the run that it is for. Goes to workers.

    Attributes:
        files: What is there.
        token: Name of the run; while it goes on, a file says that the store is the run's.

    """

    files: Files
    token: str

    @property
    def position(self) -> str:
        """What errors name."""
        return f"store={self.files.location}"

    def claim(self) -> None:
        """Take an empty store for the run, or find that it is the run's already.

        Raises:
            InvalidInputError: A store with files in it, or one that cannot be used.

        """
        with self._usable():
            self.files.make()
            found = self._whole_files()
            claimed = self.files.get(CLAIM_NAME) == self.token.encode()
            if found and not claimed:
                allowed = "an empty store, or that of the run to resume"
                _validate.fail(self.position, allowed, f"{found[0]} and others: {len(found)} files")
            self.files.put(CLAIM_NAME, self.token.encode())

    def give_up(self) -> None:
        """Take the claim back, where there is nothing else."""
        if self._whole_files() == [CLAIM_NAME]:
            self.files.remove(CLAIM_NAME)

    def _whole_files(self) -> list[str]:
        """Return the names of files, but for those that somebody who was cut off left behind."""
        return [name for name in self.files.names() if not name.endswith(_UNFINISHED)]

    def _remove_leftovers(self) -> None:
        for name in self.files.names():
            if name.endswith(_UNFINISHED):
                self.files.remove(name)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        """Let whatever goes wrong in a library of somebody's store be a clear error."""
        try:
            yield
        except _validate.InvalidInputError:
            raise
        except Exception as error:
            allowed = "a store that can be read and written"
            _validate.fail(self.position, allowed, f"{type(error).__name__}: {error}")

    def problem(self) -> str | None:
        """Say why this process cannot write to the store of the run, if it cannot."""
        probe = f".{fresh_name()}{_UNFINISHED}"
        try:
            if self.files.get(CLAIM_NAME) != self.token.encode():
                return "another store of that name, or another run's"
            self.files.put(probe, b"probe")
            self.files.remove(probe)
        except Exception as error:  # of whatever library the store needs
            return f"{type(error).__name__}: {error}"
        return None

    def check(self, digests: dict[str, str]) -> list[str]:
        """Return the names of files that are not as their digests say, having read all of them.

        What workers that were killed left behind is removed.

        Raises:
            InvalidInputError: Files that nobody of this run has written.

        """
        with self._usable():
            self._remove_leftovers()
            for name in self.files.names():
                if name not in digests and name != CLAIM_NAME:
                    _validate.fail(self.position, "files of this run alone", name)
            if self.files.get(CLAIM_NAME) != self.token.encode():
                _validate.fail(
                    self.position, "a store for this run alone", "another's claim, or none"
                )
            return [name for name, due in digests.items() if self.files.digest(name) != due]

    def complete(self, folder: Path, last: str) -> None:
        """Copy the files of a folder to the store, one of them last, and give up the claim."""
        with self._usable():
            paths = [path for path in folder.rglob("*") if path.is_file() and path.name != last]
            for path in [*paths, folder / last]:
                self.files.put(path.relative_to(folder).as_posix(), path.read_bytes())
            self._remove_leftovers()
            if CLAIM_NAME in self.files.names():
                self.files.remove(CLAIM_NAME)


class SharedParts(FrozenModel):
    """What a run folder says about parts in a shared store; it holds no secret.

    Attributes:
        location: Absolute path of the folder, or URL.
        token: Name of the run in the store.
        digests: SHA-256 of the parts that were made, by name, as their writers returned it.
        damaged: Those of them that have to be made again, to the same bits.

    """

    format_version: Literal[1] = FORMAT_VERSION
    location: str
    token: str
    digests: dict[str, str] = Field(default_factory=dict)
    damaged: tuple[str, ...] = ()

    @classmethod
    def of_run(cls, run: RunFolder, location: str | None) -> SharedParts | None:
        """Read what a run folder says; None for a run without a shared store.

        Raises:
            InvalidInputError: Another location than the run was begun with.

        """
        path = run.folder / STATE_NAME
        found = cls.from_json(path.read_bytes(), position=STATE_NAME) if path.exists() else None
        due = None if found is None else found.location
        if due != location:
            _validate.fail(f"resuming {run.out}: store", f"{due}, as it was begun", location)
        return found

    def write(self, run: RunFolder) -> None:
        """Write this into a run folder, durably."""
        write_durably(run.folder / STATE_NAME, self.model_dump_json().encode(), mode=0o600)

    @property
    def whole(self) -> list[str]:
        """Names of the parts that are there, as far as is known."""
        return [name for name in self.digests if name not in self.damaged]

    def with_digest(self, name: str, digest: str) -> SharedParts:
        """Return this with one more part.

        Raises:
            InvalidInputError: It was made before with another content: parts of two versions do not
                make one release.

        """
        check_made_again(name, digest, self.digests.get(name))
        left = tuple(one for one in self.damaged if one != name)
        return self.model_copy(update={"digests": self.digests | {name: digest}, "damaged": left})

    def with_damaged(self, names: list[str]) -> SharedParts:
        """Return this with some parts to be made again."""
        return self.model_copy(update={"damaged": tuple(names)})

    @property
    def store(self) -> SharedStore:
        """The store."""
        kind = Objects if "://" in self.location else Folder
        return SharedStore(kind(self.location), self.token)


def store_location(store: str | Path) -> str:
    """Return the absolute path or the URL of a shared store.

    Raises:
        InvalidInputError: A store of another kind, one with a password in its URL, or a library that
            is not installed.

    """
    text = str(store)
    scheme, found, rest = text.partition("://")
    if not found or scheme in ("file", "local"):
        path = Path(rest if found else text).absolute()
        if not path.parent.is_dir():
            _validate.fail(f"store={store}", "a path in an existing folder", "no such folder")
        return str(path)
    if scheme not in OBJECT_STORES:
        kinds = ", ".join(f"{kind}://" for kind in OBJECT_STORES)
        _validate.fail(f"store={store}", f"a folder, or an object store: {kinds}", scheme)
    if urlsplit(text).password is not None:
        _validate.fail("store", "a URL without a password", "one with a password")
    try:
        from fsspec import get_filesystem_class

        get_filesystem_class(scheme)
    except ImportError as error:
        allowed = (
            "fsspec and its library for this store: pip install fsspec, and s3fs, gcsfs or adlfs"
        )
        _validate.fail(f"store={store}", allowed, error)
    return text.rstrip("/")
