"""The private run folder of a release or a model in the making: its lock, its journal, its files.

The journal holds the master key, so that a run that was cut off repeats the same bits instead of
publishing a second noisy version of the same rows. It is readable by its owner alone, and destroyed
before what was made appears under its name; all but the key is kept until then, to hold the run to its
plan, records and ledger. :func:`make_once` is the whole of a run.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

from pydantic import Field

from privmix import _validate
from privmix._validate import FrozenModel
from privmix.rng import MasterKey, fresh_name, fresh_secret, guessable_secret
from privmix.running.durable import remove_unfinished, sync, write_durably

FORMAT_VERSION: Literal[3] = 3  # also whenever the same key draws other bits
JOURNAL_NAME = "journal.json"
SEALED_NAME = "sealed.json"
_LOCK_NAME = "lock"
_RELEASE_DIR = "release"


class Charge(Protocol):
    """Charges a ledger for a run."""

    def __call__(self, run_id: str, /) -> object:
        """Charge the run, by its name; again, and nothing happens."""

    def sealed(self, run_id: str, digest: str, /) -> object:
        """Note the certificate digest of what the run made; again, and nothing happens."""


# The same key draws other bits under another version of them: NumPy's generators draw balanced eligibility
# and Dirichlet weights, and a part's bytes are pyarrow's.
_LIBRARIES = ("numpy", "pyarrow")


def library_versions() -> dict[str, str]:
    """Return the versions of libraries that the bits of a run depend on."""
    return {name: version(name) for name in _LIBRARIES}


class RunFacts(FrozenModel):
    """What a run must know as long as it is not published, whether it has its key or not.

    Attributes:
        context: Hash of the plan and of the records that the key is bound to, hexadecimal.
        private: False for a run with a test seed.
        run_id: The run's name in a ledger, which charges it once however often it is resumed.
        charged: Whether a ledger is charged: the run is not finished without it.

    """

    context: str
    private: bool = True
    run_id: str = Field(default_factory=fresh_name)
    charged: bool = False


class Sealed(RunFacts):
    """What is kept of a journal when the key goes.

    Attributes:
        digest: That of the certificate which the run made.

    """

    sealed_format: Literal[1] = 1
    digest: str


class Journal(RunFacts):
    """What a run must know to go on. Holds the key: never shown, never copied.

    Attributes:
        secret: The master key's secret, hexadecimal; None before it is drawn.
        libraries: Versions of libraries that the bits depend on.

    """

    format_version: Literal[3] = FORMAT_VERSION
    secret: str | None = None
    libraries: dict[str, str] = Field(default_factory=library_versions)

    def __repr__(self) -> str:
        return "Journal(<secret>)"

    __str__ = __repr__

    def sealed(self, digest: str) -> Sealed:
        """Return what outlives the key, once the folder is sealed."""
        facts = {name: getattr(self, name) for name in RunFacts.model_fields}
        return Sealed(**facts, digest=digest)

    @property
    def key(self) -> MasterKey:
        """The master key, bound to its context."""
        if self.secret is None:
            raise ValueError("the key is not drawn yet")
        return MasterKey(bytes.fromhex(self.secret), bytes.fromhex(self.context))


class RunFolder:
    """The folder ``.NAME.run`` beside a release folder NAME in the making; one process at a time.

    Used as a context manager, which takes the lock. What is left behind when a run fails is never
    a release: it has another name, and no certificate until all rows are there.

    Args:
        out: The release folder to be.

    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.folder = out.parent / f".{out.name}.run"
        self.release_folder = self.folder / _RELEASE_DIR
        self._journal_path = self.folder / JOURNAL_NAME
        self._doomed_path = self._journal_path.with_suffix(".doomed")
        self._sealed_path = self.folder / SEALED_NAME
        self._lock: int | None = None
        self._begun = False  # or gone on with, here

    def __enter__(self) -> Self:
        self._lock = lock_folder(self.folder, self.out)
        try:
            self._check_own_files()
        except BaseException:
            os.close(self._lock)
            self._lock = None
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._lock is not None
        try:
            if not self.is_unfinished:
                shutil.rmtree(self.folder, ignore_errors=True)
            elif error is not None and self._begun:
                error.add_note(
                    f"the run is kept in {self.folder}, private: the same command with --resume "
                    "(resume=True) goes on with it, to the same bits and without a second charge"
                )
        finally:
            os.close(self._lock)
            self._lock = None

    def _check_own_files(self) -> None:
        """Refuse files of the run, and folders of its release, that are links or somebody else's.

        Files of the release may be damaged, or links; they are looked at one by one and made again.
        """
        found = list(self.folder.iterdir())
        if self.release_folder in found and not self.release_folder.is_symlink():
            found += [path for path in self.release_folder.iterdir() if path.is_dir()]
        for path in found:
            facts = path.lstat()
            is_file, is_folder = stat.S_ISREG(facts.st_mode), stat.S_ISDIR(facts.st_mode)
            linked = not (is_file or is_folder) or (is_file and facts.st_nlink > 1)
            if linked or facts.st_uid != os.geteuid():
                allowed = f"files of your own, none of them a link; remove {self.folder}"
                what = "a link" if linked else "another user's"
                _validate.fail(f"out={self.out}", allowed, f"{path.name}, {what}")

    @property
    def is_unfinished(self) -> bool:
        """Whether an earlier run left something to go on with."""
        return self._journal_path.exists() or self.release_folder.exists()

    @property
    def has_journal(self) -> bool:
        """Whether the key is still there; it is not once the release is sealed."""
        return self._journal_path.exists()

    def begin(self, journal: Journal) -> None:
        """Write the journal of a new run, durably, before anything is charged or drawn."""
        self._begun = True
        self._overwrite_key()
        for path in self.folder.iterdir():  # what an earlier run left is not this one's
            if path.name != _LOCK_NAME:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.write(journal)
        self.release_folder.mkdir()

    def write(self, journal: Journal) -> None:
        """Replace the journal, durably."""
        write_durably(self._journal_path, journal.model_dump_json().encode(), mode=0o600)

    def abandon(self) -> None:
        """Forget a run that has drawn nothing yet."""
        shutil.rmtree(self.release_folder, ignore_errors=True)
        self._journal_path.unlink()

    def read(self, context: str) -> Journal:
        """Read the journal of an earlier run; it must belong to the same plan and records.

        Raises:
            InvalidInputError: Another plan, other records, another format, or other versions of libraries that
                the bits depend on.

        """
        self._begun = True
        content = self._journal_path.read_bytes()
        self._check_format(content)
        journal = Journal.from_json(content, position=JOURNAL_NAME)
        self._check_context(journal, context)
        here = library_versions()
        for name, begun in sorted(journal.libraries.items()):
            if here.get(name) != begun:
                allowed = f"{name} {begun}, with which it was begun"
                _validate.fail(f"resuming {self.out}", allowed, here.get(name))
        self.release_folder.mkdir(exist_ok=True)
        return journal

    def write_sealed(self, sealed: Sealed) -> None:
        """Keep what the run must know without its key, durably."""
        write_durably(self._sealed_path, sealed.model_dump_json().encode(), mode=0o600)

    def read_sealed(self, context: str) -> Sealed:
        """Read what was kept of a run whose key is gone; as :meth:`read` does."""
        self._begun = True
        if not self._sealed_path.exists():
            allowed = f"the version of privmix that began it, or a new start without {self.folder}"
            _validate.fail(f"resuming {self.out}", allowed, "this one, which keeps more of a run")
        sealed = Sealed.from_json(self._sealed_path.read_bytes(), position=SEALED_NAME)
        self._check_context(sealed, context)
        return sealed

    def _check_context(self, facts: RunFacts, context: str) -> None:
        if facts.context != context:
            allowed = "the plan and the records it was begun with"
            _validate.fail(f"resuming {self.out}", allowed, "others")

    def _check_format(self, content: bytes) -> None:
        try:
            found = json.loads(content)["format_version"]
        except (ValueError, TypeError, KeyError):  # no journal: its reader says so
            return
        if found != FORMAT_VERSION:
            allowed = (
                f"the version of privmix that began it, of format {found}, which can finish it"
            )
            _validate.fail(f"resuming {self.out}", allowed, f"this one, of format {FORMAT_VERSION}")

    def destroy_journal(self) -> None:
        """Take the journal out of use, then overwrite the key and remove it; may be repeated."""
        if self._journal_path.exists():
            self._journal_path.rename(self._doomed_path)
            sync(self.folder)
        self._overwrite_key()

    def _overwrite_key(self) -> None:
        doomed = self._doomed_path
        if doomed.exists():
            with doomed.open("r+b") as file:
                file.write(bytes(doomed.stat().st_size))
                file.flush()
                os.fsync(file.fileno())
            doomed.unlink()
            sync(self.folder)

    def publish(self) -> None:
        """Let the finished release appear under its name, in one step."""
        self.release_folder.rename(self.out)
        sync(self.out.parent)


