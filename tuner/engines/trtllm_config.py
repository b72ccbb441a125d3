"""The YAML file of trtllm-serve: settings by dotted names to text, and back.

The engine takes a file with one unknown key for a mistake and does not start, lets the file win over its own options,
and takes a number for what its key says; so each setting stands in one place, under the one name that it has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from tuner.domain.engine import Setting, Value
from tuner.domain.json_text import parse_json
from tuner.errors import FlagError
from tuner.facts.flags import Flag, FlagTable, flag_table

NULL = "null"
_ENGINE = "trtllm"


def yaml_text(settings: Iterable[Setting], version: str) -> str:
    """Return the file of these settings, sections sorted; nothing when there is none.

    Raises:
        FlagError: a section is set as a whole and in parts.

    """
    table = flag_table(_ENGINE, version)
    tree: dict[str, Any] = {}
    for setting in settings:
        section, dot, key = setting.flag.partition(".")
        value = _plain(table.require(setting.flag), setting.value)
        inside = tree.setdefault(section, {}) if dot else tree
        if not isinstance(inside, dict) or (not dot and section in tree):
            raise FlagError(
                f"{section} is set as a whole and in parts ({setting.flag})", hint="set either the one or the other"
            )
        inside[key if dot else section] = value
    return yaml.safe_dump(tree, sort_keys=True, allow_unicode=True) if tree else ""


def read_yaml(document: object, version: str) -> dict[str, Value]:
    """Return the settings of a parsed file by their dotted names.

    Raises:
        FlagError: not a mapping, or a key or value that this version does not take, with what may have been meant.

    """
    if not isinstance(document, Mapping):
        kind = "a list" if isinstance(document, list) else "a text"
        raise FlagError(
            f"the file of trtllm-serve is a mapping of keys, not {kind}", hint="write key: value lines"
        )
    table = flag_table(_ENGINE, version)
    values: dict[str, Value] = {}
    for key, value in document.items():
        values |= _read_key(table, str(key), value)
    return values


def _read_key(table: FlagTable, key: str, value: object) -> dict[str, Value]:
    sections = {name.partition(".")[0] for name in table.names() if "." in name}
    if key in sections and isinstance(value, Mapping):
        inside = [_read_key(table, f"{key}.{part}", one) for part, one in value.items()]
        return {name: one for found in inside for name, one in found.items()}
    flag = table.find(key)
    if value is None and (key in sections or flag is not None) and (flag is None or flag.choices != (NULL,)):
        return {}  # the engine's default, said aloud
    if key in sections and value is not None:
        raise FlagError(f"{key} is a section with keys of its own, not {value!r}")
    if flag is None or flag.name != key or flag.where == "cli":
        hint = _where_instead(table, key, flag)
        raise FlagError(f"{table.engine} {table.version} has no key {key} in its file", hint=hint)
    stored = _stored(flag, value)
    table.check(key, stored)
    return {key: stored}


def _where_instead(table: FlagTable, key: str, flag: Flag | None) -> str | None:
    if flag is not None and flag.name != key:
        return f"did you mean {flag.name}?"
    if flag is not None:
        return f"it is an option of the command line: {flag.cli[0]}"
    try:
        table.require(key)
    except FlagError as error:
        return error.hint
    return None


def _stored(flag: Flag, value: object) -> Value:
    """Return a value of YAML as settings hold it: lists and mappings as JSON."""
    if value is None:
        return NULL
    if isinstance(value, (list, dict)):
        return json.dumps(value, sort_keys=True)
    if flag.kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value if isinstance(value, (bool, int, float)) else str(value)


def _plain(flag: Flag, value: Value) -> Any:  # noqa: ANN401  (YAML is dynamic by nature)
    if flag.kind in ("json", "json_list") and isinstance(value, str):
        return parse_json(value)
    return None if value == NULL and flag.choices == (NULL,) else value
