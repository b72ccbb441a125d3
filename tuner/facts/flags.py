"""The flags of every known release of an engine: which exist, what they take, what replaced them."""

from __future__ import annotations

import difflib
import json
import math
import re
from functools import cache
from typing import Any

from packaging.version import InvalidVersion, Version

from tuner.domain.engine import ENV_PREFIX, Value
from tuner.domain.json_text import parse_json
from tuner.domain.record import Record
from tuner.errors import EngineError, FlagError
from tuner.facts.read import data

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HUMAN_INT = re.compile(r"^(\d+(?:\.\d+)?)([kKmMgGtT]?)$")
_HUMAN = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Flag(Record):
    """One flag as one engine version has it.

    `kind`: int, float, bool, str, list, json, json_list or human_int (`8k`, `1M`). `low` and `high` are the ends of its
    range, where one is known. `status` is the engine's own word (`beta`, `prototype`, `deprecated`). `cli` are the
    options of the command line, for settings that also, or only (`where` is `cli`), stand there. `backend` is the only
    back end that takes it.
    """

    name: str
    kind: str
    choices: tuple[Value, ...] | None
    default: str | None
    negatable: bool
    aliases: tuple[str, ...]
    low: float | None = None
    high: float | None = None
    status: str | None = None
    where: str | None = None
    cli: tuple[str, ...] = ()
    backend: str | None = None
    note: str | None = None


