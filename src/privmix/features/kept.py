"""Features that a run extracts on the way to what it makes: private, and kept until it is through."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from privmix import _validate
from privmix.running.journal import check_private, lock_folder


@contextmanager
def kept_features(out: Path, tell: Callable[[str], None]) -> Iterator[Path]:
    """Yield the folder beside ``out``, readable by its owner alone, where a run keeps its features.

    No other run may use it meanwhile. It goes when the run is through. Where the run fails, what is
    in it stays for the next one, and the data holder is told, by ``tell`` or in a note of the error.
    """
    folder = out.parent / f".{out.name}.features"
    check_private(folder, out)
    found = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    others = [name for name in found if "features.parquet" not in name and name != "lock"]
    if others:
        allowed = f"a path beside which {folder.name} is free for features"
        _validate.fail(f"out={out}", allowed, "other files")
    lock = lock_folder(folder, out)
    try:
        yield folder
    except BaseException as error:
        if any(folder.glob("*.parquet")) or any(folder.glob(".*.parts/0*")):
            kept = (
                f"private features are kept in {folder}, for another run with the same --out; remove "
                "that folder if there will be none"
            )
            if isinstance(error, _validate.InvalidInputError):
                tell(kept)
            else:
                # Not what extracting to a file of its own would say.
                others = [n for n in getattr(error, "__notes__", ()) if str(folder) not in n]
                error.__notes__ = [*others, kept]
        else:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, _validate.InvalidInputError) and str(folder) in error.position:
            _validate.fail(f"out={out}", error.expected, error.got)
        raise
    else:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            tell(f"remove {folder}, which has private features in it")
    finally:
        os.close(lock)