@dataclass(frozen=True)
class RunTerms:
    """Where a run makes its folder, whether it is resumed, and how it is charged.

    Attributes:
        out: The folder, which :func:`check_out` accepts.
        resume: Go on with a run that was cut off.
        charge: Charges the run, by its name, before the key is drawn, and whenever it is resumed;
            told the digest before the folder gets its name.
        test_seed: A key for tests.

    """

    out: Path
    resume: bool = False
    charge: Charge | None = None
    test_seed: int | None = None


def make_once(
    terms: RunTerms,
    begun: Journal,
    make: Callable[[RunFolder, Journal], str],
    finish: Callable[[RunFolder], None],
    *,
    prepare: Callable[[RunFolder], None] | None = None,
) -> None:
    """Make a release folder in a run that is charged once, and gives the same bits if resumed.

    Whatever cuts a run off, one of the same arguments with ``resume`` goes on: the charge comes
    before the key, the key before the first draw, the seal after the last file, the end of the key
    after the seal, and the folder's name last.

    At each such point the run knows its plan and records, its name in a ledger, and whether one is
    charged: by the journal, and once that is gone by ``Sealed``, which is on the disk before and goes
    after the folder has its name. So every ledger that a call names, on resuming too, has admitted and
    charged the run before the folder gets its name; where it refuses, the run stays as it is.

    Args:
        terms: Where the folder goes, whether a run is resumed, and how it is charged.
        begun: The journal of a run that starts.
        make: Writes the files that are not there yet and seals the folder, given the key; returns
            the certificate's digest. It is called again if the run was cut off before the end of the
            key.
        finish: Checks the sealed folder without the key; called again if the run was cut off.
        prepare: Refuses, before the charge, what cannot be made; called again on resuming.

    Raises:
        InvalidInputError: Nothing to resume, or something and no ``resume``; other plan or records
            than the run was begun with; a charge that is refused. Nothing is drawn then.

    """
    out, charge = terms.out, terms.charge
    with RunFolder(out) as run:
        check_out(out)  # again: another run may just have finished
        new = not run.is_unfinished
        if not new and not terms.resume:
            allowed = f"resume (--resume), or a new start after removing {run.folder}"
            _validate.fail(f"out={out}", allowed, "a new run beside one that was cut off")
        if new and terms.resume:
            _validate.fail(f"out={out}", "a run that was cut off", _validate.NOTHING_TO_RESUME)
        if new:
            run.begin(begun.model_copy(update={"charged": charge is not None}))
        if run.has_journal:
            try:
                journal = run.read(begun.context)
                if prepare is not None:
                    prepare(run)
                journal = _with_key(run, journal, terms)
            except _validate.InvalidInputError:
                if new:  # refused: nothing is charged, and nothing is drawn
                    run.abandon()
                raise
            sealed = journal.sealed(make(run, journal))
        else:
            sealed = run.read_sealed(begun.context)
            _charge(run, sealed, terms)
            sealed = sealed.model_copy(update={"charged": charge is not None})
        run.write_sealed(sealed)
        if charge is not None:
            charge.sealed(sealed.run_id, sealed.digest)
        run.destroy_journal()
        remove_unfinished(run.release_folder)  # a signature, say
        finish(run)
        run.publish()


