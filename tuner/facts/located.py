"""Reads YAML that people wrote, and remembers the line of everything in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from tuner.errors import SpaceError

Key = tuple[str | int, ...]
_DEEPEST, _MOST = 100, 200_000


class Document:
    """A parsed file: `data`, and where each part of it stands."""

    def __init__(self, path: Path, data: Any, lines: dict[Key, int]) -> None:  # noqa: ANN401  (YAML is dynamic)
        self.path = path
        self.data = data
        self._lines = lines

    def line(self, key: Key) -> int:
        """Return the line (from 1) of the deepest known part of `key`."""
        while key and key not in self._lines:
            key = key[:-1]
        return self._lines.get(key, 1)

    def error(self, key: Key, message: str, hint: str | None = None) -> SpaceError:
        """Return an error that names file and line."""
        return SpaceError(f"{self.path}:{self.line(key)}: {message}", hint=hint)

    def invalid(self, problem: ValidationError) -> SpaceError:
        """Return the first problem that pydantic found, with file and line."""
        first = problem.errors(include_url=False)[0]
        key = tuple(first["loc"])
        name = ".".join(str(part) for part in key)
        if first["type"] == "extra_forbidden":
            return self.error(key, f"unknown key {key[-1]!r}")
        if first["type"] == "missing":
            return self.error(key, f"{key[-1]!r} is missing")
        return self.error(key, f"{name}: {first['msg'].removeprefix('Value error, ')}")


def load_document(path: Path) -> Document:
    """Read a YAML file.

    Raises:
        SpaceError: not there, not readable, not YAML, or a key twice; with file and line.

    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SpaceError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpaceError(f"{path}: cannot be read: {error}") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SpaceError(f"{path}:{line}: not valid YAML: {error.problem}") from None
    except (yaml.reader.ReaderError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise SpaceError(f"{path}: not valid YAML: {reason}") from None
    except RecursionError:
        raise SpaceError(f"{path}: not valid YAML: nested too deeply") from None
    lines: dict[Key, int] = {}
    if node is not None:
        _walk(path, node, (), lines, ())
    return Document(path, data, lines)


def _walk(path: Path, node: yaml.Node, key: Key, lines: dict[Key, int], above: tuple[yaml.Node, ...]) -> None:
    lines[key] = node.start_mark.line + 1
    if len(key) > _DEEPEST or len(lines) > _MOST:
        raise SpaceError(f"{path}:{lines[key]}: nested too deeply, or too large once its anchors are followed")
    if any(node is other for other in above):
        raise SpaceError(f"{path}:{lines[key]}: the anchor here refers to itself")
    above = (*above, node)
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _walk(path, item, (*key, index), lines, above)
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for name, item in node.value:
            text = str(name.value)
            if text in seen:
                raise SpaceError(f"{path}:{name.start_mark.line + 1}: the key {text!r} stands here twice")
            seen.add(text)
            _walk(path, item, (*key, text), lines, above)
            lines[(*key, text)] = name.start_mark.line + 1