class FlagTable:
    """The flags of one engine version, or the keys of its configuration file: names then have `_` and dots.

    Versions that were never read take the flags of the newest release below them; `exact` is False then.
    """

    def __init__(self, engine: str, version: str) -> None:
        self.engine = engine
        self.version = version
        try:
            self._data = data(f"{engine}/flags.json")
        except FileNotFoundError:
            raise EngineError(f"the flags of {engine} are not known", hint="no facts of it are here") from None
        self._keys = self._data.get("names") == "keys"
        self._at = parse_version(version)
        known = [Version(text) for text in self._data["versions"]]
        if self._at < known[0]:
            raise EngineError(
                f"{engine} {version} is older than the oldest release that llmtune knows ({known[0]})",
                hint=f"use {engine} {known[0]} or newer",
            )
        self.exact = self._at in known
        self.read_of = str(max(one for one in known if one <= self._at))
        """The release whose flags these are."""

    @property
    def doubt(self) -> str | None:
        """What to say of a release that was never read; None for those that were."""
        if self.exact:
            return None
        return f"{self.engine} {self.version} is not known here: its flags and defaults are taken from {self.read_of}"

    def find(self, name: str) -> Flag | None:
        """Return the flag of this name or alias (with or without dashes in front), if this version has it."""
        entry_name = self._canonical(name)
        entry = self._data["flags"].get(entry_name)
        if entry is None or not self._alive(entry):
            return None
        choices = self._latest(entry.get("choices", []))
        low, high = entry.get("range", (None, None))
        return Flag(
            low=low,
            high=high,
            status=entry.get("status"),
            where=entry.get("where"),
            cli=tuple(entry.get("cli", ())),
            backend=entry.get("backend"),
            note=entry.get("note"),
            name=entry_name,
            kind=self._latest(entry["kinds"]) or entry["kinds"][0][1],
            choices=tuple(choices) if choices else None,
            default=self._latest(entry["defaults"]),
            negatable=entry.get("negatable", False) and self._at >= Version(entry.get("negatable_since", "0")),
            aliases=tuple(entry.get("aliases", ())),
        )

    def require(self, name: str) -> Flag:
        """Return the flag, or explain why this version does not have it.

        Raises:
            FlagError: unknown, not yet there, or removed; with the replacement or the nearest names.

        """
        flag = self.find(name)
        if flag is not None:
            return flag
        shown = self.shown(name)
        entry = self._data["flags"].get(self._canonical(name))
        where = f"{self.engine} {self.version}"
        if entry is None:
            raise FlagError(f"{where} has no {'key' if self._keys else 'flag'} {shown}", hint=self._instead(name))
        since, until = entry.get("since"), entry.get("until")
        if since and self._at < Version(since):
            if entry.get("first_read"):
                raise FlagError(
                    f"{where} is not known to have {shown}; it was first read in {since}",
                    hint="a key that the engine does not know stops its start, so leave it out",
                )
            raise FlagError(
                f"{where} does not have {shown} yet; it came with {since}",
                hint=f"use {self.engine} {since} or newer, or leave the flag out",
            )
        replacement = entry.get("replacement")
        last = f"it was gone by {entry['gone_by']}" if "gone_by" in entry else f"{until} was the last release with it"
        raise FlagError(
            f"{where} no longer has {shown}; {last}",
            hint=f"instead: {replacement}" if replacement else "leave the flag out",
        )

    def check(self, name: str, value: Value) -> None:
        """Check that this version takes this value for this flag or environment variable.

        Raises:
            FlagError: unknown flag, wrong type or a value that is not among the choices.

        """
        if name.startswith(ENV_PREFIX):
            self._check_env(name.removeprefix(ENV_PREFIX))
            return
        flag = self.require(name)
        shown = self.shown(flag.name)
        problem = _type_problem(flag, value) or _range_problem(flag, value)
        if problem:
            raise FlagError(f"{shown} {problem}, not {json.dumps(value)}")
        if value is False and not flag.negatable:
            raise FlagError(
                f"{shown} cannot be switched off: {self.engine} {self.version} has no --no-{flag.name}",
                hint="leave it out, or to the engine (unset)",
            )
        chosen = value.split() if flag.kind == "list" and isinstance(value, str) else [value]
        if flag.choices and any(one not in flag.choices for one in chosen):
            raise FlagError(
                f"{self.engine} {self.version} does not take {shown} {value}",
                hint=f"one of: {', '.join(str(choice) for choice in flag.choices)}",
            )

    def _check_env(self, name: str) -> None:
        if not _VARIABLE.fullmatch(name):
            raise FlagError(f"{name!r} is no name of a variable", hint="write env:NAME=value")
        entry = self._data["env"].get(name)
        if entry is None:
            prefixes = tuple(self._data.get("env_prefixes", (self.engine.upper() + "_",)))
            if name.startswith(prefixes):
                near = difflib.get_close_matches(name, self._data["env"], n=3)
                raise FlagError(
                    f"{self.engine} {self.version} does not read the variable {name}",
                    hint=f"did you mean {', '.join(near)}?" if near else None,
                )
            return
        if not self._alive(entry):
            note = self._data["env_notes"].get(name)
            raise FlagError(
                f"{self.engine} {self.version} does not read the variable {name} (any more)",
                hint=note or f"it was read from {entry.get('since') or 'the start'} to {entry.get('until', 'now')}",
            )

    def shown(self, name: str) -> str:
        """Return the name as the engine's users write it: `--flag`, or the key of a configuration file."""
        canonical = self._canonical(name)
        return name if canonical.startswith("-") else canonical if self._keys else f"--{canonical}"

    @property
    def file_option(self) -> str:
        """The option that names the configuration file, for engines that take their settings from one."""
        return str(self._latest(self._data["file_option"]))

    def names(self) -> tuple[str, ...]:
        """Names of all flags that this version has."""
        return tuple(self._names())

    def _instead(self, name: str) -> str | None:
        """Say what may have been meant by an unknown name."""
        canonical = self._canonical(name)
        told: str | None = self._data.get("never", {}).get(canonical)
        if told is not None:
            return told
        names = self._names()
        inside = [one for one in names if one.rpartition(".")[2] == canonical] if self._keys else []
        near = inside or difflib.get_close_matches(canonical, names, n=3)
        return f"did you mean {', '.join(map(self.shown, near))}?" if near else None

    def _canonical(self, name: str) -> str:
        if self._keys:
            key = name.removeprefix("--").replace("-", "_")
            return _aliases(self.engine).get(f"--{key}", key)
        plain = name.replace("_", "-") if name.startswith("--") or not name.startswith("-") else name
        if plain.startswith("-") and not plain.startswith("--"):
            return _aliases(self.engine).get(plain, plain)
        plain = plain.removeprefix("--")
        return _aliases(self.engine).get(f"--{plain}", plain)

    def _names(self) -> list[str]:
        return [name for name, entry in self._data["flags"].items() if self._alive(entry)]

    def _alive(self, entry: dict[str, str | None]) -> bool:
        since, until = entry.get("since"), entry.get("until")
        return (since is None or self._at >= Version(since)) and (until is None or self._at <= Version(until))

    def _latest(self, history: list[list[Any]]) -> Any:  # noqa: ANN401  (choices, kinds and defaults share the form)
        current = None
        for version, value in history:
            if Version(str(version)) <= self._at or current is None:
                current = value
        return current


