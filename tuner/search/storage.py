"""Optuna's storages: one lock a study, journals that survive a crash, and everything that can be wrong in words."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import optuna
from optuna.exceptions import OptunaError, StorageInternalError
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from pydantic import ValidationError

from tuner.errors import OutputError, StudyError
from tuner.search.owner import Owner, this_process

JOURNAL = "study.journal"
LOCK = "study.lock"
LOCK_FILE_SUFFIX = ".lock"
"""What JournalFileBackend adds to the name of the file that it locks."""
_PATIENT = {"connect_args": {"timeout": 60}}
"""Seconds that SQLite waits for another that writes, instead of 5, before it says that the database is locked."""
_MOUNTS = Path("/proc/mounts")
_KINDS = ("journal", "sqlite", "postgresql", "mysql", "mariadb", "oracle", "mssql", "redis")
_NETWORK = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "afs", "ocfs2",
    "gfs2", "wekafs", "pvfs2", "orangefs",
})


def take_lock(path: Path) -> int:
    """Take a study's lock, and return what `release` needs.

    Raises:
        StudyError: another process holds it, or the folder cannot hold it.

    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StudyError(
            f"{path.parent} cannot hold a study: {error.strerror}", hint="choose another place with --out"
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = lock_owner(path)
        os.close(handle)
        raise StudyError(
            f"another llmtune ({owner.text if owner else 'an unknown process'}) is working on this study",
            hint="wait for it, stop it, or name another study with --study",
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{this_process(path.parent).model_dump_json()}\n".encode(), 0)
    return handle


def release(lock: int | None) -> None:
    """Let go of a lock, if it is held, and take our name off it."""
    if lock is not None:
        with suppress(OSError):
            os.ftruncate(lock, 0)
        os.close(lock)


def lock_owner(path: Path) -> Owner | None:
    """Return who wrote its name on a lock, without touching it; a process that was killed leaves its name."""
    try:
        return Owner.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def open_study(
    name: str, direction: Literal["maximize", "minimize"], folder: Path, storage: str | None
) -> optuna.Study:
    """Load the study, or create it; reading alone writes nothing.

    Raises:
        StudyError: the storage is corrupt, not there, or of a kind that is not installed.

    """
    with _opening(f"the storage of study {name!r}"):
        backend = _own_journal(folder / JOURNAL) if storage is None else _shared(storage)
        if name in optuna.get_all_study_names(backend):
            study = optuna.load_study(study_name=name, storage=backend)
        else:
            study = optuna.create_study(study_name=name, direction=direction, storage=backend, load_if_exists=True)
        study.get_trials(deepcopy=False)
        return study


def look(source: Path | str) -> list[optuna.Study]:
    """Return every study of a journal file or of a storage URL, while others may write it; nothing is changed.

    Raises:
        StudyError: there is no such storage, or it is corrupt, unreachable, or of a kind that is not installed.

    """
    with _opening(str(source) if isinstance(source, Path) else "the storage"):
        backend = _to_look_at(source)
        return [
            optuna.load_study(study_name=name, storage=backend) for name in optuna.get_all_study_names(backend)
        ]


@contextmanager
def _opening(what: str) -> Iterator[None]:
    try:
        yield
    except (json.JSONDecodeError, UnicodeDecodeError, LookupError, TypeError, AttributeError, AssertionError) as error:
        raise StudyError(
            f"{what} is corrupt: {first_line(error)}",
            hint="move the study's folder away, or name another study with --study",
        ) from None
    except ImportError as error:
        raise StudyError(
            f"{what} cannot be used: {first_line(error)}",
            hint="install llmtune[postgres], and write postgresql+psycopg://host/db",
        ) from None
    except unusable() as error:
        raise StudyError(f"{what} cannot be used: {first_line(error)}") from None


@contextmanager
def writing() -> Iterator[None]:
    """Turn what storages raise while they are written into errors with a hint.

    Raises:
        OutputError: the storage cannot be written, as on a full disk.
        StudyError: the storage does not answer.

    """
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot write the study's storage: {error.strerror or error}",
            hint="make room on that file system, then run the same command again; every finished trial is kept",
        ) from None
    except unusable() as error:
        raise StudyError(
            f"the study's storage does not answer: {first_line(error)}", hint="the same command goes on from here"
        ) from None


def first_line(error: Exception) -> str:
    """Return what an error says, in one line; of what Optuna wraps, the cause."""
    told = error.__cause__ if isinstance(error, StorageInternalError) and error.__cause__ is not None else error
    return (str(told).splitlines() or [type(told).__name__])[0]


def unusable() -> tuple[type[Exception], ...]:
    """Return what storages raise; SQLAlchemy is only loaded, and only counts, for storages that use it."""
    sql = sys.modules.get("sqlalchemy.exc")
    return (OSError, ValueError, RuntimeError, OptunaError, *((sql.SQLAlchemyError,) if sql else ()))


def _own_journal(path: Path) -> BaseStorage:
    """Open the journal of a study whose lock we hold, so a lock on the file is one that a dead process left."""
    path.with_name(path.name + LOCK_FILE_SUFFIX).unlink(missing_ok=True)
    _drop_half_line(path)
    return JournalStorage(JournalFileBackend(str(path)))


def _shared_journal(path: Path) -> BaseStorage:
    """Open a journal that others may be writing: only under its lock is a line without an end one of the dead."""
    lock = JournalFileSymlinkLock(str(path))
    lock.acquire()
    try:
        _drop_half_line(path)
    finally:
        lock.release()
    return JournalStorage(JournalFileBackend(str(path)))


def _drop_half_line(path: Path) -> None:
    """Cut a last line that a crash left without its end: the next entry would be glued to it."""
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)


