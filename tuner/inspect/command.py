"""Reads somebody's `vllm serve` command, script, config or compose file back into an EngineConfig."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuner.domain.engine import ENV_PREFIX, EngineConfig, Setting, Value
from tuner.domain.json_text import parse_json
from tuner.domain.record import Record
from tuner.errors import FlagError, SpaceError
from tuner.facts.flags import Flag, FlagTable, flag_table
from tuner.facts.located import load_document

_SERVE = re.compile(r"(?:^|[\s/])vllm\s+serve(?:\s|$)|vllm\.entrypoints\.openai\.api_server")
_SERVE_BY_VARIABLE = re.compile(r"^\s*(?:exec\s+)?\"?\$\{?\w+\}?\"?\s+serve(?:\s|$)")
_ALL_ARGUMENTS = re.compile(r"^\$(?:[@*]|\{(?:\w+\[)?[@*]\]?\})$")
_REDIRECTION = re.compile(r"^(?:\d|&)?(?:<|>>?)(?P<target>.*)$")
_IGNORED = {
    "host",
    "port",
    "served-model-name",
    "api-key",
    "uvicorn-log-level",
    "disable-log-stats",
    "enable-log-requests",
}
_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w*)=(.*)$", re.DOTALL)


class ReadCommand(Record):
    """What a command asks for: the model it serves, its settings, and what was left aside."""

    model: str | None
    config: EngineConfig
    ignored: tuple[str, ...]


def read_baseline(text: str, *, engine: str, version: str) -> ReadCommand:
    """Read a baseline: a command in one string, or the path of a file that holds one.

    Files: a shell script, a vLLM config YAML (`--config`), a Compose file.

    Raises:
        SpaceError: no serve command in it.
        FlagError: a flag that this version does not have, with its replacement.

    """
    path = Path(text)
    if _SERVE.search(text) is None and (path.suffix in (".yaml", ".yml", ".sh") or os.path.isfile(path)):  # noqa: PTH113
        return _read_file(path, engine, version)
    refuse_missing(text, "vllm serve")
    return parse_serve(_words(text, "--baseline"), engine=engine, version=version, where="--baseline")


def refuse_missing(text: str, command: str) -> None:
    """Check that a baseline of one word is not the name of a file that is not there.

    Raises:
        SpaceError: it can be nothing else.

    """
    if len(text.split()) == 1:
        raise SpaceError(f"--baseline {text[:200]}: no such file, and no `{command}` command in it",
                         hint=f'e.g. --baseline "{command} MODEL ...", or the path of a script')


def parse_serve(words: list[str], *, engine: str, version: str, where: str) -> ReadCommand:
    """Read the words of a serve command, environment assignments in front included.

    A model that only a shell variable names is not known here.

    Raises:
        SpaceError: no serve command.
        FlagError: unknown flags or values.

    """
    env, rest = _leading_env(words)
    arguments = _after_serve(rest, where)
    table = flag_table(engine, version)
    values: dict[str, Value] = {}
    ignored: list[str] = []
    model: str | None = None
    for name, value in _pairs(arguments, table):
        if name is None or name == "model":
            model = None if str(value).startswith("$") else str(value)
        elif name in _IGNORED:
            ignored.append(f"--{name}")
        else:
            table.check(name, value)
            values[name] = value
    for name, text in env.items():
        if name.startswith("VLLM_") and name != "VLLM_API_KEY":
            table.check(ENV_PREFIX + name, text)
            values[ENV_PREFIX + name] = text
    settings = tuple(Setting(flag=flag, value=value, source="baseline") for flag, value in values.items())
    config = EngineConfig(engine=engine, version=version, settings=settings)
    return ReadCommand(model=model, config=config, ignored=tuple(ignored))


def parse_value(flag: Flag, text: str) -> Value:
    """Turn the text of a value into the flag's kind; what does not fit stays a text, for the check to refuse."""
    match flag.kind:
        case "bool":
            return {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}.get(
                text.lower(), text
            )
        case "int" | "human_int" if re.fullmatch(r"[+-]?\d+", text):
            return int(text)
        case "float" if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
            return float(text)
        case _:
            return text


def _pairs(arguments: list[str], table: FlagTable) -> Iterator[tuple[str | None, Value]]:
    """Yield (flag, value); flag None is the positional model."""
    objects: dict[str, dict[str, Any]] = {}
    waiting = list(reversed(arguments))
    while waiting:
        word = waiting.pop()
        if not word.startswith("-") or word == "-":
            yield None, word
            continue
        if word.startswith("-O") and word != "-O":
            word = "--optimization-level=" + word[2:].removeprefix("=")
        name, _, attached = word.partition("=")
        base, dot, key = name.partition(".")
        flag, negated = _flag_of(table, base)
        if flag.kind == "bool" and not dot:
            if attached:
                raise FlagError(f"{word}: {name} takes no value", hint=f"write {name} or --no-{flag.name}")
            yield flag.name, not negated
            continue
        attached = attached or _next_value(name, waiting)
        whole = None if dot else _json_or_text(attached)
        if dot:
            _put(objects.setdefault(flag.name, {}), key.split("."), _json_or_text(attached))
        elif flag.kind == "json" and isinstance(whole, dict):
            objects[flag.name] = {**whole, **objects.get(flag.name, {})}
        elif flag.kind == "list":
            yield flag.name, " ".join([attached, *_more_values(waiting)])
        else:
            yield flag.name, parse_value(flag, attached)
    for name, entries in objects.items():
        yield name, json.dumps(entries, sort_keys=True)


