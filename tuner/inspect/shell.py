"""Reads shell text as a list of commands, without ever running it: quotes, continuations, arrays, variables, heredocs.

Variables that the text itself sets are filled in; of `${X:-d}` the default is taken. What only a running shell can know
(`$(...)`, `$1`, unset variables) stays in the word, which is then marked open.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from tuner.inspect.issue import Word
from tuner.inspect.shell_words import Unclosed, WordReader
from tuner.inspect.tree import Problem

_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_KEYWORDS = {"if", "then", "else", "elif", "do", "while", "until", "!", "{", "time", "fi", "done", "esac", "}"}
_KEEPERS = {"export", "local", "readonly", "declare", "typeset"}
_MOST_COMMANDS = 20_000


@dataclass
class Heredoc:
    """The body of a heredoc and the line of its first line."""

    line: int
    text: str


@dataclass
class Command:
    """One simple command: its words, the variables set in front of it, and heredocs that feed it.

    `output` is the file that its standard output goes to; `background` whether the shell goes on without it.
    """

    line: int
    words: list[Word]
    env: dict[str, Word]
    heredocs: list[Heredoc] = field(default_factory=list)
    output: Word | None = None
    background: bool = False


class Script(NamedTuple):
    """A text as commands. `exported` are variables that programs started later see; `assigned` all that were set."""

    commands: list[Command]
    problems: list[Problem]
    exported: dict[str, Word]
    assigned: dict[str, list[Word]]


def read_shell(text: str, line: int = 1) -> Script:
    """Read shell text whose first line has this number. Never raises."""
    reader = _Reader(text.replace("\r\n", "\n"), line)
    reader.run()
    return Script(reader.commands, reader.problems, reader.exported, reader.arrays)


def split_words(text: str, line: int) -> list[Word]:
    """Split one command line into words as a shell would."""
    script = read_shell(text, line)
    return [word for command in script.commands for word in command.words]


class _Reader(WordReader):
    def __init__(self, text: str, line: int) -> None:
        super().__init__(text, line)
        self.commands: list[Command] = []
        self.problems: list[Problem] = []
        self._words: list[Word] = []
        self._waiting: list[tuple[str, bool]] = []
        self._docs: list[Heredoc] = []
        self._output: Word | None = None
        self._exporting_all = False
        self._depth = 0

    def run(self) -> None:
        while self._at < len(self._text) and len(self.commands) < _MOST_COMMANDS:
            start, line = self._at, self._line
            try:
                self._step()
            except Unclosed as error:
                self.problems.append(Problem(error.line, f"{error.what} is never closed"))
                self._flush()
                self._at, self._line = start, line
                self._skip_line()
        self._flush()

    def _step(self) -> None:
        char = self._text[self._at]
        if char == "\\" and self._text[self._at + 1 : self._at + 2] == "\n":
            self._at, self._line = self._at + 2, self._line + 1
        elif char == "\n":
            self._flush(keep=bool(self._waiting))
            self._at, self._line = self._at + 1, self._line + 1
            self._read_heredocs()
            self._flush()
        elif char in " \t\r":
            self._at += 1
        elif char == "#":
            self._skip_line(keep_newline=True)
        elif self._text.startswith(("<<<", "<<"), self._at):
            self._redirect_in()
        elif char in "<>" or re.match(r"\d*[<>]", self._text[self._at : self._at + 4]) or self._is("&>"):
            self._redirect()
        elif char in ";&|()":
            alone = char == "&" and not self._is("&&") and self._text[self._at - 1 : self._at] != "&"
            self._at += 1
            self._flush(background=alone)
        else:
            self._next_word()

    def _skip_line(self, *, keep_newline: bool = False) -> None:
        end = self._text.find("\n", self._at)
        if end < 0:
            self._at = len(self._text)
        else:
            self._at = end if keep_newline else end + 1
            self._line += 0 if keep_newline else 1

    def _redirect(self) -> None:
        match = re.compile(r"\d*(?:&>>?|[<>]+[&|]?)-?").match(self._text, self._at)
        self._at = match.end() if match else self._at + 1
        while self._at < len(self._text) and self._text[self._at] in " \t":
            self._at += 1
        if self._at < len(self._text) and self._text[self._at] not in "\n;&|":
            target = self._word()
            if target and match and re.fullmatch(r"1?>>?\|?|&>>?", match[0]):
                self._output = target[0]

    def _redirect_in(self) -> None:
        if self._is("<<<"):
            self._at += 3
            self._word_after_space()
            return
        self._at += 2
        dashed = self._is("-")
        self._at += dashed
        words = self._word_after_space()
        if words:
            self._waiting.append((words[0].text, dashed))

    def _word_after_space(self) -> list[Word]:
        while self._at < len(self._text) and self._text[self._at] in " \t":
            self._at += 1
        return self._word() if self._at < len(self._text) and self._text[self._at] != "\n" else []

    def _read_heredocs(self) -> None:
        for delimiter, dashed in self._waiting:
            first, lines = self._line, []
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                line = self._text[self._at : end]
                self._at, self._line = min(end + 1, len(self._text)), self._line + 1
                if (line.lstrip("\t") if dashed else line).rstrip("\r") == delimiter:
                    break
                lines.append(line)
            self._docs.append(Heredoc(first, "\n".join(lines) + "\n"))
        self._waiting.clear()

    def _next_word(self) -> None:
        match = _ASSIGN.match(self._text, self._at)
        first = all(word.text in _KEYWORDS for word in self._words) or self._words[0].text in _KEEPERS
        if match and (first or self._words[0].text in ("env", "sudo")):
            line = self._line
            self._at = match.end()
            self._assign(match[1], line, extend=bool(match[2]))
            return
        self._words += self._word()

    def _assign(self, name: str, line: int, *, extend: bool) -> None:
        if self._is("("):
            self._at += 1
            words = self._array()
            self.arrays[name] = [*self.arrays.get(name, []), *words] if extend else words
            return
        ends = self._at >= len(self._text) or self._text[self._at] in " \t\n;&|"
        words = [] if ends else self._word(split=False)
        value = words[0] if words else Word(text="", line=line)
        value = self._sure(name, value._replace(line=line), extend=extend)
        if self._words and self._words[0].text in _KEEPERS:
            self.arrays[name] = [value]
            if self._words[0].text in ("export", "declare", "typeset"):
                self.exported[name] = value
        else:
            self._env[name] = value

    def _sure(self, name: str, value: Word, *, extend: bool) -> Word:
        """Say how sure a value is: what stands inside `if`, `case` or a loop may not happen."""
        known = self._known(name)
        if extend and known is not None:
            value = value._replace(text=known.text + value.text, open=known.open or value.open, default=known.default)
        if self._depth == 0:
            return value
        if known is None:
            return value._replace(default=True)
        return known if value.text.startswith(known.text) else known._replace(open=True)

    def _array(self) -> list[Word]:
        words: list[Word] = []
        start = self._line
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == ")":
                self._at += 1
                return words
            if char == "\n":
                self._line += 1
            if char in " \t\r\n":
                self._at += 1
            elif char == "\\" and self._text[self._at + 1 : self._at + 2] == "\n":
                self._at, self._line = self._at + 2, self._line + 1
            elif char == "#":
                self._skip_line(keep_newline=True)
            else:
                before = self._at
                words += self._word()
                self._at += self._at == before
        raise Unclosed("the array", start)

    def _count_depth(self) -> None:
        for word in self._words:
            if word.text in ("if", "case", "for", "while", "until"):
                self._depth += 1
            elif word.text in ("fi", "esac", "done"):
                self._depth = max(0, self._depth - 1)
            elif word.text not in _KEYWORDS:
                return

    def _flush(self, *, keep: bool = False, background: bool = False) -> None:
        if keep:
            return
        self._count_depth()
        while self._words and self._words[0].text in _KEYWORDS:
            self._words.pop(0)
        if not self._words and self._env:
            for name, value in self._env.items():
                self.arrays[name] = [value]
                if self._exporting_all or name in self.exported:
                    self.exported[name] = value
        elif self._words and self._words[0].text == "export":
            for word in self._words[1:]:
                known = self.arrays.get(word.text)
                self.exported[word.text] = known[0] if known else Word(text="", line=word.line, open=True)
        elif [word.text for word in self._words[:2]] in (["set", "-a"], ["set", "-o"]):
            self._exporting_all = True
        if self._words:
            line = self._words[0].line
            self.commands.append(
                Command(line, self._words, dict(self._env), self._docs, self._output, background=background)
            )
        self._words, self._env, self._docs, self._output = [], {}, [], None
