"""How a command ends when it is stopped: by Ctrl-C, by SIGTERM, by a full disk."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_REMINDER_SECONDS = 1.0


class Stopped(BaseException):
    """A signal asks the command to end; what it has begun is left in order on the way out.

    Not a ``KeyboardInterrupt``: of that the parser of the command line would make a silent exit.

    Attributes:
        signum: The signal.

    """

    def __init__(self, signum: int) -> None:
        super().__init__(_SIGNALS.get(signal.Signals(signum), "stopped"))
        self.signum = signum

    @property
    def exit_status(self) -> int:
        """What a shell reports for a command that a signal has ended: 130 or 143."""
        return 128 + self.signum


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let the first signal raise :class:`Stopped`, and a second one end the process at once.

    Where the first one arrives, a library may swallow what it raises: Python itself does so in callbacks
    of weak references, of which each import of a module runs one. So it is raised again each second in
    which nothing is ending.
    """

    def stop(signum: int, frame: FrameType | None) -> None:
        for known in _SIGNALS:
            signal.signal(known, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, lambda *_: None if _is_stopping() else stop(signum, None))
        signal.setitimer(signal.ITIMER_REAL, _REMINDER_SECONDS, _REMINDER_SECONDS)
        raise Stopped(signum)

    before = {known: signal.getsignal(known) for known in (*_SIGNALS, signal.SIGALRM)}
    try:
        for known in _SIGNALS:
            if before[known] is not signal.SIG_IGN:  # as nohup and shells want it in the background
                signal.signal(known, stop)
    except ValueError:  # not in the main thread: signals are not ours
        before = {}
    try:
        yield
    finally:
        if before and signal.getsignal(signal.SIGALRM) is not before[signal.SIGALRM]:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for known, handler in before.items():
            signal.signal(known, handler)


def _is_stopping() -> bool:
    """Whether some code handles a :class:`Stopped` now, or what has come up meanwhile; or a generator ends."""
    error = sys.exception()
    while error is not None and not isinstance(error, Stopped | GeneratorExit):
        error = error.__context__
    return error is not None


def what_is_left(error: BaseException) -> str:
    """Return what parts of the command have noted of what they keep, and how to go on."""
    notes = getattr(error, "__notes__", ())
    return "; ".join(notes) or "nothing was begun, and what an earlier run has left stays as it was"
