"""Text made safe for the place it is put: a shell word, a comment, a Markdown cell, a name, a YAML or JSON document.

Pure functions. Every one takes any text, so that a model's name or a log line can never break out of its place.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping

import yaml

from tuner.errors import OutputError

_MARK = re.compile("(\0[a-z]+\0)")
_PLAIN_YAML = re.compile(r"(?:--?[A-Za-z]|[A-Za-z/])[A-Za-z0-9_./-]*")
_YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none", "nan", "inf"})
_MD_SPECIAL = re.compile(r"([\\`*|~])")
_MD_HTML = re.compile(r"<(?=[A-Za-z/!?])|&(?=#?[A-Za-z0-9]+;)")
_MD_LINK = re.compile(r"(?<=\])(?=\()")
_MD_START = re.compile(r"^(?:(\d{1,9})(?=[.)](?:\s|$))|(?=#{1,6}(?:\s|$)|>|[+-](?:\s|$)|(?:=+|-+)\s*$|\[[^]]*\]:))")
_MD_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def mark(name: str) -> str:
    """Return a placeholder that no real argument can contain, for `shell_word` to replace."""
    return f"\0{name}\0"


def shell(text: str) -> str:
    """Quote as one word of bash. Characters that cannot be seen are written as escapes, never raw.

    Text with `$` or a backtick is written as $'...', which says that nothing in it is meant to expand.

    Raises:
        OutputError: the text cannot be an argument of a program (NUL) or is not Unicode text.

    """
    check_text(text)
    if "\0" in text:
        raise OutputError(f"a NUL character cannot be passed to a program: {text!r}")
    if text.isprintable() and not set(text) & set("$`"):
        return shlex.quote(text)
    return "$'" + "".join(map(_ansi_c, text)) + "'"


def shell_word(text: str, variables: Mapping[str, str]) -> str:
    """Quote `text` as one word in which each `mark(name)` becomes the expansion of the variable `variables[name]`."""
    parts = [part for part in _MARK.split(text) if part]
    if not parts:
        return "''"
    return "".join(
        f'"${{{variables[part[1:-1]]}}}"' if _MARK.fullmatch(part) else shell(part)
        for part in parts
    )


def visible(text: str) -> str:
    """Return one line in which every character that cannot be seen, or that would turn others around, is an escape."""
    return "".join(ch if ch.isprintable() else ch.encode("unicode_escape").decode() for ch in text)


def comment(text: str, prefix: str = "# ") -> str:
    """Return `text` as `#` comments, one for each of its lines; no other line break or control character survives."""
    return "\n".join((prefix + visible(line)).rstrip() for line in text.split("\n"))


def md(text: str) -> str:
    """Escape for a Markdown table cell or sentence: one line, nothing in it is markup. Stays readable as plain text."""
    line = visible(" ".join(text.split("\n"))).strip()
    line = _MD_HTML.sub(lambda found: {"<": "&lt;", "&": "&amp;"}[found[0]], _MD_SPECIAL.sub(r"\\\1", line))
    return _MD_START.sub(r"\1\\", _MD_UNDERSCORE.sub(r"\\_", _MD_LINK.sub(r"\\", line)))


def code(text: str) -> str:
    """Return `text` as a Markdown code span that also holds inside a table cell."""
    line = visible(" ".join(text.split("\n"))).replace("|", "\\|")
    if not line.strip():
        return "(empty)"
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    pad = " " if line[0] in "` " or line[-1] in "` " else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def fenced(text: str, language: str = "") -> str:
    """Return `text` as a fenced Markdown block whose fence is longer than any run of backticks in it."""
    body = "\n".join(visible(line) for line in text.strip("\n").split("\n"))
    fence = "`" * max(3, max((len(run) for run in re.findall("`+", body)), default=0) + 1)
    return f"{fence}{language}\n{body}\n{fence}"


def slug(text: str, fallback: str = "model") -> str:
    """Return a lower-case name of letters, digits, `-` and `_`, as file systems, Compose and DNS take it."""
    name = re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-_")
    return name[:63].strip("-_") or fallback


def dns_label(text: str, fallback: str = "model", length: int = 40) -> str:
    """Return a name as Kubernetes wants it for every object: lower-case letters, digits and `-`, a letter first.

    Shorter than the 63 characters that are allowed, so that endings like `-cache` fit.
    """
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    name = name if name[:1].isalpha() or not name else f"m-{name}"
    return name[:length].strip("-") or fallback


def check_text(text: str) -> None:
    """Refuse text that UTF-8 cannot hold (a file name that was not valid Unicode).

    Raises:
        OutputError: with the text.

    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise OutputError(f"not valid Unicode text: {text!r}", hint="rename the file or directory") from None


def dump_yaml(value: object) -> str:
    """Return a YAML document: keys in their given order, 2 spaces, no anchors.

    A string is quoted unless it is a plain word that YAML 1.1 and 1.2 both read as the same string, so `on`, `y`,
    `22:22`, `1e3`, `0123` and `null` stay strings in every parser.
    """
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=sys.maxsize, indent=2)
    # only double-quoted strings can hold such a character, and there an escape means the same
    return "".join(ch if ch.isprintable() or ch == "\n" else _yaml_escape(ch) for ch in text)


def dump_json(value: object) -> str:
    """Return an indented JSON document: sorted keys, no NaN, no character that cannot be seen, a newline at the end.

    Raises:
        OutputError: a number in it is not finite.

    """
    try:
        text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise OutputError(f"cannot be written as JSON: {error}") from error
    check_text(text)
    return "".join(ch if ch.isprintable() or ch == "\n" else _json_escape(ch) for ch in text) + "\n"


def _ansi_c(ch: str) -> str:
    if ch in "\\'":
        return "\\" + ch
    if ch.isprintable():
        return ch
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(ch)
    return named or "".join(f"\\x{byte:02x}" for byte in ch.encode())


def _yaml_escape(ch: str) -> str:
    point = ord(ch)
    return f"\\x{point:02X}" if point < 0x100 else f"\\u{point:04X}" if point < 0x10000 else f"\\U{point:08X}"


def _json_escape(ch: str) -> str:
    return json.dumps(ch)[1:-1]


class _Dumper(yaml.SafeDumper):
    """Indents lists below their key and never writes an alias."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        return super().increase_indent(flow, False)  # noqa: FBT003

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style: str | None = None
    if not _PLAIN_YAML.fullmatch(text) or text.lower() in _YAML_WORDS:
        style = "'" if text.isprintable() and ('"' in text or "\\" in text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style=style)


class Block(str):
    """Text of several lines that YAML shows as it is (`|`), where it can."""

    __slots__ = ()


def _represent_block(dumper: yaml.SafeDumper, text: Block) -> yaml.ScalarNode:
    if not all(ch.isprintable() or ch == "\n" for ch in text):
        return _represent_text(dumper, text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(Block, _represent_block)
