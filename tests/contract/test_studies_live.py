"""Two llmtune programs on one storage, each with its own folder and stand-in engines, and somebody who looks on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fakes.command_line import BASIC
from tests.fakes.fake_adapter import make_model, make_vllm
from tuner.app.studies import list_studies, show_study
from tuner.output.bundle import load_plan

pytestmark = [pytest.mark.contract, pytest.mark.skipif(sys.platform != "linux", reason="engines are started on Linux")]

ROOT = Path(__file__).resolve().parents[2]
SPACE = "engine: vllm\nsettings:\n  - flag: max-num-seqs\n    values: [unset, 1, 2, 4]\n    why: because\n"
POINTS = 4
WAIT_S = 240.0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    make_model(tmp_path / "tiny")
    make_vllm(tmp_path / "engine")
    (tmp_path / "space.yaml").write_text(SPACE)
    return tmp_path


def optimize(place: Path, out: str) -> subprocess.Popen[str]:
    command = [
        sys.executable, "-c", "from tuner.cli.main import main; main()", "optimize", "--model", "tiny",
        "--engine-command", "engine/bin/vllm", "--space", "space.yaml", *BASIC, "--trials", str(POINTS),
        "--storage", storage(place), "--study", "both", "--out", out]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def storage(place: Path) -> str:
    return f"journal:///{place}/shared.journal"


@pytest.mark.timeout(600)
def test_two_programs_share_a_study(place: Path) -> None:
    """UP-F07, UP-F13: what one is at the other leaves alone, and the budget is that of both together."""
    running = [optimize(place, out) for out in ("a", "b")]
    try:
        at_work = {0}
        while all(one.poll() is None for one in running):
            if (place / "shared.journal").exists():
                at_work |= {len(row.working) for row in list_studies(place / "a", storage(place))}
            time.sleep(0.2)
        said = [one.communicate(timeout=WAIT_S)[0] for one in running]
    finally:
        for one in running:
            one.kill()
            one.wait()
    assert [one.returncode for one in running] == [0, 0], said
    assert max(at_work) == 2, "both were seen at work"

    lines = show_study("both", place / "a", storage(place)).lines
    measured = [line for line in lines if line.outcome == "measured"]
    others = {(line.outcome, line.cause) for line in lines if line.outcome != "measured"}
    assert others <= {("failed", "machine")}, "each made the machine busy for the other"
    assert len({json.dumps(line.settings) for line in measured}) == len(measured) == POINTS, "all, and none twice"
    assert len({line.owner for line in lines}) == 2, "both had a share"

    plans = [load_plan(path.parent) for path in sorted(place.glob("*/tiny/both/plan.json"))]
    assert len(plans) == 2
    numbers = {int(path.name) for path in place.glob("*/tiny/both/trials/*") if re.fullmatch(r"\d+", path.name)}
    assert {line.number for line in lines} <= numbers, "each trial has its folder on one of the two"
