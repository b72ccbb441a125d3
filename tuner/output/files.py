"""Writing files whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tuner.errors import OutputError
from tuner.output.quoting import check_text

_MODE_FILE = 0o644
_MODE_SCRIPT = 0o755


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that appears under `path`, complete and on disk, when the block ends well.

    On any error the earlier content stays and nothing new is left behind. Missing parent directories are made.

    Raises:
        OutputError: the file cannot be written (permission, full disk, something in its place that is no regular file).

    """
    temporary: Path | None = None
    if path.exists() and not path.is_file():
        raise OutputError(f"cannot write {path}: it is no regular file",
                          hint="name a file; without one, what can be printed goes to standard output")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".llmtune-", suffix=".tmp", dir=path.parent)
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), _MODE_SCRIPT if path.suffix == ".sh" else _MODE_FILE)
            os.fsync(file.fileno())
        temporary.replace(path)
        temporary = None
        sync_directory(path.parent)
    except OSError as error:
        raise output_error(path, error) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically; `.sh` files become executable.

    Raises:
        OutputError: the file cannot be written, or the text is not valid Unicode.

    """
    check_text(text)
    with atomic_file(path) as file:
        file.write(text.encode())


def sync_directory(directory: Path) -> None:
    """Make renames in the directory survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_writable(directory: Path) -> None:
    """Fail now, not after hours of trials, when `directory` cannot be made or written. Leaves nothing behind.

    Raises:
        OutputError: with the path and what to do.

    """
    existing = directory.absolute()
    try:
        while not existing.exists() and existing != existing.parent:
            existing = existing.parent
        if not existing.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        with tempfile.TemporaryFile(prefix=".llmtune-", dir=existing) as probe:
            probe.write(b"\0")
            probe.flush()
    except OSError as error:
        raise output_error(directory, error, " with --out") from error


def output_error(path: Path, error: OSError, by: str = "") -> OutputError:
    """Say which path could not be written, why, and what helps; `by` ends the advice to choose another."""
    reason = error.strerror or str(error)
    return OutputError(f"cannot write {path}: {reason}", hint=_hint(path, error, by))


def _hint(path: Path, error: OSError, by: str) -> str:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            free = _free_mib(path)
            room = "" if free is None else f" ({free} MiB are free)"
            return f"make room on that file system{room}, then run the same command again"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"choose a directory that you may write to{by}"
        case errno.ENOTDIR | errno.EEXIST | errno.EISDIR:
            return f"a file and a directory are in each other's place on this path; choose another{by}"
        case _:
            return f"choose another directory{by}"


def _free_mib(path: Path) -> int | None:
    for parent in path.absolute().parents:
        with contextlib.suppress(OSError):
            return shutil.disk_usage(parent).free // 2**20
    return None
