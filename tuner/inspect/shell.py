"""Reads shell text as a list of commands, without ever running it: quotes, continuations, arrays, variables, heredocs.

Variables that the text itself sets are filled in; of `${X:-d}` the default is taken. What only a running shell can know
(`$(...)`, `$1`, unset variables) stays in the word, which is then marked open.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from tuner.inspect.issue import Word
from tuner.inspect.tree import Problem

_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_FOUND = re.compile(r"[$`(]*\s*(?:command -v|which)(?: --)? \"?(?:\$\{?(\w+)\}?|([\w./-]+))\"?\s*[)`]")
_KEYWORDS = {"if", "then", "else", "elif", "do", "while", "until", "!", "{", "time", "fi", "done", "esac", "}"}
_KEEPERS = {"export", "local", "readonly", "declare", "typeset"}
_MOST_COMMANDS, _LONGEST_WORD = 20_000, 100_000


@dataclass
class Heredoc:
    """The body of a heredoc and the line of its first line."""

    line: int
    text: str


@dataclass
class Command:
    """One simple command: its words, the variables set in front of it, and heredocs that feed it."""

    line: int
    words: list[Word]
    env: dict[str, Word]
    heredocs: list[Heredoc] = field(default_factory=list)


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


class _Unclosed(Exception):  # noqa: N818  (an outcome, not an error of the program)
    def __init__(self, what: str, line: int) -> None:
        super().__init__(what)
        self.what, self.line = what, line


class _Part(NamedTuple):
    text: str
    open: bool = False
    default: bool = False
    unset: tuple[str, ...] = ()


class _Reader:
    def __init__(self, text: str, line: int) -> None:
        self._text, self._at, self._line = text, 0, line
        self.commands: list[Command] = []
        self.problems: list[Problem] = []
        self.exported: dict[str, Word] = {}
        self.arrays: dict[str, list[Word]] = {}
        self._words: list[Word] = []
        self._env: dict[str, Word] = {}
        self._waiting: list[tuple[str, bool]] = []
        self._docs: list[Heredoc] = []
        self._exporting_all = False

    def run(self) -> None:
        while self._at < len(self._text) and len(self.commands) < _MOST_COMMANDS:
            start, line = self._at, self._line
            try:
                self._step()
            except _Unclosed as error:
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
            self._at += 1
            self._flush()
        else:
            self._next_word()

    def _is(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

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
            self._word()

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
        first = not self._words or self._words[0].text in _KEEPERS
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
        value = value._replace(line=line)
        if self._words and self._words[0].text in _KEEPERS:
            self.arrays[name] = [value]
            if self._words[0].text in ("export", "declare", "typeset"):
                self.exported[name] = value
        else:
            self._env[name] = value

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
        raise _Unclosed("the array", start)

    def _flush(self, *, keep: bool = False) -> None:
        if keep:
            return
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
            self.commands.append(Command(line, self._words, dict(self._env), self._docs))
        self._words, self._env, self._docs = [], {}, []

    def _word(self, *, split: bool = True) -> list[Word]:
        """Read one word; unquoted variables may make it none or several."""
        line, quoted = self._line, False
        parts: list[_Part] = []
        done: list[Word] = []
        while self._at < len(self._text) and not self._ends_word(len(parts)):
            char = self._text[self._at]
            if char == '"':
                inner, whole = self._double()
                quoted = quoted or whole is None or bool(parts)
                parts += inner
                done += whole or []
            elif char in "$`" and not self._is("$'"):
                part = self._dollar()
                if isinstance(part, list):
                    done += part
                elif split and not quoted and not parts and not part.open and re.search(r"\s", part.text):
                    done += [Word(text=text, line=line, default=part.default) for text in part.text.split()]
                else:
                    parts.append(part)
            else:
                quoted = quoted or char in "'$"
                self._literal(parts)
        if parts or quoted:
            done.append(_join(parts, line))
        return done

    def _ends_word(self, length: int) -> bool:
        char = self._text[self._at]
        if char == "\r":
            return self._text[self._at + 1 : self._at + 2] in ("\n", "")
        return char in " \t\n;|<>&()" or length > _LONGEST_WORD

    def _literal(self, parts: list[_Part]) -> None:
        char = self._text[self._at]
        if char == "'":
            parts.append(_Part(self._single()))
        elif char == "$":
            parts.append(_Part(self._ansi()))
        elif char == "\\":
            self._escape(parts)
        else:
            plain = re.compile(r"[^\s'\"$`\\;&|<>()]+").match(self._text, self._at)
            parts.append(_Part(plain[0] if plain else char))
            self._at += len(parts[-1].text)

    def _escape(self, parts: list[_Part]) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if following == "\n":
            self._line += 1
        else:
            parts.append(_Part(following))
        self._at += 2

    def _single(self) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise _Unclosed("a single quote", self._line)
        text = self._text[self._at + 1 : end]
        self._at, self._line = end + 1, self._line + text.count("\n")
        return text

    def _ansi(self) -> str:
        match = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL).match(self._text, self._at)
        if match is None:
            raise _Unclosed("a quote", self._line)
        self._at, self._line = match.end(), self._line + match[0].count("\n")
        simple = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
        return re.sub(r"\\(.)", lambda found: simple.get(found[1], found[0]), match[1], flags=re.DOTALL)

    def _double(self) -> tuple[list[_Part], list[Word] | None]:
        """Read "...". The second result is the words of an array when the quotes hold nothing else."""
        start = self._line
        parts: list[_Part] = []
        self._at += 1
        array: list[Word] | None = None
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == '"':
                self._at += 1
                return parts, array if not parts else None
            if char in "$`":
                part = self._dollar()
                if isinstance(part, list):
                    array = part
                else:
                    parts.append(part)
            elif char == "\\" and self._text[self._at + 1 : self._at + 2] in ("\n", '"', "\\", "$", "`"):
                self._escape(parts)
            else:
                self._line += char == "\n"
                plain = re.compile(r'[^"$`\\\n]+').match(self._text, self._at)
                parts.append(_Part(plain[0] if plain else char))
                self._at += len(parts[-1].text)
        raise _Unclosed("a double quote", start)

    def _dollar(self) -> _Part | list[Word]:
        """Read what begins with `$` or a backtick; the words of an array come back as a list."""
        if self._is("`"):
            return self._substitution("`", "`")
        if self._is("$("):
            return self._substitution("$(", ")")
        if self._is("${"):
            return self._braces()
        match = re.compile(r"\$([A-Za-z_]\w*|[@*#?!$\-]|\d)").match(self._text, self._at)
        if match is None:
            self._at += 1
            return _Part("$")
        self._at = match.end()
        if match[1] in ("@", "*"):
            return []
        return self._value(match[1], match[0])

    def _substitution(self, opening: str, closing: str) -> _Part:
        start, line, depth = self._at, self._line, 1
        self._at += len(opening)
        while self._at < len(self._text):
            char = self._text[self._at]
            self._line += char == "\n"
            self._at += 2 if char == "\\" else 1
            if char == closing:
                depth -= 1
            elif char == "(" and closing == ")":
                depth += 1
            if depth == 0:
                return self._found_program(self._text[start : self._at])
        raise _Unclosed(f"{opening}...{closing}", line)

    def _found_program(self, written: str) -> _Part:
        """`$(command -v X)` and `$(which X)` name X; what any other command prints is not known."""
        match = _FOUND.fullmatch(written)
        known = self._known(match[1]) if match and match[1] else None
        text = known.text if known else match[2] if match else None
        return _Part(text) if text else _Part(written, open=True)

    def _braces(self) -> _Part | list[Word]:
        depth, end = 0, self._at + 1
        for end in range(self._at + 1, min(len(self._text), self._at + 2000)):
            depth += {"{": 1, "}": -1}.get(self._text[end], 0)
            if depth == 0:
                break
        else:
            raise _Unclosed("${", self._line)
        whole, inner = self._text[self._at : end + 1], self._text[self._at + 2 : end]
        self._line += whole.count("\n")
        self._at = end + 1
        array = re.fullmatch(r"([A-Za-z_]\w*)\[[@*]\](?:\+.*)?", inner, re.DOTALL)
        if array:
            return list(self.arrays.get(array[1], []))
        match = re.match(r"([A-Za-z_]\w*|[@*#\d])(:?[-=?+])?(.*)", inner, re.DOTALL)
        if match is None or (match[2] is None and match[3]):
            return _Part(whole, open=True)
        name, operator, rest = match[1], match[2] or "", match[3]
        if name in ("@", "*"):
            return []
        known = self._known(name)
        if known is not None and (known.text or not operator.startswith(":")):
            return _Part(known.text, known.open, known.default, known.unset)
        if operator.endswith(("-", "=")):
            inside = split_words(rest, self._line) if "$" in rest else [Word(text=rest.strip("'\""), line=self._line)]
            text = " ".join(word.text for word in inside)
            return _Part(text, open=not text or any(word.open for word in inside), default=True)
        return _Part(whole, open=True) if operator.endswith("?") else self._value(name, whole)

    def _known(self, name: str) -> Word | None:
        words = self.arrays.get(name)
        return words[0] if words else self._env.get(name)

    def _value(self, name: str, written: str) -> _Part:
        known = self._known(name)
        if known is not None:
            return _Part(known.text, known.open, known.default, known.unset)
        unset = (name,) if _NAME.fullmatch(name) and name not in self.exported else ()
        return _Part(written, open=True, unset=unset)


def _join(parts: list[_Part], line: int) -> Word:
    return Word(
        text="".join(part.text for part in parts),
        line=line,
        open=any(part.open for part in parts),
        default=any(part.default for part in parts),
        unset=tuple(name for part in parts for name in part.unset),
    )
