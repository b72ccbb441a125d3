"""Search spaces: read from YAML, checked against the engine's flags, opened for one model and machine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import Field, ValidationError

from tuner.domain.engine import ENV_PREFIX, EngineConfig, Setting, Value, plain
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.domain.record import Record
from tuner.domain.space import Condition, SearchSpace, SpaceSetting
from tuner.engines import ENGINES
from tuner.errors import LlmtuneError, SpaceError
from tuner.facts.flags import flag_table, parse_version
from tuner.facts.located import Document, load_document

UNSET = "unset"
Choice = Value | None


class Closed(Record):
    """A setting, or one of its values, that is not searched here, and why."""

    flag: str
    value: Choice = None
    reason: str


class Dimension(Record):
    """One open dimension. None among the values leaves the flag to the engine."""

    flag: str
    values: tuple[Choice, ...]
    needs: dict[str, tuple[Value, ...]] = Field(default_factory=dict)
    why: str = ""


class OpenSpace(Record):
    """What can be searched for one model on one machine, on top of the pinned settings."""

    engine: str
    version: str
    pins: tuple[Setting, ...]
    dimensions: tuple[Dimension, ...]
    closed: tuple[Closed, ...]

    @property
    def size(self) -> int:
        """Number of combinations of values; conditions between settings make some of them equal."""
        total = 1
        for dimension in self.dimensions:
            total *= len(dimension.values)
        return total

    def config(self, choices: Mapping[str, Choice]) -> EngineConfig:
        """Build the configuration of one point. A setting whose `needs` do not hold is left out."""
        values: dict[str, Value] = {pin.flag: pin.value for pin in self.pins}
        values |= {flag: choice for flag, choice in choices.items() if choice is not None}
        chosen = {dimension.flag: dimension for dimension in self.dimensions}
        while True:
            unmet = [flag for flag in values if flag in chosen and not _holds(chosen[flag].needs, values)]
            if not unmet:
                break
            for flag in unmet:
                del values[flag]
        searched = [
            Setting(flag=flag, value=value, source="trial", why=chosen[flag].why)
            for flag, value in values.items()
            if flag in chosen
        ]
        return EngineConfig(engine=self.engine, version=self.version, settings=(*self.pins, *searched))

    def points(self) -> Iterator[dict[str, Choice]]:
        """Yield every combination of values, in a fixed order."""
        flags = [dimension.flag for dimension in self.dimensions]
        for values in itertools.product(*(dimension.values for dimension in self.dimensions)):
            yield dict(zip(flags, values, strict=True))

    def point_of(self, config: EngineConfig) -> dict[str, Choice] | None:
        """Return the point whose configuration this is, or None when it lies outside of the space."""
        choices: dict[str, Choice] = {}
        for dimension in self.dimensions:
            value = config.get(dimension.flag)
            if not any(type(value) is type(known) and value == known for known in dimension.values):
                return None
            choices[dimension.flag] = value
        return choices if self.config(choices).key == config.key else None


def load_space(path: Path, version: str) -> SearchSpace:
    """Read a search space and check each flag and value against this version of its engine.

    Raises:
        SpaceError: with file and line: unknown key or flag, empty domain, wrong type, wrong engine or version.

    """
    document = load_document(path)
    raw = document.data
    if not isinstance(raw, dict):
        raise document.error((), "a search space is a mapping with engine and settings")
    try:
        space = SearchSpace.model_validate({**raw, "settings": _with_lines(document, raw), "origin": path.name})
    except ValidationError as error:
        raise document.invalid(error) from None
    if space.engine not in ENGINES:
        raise document.error(("engine",), f"unknown engine {space.engine!r}", f"one of: {', '.join(ENGINES)}")
    _check_versions(document, ("versions",), space.versions, version, space.engine)
    for index, setting in enumerate(space.settings):
        _check_setting(document, index, setting, space.engine, version)
    return space.model_copy(
        update={"settings": tuple(_with_own_names(setting, space.engine, version) for setting in space.settings)}
    )


def open_space(
    space: SearchSpace,
    *,
    version: str,
    model: ModelSpec,
    hardware: Hardware,
    pins: Sequence[Setting],
    left: Sequence[str],
) -> OpenSpace:
    """Leave open what this model, machine and engine version allow; `left` are flags that are left to the engine.

    Raises:
        SpaceError: a flag is open twice.

    """
    dimensions: list[Dimension] = []
    closed: list[Closed] = []
    pinned = {pin.flag for pin in pins} | set(left)
    for setting in space.settings:
        reason = "set by you" if setting.flag in pinned else unmet(setting.when, model, hardware, version)
        if reason is not None:
            closed.append(Closed(flag=setting.flag, reason=reason))
            continue
        values: list[Choice] = []
        for value in setting.values:
            condition = setting.values_when.get(choice_text(value))
            why_not = unmet(condition, model, hardware, version) if condition else None
            if why_not is None:
                values.append(value)
            else:
                closed.append(Closed(flag=setting.flag, value=value, reason=why_not))
        if values:
            dimensions.append(
                Dimension(flag=setting.flag, values=tuple(values), needs=setting.when.settings, why=setting.why)
            )
    doubled = {d.flag for d in dimensions if sum(other.flag == d.flag for other in dimensions) > 1}
    if doubled:
        raise SpaceError(
            f"{space.origin or 'the search space'}: {', '.join(sorted(doubled))} is open twice for this machine",
            hint="give the two entries conditions that exclude each other",
        )
    return OpenSpace(
        engine=space.engine, version=version, pins=tuple(pins), dimensions=tuple(dimensions), closed=tuple(closed)
    )


def unmet(condition: Condition, model: ModelSpec, hardware: Hardware, version: str) -> str | None:
    """Return the first part of a condition that does not hold here, in words; None when all of it holds."""
    have = hardware.capability
    if condition.hardware is not None and condition.hardware != hardware.kind:
        return f"needs {condition.hardware}, this machine is {hardware.kind}"
    if condition.min_capability is not None and (have is None or have < condition.min_capability):
        return f"needs compute capability {condition.min_capability}, the GPU has {have or 'none'}"
    if condition.min_devices is not None and hardware.devices < condition.min_devices:
        return f"needs {condition.min_devices} devices, there are {hardware.devices}"
    if condition.versions is not None and parse_version(version) not in SpecifierSet(
        condition.versions, prereleases=True
    ):
        return f"needs engine version {condition.versions}, this is {version}"
    lacking = [feature for feature in condition.cpu_features if feature not in hardware.cpu_features]
    if lacking:
        return f"needs a CPU with {', '.join(lacking)}"
    facts = {
        "moe": model.is_moe,
        "dense": not model.is_moe,
        "quantized": model.quantization is not None,
        "unquantized": model.quantization is None,
    }
    wrong = [word for word in condition.model if not facts[word]]
    return f"needs a model that is {', '.join(wrong)}" if wrong else None


def choice_text(value: Choice) -> str:
    """Return a value as it stands in a file: `unset`, `true`, `8`."""
    if value is None:
        return UNSET
    return plain(value)


def _holds(needs: Mapping[str, tuple[Value, ...]], values: Mapping[str, Value]) -> bool:
    """Whether every needed flag has one of its allowed values; `unset` allows it to be left to the engine."""
    return all(_allowed(values.get(flag, UNSET), allowed) for flag, allowed in needs.items())


def _allowed(value: Value, allowed: Sequence[Value]) -> bool:
    return any(type(value) is type(one) and value == one for one in allowed)


def _with_lines(document: Document, raw: dict[str, Any]) -> list[Any]:
    settings = raw.get("settings")
    if not isinstance(settings, list) or not settings:
        raise document.error(("settings",), "settings is a list of at least one flag with its values")
    prepared: list[Any] = []
    for index, entry in enumerate(settings):
        if not isinstance(entry, dict):
            raise document.error(("settings", index), "each setting is a mapping with flag and values")
        values = entry.get("values")
        if not isinstance(values, list) or not values:
            raise document.error(
                ("settings", index, "values"),
                f"the domain of {entry.get('flag', '?')} is empty; values is a list of at least one",
            )
        cleaned = [None if value == UNSET else value for value in values]
        if len({(type(value), value) for value in cleaned if not isinstance(value, (list, dict))}) != len(cleaned):
            raise document.error(("settings", index, "values"), "values are plain and each stands once")
        prepared.append({**entry, "values": cleaned, "line": document.line(("settings", index))})
        conditions = entry.get("values_when")
        if isinstance(conditions, dict):
            known = {choice_text(value) for value in cleaned}
            prepared[-1]["values_when"] = {choice_text(key): value for key, value in conditions.items()}
            for key in prepared[-1]["values_when"].keys() - known:
                raise document.error(
                    ("settings", index, "values_when"), f"{key} is not among the values of {entry.get('flag', '?')}"
                )
    return prepared


def _check_setting(document: Document, index: int, setting: SpaceSetting, engine: str, version: str) -> None:
    here: tuple[str | int, ...] = ("settings", index)
    if not _in_range(document, (*here, "when", "versions"), setting.when.versions, version):
        return
    if not setting.flag.startswith(ENV_PREFIX):
        _located(document, (*here, "flag"), flag_table(engine, version).require, setting.flag)
    for number, value in enumerate(setting.values):
        condition = setting.values_when.get(choice_text(value), Condition())
        key = (*here, "values_when", choice_text(value), "versions")
        if value is not None and _in_range(document, key, condition.versions, version):
            key = (*here, "values", number) if number else (*here, "flag")
            _located(document, key, ENGINES[engine].check, setting.flag, value, version)
    for flag, allowed in setting.when.settings.items():
        for value in allowed:
            if value != UNSET:
                _located(document, (*here, "when", "settings", flag), ENGINES[engine].check, flag, value, version)
    if all(value is None for value in setting.values):
        raise document.error((*here, "values"), f"{setting.flag} has no value besides unset")


def _located(
    document: Document, key: tuple[str | int, ...], check: Callable[..., object], *arguments: Value
) -> None:
    """Let a check say where in the file the flag or value stands that it refuses."""
    try:
        check(*arguments)
    except LlmtuneError as error:
        raise document.error(key, error.message, error.hint) from None


def _in_range(document: Document, key: tuple[str | int, ...], text: str | None, version: str) -> bool:
    return text is None or parse_version(version) in _specifier(document, key, text)


def _with_own_names(setting: SpaceSetting, engine: str, version: str) -> SpaceSetting:
    """Give flags the one name that rules and configurations know them by, whichever way they were written."""

    def own(flag: str) -> str:
        found = None if flag.startswith(ENV_PREFIX) else flag_table(engine, version).find(flag)
        return flag if found is None else found.name

    when = setting.when.model_copy(update={"settings": {own(flag): v for flag, v in setting.when.settings.items()}})
    return setting.model_copy(update={"flag": own(setting.flag), "when": when})


def _check_versions(document: Document, key: tuple[str, ...], text: str, version: str, engine: str) -> None:
    if text and parse_version(version) not in _specifier(document, key, text):
        raise document.error(
            key,
            f"this space is for {engine} {text}, the engine here is {version}",
            "copy it and adapt it, or use another engine version",
        )


def _specifier(document: Document, key: tuple[str | int, ...], text: str) -> SpecifierSet:
    try:
        return SpecifierSet(text, prereleases=True)
    except InvalidSpecifier:
        raise document.error(key, f"{text!r} is not a version range", 'write for example ">=0.17,<1"') from None
