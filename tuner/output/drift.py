"""What lies in a bundle's directory against what its plan says."""

from __future__ import annotations

import difflib
import re
import stat
from pathlib import Path

from tuner.output.lock import read_bytes

_LINES = re.compile(r"[^\n]*\n|[^\n]+")


def drift(directory: Path, name: str, wanted: str | None) -> str:
    """Return the unified diff from the file that lies there to `wanted` (None: no file); empty when they are the same.

    Raises:
        OutputError: the file cannot be read.

    """
    path = directory / name
    present = read_bytes(path)
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
