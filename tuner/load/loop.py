"""The event loop that measures."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
from collections.abc import Callable, Iterator


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's event loop where it is installed (it halves the CPU per token), else asyncio's."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop
    import uvloop  # noqa: PLC0415

    return uvloop.new_event_loop


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Keep the garbage collector from pausing the timing loop.

    What a request leaves behind is freed by reference counts; only a closed connection and its parser hold each other,
    so memory grows by the records, which are kept anyway, and by about a kilobyte for each connection.
    """
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
