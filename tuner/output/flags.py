"""The arguments of a launch spec taken apart into flags and their values, for formats that name them one by one."""

from __future__ import annotations

import re
from typing import NamedTuple

from tuner.domain.json_text import parse_json

_NUMBER = re.compile(r"-\d+(\.\d+)?")
_LONG = re.compile(r"--[A-Za-z][A-Za-z0-9._-]*")


class Arguments(NamedTuple):
    """`named`: flag without dashes to its words, none for a switch. `rest`: words that no such pair can hold."""

    named: dict[str, tuple[str, ...]]
    rest: tuple[str, ...]


def take_apart(words: tuple[str, ...]) -> Arguments:
    """Take `--flag value`, `--flag=value` and `--switch` apart; other words, and flags given twice, are the rest.

    The words of a launch spec never leave a value out: a word after a flag that does not begin with `-` is its value.
    """
    named: dict[str, tuple[str, ...]] = {}
    rest: list[str] = []
    at = 0
    while at < len(words):
        flag, equals, value = words[at].partition("=")
        end = at + 1
        while not equals and flag.startswith("-") and end < len(words) and _is_value(words[end]):
            end += 1
        values = (value,) if equals else words[at + 1 : end]
        name = flag.removeprefix("--")
        if _LONG.fullmatch(flag) and name not in named:
            named[name] = values
        else:
            rest += words[at:end]
        at = end
    return Arguments(named, tuple(rest))


def _is_value(word: str) -> bool:
    return not word.startswith("-") or bool(_NUMBER.fullmatch(word))


def json_object(text: str) -> dict[str, object] | None:
    """Return the JSON object that a word is; None when it is none."""
    if not text.startswith("{"):
        return None
    try:
        found = parse_json(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
