"""llmtune.lock.json: which files llmtune wrote, and what was in them, so that an edit by hand is seen."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from pathlib import Path

from pydantic import Field, ValidationError

from tuner.domain.json_text import parse_json
from tuner.domain.record import Record
from tuner.errors import OutputError
from tuner.output.quoting import dump_json

LOCK = "llmtune.lock.json"


class Lock(Record):
    """Which files llmtune wrote, and the SHA-256 of each."""

    schema_version: int = 1
    plan_id: str
    targets: tuple[str, ...] = ()
    """The output formats that were asked for; empty: the usual ones."""
    files: dict[str, str]
    replacing: dict[str, str] = Field(default_factory=dict)
    """Only while files are being replaced: what they become. Kept when that was interrupted."""

    def wrote(self, name: str, content: bytes) -> bool:
        """Whether llmtune wrote this very content."""
        return content_digest(content) in {self.files.get(name), self.replacing.get(name)}

    @property
    def text(self) -> str:
        """The file's text."""
        return dump_json(self.model_dump(mode="json"))


def read_lock(directory: Path) -> Lock:
    """Return the lock of the bundle that lies there; an empty one when there is none that can be read.

    Raises:
        OutputError: something is in its place that cannot be read.

    """
    content = read_bytes(directory / LOCK)
    nothing = Lock(plan_id="", files={})
    if content is None:
        return nothing
    try:
        return Lock.model_validate_json(content)
    except ValidationError:
        return nothing


def same_lock(content: bytes, wanted: Lock, *, apart_from: Collection[str]) -> bool:
    """Whether the text of a lock says what `wanted` says of every file not in `apart_from`, in llmtune's own form.

    Keys that another version of llmtune adds do not count.
    """
    try:
        found = parse_json(content)
        if dump_json(found).encode() != content:
            return False
        files = {name: digest for name, digest in found["files"].items() if name not in apart_from}
        expected = {name: digest for name, digest in wanted.files.items() if name not in apart_from}
        return bool(
            files == expected
            and found["plan_id"] == wanted.plan_id
            and tuple(found.get("targets", ())) == wanted.targets
            and not found.get("replacing")
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def content_digest(content: bytes) -> str:
    """Return the SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()


def read_bytes(path: Path) -> bytes | None:
    """Return a file's content, or None when there is no such file.

    Raises:
        OutputError: it cannot be read.

    """
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = error.strerror or os.strerror(error.errno or 0)
        raise OutputError(f"cannot read {path}: {reason}", hint="move it away or choose another directory") from error
