"""The demo model is made by the project itself, and the same bytes come out each time."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts" / "make_demo_model.py"


def test_same_bytes_each_time(engine_command: Path, tmp_path: Path) -> None:
    python = engine_command.with_name("python")
    folder = tmp_path / "model"
    command = [str(python), str(SCRIPT), str(folder), "--size", "tiny", "--twice"]
    made = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    assert made["parameters"] == 1_000_576
    config = json.loads((folder / "config.json").read_text())
    assert (config["vocab_size"], config["max_position_embeddings"]) == (2048, 4096)
    assert len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]) == 2048
    assert not (tmp_path / "model.part").exists()
