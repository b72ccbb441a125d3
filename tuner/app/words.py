"""Settings in words, for events and plans."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.domain.engine import EngineConfig, Setting, Value, plain

ENGINE_DEFAULTS = "engine defaults"


def value_text(value: Value | None) -> str:
    """Return a value as people write it; None is the engine's own default."""
    if value is None:
        return "engine default"
    return plain(value)


def settings_text(config: EngineConfig, pins: Iterable[Setting] = ()) -> str:
    """Return the settings that are not pinned, e.g. `max-num-seqs=64 block-size=32`."""
    pinned = {(pin.flag, pin.value) for pin in pins}
    shown = [f"{s.flag}={value_text(s.value)}" for s in config.settings if (s.flag, s.value) not in pinned]
    return " ".join(shown) or ENGINE_DEFAULTS