def _next_value(name: str, waiting: list[str]) -> str:
    if not waiting or waiting[-1].startswith("--"):
        raise FlagError(f"{name} needs a value")
    return waiting.pop()


def _more_values(waiting: list[str]) -> Iterator[str]:
    while waiting and not waiting[-1].startswith("-"):
        yield waiting.pop()


def _put(entries: dict[str, Any], keys: list[str], value: Any) -> None:  # noqa: ANN401  (JSON is dynamic)
    """Set one value of a nested object, as `--flag.key.key value` does."""
    for key in keys[:-1]:
        inner = entries.setdefault(key, {})
        if not isinstance(inner, dict):
            inner = entries[key] = {}
        entries = inner
    entries[keys[-1]] = value


def _flag_of(table: FlagTable, name: str) -> tuple[Flag, bool]:
    if name.startswith("--no-"):
        positive = table.find(name.removeprefix("--no-"))
        if positive is not None and positive.kind == "bool":
            return positive, True
    return table.require(name), False


def _json_or_text(text: str) -> Any:  # noqa: ANN401  (JSON is dynamic)
    try:
        return parse_json(text)
    except ValueError:
        return text


def _leading_env(words: list[str]) -> tuple[dict[str, str], list[str]]:
    env: dict[str, str] = {}
    rest = list(words)
    while rest and (rest[0] in ("export", "env", "exec", "&&", ";") or _ASSIGNMENT.match(rest[0])):
        match = _ASSIGNMENT.match(rest.pop(0))
        if match:
            env[match[1]] = match[2].rstrip(";")
    return env, rest


def _after_serve(words: list[str], where: str) -> list[str]:
    for index, word in enumerate(words):
        before = words[index - 1].rsplit("/", 1)[-1] if index else ""
        if word == "serve" and (before == "vllm" or before.startswith("$")):
            return _until_the_shell(words[index + 1 :])
        if word == "vllm.entrypoints.openai.api_server":
            return _until_the_shell(words[index + 1 :])
    raise SpaceError(
        f"{where}: no `vllm serve` command in it", hint='e.g. --baseline "vllm serve MODEL --max-num-seqs 64"'
    )


def _until_the_shell(words: list[str]) -> list[str]:
    """Drop what the shell takes for itself: redirections, pipes and whatever comes after the command."""
    kept: list[str] = []
    waiting = list(reversed(words))
    while waiting:
        word = waiting.pop()
        redirection = _REDIRECTION.match(word)
        if word in ("&", "&&", "|", "||", ";"):
            break
        if redirection is not None:
            if not redirection["target"] and waiting:
                waiting.pop()
        elif not _ALL_ARGUMENTS.match(word):
            kept.append(word.removesuffix(";"))
        if word.endswith(";"):
            break
    return kept


def _words(text: str, where: str) -> list[str]:
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise SpaceError(f"{where}: cannot split the command: {error}") from None


def _read_file(path: Path, engine: str, version: str) -> ReadCommand:
    if path.suffix in (".yaml", ".yml"):
        return _read_yaml(path, engine, version)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpaceError(f"{path}: cannot be read: {error}") from None
    joined = text.replace("\\\n", " ")
    exports = re.findall(r"^\s*export\s+(VLLM_\w+=\S+)", joined, re.MULTILINE)
    array = re.search(r"^\s*\w+=\(\n(.*?)^\s*\)", joined, re.MULTILINE | re.DOTALL)
    for number, line in enumerate(joined.splitlines(), start=1):
        is_serve = _SERVE.search(line) or _SERVE_BY_VARIABLE.search(line)
        if is_serve and not line.lstrip().startswith("#"):
            words = _words(line, f"{path}:{number}")
            if array is not None:
                words += _words(array[1], str(path))
            return parse_serve([*map(_unquote, exports), *words], engine=engine, version=version, where=str(path))
    raise SpaceError(f"{path}: no `vllm serve` command in it")


def _unquote(assignment: str) -> str:
    return "".join(shlex.split(assignment))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _read_yaml(path: Path, engine: str, version: str) -> ReadCommand:
    document = load_document(path)
    raw = document.data
    if not isinstance(raw, dict):
        raise document.error((), "neither a vLLM config nor a Compose file")
    if isinstance(raw.get("services"), dict):
        for name, service in raw["services"].items():
            command = service.get("command") if isinstance(service, dict) else None
            if command and "vllm" in str(service.get("image", "")):
                if not isinstance(command, (str, list)):
                    raise document.error(("services", name, "command"), "a command is a text or a list")
                words = _words(command, str(path)) if isinstance(command, str) else [str(word) for word in command]
                words = [word.replace("$$", "$") for word in words]
                env = service.get("environment") or {}
                lines = [f"{key}={value}" for key, value in env.items()] if isinstance(env, dict) else _list(env)
                assigned = [line for line in map(str, lines) if line.startswith("VLLM_") and "=" in line]
                return parse_serve(
                    [*assigned, "vllm", "serve", *words], engine=engine, version=version, where=f"{path}: {name}"
                )
        raise document.error(("services",), "no service with a vLLM image and a command")
    words = ["vllm", "serve"]
    for key, value in raw.items():
        name = "--" + str(key).replace("_", "-")
        if value is True:
            words.append(name)
        elif value is False:
            words.append("--no-" + name.removeprefix("--"))
        elif isinstance(value, dict):
            words += [name, json.dumps(value, sort_keys=True)]
        elif isinstance(value, list):
            words += [name, *map(str, value)]
        else:
            words += [name, str(value)]
    return parse_serve(words, engine=engine, version=version, where=str(path))