def _shared(url: str) -> BaseStorage:
    scheme, rest = _parts(url)
    if scheme.startswith("sqlite"):
        _refuse_on_network(Path(rest[1:]))
        return optuna.storages.RDBStorage(url, engine_kwargs=_PATIENT)
    return _shared_journal(Path(rest)) if scheme == "journal" else optuna.storages.get_storage(url)


def _to_look_at(source: Path | str) -> BaseStorage:
    if isinstance(source, Path):
        path = source
    else:
        scheme, rest = _parts(source)
        if scheme.startswith("redis"):
            return optuna.storages.get_storage(source)
        if scheme != "journal":
            is_file = scheme.startswith("sqlite")
            if is_file:
                _hold_to_exist(Path(rest[1:]))
            patience = _PATIENT if is_file else None
            return optuna.storages.RDBStorage(source, skip_table_creation=True, engine_kwargs=patience)
        path = Path(rest)
    _hold_to_exist(path)
    return JournalStorage(JournalFileBackend(str(path)))


def _hold_to_exist(path: Path) -> None:
    if not path.is_file():
        raise StudyError(f"there is no storage at {path}", hint="name the one that optimize was given")


def refuse_storage(url: str) -> None:
    """Check the form of a storage's URL; nothing is opened.

    Raises:
        StudyError: it is none, or names a kind that no storage has.

    """
    scheme, _ = _parts(url)
    if scheme.partition("+")[0] not in _KINDS:
        raise StudyError(f"--storage {url.partition('://')[0]}://...: no storage of this kind is known",
                         hint=f"one of {', '.join(_KINDS)}")


def _parts(url: str) -> tuple[str, str]:
    scheme, _, rest = url.partition("://")
    if not rest:
        raise StudyError(
            f"--storage {url!r} is not a URL", hint="e.g. journal:///path/study.journal, postgresql+psycopg://host/db"
        )
    return scheme, rest


def _refuse_on_network(path: Path) -> None:
    """SQLite's locks do not hold on network file systems (sqlite.org/faq.html, question 5): the file breaks."""
    kind = file_system(path)
    if kind in _NETWORK or kind.startswith("fuse."):
        raise StudyError(
            f"{path} lies on a network file system ({kind}), where SQLite loses data",
            hint="say --storage journal:///path/study.journal, which such file systems can lock, or use PostgreSQL",
        )


def file_system(path: Path) -> str:
    """Return the type of the file system that a path lies on, as /proc/mounts names it; empty where it cannot."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    whole, found = str(path.resolve()), ("", "")
    for fields in (line.split() for line in mounts):
        place = fields[1].replace("\\040", " ")
        inside = whole == place or whole.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= len(found[0]):
            found = (place, fields[2])
    return found[1]
