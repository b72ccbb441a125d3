"""The launchers by name."""

from __future__ import annotations

from collections.abc import Callable

from tuner.runtime.base import Launcher
from tuner.runtime.process import ProcessLauncher

LAUNCHERS: dict[str, Callable[[], Launcher]] = {ProcessLauncher.name: ProcessLauncher}
