"""Generated pages are current, and the README's commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tuner.cli.main import app

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
COMMANDS = {(str(known.name),) for known in app.registered_commands} | {
    ("studies", action) for action in ("list", "show", "export")}


def test_generated_pages_are_current() -> None:
    run = subprocess.run(
        [sys.executable, "scripts/gen_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0, run.stdout + run.stderr


def options_of(*command: str) -> set[str]:
    return set(re.findall(r"--[a-z][a-z-]*", CliRunner().invoke(app, [*command, "--help"]).output))


@pytest.mark.parametrize("page", ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md"))])
def test_every_option_in_the_docs_exists(page: str) -> None:
    text = (ROOT / page).read_text().replace("\\\n", " ")
    for line in re.findall(r"llmtune [a-z]+ [^`\n]*", text):
        words = line.split()
        command = words[1:2] if words[1] != "studies" else words[1:3]
        if tuple(command) not in COMMANDS:
            continue
        ours = line.split('"')[0::2]
        for option in re.findall(r"(?<!\w)--[a-z][a-z-]*", " ".join(ours)):
            assert option in options_of(*command) | {"--help"}, f"{page}: {line}"
