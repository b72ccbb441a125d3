"""The bundle of a plan: plan.json, report.md and deploy/, written whole, never over somebody else's file.

    outputs/<model>/<study>/plan.json
                            report.md
                            deploy/...
                            llmtune.lock.json    hash of every file above, so that a hand edit is seen

The same plan gives the same bytes. Edits belong in files beside these (`compose.override.yaml`).
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from tuner.domain.plan import Plan
from tuner.domain.record import Record
from tuner.errors import OutputError, SpaceError, UsageError
from tuner.output.emitters import EMITTERS
from tuner.output.files import check_writable, output_error, sync_directory, write_text
from tuner.output.quoting import dump_json, slug
from tuner.output.report import report

PLAN = "plan.json"
REPORT = "report.md"
DEPLOY = "deploy"
LOCK = "llmtune.lock.json"
_LINES = re.compile(r"[^\n]*\n|[^\n]+")


class Lock(Record):
    """Which files llmtune wrote, and the SHA-256 of each."""

    schema_version: int = 1
    plan_id: str
    files: dict[str, str]
    replacing: dict[str, str] = Field(default_factory=dict)
    """Only while files are being replaced: what they become. Kept when that was interrupted."""

    def wrote(self, name: str, content: bytes) -> bool:
        """Whether llmtune wrote this very content."""
        return _hash(content) in {self.files.get(name), self.replacing.get(name)}


def bundle_directory(outputs: Path, model: str, study: str) -> Path:
    """Return `outputs/<model>/<study>`, with names that every file system takes."""
    return outputs / slug(model) / slug(study, "study")


def plan_text(plan: Plan) -> str:
    """Return the canonical text of plan.json: sorted keys, indented.

    Raises:
        OutputError: the plan holds a number that is not finite.

    """
    return dump_json(plan.model_dump(mode="json"))


def bundle_files(plan: Plan) -> dict[str, str]:
    """Return relative path to text of everything that a plan is written as, the lock file last."""
    files = {PLAN: plan_text(plan), REPORT: report(plan)}
    for emitter in EMITTERS.values():
        files.update({f"{DEPLOY}/{name}": text for name, text in emitter.files(plan).items()})
    lock = Lock(plan_id=plan.plan_id, files={name: _hash(text.encode()) for name, text in files.items()})
    files[LOCK] = dump_json(lock.model_dump(mode="json"))
    return files


def emit(plan: Plan, directory: Path, *, force: bool = False) -> tuple[Path, ...]:
    """Write the bundle into `directory` and return the paths of its files.

    Everything is staged beside its place first, so a full disk or a missing permission leaves the old bundle as it
    was. Files of an earlier bundle that this plan does not have are removed.

    Raises:
        OutputError: a file there was not written by llmtune or was edited by hand (unless `force`), or the directory
            cannot be written.

    """
    for needed in (directory, directory / DEPLOY):
        check_writable(needed)
    files = bundle_files(plan)
    present = _lock(directory)
    stale = _stale(directory, files, present)
    if not force:
        _refuse_foreign(directory, files, stale, present)
    _replace(directory, files, stale, present)
    return tuple(directory / name for name in files)


def check(plan: Plan, directory: Path) -> str:
    """Return a unified diff from the files in `directory` to what `plan` says; empty when they are the same.

    Raises:
        OutputError: a file there cannot be read.

    """
    files = bundle_files(plan)
    parts = [_drift(directory, name, text) for name, text in files.items()]
    parts += [_drift(directory, name, None) for name in _stale(directory, files, _lock(directory))]
    return "".join(parts)


def load_plan(path: Path) -> Plan:
    """Read a plan from plan.json or from the bundle's directory.

    Raises:
        UsageError: there is no such file.
        SpaceError: it is not JSON, is of another schema version, or does not fit the schema.

    """
    file = path / PLAN if path.is_dir() else path
    try:
        text = file.read_bytes().decode()
    except FileNotFoundError:
        raise UsageError(f"no plan at {file}", hint="name a plan.json or the directory that holds it") from None
    except UnicodeDecodeError:
        raise SpaceError(f"{file} is not UTF-8 text") from None
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    return _parse_plan(file, text)


def _parse_plan(file: Path, text: str) -> Plan:
    try:
        raw: Any = json.loads(text)
    except ValueError as error:
        hint = "the file is cut off or was edited; take it from version control or tune again"
        raise SpaceError(f"{file} is not JSON: {error}", hint=hint) from None
    if not isinstance(raw, dict) or "schema_version" not in raw:
        raise SpaceError(f"{file} is not a plan: it has no schema_version", hint="a plan is written by `llmtune`")
    if raw["schema_version"] != 1:
        raise SpaceError(f"{file} has schema version {raw['schema_version']!r}; this llmtune reads version 1",
                         hint=f"use the llmtune that wrote it ({raw.get('tool_version', 'version unknown')}) or newer")
    try:
        return Plan.model_validate_json(text)
    except ValidationError as error:
        hint = "plans are written by llmtune and not edited; docs/schemas/plan.schema.json says the form"
        raise SpaceError(f"{file} does not fit the schema: {_problems(error)}", hint=hint) from None


def _problems(error: ValidationError) -> str:
    found = [f"{'.'.join(map(str, item['loc'])) or 'plan'}: {item['msg']}" for item in error.errors()]
    rest = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
    return "; ".join(found[:3]) + rest


def _replace(directory: Path, files: dict[str, str], stale: tuple[str, ...], present: Lock) -> None:
    """Stage everything, then rename file by file, the lock file last.

    Before the first rename the old lock file learns what is coming, so that an interrupted run is not taken for
    somebody's edits.
    """
    coming = {name: _hash(text.encode()) for name, text in files.items() if name != LOCK}
    interrupted = Lock(plan_id=present.plan_id or "none", files=present.files, replacing=coming)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".llmtune-stage-", dir=directory) as name:
            stage = Path(name)
            for relative, text in files.items():
                write_text(stage / relative, text)
            write_text(directory / LOCK, dump_json(interrupted.model_dump(mode="json")))
            for relative in files:
                target = directory / relative
                target.parent.mkdir(parents=True, exist_ok=True)
                (stage / relative).replace(target)
            for relative in stale:
                (directory / relative).unlink(missing_ok=True)
        sync_directory(directory)
        sync_directory(directory / DEPLOY)
    except OSError as error:
        raise output_error(directory, error) from error


def _refuse_foreign(directory: Path, files: dict[str, str], stale: tuple[str, ...], lock: Lock) -> None:
    foreign: list[str] = []
    edited: list[str] = []
    for name in (*files, *stale):
        content = _read(directory / name)
        if content is None or (name == LOCK and lock.plan_id) or content == files.get(name, "").encode():
            continue
        if name not in lock.files and name not in lock.replacing:
            foreign.append(name)
        elif not lock.wrote(name, content):
            edited.append(name)
    if foreign or edited:
        said = [f"{', '.join(foreign)} not written by llmtune"] if foreign else []
        said += [f"{', '.join(edited)} edited by hand"] if edited else []
        raise OutputError(f"will not overwrite files in {directory}: {'; '.join(said)}",
                          hint="move them away, choose another directory with --out, or pass --force")


def _stale(directory: Path, files: dict[str, str], lock: Lock) -> tuple[str, ...]:
    """Return files of the bundle that lies there which the new one does not have."""
    return tuple(name for name in sorted({**lock.files, **lock.replacing})
                 if name not in files and _is_inside(name) and (directory / name).exists())


def _is_inside(name: str) -> bool:
    parts = Path(name).parts
    return ".." not in parts and parts[:1] in {(PLAN,), (REPORT,), (DEPLOY,)}


def _lock(directory: Path) -> Lock:
    """Return the lock of the bundle that lies there; an empty one when there is none that can be read."""
    content = _read(directory / LOCK)
    nothing = Lock(plan_id="", files={})
    if content is None:
        return nothing
    try:
        return Lock.model_validate_json(content)
    except ValidationError:
        return nothing


def _drift(directory: Path, name: str, wanted: str | None) -> str:
    path = directory / name
    present = _read(path)
    old = "" if present is None else present.decode(errors="backslashreplace")
    lines = difflib.unified_diff(
        _LINES.findall(old), _LINES.findall(wanted or ""),
        "/dev/null" if present is None else name, "/dev/null" if wanted is None else name,
    )
    diff = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    if wanted is not None and present is not None and name.endswith(".sh"):
        mode = stat.S_IMODE(path.stat().st_mode)
        if not mode & 0o100:
            diff = f"{name}: not executable (mode {mode:o})\n{diff}"
    return diff


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = error.strerror or os.strerror(error.errno or 0)
        raise OutputError(f"cannot read {path}: {reason}", hint="move it away or choose another directory") from error


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
