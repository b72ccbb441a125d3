"""Reads the server's metrics and the machine once a second while a load runs, from a thread of its own."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

import psutil

from tuner.app.scrape import scrape
from tuner.domain.bench import Reading
from tuner.engines.base import Engine
from tuner.runtime.host import memory_available_bytes
from tuner.runtime.telemetry import telemetry

PERIOD_S = 1.0
_MOST = 4000


class Watch:
    """A context: readings are taken while it is open. Each costs the server one scrape."""

    def __init__(self, url: str, engine: Engine | None, *, local: bool, period_s: float = PERIOD_S) -> None:
        self._url = url
        self._engine = engine
        self._local = local
        self._period_s = period_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self.readings: list[Reading] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        started = time.monotonic()
        psutil.cpu_percent()
        while not self._end.wait(self._period_s):
            self.readings.append(self._read(time.monotonic() - started))
            if len(self.readings) >= _MOST:  # a soak of hours: keep every second one, and read half as often
                del self.readings[::2]
                self._period_s *= 2

    def _read(self, at_s: float) -> Reading:
        text = scrape(self._url) if self._engine is not None else ""
        metrics = self._engine.server_metrics(text) if self._engine is not None else None
        return Reading.model_validate({
            "at_s": round(at_s, 3),
            "server": metrics or {},
            "gpus": telemetry() if self._local else (),
            "cpu_share": psutil.cpu_percent() / 100 if self._local else None,
            "memory_available_bytes": memory_available_bytes() if self._local else None,
        })
