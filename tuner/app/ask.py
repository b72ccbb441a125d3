"""What a user can ask of `optimize`, from options and from a study file, before anything is resolved."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections import Counter
from pathlib import Path

from pydantic import Field, ValidationError

from tuner.domain.engine import plain
from tuner.domain.record import Stated
from tuner.domain.workload import MOST_REQUESTS
from tuner.errors import UsageError
from tuner.facts.located import load_document

OPTION = "option"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern})+")
_LONGEST = 366 * 86400
_DURATION_HINT = "write 90s, 20m, 2h or 1h30m"


class Ask(Stated):
    """Every value as it was given; None is not given. The keys are those of a study file."""

    model: str | None = None
    model_name: str | None = None
    engine: str | None = None
    engine_command: str | None = None
    image: str | None = None
    space: str | None = None
    set: tuple[str, ...] = ()
    workload: str | None = None
    requests: int | None = Field(default=None, ge=1, le=MOST_REQUESTS)
    slo: str | None = None
    objective: str | None = None
    baseline: str | None = None
    trials: int | None = Field(default=None, ge=1, le=10_000)
    budget: str | None = None
    finalists: int | None = Field(default=None, ge=1, le=100)
    verify_rounds: int | None = Field(default=None, ge=2, le=100)
    start_timeout: str | None = None
    max_failures: int | None = Field(default=None, ge=1, le=10_000)
    gpu_hours: float | None = Field(default=None, gt=0, le=1e7)
    soak: str | None = None
    accept_busy: bool | None = None
    price: float | None = Field(default=None, gt=0, le=1e6)
    sampler: str | None = None
    warm_start: str | None = None
    gpu: str | None = None
    engine_version: str | None = None
    study: str | None = None
    storage: str | None = None
    out: str | None = None
    seed: int | None = Field(default=None, ge=0, lt=2**32)


def merge(options: Ask, study_file: Path | None) -> tuple[Ask, dict[str, str]]:
    """Lay the options over the study file, and say where each value came from.

    Paths in a study file are relative to it.

    Raises:
        SpaceError: a study file that is wrong, with file and line.

    """
    named = Counter(text.partition("=")[0] for text in options.set)
    twice = [name for name, count in named.items() if count > 1]
    if twice:
        raise UsageError(f"--set {twice[0]} is given twice", hint="say each setting once")
    sources = {name: OPTION for name in options.model_fields_set if getattr(options, name) not in (None, ())}
    if study_file is None:
        return options, sources
    document = load_document(study_file)
    if not isinstance(document.data, dict):
        raise document.error((), "a study file is a mapping of the options of optimize")
    raw = {str(key).replace("-", "_"): value for key, value in document.data.items()}
    raw.pop("schema_version", None)
    if isinstance(raw.get("set"), dict):
        raw["set"] = [f"{flag}={_text(value)}" for flag, value in raw["set"].items()]
    try:
        base = Ask.model_validate(raw)
    except ValidationError as error:
        raise document.invalid(error) from None
    values = base.model_dump(exclude_none=True)
    for name in ("space", "baseline", "workload", "model", "out", "warm_start"):
        text = values.get(name)
        beside = os.path.join(study_file.parent, text) if isinstance(text, str) else None  # noqa: PTH118
        if beside is not None and os.path.exists(beside):  # noqa: PTH110  (pathlib raises for what is too long)
            values[name] = beside
    for name in base.model_fields_set:
        sources.setdefault(name, f"{study_file.name}:{document.line((name,))}")
    given = {name: value for name, value in options.model_dump().items() if value not in (None, ())}
    if base.set and options.set:
        given["set"] = (*base.set, *options.set)
    return Ask.model_validate({**values, **given}), sources


def _text(value: object) -> str:
    if value is None:
        return "unset"
    if isinstance(value, (dict, list)):
        return json.dumps(value, sort_keys=True)
    return plain(value)


def command(ask: Ask) -> str:
    """Return the normalised command that asks the same: fixed order, names of files without their place."""
    words = ["llmtune", "optimize"]
    for name in Ask.model_fields:
        value = getattr(ask, name)
        if name in ("engine_command", "storage", "out", "warm_start") or value in (None, ()):
            continue
        option = f"--{name.replace('_', '-')}"
        values = value if isinstance(value, tuple) else (value,)
        for item in values:
            text = str(item)
            is_path = name in ("model", "space", "baseline", "workload") and text.startswith(("/", "~", "../"))
            words += [option, shlex.quote(Path(text).name if is_path else text)]
    return " ".join(words)


def seconds(text: str, option: str) -> float:
    """Read a duration such as `90s`, `20m`, `2h` or `1h30m`.

    Raises:
        UsageError: not a duration.

    """
    plain = text.strip().lower()
    if not _DURATION.fullmatch(plain):
        raise UsageError(f"{option} {text!r} is not a duration", hint=_DURATION_HINT)
    total = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(plain))
    if total <= 0:
        raise UsageError(f"{option} {text!r} is no time at all", hint=_DURATION_HINT)
    if total > _LONGEST:
        raise UsageError(f"{option} {text!r} is longer than a year", hint=_DURATION_HINT)
    return total
