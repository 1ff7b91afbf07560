"""How a command ends when it is stopped: by Ctrl-C, by SIGTERM, by a full disk."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


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
    """Let the first signal raise :class:`Stopped`, and a second one end the process at once."""

    def stop(signum: int, frame: FrameType | None) -> None:
        for known in _SIGNALS:
            signal.signal(known, signal.SIG_DFL)
        raise Stopped(signum)

    before = {known: signal.getsignal(known) for known in _SIGNALS}
    try:
        for known in _SIGNALS:
            if before[known] is not signal.SIG_IGN:  # as nohup and shells want it in the background
                signal.signal(known, stop)
    except ValueError:  # not in the main thread: signals are not ours
        before = {}
    try:
        yield
    finally:
        for known, handler in before.items():
            signal.signal(known, handler)


def what_is_left(error: BaseException) -> str:
    """Return what parts of the command have noted of what they keep, and how to go on."""
    notes = getattr(error, "__notes__", ())
    return "; ".join(notes) or "nothing is left behind that another run would go on from"
