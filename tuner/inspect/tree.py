"""YAML as a tree that remembers lines: several documents, anchors and merges, and no file that can stop it.

Nothing is constructed but texts, numbers, lists and mappings. A document that cannot be read becomes a problem with its
line, and the documents around it are still read.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

_DEEPEST, _MOST = 60, 200_000
_BOOLS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_START = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_STACKED = re.compile(r"^[ \t]*(?:[-?:][ \t]+){50}", re.MULTILINE)
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Problem(NamedTuple):
    """Something that could not be read, and its line."""

    line: int
    message: str


class Tree:
    """A node. Lookups of what is not there give an empty tree, so that they can be chained."""

    __slots__ = ("elements", "entries", "is_quoted", "key_line", "line", "text", "value")

    def __init__(self, line: int, value: Any = None, text: str = "", *, is_quoted: bool = False) -> None:  # noqa: ANN401
        self.line = line
        self.key_line = line
        self.value = value
        self.text = text
        self.is_quoted = is_quoted
        self.entries: dict[str, Tree] | None = None
        self.elements: list[Tree] | None = None

    @property
    def exists(self) -> bool:
        """Whether there is something here: null and missing are nothing."""
        return self.value is not None or self.entries is not None or self.elements is not None

    @property
    def is_map(self) -> bool:
        """Whether this is a mapping."""
        return self.entries is not None

    @property
    def is_list(self) -> bool:
        """Whether this is a sequence."""
        return self.elements is not None

    def at(self, *path: str | int) -> Tree:
        """Return what lies at this path, or an empty tree."""
        node = self
        for step in path:
            if isinstance(step, int):
                items = node.each()
                node = items[step] if 0 <= step < len(items) else Tree(node.line)
            else:
                node = (node.entries or {}).get(step) or Tree(node.line)
        return node

    def items(self) -> list[tuple[str, Tree]]:
        """Return the entries of a mapping."""
        return list((self.entries or {}).items())

    def each(self) -> list[Tree]:
        """Return the elements of a sequence."""
        return self.elements or []

    def walk(self, limit: int = 20_000) -> Iterator[tuple[str, Tree]]:
        """Yield every mapping entry below, (key, node), breadth first and at most `limit` of them."""
        queue = deque([self])
        seen: set[int] = set()
        while queue and limit > 0:
            node = queue.popleft()
            if id(node) in seen:
                continue
            seen.add(id(node))
            queue.extend(node.each())
            for key, item in node.items():
                limit -= 1
                yield key, item
                queue.append(item)

    def plain(self, depth: int = 20) -> Any:  # noqa: ANN401  (YAML is dynamic)
        """Return plain data; what lies deeper than `depth` is cut off."""
        if depth <= 0:
            return None
        if self.entries is not None:
            return {key: item.plain(depth - 1) for key, item in self.entries.items()}
        if self.elements is not None:
            return [item.plain(depth - 1) for item in self.elements]
        return self.value

    def number(self) -> float | None:
        """Return the number here, also when it is written as a text."""
        if isinstance(self.value, bool):
            return None
        try:
            return float(self.value) if self.value is not None else None
        except (TypeError, ValueError):
            return None


class Documents(NamedTuple):
    """The documents of one file and what could not be read; `twice` are keys that stand in one mapping two times."""

    trees: list[Tree]
    problems: list[Problem]
    twice: list[Problem]


def read_documents(text: str) -> Documents:
    """Read every document of a YAML text. Never raises."""
    found = Documents([], [], [])
    starts = [0, *(match.start() for match in _START.finditer(text))]
    line = 0
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        chunk = text[start:end]
        if chunk.strip(" \t\r\n-"):
            _read_one(chunk, line, found)
        line += chunk.count("\n")
    return found


def _read_one(chunk: str, offset: int, found: Documents) -> None:
    if _deep(chunk):
        found.problems.append(Problem(offset + 1, "nested too deeply to be a deployment file"))
        return
    try:
        node = yaml.compose(chunk, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        found.problems.append(Problem(offset + line, f"not valid YAML: {error.problem}"))
        return
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        found.problems.append(Problem(offset + 1, f"not valid YAML: {getattr(error, 'reason', None) or error}"))
        return
    if node is not None:
        found.trees.append(_Builder(offset, found).build(node, 0))


def _deep(chunk: str) -> bool:
    if _STACKED.search(chunk):
        return True
    depth = deepest = 0
    for match in re.finditer(r"[\[\]{}]", chunk):
        depth = depth + 1 if match[0] in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest > 500


class _Builder:
    def __init__(self, offset: int, found: Documents) -> None:
        self._offset = offset
        self._found = found
        self._done: dict[int, Tree] = {}
        self._above: set[int] = set()
        self._left = _MOST

    def build(self, node: yaml.Node, depth: int) -> Tree:
        """Turn a node into a tree; shared nodes (aliases) stay shared."""
        line = self._offset + node.start_mark.line + 1
        known = self._done.get(id(node))
        if known is not None:
            return known
        if id(node) in self._above or depth > _DEEPEST or self._left <= 0:
            self._found.problems.append(Problem(line, "refers to itself, or is nested too deeply or too large"))
            return Tree(line)
        self._left -= 1
        self._above.add(id(node))
        if isinstance(node, yaml.MappingNode):
            tree = Tree(line)
            tree.entries = self._mapping(node, depth)
        elif isinstance(node, yaml.SequenceNode):
            tree = Tree(line)
            tree.elements = [self.build(item, depth + 1) for item in node.value]
        else:
            text = str(node.value)
            quoted = getattr(node, "style", None) in ("'", '"')
            tree = Tree(line, _scalar(node.tag, text), text, is_quoted=quoted)
        self._above.discard(id(node))
        self._done[id(node)] = tree
        return tree

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Tree]:
        merged: dict[str, Tree] = {}
        own: dict[str, Tree] = {}
        for key, item in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
            tree = self.build(item, depth + 1)
            if key.tag.endswith(":merge") or name == "<<":
                for source in [tree, *tree.each()]:
                    merged = {**dict(source.items()), **merged}
                continue
            line = self._offset + key.start_mark.line + 1
            if name in own:
                self._found.twice.append(Problem(line, f"the key {name!r} stands here twice; the last one counts"))
            tree.key_line = line
            own[name] = tree
        return {**merged, **own}


def _scalar(tag: str, text: str) -> Any:  # noqa: ANN401  (YAML is dynamic)
    kind = tag.rsplit(":", 1)[-1]
    if kind == "null":
        return None
    if kind == "bool":
        return _BOOLS.get(text.lower(), text)
    try:
        if kind == "int":
            return int(text.replace("_", ""), 8 if re.fullmatch(r"[+-]?0\d+", text) else 0)
        if kind == "float":
            return float(text.replace("_", ""))
    except ValueError:
        return text
    return text
