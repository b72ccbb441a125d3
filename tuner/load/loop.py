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
    """Keep the garbage collector from pausing the timing loop."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
