"""Options and study files: who wins, where each value came from, and what is refused with its line."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from tuner.app.ask import Ask, command, merge, seconds
from tuner.errors import SpaceError, UsageError

pytestmark = pytest.mark.unit


def study_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    return path


def merged(tmp_path: Path, text: str, **options: Any) -> tuple[Ask, dict[str, str]]:
    return merge(Ask(**options), study_file(tmp_path, text))


def test_without_a_file_the_options_are_all() -> None:
    ask, sources = merge(Ask(model="m", trials=3, set=("a=1",)), None)
    assert (ask.model, ask.trials, ask.set) == ("m", 3, ("a=1",))
    assert sources == {"model": "option", "trials": "option", "set": "option"}


def test_a_file_fills_in_and_options_win(tmp_path: Path) -> None:
    ask, sources = merged(
        tmp_path, "# mine\nmodel: other\nslo: p95 ttft<=300ms\ntrials: 9\nverify-rounds: 4\nbudget: 2h\n", model="m")
    assert (ask.model, ask.trials, ask.verify_rounds, ask.budget) == ("m", 9, 4, "2h")
    assert sources["model"] == "option"
    assert sources["slo"] == "study.yaml:3"
    assert sources["trials"] == "study.yaml:4"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("set: {max-num-seqs: 64, enforce-eager: true, dtype: null, gpu-memory-utilization: 0.9}\n",
         ("max-num-seqs=64", "enforce-eager=true", "dtype=unset", "gpu-memory-utilization=0.9")),
        ("set: [max-num-seqs=64, 'dtype=unset']\n", ("max-num-seqs=64", "dtype=unset")),
        ("set: {speculative-config: {method: ngram, num_speculative_tokens: 4}}\n",
         ('speculative-config={"method": "ngram", "num_speculative_tokens": 4}',)),
    ],
    ids=["mapping", "list", "object"],
)
def test_settings_in_a_file(tmp_path: Path, text: str, expected: tuple[str, ...]) -> None:
    assert merged(tmp_path, text)[0].set == expected


def test_settings_of_both_are_joined_and_options_come_last(tmp_path: Path) -> None:
    assert merged(tmp_path, "set: [a=1, b=2]\n", set=("b=3",))[0].set == ("a=1", "b=2", "b=3")


def test_paths_in_a_file_are_beside_it(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text("")
    (tmp_path / "model").mkdir()
    ask, _ = merged(tmp_path, "model: model\nspace: space.yaml\nworkload: chat\nout: elsewhere\n")
    assert ask.model == str(tmp_path / "model")
    assert ask.space == str(tmp_path / "space.yaml")
    assert (ask.workload, ask.out) == ("chat", "elsewhere")


def test_a_long_command_is_no_path(tmp_path: Path) -> None:
    long = "vllm serve m " + "--max-num-seqs 4 " * 60
    assert merged(tmp_path, f"baseline: {long}\n")[0].baseline == long.strip()


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("model: m\ntrails: 9\n", 2, "unknown key 'trails'"),
        ("model: m\ntrials: many\n", 2, "trials"),
        ("trials: 0\n", 1, "trials"),
        ("verify_rounds: 1\n", 1, "verify_rounds"),
        ("seed: -1\n", 1, "seed"),
        ("model: [a]\n", 1, "model"),
        ("- model\n", 1, "a study file is a mapping"),
        ("model: m\nmodel: n\n", 2, "stands here twice"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, line: int, says: str) -> None:
    with pytest.raises(SpaceError) as caught:
        merged(tmp_path, text)
    assert says in caught.value.message
    assert caught.value.message.startswith(f"{tmp_path}/study.yaml:{line}: ")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match="no such file"):
        merge(Ask(), tmp_path / "none.yaml")


# --- the command that asks the same


def test_the_command_has_one_order_and_no_place_of_this_machine() -> None:
    ask = Ask(
        model="/models/tiny", out="/elsewhere", storage="sqlite:///x", engine_command="/opt/vllm", seed=1,
        slo="p95 ttft<=300ms", set=("a=1", "b=x y"), space="../spaces/my.yaml", baseline="vllm serve /models/tiny")
    words = shlex.split(command(ask))
    assert words[:4] == ["llmtune", "optimize", "--model", "tiny"]
    assert words.count("--set") == 2
    assert "b=x y" in words
    assert words[words.index("--space") + 1] == "my.yaml"
    assert words[words.index("--slo") + 1] == "p95 ttft<=300ms"
    assert not {"--out", "--storage", "--engine-command"} & set(words)
    assert command(ask) == command(Ask.model_validate(ask.model_dump()))


def test_the_command_of_nothing() -> None:
    assert command(Ask()) == "llmtune optimize"


# --- durations


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90), ("20m", 1200), ("2h", 7200), ("1h30m", 5400), ("0.5h", 1800), ("1d", 86400), (" 5M ", 300)],
)
def test_durations(text: str, expected: float) -> None:
    assert seconds(text, "--budget") == expected


@pytest.mark.parametrize("text", ["", "90", "h", "0s", "-5m", "1h 30m", "2 h", "five", "1.2.3h", ".s", "1e3s", "1h30"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        seconds(text, "--budget")
    assert "--budget" in caught.value.message
    assert "1h30m" in (caught.value.hint or "")