@cache
def flag_table(engine: str, version: str) -> FlagTable:
    """Return the flags of `engine` at `version`.

    Raises:
        EngineError: the engine is unknown, or the version is malformed or older than all that is known.

    """
    return FlagTable(engine, version)


def newest_version(engine: str) -> str:
    """Return the newest release of an engine whose flags are known."""
    return str(max(map(Version, data(f"{engine}/flags.json")["versions"])))


@cache
def _aliases(engine: str) -> dict[str, str]:
    table: dict[str, str] = {}
    for name, entry in data(f"{engine}/flags.json")["flags"].items():
        for alias in entry.get("aliases", ()):
            table[alias] = name
    return table


@cache
def parse_version(text: str) -> Version:
    """Read an engine version; a local part such as `+cpu` is dropped.

    Raises:
        EngineError: not a version.

    """
    try:
        return Version(Version(text).public)
    except InvalidVersion:
        raise EngineError(f"{text!r} is not an engine version", hint="versions look like 0.32.0") from None


def human_int(value: Value | None, *, scale: int = 1) -> int | None:
    """Read a count as vLLM does: `8k` is 8,000, `8K` is 8,192 (vllm/utils/argparse_utils.py); None when it is none.

    `scale` is the size of one, for sizes given in larger units.
    """
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return int(value * scale) if math.isfinite(value) else None
    match = _HUMAN_INT.match(value)
    return int(float(match[1]) * _HUMAN.get(match[2], 1) * scale) if match else None


_NO_COUNT = 2**63
"""No engine keeps a number as large as this."""


def _type_problem(flag: Flag, value: Value) -> str | None:
    """Say what kind of value the flag takes, when this is not one; engines' own parsers are often laxer."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    match flag.kind:
        case "bool":
            return None if isinstance(value, bool) else "is on or off (true or false)"
        case "int":
            return None if isinstance(value, int) and is_number else "takes a whole number"
        case "float":
            return None if is_number else "takes a number"
        case "human_int":
            ok = (isinstance(value, int) and is_number) or (isinstance(value, str) and _HUMAN_INT.match(value))
            auto = flag.name == "max-model-len" and value in ("auto", -1)
            return None if ok or auto else "takes a whole number, also as 8k or 1M"
        case "json" | "json_list":
            wanted, words = (dict, "object") if flag.kind == "json" else (list, "list such as [1, 2, 4]")
            return None if isinstance(value, str) and _is_json(value, wanted) else f"takes a JSON {words}"
        case _:
            return "takes a text" if isinstance(value, bool) else None


def _range_problem(flag: Flag, value: Value) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if abs(value) >= _NO_COUNT:
        return "is far below 2^63"
    if flag.low is not None and value < flag.low:
        return f"is at least {flag.low:g}"
    return f"is at most {flag.high:g}" if flag.high is not None and value > flag.high else None


def _is_json(text: str, wanted: type) -> bool:
    try:
        return isinstance(parse_json(text), wanted)
    except ValueError:
        return False
