"""Reads somebody's `trtllm-serve` command, or the file that it is given, back into an EngineConfig."""

from __future__ import annotations

from pathlib import Path

from tuner.domain.engine import ENV_PREFIX, EngineConfig, Setting, Value
from tuner.engines.trtllm_config import read_yaml
from tuner.errors import FlagError, SpaceError
from tuner.facts.flags import FlagTable, flag_table
from tuner.facts.located import load_document
from tuner.inspect.command import ReadCommand, parse_value, refuse_missing
from tuner.inspect.issue import Word
from tuner.inspect.server import find_engine
from tuner.inspect.shell import read_shell

_ENGINE = "trtllm"
_FILE_OPTIONS = ("--config", "--extra_llm_api_options")
_SET_BY_LLMTUNE = ("host", "port", "served_model_name", "revision", "log_level")
_ENV = ("TRTLLM_", "TLLM_")


def read_trtllm_baseline(text: str, *, version: str) -> ReadCommand:
    """Read a baseline: a command in one string, a script that holds one, or the YAML of `--config` alone.

    Raises:
        SpaceError: no `trtllm-serve` command in it, or a file that cannot be read.
        FlagError: a setting that this version does not have, or one that is set twice.

    """
    path = Path(text)
    if path.suffix in (".yaml", ".yml"):
        return _config(version, None, read_yaml(load_document(path).data, version), ())
    is_file = "\n" not in text and len(text) < 1000 and path.is_file()
    if not is_file:
        refuse_missing(text, "trtllm-serve")
    where = str(path) if is_file else "--baseline"
    return parse_trtllm(_text_of(path) if is_file else text, version=version, where=where,
                        folder=path.parent if is_file else Path())


def parse_trtllm(text: str, *, version: str, where: str, folder: Path) -> ReadCommand:
    """Read shell text with a `trtllm-serve` command; a relative path of its file counts from `folder`.

    Raises:
        SpaceError: no `trtllm-serve` command in it.
        FlagError: a setting that this version does not have, or one that is set twice.

    """
    script = read_shell(text)
    if script.problems:
        raise SpaceError(f"{where}:{script.problems[0].line}: {script.problems[0].message}")
    for command in script.commands:
        found = find_engine(command.words)
        if found is not None and found.entry == "trtllm-serve":
            settings, model, ignored = _options(found.args, version, folder)
            for name, word in {**script.exported, **command.env}.items():
                if name.startswith(_ENV):
                    settings[ENV_PREFIX + name] = word.text
            return _config(version, model, settings, ignored)
    raise SpaceError(
        f"{where}: no `trtllm-serve` command in it", hint='e.g. --baseline "trtllm-serve MODEL --max_batch_size 64"'
    )


def _options(
    words: list[Word], version: str, folder: Path
) -> tuple[dict[str, Value], str | None, tuple[str, ...]]:
    table = flag_table(_ENGINE, version)
    spoken: dict[str, Value] = {}
    written: dict[str, Value] = {}
    model: str | None = None
    ignored: list[str] = []
    waiting = [word.text for word in reversed(words)]
    while waiting:
        word = waiting.pop()
        if not word.startswith("-"):
            model = model if word == "serve" or model is not None else word
            continue
        name, equals, value = word.partition("=")
        if name in _FILE_OPTIONS:
            written = _file(folder / (value if equals else _next(name, waiting)), version)
            continue
        flag = table.require("--" + name.removeprefix("--no-") if name == "--no-telemetry" else name)
        if flag.kind == "bool":
            parsed: Value = not name.startswith("--no-")
        else:
            parsed = parse_value(flag, value if equals else _next(name, waiting))
        if flag.name in _SET_BY_LLMTUNE:
            ignored.append(name)
        else:
            spoken[flag.name] = parsed
    _refuse_twice(table, spoken, written)
    settings = {name: value for name, value in {**spoken, **written}.items() if name not in _SET_BY_LLMTUNE}
    return settings, None if model is None or model.startswith("$") else model, tuple(ignored)


def _refuse_twice(table: FlagTable, spoken: dict[str, Value], written: dict[str, Value]) -> None:
    for name in sorted(spoken.keys() & written.keys()):
        if spoken[name] != written[name]:
            raise FlagError(
                f"{table.shown(name)} is set twice: {spoken[name]} as an option and {written[name]} in the file, "
                "which silently wins",
                hint="keep one of them",
            )


def _file(path: Path, version: str) -> dict[str, Value]:
    return read_yaml(load_document(path).data, version)


def _next(name: str, waiting: list[str]) -> str:
    if not waiting or waiting[-1].startswith("--"):
        raise FlagError(f"{name} needs a value")
    return waiting.pop()


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpaceError(f"{path}: cannot be read: {error}") from None


def _config(version: str, model: str | None, values: dict[str, Value], ignored: tuple[str, ...]) -> ReadCommand:
    settings = tuple(Setting(flag=flag, value=value, source="baseline") for flag, value in values.items())
    return ReadCommand(
        model=model, config=EngineConfig(engine=_ENGINE, version=version, settings=settings), ignored=ignored
    )
