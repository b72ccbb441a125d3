"""Try an installed llmtune: run by `make dist` with the Python of a fresh environment that holds only the wheel."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

BUNDLED = ("templates", "search_spaces")
CALLS = {
    "--help": "optimize",
    "optimize --help": "--model",
    "models": "llama-3-70b",
    "--version": importlib.metadata.version("llmtune"),
}


def main() -> None:
    """Check that the command answers away from the repository and that the data files came along."""
    root = files("tuner")
    if not (Path(str(root)).is_relative_to(sys.prefix)):
        raise SystemExit(f"error: tuner comes from {root}, not from the wheel")
    for name in BUNDLED:
        found = sorted(item.name for item in (root / "_bundled" / name).iterdir())
        if not found:
            raise SystemExit(f"error: the wheel holds no {name}")
        print(f"{name}: {', '.join(found)}")
    command = str(Path(sys.executable).with_name("llmtune"))
    with tempfile.TemporaryDirectory() as elsewhere:
        for arguments, expected in CALLS.items():
            result = subprocess.run([command, *arguments.split()], cwd=elsewhere, capture_output=True, text=True,
                                    check=False)
            if result.returncode != 0 or expected not in result.stdout:
                text = f"error: llmtune {arguments} ended with {result.returncode}:\n"
                raise SystemExit(text + result.stdout + result.stderr)
        left = sorted(path.name for path in Path(elsewhere).iterdir())
    if left:
        raise SystemExit(f"error: asking for help wrote {', '.join(left)}")
    print(f"llmtune {CALLS['--version']}: the wheel works")


if __name__ == "__main__":
    main()
