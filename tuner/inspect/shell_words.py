"""Reads one word of shell text: quotes, escapes, variables and their defaults, arrays. The base of the shell reader."""

from __future__ import annotations

import re
from typing import NamedTuple

from tuner.inspect.issue import Word

_NAME = re.compile(r"[A-Za-z_]\w*")
_FOUND = re.compile(r"[$`(]*\s*(?:command -v|which)(?: --)? \"?(?:\$\{?(\w+)\}?|([\w./-]+))\"?\s*[)`]")
_LONGEST_WORD = 100_000


class Unclosed(Exception):  # noqa: N818  (an outcome, not an error of the program)
    """Something was opened and never closed."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(what)
        self.what, self.line = what, line


class Part(NamedTuple):
    """A piece of a word."""

    text: str
    open: bool = False
    default: bool = False
    unset: tuple[str, ...] = ()


class WordReader:
    """A place in a text, and the variables known there."""

    def __init__(self, text: str, line: int) -> None:
        self._text, self._at, self._line = text, 0, line
        self.exported: dict[str, Word] = {}
        self.arrays: dict[str, list[Word]] = {}
        self._env: dict[str, Word] = {}

    def _is(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _word(self, *, split: bool = True) -> list[Word]:
        """Read one word; unquoted variables may make it none or several."""
        line, quoted = self._line, False
        parts: list[Part] = []
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

    def _literal(self, parts: list[Part]) -> None:
        char = self._text[self._at]
        if char == "'":
            parts.append(Part(self._single()))
        elif char == "$":
            parts.append(Part(self._ansi()))
        elif char == "\\":
            self._escape(parts)
        else:
            plain = re.compile(r"[^\s'\"$`\\;&|<>()]+").match(self._text, self._at)
            parts.append(Part(plain[0] if plain else char))
            self._at += len(parts[-1].text)

    def _escape(self, parts: list[Part]) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if following == "\n":
            self._line += 1
        else:
            parts.append(Part(following))
        self._at += 2

    def _single(self) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise Unclosed("a single quote", self._line)
        text = self._text[self._at + 1 : end]
        self._at, self._line = end + 1, self._line + text.count("\n")
        return text

    def _ansi(self) -> str:
        match = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL).match(self._text, self._at)
        if match is None:
            raise Unclosed("a quote", self._line)
        self._at, self._line = match.end(), self._line + match[0].count("\n")
        simple = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
        return re.sub(r"\\(.)", lambda found: simple.get(found[1], found[0]), match[1], flags=re.DOTALL)

    def _double(self) -> tuple[list[Part], list[Word] | None]:
        """Read "...". The second result is the words of an array when the quotes hold nothing else."""
        start = self._line
        parts: list[Part] = []
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
                parts.append(Part(plain[0] if plain else char))
                self._at += len(parts[-1].text)
        raise Unclosed("a double quote", start)

    def _dollar(self) -> Part | list[Word]:
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
            return Part("$")
        self._at = match.end()
        if match[1] in ("@", "*"):
            return []
        return self._value(match[1], match[0])

    def _substitution(self, opening: str, closing: str) -> Part:
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
        raise Unclosed(f"{opening}...{closing}", line)

    def _found_program(self, written: str) -> Part:
        """`$(command -v X)` and `$(which X)` name X; what any other command prints is not known."""
        match = _FOUND.fullmatch(written)
        known = self._known(match[1]) if match and match[1] else None
        text = known.text if known else match[2] if match else None
        return Part(text) if text else Part(written, open=True)

    def _braces(self) -> Part | list[Word]:
        depth, end = 0, self._at + 1
        for end in range(self._at + 1, min(len(self._text), self._at + 2000)):
            depth += {"{": 1, "}": -1}.get(self._text[end], 0)
            if depth == 0:
                break
        else:
            raise Unclosed("${", self._line)
        whole, inner = self._text[self._at : end + 1], self._text[self._at + 2 : end]
        self._line += whole.count("\n")
        self._at = end + 1
        array = re.fullmatch(r"([A-Za-z_]\w*)\[[@*]\](?:\+.*)?", inner, re.DOTALL)
        if array:
            return list(self.arrays.get(array[1], []))
        match = re.match(r"([A-Za-z_]\w*|[@*#\d])(:?[-=?+])?(.*)", inner, re.DOTALL)
        if match is None or (match[2] is None and match[3]):
            return Part(whole, open=True)
        name, operator, rest = match[1], match[2] or "", match[3]
        if name in ("@", "*"):
            return []
        known = self._known(name)
        if known is not None and (known.text or not operator.startswith(":")):
            return Part(known.text, known.open, known.default, known.unset)
        if operator.endswith(("-", "=")):
            return self._fallback(rest)
        return Part(whole, open=True) if operator.endswith("?") else self._value(name, whole)

    def _fallback(self, rest: str) -> Part:
        inner = WordReader(rest, self._line)
        inner.arrays, inner._env, inner.exported = self.arrays, self._env, self.exported
        words: list[Word] = []
        while inner._at < len(rest) and len(words) < 100:
            before = inner._at
            words += inner._word(split=False)
            inner._at += inner._at == before
        text = " ".join(word.text for word in words)
        return Part(text, open=not text or any(word.open for word in words), default=True)

    def _known(self, name: str) -> Word | None:
        words = self.arrays.get(name)
        return words[0] if words else self._env.get(name)

    def _value(self, name: str, written: str) -> Part:
        known = self._known(name)
        if known is not None:
            return Part(known.text, known.open, known.default, known.unset)
        unset = (name,) if _NAME.fullmatch(name) and name not in self.exported else ()
        return Part(written, open=True, unset=unset)


def _join(parts: list[Part], line: int) -> Word:
    return Word(
        text="".join(part.text for part in parts),
        line=line,
        open=any(part.open for part in parts),
        default=any(part.default for part in parts),
        unset=tuple(name for part in parts for name in part.unset),
    )
