"""Reads the arguments of a vLLM server as a person wrote them, says what is wrong with each, and keeps the rest."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cache

from tuner.domain.engine import Value
from tuner.domain.json_text import parse_json
from tuner.errors import FlagError
from tuner.facts.flags import Flag, FlagTable, flag_table
from tuner.facts.read import data
from tuner.inspect.command import parse_value
from tuner.inspect.issue import Edit, Issue, Report, Word
from tuner.inspect.server import Server

_TRUTH = ("true", "false")


@dataclass
class Arguments:
    """What the arguments ask for: values by flag, and the word that each stands in."""

    model: Word | None = None
    values: dict[str, Value] = field(default_factory=dict)
    words: dict[str, Word] = field(default_factory=dict)
    issues: list[Issue] = field(default_factory=list)

    def count(self, flag: str, default: int | None = None) -> int | None:
        """Return a whole number, or the default when the flag is unset; None when its value is not known."""
        if flag not in self.words:
            return default
        value = self.values.get(flag)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def world(self) -> int | None:
        """Tensor x pipeline x data parallel size; None when one of them is not known."""
        sizes = [self.count(f"{kind}-parallel-size", 1) for kind in ("tensor", "pipeline", "data")]
        local = self.count("data-parallel-size-local")
        if local is not None:
            sizes[2] = local
        product = 1
        for size in sizes:
            if size is None or size < 1:
                return None
            product *= size
        return product


@cache
def newest(engine: str) -> str:
    """Return the newest release whose flags are known."""
    return str(data(f"{engine}/flags.json")["versions"][-1])


def read_arguments(server: Server, version: str) -> Arguments:
    """Read the arguments of a server against the flags of one version. Never raises."""
    return _Reader(server, flag_table("vllm", version)).read()


class _Reader:
    def __init__(self, server: Server, table: FlagTable) -> None:
        self._server, self._table = server, table
        self._at = 0
        self._dotted: dict[str, dict[str, object]] = {}
        self._report = Report(server.file)
        self.found = Arguments(issues=self._report.issues)
        self._left = self._split(server.args)

    def read(self) -> Arguments:
        while self._at < len(self._left):
            word = self._left[self._at]
            self._at += 1
            if not word.text.startswith("-") or word.text == "-":
                self._positional(word)
            elif word.text != "--" and not re.match(r"^-O\d?$", word.text):
                self._flag(word)
        for name, entries in self._dotted.items():
            self.found.values.setdefault(name, json.dumps(entries, sort_keys=True))
        return self.found

    def _split(self, words: list[Word]) -> list[Word]:
        """Take list elements apart that hold a flag and its value; the engine gets them as one word and refuses it."""
        done: list[Word] = []
        for word in words:
            match = re.fullmatch(r"\s*(--?[A-Za-z][\w.-]*)[ \t]+(.+?)\s*", word.text, re.DOTALL) if word.item else None
            if match is None:
                done.append(word)
                continue
            rest = match[2].split(" --")
            edit = Edit(line=word.line, old=word.text, new=f"{match[1]}\n{match[2]}") if len(rest) == 1 else None
            self._report.error(
                word.line,
                "flag-list-item",
                f"one list element holds a flag and its value: {_short(word.text)!r}; the engine gets it as one word",
                f"write two elements: {match[1]} and {_short(rest[0])}",
                edit=edit,
            )
            first, *others = [match[1] + " " + rest[0], *("--" + item for item in rest[1:])]
            for part in (first, *others):
                done += [word._replace(text=text, item=False) for text in part.strip().split(None, 1)]
        return done

    def _positional(self, word: Word) -> None:
        if not word.text and word.open:
            return
        if self.found.model is None:
            self.found.model = word
            return
        self._report.say(
            "warning" if word.open else "error",
            word.line,
            "argument-stray",
            (
                f"{_short(word.text)!r} belongs to no flag; the model is already {_short(self.found.model.text)!r}",
                "take it out, or write the flag in front of it",
            ),
        )

    def _flag(self, word: Word) -> None:
        name, equals, attached = word.text.partition("=")
        base, dot, key = name.partition(".")
        value = word._replace(text=attached) if equals else None
        flag, negated = self._find(word, base)
        if flag is None:
            following = self._peek()
            if value is None and following is not None and not following.text.startswith("-"):
                self._at += 1
            return
        if _is_switch(flag) and not dot:
            self._switch(word, flag, name, value, negated=negated)
            return
        if value is None:
            value = self._take()
            if value is None:
                self._report.error(word.line, "flag-value", f"{name} needs a value")
                return
        if flag.name == "model":
            self.found.model = value
        elif dot:
            self._dotted.setdefault(flag.name, {})[key] = _number_or_text(value.text)
            self.found.words[flag.name] = word
        else:
            self._value(word, flag, value)

    def _find(self, word: Word, name: str) -> tuple[Flag | None, bool]:
        if name.startswith("--no-"):
            positive = self._table.find("--" + name.removeprefix("--no-"))
            if positive is not None and positive.kind == "bool":
                if not positive.negatable:
                    self._report.error(word.line, "flag-unknown", f"vllm {self._table.version} has no {name}")
                return positive, True
        flag = self._table.find(name)
        if flag is not None or word.open:
            return flag, False
        full = self._completions(name)
        if len(full) == 1:
            self._report.warning(
                word.line,
                "flag-abbreviated",
                f"{name} is short for --{full[0]} only as long as no other flag begins like it",
                f"write --{full[0]}",
                edit=Edit(line=word.line, old=name, new=f"--{full[0]}"),
            )
            return self._table.find(full[0]), False
        try:
            self._table.require(name)
        except FlagError as error:
            rule = "flag-removed" if "no longer has" in error.message else "flag-unknown"
            shown = error.message if error.message.startswith("vllm") else f"{name}: {error.message}"
            self._report.error(word.line, rule, shown, error.hint or "")
        return None, False

    def _completions(self, name: str) -> list[str]:
        plain = name.replace("_", "-").removeprefix("--")
        if not name.startswith("--") or len(plain) < 3 or plain in data("vllm/flags.json")["flags"]:
            return []
        return [flag for flag in data("vllm/flags.json")["flags"] if flag.startswith(plain) and self._table.find(flag)]

    def _switch(self, word: Word, flag: Flag, name: str, value: Word | None, *, negated: bool) -> None:
        following = self._peek()
        if value is None and following is not None and following.text.lower() in _TRUTH:
            self._at += 1
            value = following
            apart = " "
        else:
            apart = "="
        if value is not None and not value.open:
            wanted = value.text.lower() not in ("false", "0", "off", "no")
            right = name if wanted is not negated else f"--no-{flag.name}" if flag.negatable else ""
            meaning = "stays on, and the word is taken for a model" if apart == " " else "the parser refuses the value"
            same_line = value.line == word.line
            self._report.error(
                word.line,
                "flag-negation",
                f"{name}{apart}{value.text}: {name} takes no value; {meaning}",
                f"write {right}" if right else "leave the flag out",
                edit=Edit(line=word.line, old=f"{name}{apart}{value.text}", new=right) if right and same_line else None,
            )
            negated = not wanted
        self._keep(word, flag, not negated)

    def _value(self, word: Word, flag: Flag, value: Word) -> None:
        texts = [value.text]
        while flag.kind == "list" and (following := self._peek()) is not None and not following.text.startswith("-"):
            texts.append(following.text)
            self._at += 1
        parsed = parse_value(flag, " ".join(texts))
        if value.open:
            self.found.words[flag.name] = value
            return
        try:
            self._table.check(flag.name, parsed)
        except FlagError as error:
            self._report.error(word.line, "flag-value", error.message, error.hint or "")
        self._keep(value, flag, parsed)

    def _keep(self, word: Word, flag: Flag, value: Value) -> None:
        before = self.found.values.get(flag.name)
        if before is not None and before != value:
            self._report.warning(
                word.line,
                "flag-twice",
                f"--{flag.name} is given twice ({_short(str(before))}, then {_short(str(value))}); the last one counts",
                "keep one",
            )
        self.found.values[flag.name] = value
        self.found.words[flag.name] = word

    def _peek(self) -> Word | None:
        return self._left[self._at] if self._at < len(self._left) else None

    def _take(self) -> Word | None:
        following = self._peek()
        if following is None or re.match(r"-{1,2}[A-Za-z]", following.text):
            return None
        self._at += 1
        return following


def _is_switch(flag: Flag) -> bool:
    """Whether a flag takes no value. Of some releases not every switch was read as one: one reading is enough."""
    return flag.kind == "bool" or any(
        kind == "bool" for _, kind in data("vllm/flags.json")["flags"][flag.name]["kinds"]
    )


def _number_or_text(text: str) -> object:
    try:
        return parse_json(text)
    except ValueError:
        return text


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
