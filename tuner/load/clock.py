"""An alarm that rings on time: event loops round timers to milliseconds, which every open-loop TTFT would show."""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import sys
from collections.abc import Callable
from time import monotonic_ns

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
_ABSOLUTE = 1


class Alarm:
    """Calls back at a moment of CLOCK_MONOTONIC: by a timer of the kernel on Linux, elsewhere by the loop's own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        self._fd = -1
        if self._libc is not None:
            self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._fd >= 0:
            loop.add_reader(self._fd, self._ring)

    def set(self, due_ns: int) -> None:
        """Ring at `due_ns` (`time.monotonic_ns`), at once when that is past; replaces what was set before."""
        if self._fd < 0 or self._libc is None:
            self._loop.call_later(max(0.0, (due_ns - monotonic_ns()) / 1e9), self._callback)
            return
        when = struct.pack("@4l", 0, 0, *divmod(max(1, due_ns), 1_000_000_000))
        self._libc.timerfd_settime(self._fd, _ABSOLUTE, when, None)

    def close(self) -> None:
        """Give the timer back."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _ring(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # set anew since it rang
        self._callback()