def _with_key(run: RunFolder, journal: Journal, terms: RunTerms) -> Journal:
    """Charge a run; then draw its key, once."""
    _charge(run, journal, terms)
    test_seed = terms.test_seed
    if terms.charge is not None and not journal.charged:  # first named on resuming
        journal = journal.model_copy(update={"charged": True})
        run.write(journal)
    if journal.secret is not None:
        return journal
    secret = fresh_secret() if test_seed is None else guessable_secret(test_seed)
    drawn = {"secret": secret.hex(), "private": journal.private and test_seed is None}
    journal = journal.model_copy(update=drawn)
    run.write(journal)
    return journal


def _charge(run: RunFolder, facts: RunFacts, terms: RunTerms) -> None:
    """Charge a run, once by its name however often it is resumed."""
    if terms.charge is None:
        if facts.charged:
            _validate.fail(f"resuming {run.out}", "the ledger it was begun with", "none")
        return
    if not facts.private or terms.test_seed is not None:
        allowed = "no ledger for a run with a test seed or for research, which protects nobody"
        _validate.fail("ledger", allowed, "one")
    terms.charge(facts.run_id)


def lock_folder(folder: Path, out: Path) -> int:
    """Make a private folder beside ``out``, for its owner alone, and keep other runs out of it.

    Returns a descriptor, to be closed when the folder is no longer used.

    Raises:
        InvalidInputError: A path that cannot be written to, or another run that has the folder.

    """
    path = folder / _LOCK_NAME
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        check_private(folder, out)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        _validate.fail(f"out={out}", "a path in a writable folder", error.strerror)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The run that had it may have removed the folder meanwhile, and a third begun in a new one.
        held = path.exists() and os.path.samestat(os.fstat(lock), path.stat())
    except OSError:
        held = False
    if not held:
        os.close(lock)
        _validate.fail(f"out={out}", "one run at a time", "another one in progress")
    return lock


