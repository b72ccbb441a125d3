"""`llmtune check`: reads files, finds what is wrong in them, says it in three forms, and mends what is safe to mend."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tuner import __version__
from tuner.domain.model import ModelSpec
from tuner.domain.record import Record
from tuner.errors import OutputError, SpaceError, UsageError
from tuner.facts.catalog import model_by_alias, model_by_hub_id
from tuner.facts.flags import parse_version
from tuner.facts.gpus import parse_hardware
from tuner.inspect.inspect_file import check_text, of_interest
from tuner.inspect.issue import Edit, Issue, Report
from tuner.inspect.lint_environment import masked
from tuner.inspect.lint_kustomization import NAMES as KUSTOMIZATIONS
from tuner.inspect.lint_kustomization import lint_kustomization
from tuner.inspect.model_dir import cached_config, read_model_dir, with_config
from tuner.inspect.read_dockerfile import is_dockerfile
from tuner.inspect.rule_names import rule_names
from tuner.inspect.view import Context

_MOST_BYTES = 4_000_000
_LEVELS = {"error": "error", "warning": "warning", "note": "note"}
_KINDS = (".yaml", ".yml", ".sh", ".bash", ".sbatch", ".service", ".env")
_PASSED_OVER = ("node_modules", "site-packages", "__pycache__", "venv")
_MOST_FILES = 2_000
_IDLE = ("nothing-found", "empty")


class Checked(Record):
    """One file, what was found in it, and its text with the safe fixes made (None: nothing to mend)."""

    path: str
    issues: tuple[Issue, ...]
    text: str
    mended: str | None = None
    idle: bool = False
    """Whether it was found in a directory and starts no server."""

    @property
    def errors(self) -> int:
        """How many issues are errors."""
        return sum(issue.severity == "error" for issue in self.issues)

    @property
    def diff(self) -> str:
        """Unified diff from the text to the mended one, secrets hidden; empty when there is nothing to mend."""
        if self.mended is None:
            return ""
        lines = difflib.unified_diff(
            self.text.splitlines(keepends=True),
            self.mended.splitlines(keepends=True),
            self.path,
            f"{self.path} (fixed)",
        )
        return masked("".join(line if line.endswith("\n") else line + "\n" for line in lines))


def context_of(version: str | None, gpu: str | None, model: str | None) -> Context:
    """Turn the options of the command into a context.

    Raises:
        EngineError: not a version.
        UsageError: no such GPU.
        ModelError: no such model.

    """
    if version is not None:
        parse_version(version)
    return Context(
        version=version,
        hardware=parse_hardware(gpu) if gpu is not None else None,
        model=model_of(model) if model is not None else None,
    )


def model_of(text: str) -> ModelSpec:
    """Resolve a directory, an alias or a hub id.

    Raises:
        ModelError: none of these, or a broken directory.

    """
    path = Path(text).expanduser()
    if path.is_dir() or text.startswith((".", "/", "~")):
        return read_model_dir(path, requested=text)
    model = model_by_alias(text) or model_by_hub_id(text)
    config = cached_config(model.location) if model.architecture is None else None
    return with_config(model, config) if config else model


def check_paths(paths: Iterable[Path], context: Context, ignore: frozenset[str] = frozenset()) -> list[Checked]:
    """Check files; of a directory all files of known kinds below it. `ignore` names rules that are left out.

    Raises:
        UsageError: a path that is not there, a directory without such files, or a rule that there is not.

    """
    for name in sorted(ignore - rule_names()):
        near = difflib.get_close_matches(name, rule_names(), n=3, cutoff=0.6)
        hint = f"did you mean {', '.join(near)}?" if near else "docs/check.md lists all rules"
        raise UsageError(f"--ignore {name}: there is no such rule", hint=hint)
    checked = []
    for path in paths:
        for file in _files(path):
            text, problem = _read(file)
            issues = check_text(str(file), text, context, _Beside(file.parent)) if text or problem is None else ()
            if file.name in KUSTOMIZATIONS:
                issues = (*issues, *lint_kustomization(str(file), text, _Beside(file.parent)))
            if problem is not None:
                issues = (problem, *issues)
            idle = file != path and _is_idle(str(file), text, issues)
            issues = tuple(issue for issue in issues if issue.rule not in ignore and not idle)
            checked.append(Checked(path=str(file), issues=issues, text=text, mended=mend(text, issues), idle=idle))
    return checked


def _is_idle(name: str, text: str, issues: tuple[Issue, ...]) -> bool:
    """Whether a file that was not asked for by name has nothing to do with a server; then nothing is said of it."""
    foreign = ("unreadable",) if text and not of_interest(name, text) else ()
    return all(issue.rule in (*_IDLE, *foreign) for issue in issues) and bool(issues)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(_below(path))
        if not found:
            hint = f"looked for {', '.join(_KINDS)} and Dockerfiles, here and below"
            raise UsageError(f"{path}: no deployment file in this directory", hint=hint)
        if len(found) > _MOST_FILES:
            hint = "name the directory that holds the deployment"
            raise UsageError(f"{path}: more than {_MOST_FILES} files that could start a server", hint=hint)
        return found
    if not path.exists():
        raise UsageError(f"{path}: no such file", hint="give a Compose file, a manifest, a script, a unit or a config")
    return [path]


def _below(folder: Path) -> Iterator[Path]:
    """Yield files of known kinds; hidden directories, installed packages and links to directories are passed over."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _PASSED_OVER]
        for name in names:
            if name.endswith(_KINDS) or name.startswith(".env") or is_dockerfile(name):
                yield Path(place, name)


