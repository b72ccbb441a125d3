"""Configurations worth a launch before the sampler knows anything: the engine's own presets, and earlier winners."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from tuner.domain.engine import EngineConfig
from tuner.domain.plan import Plan
from tuner.errors import UsageError
from tuner.search.spaces import OpenSpace

PRESETS = ("performance-mode",)
"""Settings that are presets of the engine: each of their values is tried alone, so that a gain is one over them too."""
_MOST_FROM_BEFORE = 3


def recipes(space: OpenSpace, warm_start: str | None) -> tuple[EngineConfig, ...]:
    """Return what is tried after the defaults and the baseline, each once.

    Raises:
        UsageError: the earlier study cannot be read.

    """
    presets = [
        space.config({dimension.flag: value})
        for dimension in space.dimensions
        if dimension.flag in PRESETS
        for value in dimension.values
        if value is not None
    ]
    found = {config.key: config for config in (*_earlier(space, warm_start), *presets)}
    found.pop(space.config({}).key, None)
    return tuple(found.values())


def _earlier(space: OpenSpace, place: str | None) -> list[EngineConfig]:
    """Return what an earlier study verified, as far as this space has the same values; all of it is measured anew."""
    if place is None:
        return []
    path = Path(place)
    path = path / "plan.json" if path.is_dir() else path
    try:
        plan = Plan.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(
            f"--warm-start {place}: {error.strerror}", hint="name the folder of a study, or its plan.json"
        ) from None
    except ValidationError:
        raise UsageError(f"--warm-start {place} is not a plan", hint="name the folder of a study") from None
    if plan.study.engine.engine != space.engine:
        raise UsageError(
            f"--warm-start {place} is a study of {plan.study.engine.engine}, this one is of {space.engine}",
            hint="settings do not carry over between engines",
        )
    configs = [plan.config, *(arm.config for arm in plan.arms)]
    points = [
        {d.flag: config.get(d.flag) for d in space.dimensions if config.get(d.flag) in d.values} for config in configs
    ]
    return [space.config(point) for point in points][:_MOST_FROM_BEFORE]
