"""The bundle of a plan: plan.json, the report and deploy/, written whole, never over somebody else's file.

    outputs/<model>/<study>/plan.json
                            report.md, report.html
                            deploy/...
                            llmtune.lock.json    hash of every file above, so that a hand edit is seen

The same plan gives the same bytes. Edits belong in files beside these (`compose.override.yaml`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tuner.domain.json_text import parse_json
from tuner.domain.plan import Plan
from tuner.domain.record import problems
from tuner.errors import DriftError, OutputError, SpaceError, UsageError
from tuner.output.drift import drift
from tuner.output.emitters import DEFAULT_TARGETS, deploy_files
from tuner.output.files import check_writable, output_error, sync_directory, write_text
from tuner.output.lock import LOCK, Lock, content_digest, read_bytes, read_lock, same_lock
from tuner.output.page import page, without_figures
from tuner.output.quoting import dump_json, slug
from tuner.output.report import report

PLAN = "plan.json"
REPORT = "report.md"
PAGE = "report.html"
DEPLOY = "deploy"
_OURS = {(PLAN,), (REPORT,), (PAGE,), (DEPLOY,)}


def bundle_directory(outputs: Path, model: str, study: str) -> Path:
    """Return `outputs/<model>/<study>`, with names that every file system takes."""
    return outputs / slug(model) / slug(study, "study")


def plan_text(plan: Plan) -> str:
    """Return the canonical text of plan.json: sorted keys, indented.

    Raises:
        OutputError: the plan holds a number that is not finite.

    """
    return dump_json(plan.model_dump(mode="json"))


def bundle_files(plan: Plan, targets: Sequence[str] = DEFAULT_TARGETS) -> dict[str, str]:
    """Return relative path to text of everything that a plan is written as, the lock file last."""
    files = {PLAN: plan_text(plan), REPORT: report(plan), PAGE: page(plan)}
    files.update({f"{DEPLOY}/{name}": text for name, text in deploy_files(plan, targets).items()})
    digests = {name: content_digest(text.encode()) for name, text in files.items()}
    asked = () if tuple(targets) == DEFAULT_TARGETS else tuple(targets)
    files[LOCK] = Lock(plan_id=plan.plan_id, targets=asked, files=digests).text
    return files


def emit(
    plan: Plan, directory: Path, *, targets: Sequence[str] | None = None, force: bool = False, frozen: bool = False,
) -> tuple[Path, ...]:
    """Write the bundle into `directory` and return the paths of its files.

    Without `targets` the formats of the bundle that lies there are written, or the usual ones. Everything is staged
    beside its place first, so a full disk or a missing permission leaves the old bundle as it was. Files of an earlier
    bundle that this plan does not have are removed. `frozen` writes what the lock file there says, or nothing.

    Raises:
        OutputError: a file there was not written by llmtune or was edited by hand (unless `force`), or the directory
            cannot be written.
        DriftError: `frozen`, and the plan's files are not those of the lock file.

    """
    for needed in (directory, directory / DEPLOY):
        check_writable(needed)
    present = read_lock(directory)
    files = bundle_files(plan, targets or _targets(present))
    if frozen:
        _refuse_change(plan, directory, files, present)
        files |= _kept(plan, directory, files, present)
    stale = _stale(directory, files, present)
    if not force:
        _refuse_foreign(directory, files, stale, present)
    _replace(directory, files, stale, present)
    return tuple(directory / name for name in files)


def check(plan: Plan, directory: Path, targets: Sequence[str] | None = None) -> str:
    """Return a unified diff from the files in `directory` to what `plan` says; empty when they are the same.

    A plan.json that llmtune wrote and that still holds this plan is the same, in whichever version's form it is, and so
    is a report.html that it wrote whose figures another release of matplotlib placed differently.

    Raises:
        OutputError: a file there cannot be read.

    """
    present = read_lock(directory)
    files = bundle_files(plan, targets or _targets(present))
    kept = _kept(plan, directory, files, present)
    parts = [drift(directory, name, text) for name, text in files.items() if name not in kept]
    parts += [drift(directory, name, None) for name in _stale(directory, files, present)]
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
        raw: Any = parse_json(text)
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
        raise SpaceError(f"{file} does not fit the schema: {problems(error, 'plan')}", hint=hint) from None


def _targets(lock: Lock) -> tuple[str, ...]:
    return lock.targets or DEFAULT_TARGETS


def _kept(plan: Plan, directory: Path, files: dict[str, str], lock: Lock) -> dict[str, str]:
    """Return those of plan.json, report.html and the lock that llmtune wrote and that say what they would say now."""
    checks: dict[str, Callable[[bytes], bool]] = {
        PLAN: lambda content: _holds(plan, content), PAGE: lambda content: _shows(content, files)}
    same: dict[str, str] = {}
    for name, is_same in checks.items():
        content = read_bytes(directory / name)
        if content is not None and lock.wrote(name, content) and is_same(content):
            same[name] = content.decode()
    found = read_bytes(directory / LOCK) or b""
    if not same or not same_lock(found, Lock.model_validate_json(files[LOCK]), apart_from=same):
        return {name: text for name, text in same.items() if name == PLAN}
    return {**same, LOCK: found.decode()}


def _shows(content: bytes, files: dict[str, str]) -> bool:
    return without_figures(content) == without_figures(files[PAGE].encode())


def _holds(plan: Plan, content: bytes) -> bool:
    try:
        return Plan.model_validate_json(content) == plan
    except ValidationError:
        return False


def _refuse_change(plan: Plan, directory: Path, files: dict[str, str], lock: Lock) -> None:
    if not lock.plan_id:
        state = "cannot be read" if (directory / LOCK).exists() else "is not there"
        raise DriftError(f"{directory / LOCK} {state}, so nothing can be written as it says",
                         hint="take it from version control, or run `llmtune emit` without --frozen once")
    kept = _kept(plan, directory, files, lock)
    expected = Lock.model_validate_json(files[LOCK]).files
    names = [name for name in sorted({*expected, *lock.files})
             if name not in kept and expected.get(name) != lock.files.get(name)]
    if names:
        raise DriftError(f"{', '.join(names)}: the plan's files are not those of {directory / LOCK}",
                         hint="run `llmtune emit` without --frozen to write the new ones")


def _replace(directory: Path, files: dict[str, str], stale: tuple[str, ...], present: Lock) -> None:
    """Stage everything, then rename file by file, the lock file last.

    Before the first rename the old lock file learns what is coming, so that an interrupted run is not taken for
    somebody's edits.
    """
    coming = {name: content_digest(text.encode()) for name, text in files.items() if name != LOCK}
    interrupted = present.model_copy(update={"plan_id": present.plan_id or "none", "replacing": coming})
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".llmtune-stage-", dir=directory) as name:
            stage = Path(name)
            for relative, text in files.items():
                write_text(stage / relative, text)
            write_text(directory / LOCK, interrupted.text)
            for relative in files:
                target = directory / relative
                target.parent.mkdir(parents=True, exist_ok=True)
                (stage / relative).replace(target)
            for relative in stale:
                (directory / relative).unlink(missing_ok=True)
            _remove_empty(directory, stale)
        for folder in sorted({(directory / relative).parent for relative in files}):
            sync_directory(folder)
    except OSError as error:
        raise output_error(directory, error) from error


def _remove_empty(directory: Path, stale: tuple[str, ...]) -> None:
    for folder in sorted({(directory / name).parent for name in stale}, reverse=True):
        if folder not in (directory, directory / DEPLOY) and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _refuse_foreign(directory: Path, files: dict[str, str], stale: tuple[str, ...], lock: Lock) -> None:
    foreign: list[str] = []
    edited: list[str] = []
    for name in (*files, *stale):
        content = read_bytes(directory / name)
        if content is None or (name == LOCK and lock.plan_id) or content == files.get(name, "").encode():
            continue
        if name not in lock.files and name not in lock.replacing:
            foreign.append(name)
        elif not lock.wrote(name, content):
            edited.append(name)
    if foreign or edited:
        said = [f"{', '.join(foreign)} not written by llmtune"] if foreign else []
        said += [f"{', '.join(edited)} edited by hand"] if edited else []
        if PLAN in (*foreign, *edited):
            said.append(f"{PLAN} is no longer what llmtune wrote, so its numbers may not be what was measured")
        raise OutputError(f"will not overwrite files in {directory}: {'; '.join(said)}",
                          hint="move them away, choose another directory with --out, or pass --force")


def _stale(directory: Path, files: dict[str, str], lock: Lock) -> tuple[str, ...]:
    """Return files of the bundle that lies there which the new one does not have."""
    return tuple(name for name in sorted({**lock.files, **lock.replacing})
                 if name not in files and _is_inside(name) and (directory / name).exists())


def _is_inside(name: str) -> bool:
    parts = Path(name).parts
    return ".." not in parts and parts[:1] in _OURS