def check_private(folder: Path, out: Path) -> None:
    """Refuse a folder that others can see into or have prepared, before anything in it is looked at.

    What is in a folder that is the owner's alone was put there by the owner; so its files are trusted
    but for damage, and none is opened through a link.

    Args:
        folder: A folder beside ``out``; nothing is refused if there is none.
        out: What the error names.

    """
    try:
        facts = folder.lstat()
    except FileNotFoundError:
        return
    position, remedy = f"out={out}", f"remove {folder}, or choose another --out"
    if not stat.S_ISDIR(facts.st_mode):
        received = "a symbolic link" if stat.S_ISLNK(facts.st_mode) else "a file"
        _validate.fail(position, f"a folder of your own at {folder}; {remedy}", received)
    if facts.st_uid != os.geteuid():
        _validate.fail(position, f"a folder of your own at {folder}; {remedy}", "another user's")
    if facts.st_mode & 0o077:
        received = f"mode {stat.S_IMODE(facts.st_mode):03o}, which lets others in"
        _validate.fail(position, f"a folder {folder} of mode 700; {remedy}", received)


def check_out(out: str | Path) -> Path:
    """Return the absolute path of a release folder that can be made, or fail."""
    try:
        return _free_path(out)
    except OSError as error:  # a name that is too long, a folder that is shut
        _validate.fail(f"out={out}", "a path in a writable folder", error.strerror)


def _free_path(out: str | Path) -> Path:
    path = Path(out).absolute()
    free = "a folder that does not exist yet or is empty"
    if path.is_symlink():
        _validate.fail(f"out={out}", free, "a symbolic link")
    if path.exists() and not path.is_dir():
        _validate.fail(f"out={out}", free, "a file")
    if path.is_dir() and any(path.iterdir()):
        _validate.fail(f"out={out}", free, "a folder with files in it")
    if not path.parent.is_dir():
        _validate.fail(f"out={out}", "a path in an existing folder", "no such folder")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        _validate.fail(f"out={out}", "a path in a writable folder", "one that is not writable")
    return path
