"""`optimize --simulate`: a whole study on the simulator, labelled in every line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tuner.app.ask import Ask
from tuner.app.rehearse import MODELLED, Rehearsal, rehearse
from tuner.app.resolve import resolve
from tuner.cli.main import app
from tuner.errors import UsageError

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def found() -> tuple[Rehearsal, list[str]]:
    told: list[str] = []
    ask = Ask(model="llama-3-8b", gpu="a100x2", workload="chat", requests=200, trials=6, slo="p95 ttft<=2s")
    return rehearse(resolve(ask, {}), told.append), told


def test_the_budget_is_kept_and_the_best_comes_first(found: tuple[Rehearsal, list[str]]) -> None:
    rehearsal = found[0]
    values = [one.value for one in rehearsal.tried if one.value is not None and one.meets_slo]
    assert sum(one.value is not None for one in rehearsal.tried) == 6
    assert values == sorted(values, reverse=True)
    assert rehearsal.default is not None
    assert rehearsal.starts == 6 + 3 * 3
    assert rehearsal.seconds > 60


def test_every_line_says_simulated(found: tuple[Rehearsal, list[str]]) -> None:
    rehearsal, told = found
    assert len(told) == 6
    assert all(line.startswith("SIMULATED") for line in told)
    assert rehearsal.label == "SIMULATED"
    assert all("SIMULATED" in one.note for one in rehearsal.tried)


def test_what_the_model_does_not_know_is_named(found: tuple[Rehearsal, list[str]]) -> None:
    rehearsal = found[0]
    assert "performance-mode" in rehearsal.not_modelled
    assert not MODELLED & set(rehearsal.not_modelled)
    assert set(rehearsal.effects) <= MODELLED


def test_the_same_seed_gives_the_same_rehearsal(found: tuple[Rehearsal, list[str]]) -> None:
    ask = Ask(model="llama-3-8b", gpu="a100x2", workload="chat", requests=200, trials=6, slo="p95 ttft<=2s")
    assert rehearse(resolve(ask, {}), lambda _: None).tried == found[0].tried


def test_other_engines_are_refused() -> None:
    ask = Ask(model="llama-3-8b", gpu="a100x2", engine="trtllm", trials=2)
    with pytest.raises(UsageError, match="cannot be simulated"):
        rehearse(resolve(ask, {}), lambda _: None)


def test_the_command_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["optimize", "--model", "llama-3-8b", "--simulate", "h100", "--trials", "2", "--requests", "60"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert all(line.startswith("SIMULATED") for line in shown.stdout.splitlines())
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["label"] == "SIMULATED"
    assert not list(tmp_path.iterdir())
