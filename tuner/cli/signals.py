"""Signals that end a command in order: servers are taken down and everything finished is kept."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """Treat SIGTERM and SIGHUP like Ctrl-C, and give a function that raises it again when it was lost.

    Python drops what a handler raises inside a finalizer or a callback of C code, so whoever works for long asks now
    and then. A signal that is ignored from the start, as under nohup, stays ignored.
    """
    came: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if not _in_finalizer(frame):
            raise KeyboardInterrupt

    def raise_again() -> None:
        if came:
            raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield raise_again
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_finalizer(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