def _read(path: Path) -> tuple[str, Issue | None]:
    """Return a file's text, and what is odd about its bytes. What is no UTF-8 is replaced, not refused."""
    report = Report(str(path))
    try:
        with path.open("rb") as stream:
            raw = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise SpaceError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(raw) > _MOST_BYTES:
        size = f"{_MOST_BYTES // 1_000_000} MB"
        if of_interest(path.name, raw.decode("utf-8", errors="replace")):
            report.error(1, "unreadable", f"the file is longer than {size} and was not checked")
        else:
            report.note(1, "nothing-found", f"no engine is named in the first {size}; the file was not checked")
        return "", report.issues[0]
    try:
        return raw.decode("utf-8"), None
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        report.warning(line, "unreadable", "not UTF-8 here; the rest of the file is still checked")
        return raw.decode("utf-8", errors="replace"), report.issues[0]


class _Beside:
    """Gives the text of files in one directory, and of no other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, name: str) -> str | None:
        path = self._folder / Path(name).name
        try:
            return path.read_text(encoding="utf-8", errors="replace") if path.stat().st_size < _MOST_BYTES else None
        except (OSError, ValueError):
            return None


def mend(text: str, issues: Iterable[Issue]) -> str | None:
    """Make the safe fixes; None when there are none. Each touches one line and nothing else in it."""
    lines = text.split("\n")
    changed = False
    edits = sorted((issue.edit for issue in issues if issue.edit is not None), key=lambda edit: -edit.line)
    for edit in edits:
        index = edit.line - 1
        if not 0 <= index < len(lines):
            continue
        new = _edited(lines[index], edit)
        if new is not None and new != [lines[index]]:
            lines[index : index + 1] = new
            changed = True
    return "\n".join(lines) if changed else None


def _edited(line: str, edit: Edit) -> list[str] | None:
    if edit.new is None:
        return [] if line.split(":", maxsplit=1)[0].strip() == edit.old else None
    if line.count(edit.old) != 1:
        return None
    parts = edit.new.split("\n")
    if len(parts) == 1:
        return [line.replace(edit.old, edit.new)]
    bare = line.removesuffix("\r")
    item = re.fullmatch(r"(\s*- )(['\"]?)" + re.escape(edit.old) + r"\2\s*(?:#.*)?", bare)
    if item is None:
        return None
    return [f"{item[1]}{_yaml_text(part)}{line[len(bare) :]}" for part in parts]


def _yaml_text(text: str) -> str:
    plain = re.fullmatch(r"[A-Za-z/_-][\w./-]*", text) and text.lower() not in ("true", "false", "yes", "no", "null")
    return text if plain else "'" + text.replace("'", "''") + "'" if "'" not in text.strip("'") else text


def as_json(checked: list[Checked]) -> dict[str, Any]:
    """Return what `--json` prints."""
    return {
        "schema_version": 1,
        "files": [
            {
                "path": item.path,
                "issues": [issue.model_dump(mode="json", exclude={"edit", "file"}) for issue in item.issues],
            }
            for item in checked
        ],
        "errors": sum(item.errors for item in checked),
        "warnings": sum(issue.severity == "warning" for item in checked for issue in item.issues),
    }


def as_sarif(checked: list[Checked]) -> dict[str, Any]:
    """Return the issues as SARIF 2.1.0, for code hosts that show them beside the lines."""
    rules = sorted({issue.rule for item in checked for issue in item.issues})
    results = [
        {
            "ruleId": issue.rule,
            "level": _LEVELS[issue.severity],
            "message": {"text": f"{issue.message}. Fix: {issue.fix}" if issue.fix else issue.message},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": Path(issue.file).as_posix()},
                        "region": {"startLine": issue.line},
                    }
                }
            ],
        }
        for item in checked
        for issue in item.issues
    ]
    driver = {"name": "llmtune", "version": __version__, "rules": [{"id": rule} for rule in rules]}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def write_fixes(checked: list[Checked]) -> list[str]:
    """Write the mended texts back; return what was written.

    Raises:
        OutputError: a file that cannot be written.

    """
    written = []
    for item in checked:
        if item.mended is None:
            continue
        try:
            Path(item.path).write_bytes(item.mended.encode("utf-8"))
        except OSError as error:
            raise OutputError(f"{item.path}: cannot be written: {error.strerror or error}") from None
        written.append(item.path)
    return written
