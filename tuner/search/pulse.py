"""Signs of life of running trials, for the other machines that work on the same storage."""

from __future__ import annotations

import contextlib
import threading

import optuna

from tuner.search.owner import BEAT_S, now_s
from tuner.search.storage import unusable

SIGN = "alive"
"""The user attribute: seconds since the epoch."""
_PATIENCE_S = 5.0
"""How long a stamp that is being written is waited for at the end."""


class Pulse:
    """Stamps every trial that it was given, again and again, until it is taken away.

    A storage that does not answer is no reason to end a trial: whoever stores its outcome will say so.
    """

    def __init__(self, every_s: float = BEAT_S) -> None:
        self._every_s = every_s
        self._beating: dict[int, optuna.trial.Trial] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, trial: optuna.trial.Trial) -> None:
        """Stamp this trial from now on."""
        self._beating[trial.number] = trial
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat, name="signs of life", daemon=True)
            self._thread.start()

    def end(self, number: int) -> None:
        """Stamp it no more."""
        self._beating.pop(number, None)

    def close(self) -> None:
        """Stop, and wait for a stamp that is being written."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(timeout=_PATIENCE_S)
            self._thread = None

    def _beat(self) -> None:
        while not self._over.wait(self._every_s):
            for trial in tuple(self._beating.values()):
                with contextlib.suppress(*unusable()):
                    trial.set_user_attr(SIGN, now_s())
