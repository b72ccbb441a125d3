"""`llmtune optimize` at the command line: every wrong input gets one error of its kind, and nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.command_line import SPACE, Llmtune, command_line, held, make_place, optimize, tree
from tests.fakes.fake_launcher import FakeLauncher
from tuner.runtime.launchers import LAUNCHERS

pytestmark = pytest.mark.unit


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_place(tmp_path, monkeypatch)


@pytest.fixture
def llmtune(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Llmtune]:
    with command_line(monkeypatch, capsys) as run:
        yield run


class Never(FakeLauncher):
    """Nothing may be launched."""

    @contextmanager
    def start(self, spec: Any, folder: Path) -> Iterator[Any]:
        pytest.fail("something was launched")
        yield


# --- bad input


def write(name: str, text: str) -> Callable[[Path], None]:
    def act(place: Path) -> None:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)

    return act


def no_config(place: Path) -> None:
    (place / "tiny" / "config.json").unlink()


def other_architecture(place: Path) -> None:
    config = place / "tiny" / "config.json"
    config.write_text(config.read_text().replace("LlamaForCausalLM", "BertModel"))


def cuda_build(place: Path) -> None:
    for path in (place / "engine").rglob("METADATA"):
        path.write_text(path.read_text().replace("+cpu", ""))


def old_release(place: Path) -> None:
    for path in (place / "engine").rglob("METADATA"):
        path.write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.4.0+cpu\n")


def nothing(place: Path) -> None:
    del place


BAD: list[Any] = [
    pytest.param(nothing, ["--model", "llama-3-70"], 3, "neither a known alias", "llama-3-70b", id="unknown-alias"),
    pytest.param(nothing, ["--model", "./nowhere"], 3, "is not a directory", None, id="no-directory"),
    pytest.param(no_config, [], 3, "has no config.json", "holds the model's files", id="no-config"),
    pytest.param(write("tiny/config.json", "{"), [], 3, "config.json:1: not valid JSON", None, id="broken-config"),
    pytest.param(other_architecture, [], 3, "BertModel", "choose a model", id="architecture"),
    pytest.param(cuda_build, [], 7, "no NVIDIA GPU", "CPU build", id="no-gpu"),
    pytest.param(nothing, ["--engine-command", "none/vllm"], 4, "is not there", "--engine-command", id="no-engine"),
    pytest.param(old_release, [], 4, "older than the oldest release", "0.5.4 or newer", id="old-engine"),
    pytest.param(nothing, ["--set", "swap-space=4"], 5, "no longer has --swap-space", "kv-offloading-size", id="removed-flag"),
    pytest.param(nothing, ["--set", "max-num-seqs=x"], 5, "takes a whole number", None, id="wrong-value"),
    pytest.param(nothing, ["--set", "tensor-parallel-size=2"], 5, "9 attention heads cannot be split", "use 1, 3, 9",
                 id="heads"),
    pytest.param(nothing, ["--baseline", "vllm serve tiny --swap-space 4"], 5, "no longer has", "kv-off", id="baseline"),
    pytest.param(write("space.yaml", SPACE.replace("max-num-seqs", "max-num-seq")), [], 6, "space.yaml:3: ",
                 "--max-num-seqs", id="space-unknown-flag"),
    pytest.param(write("space.yaml", SPACE.replace("[unset, 8]", "[]")), [], 6, "space.yaml:4: ", None,
                 id="space-empty-domain"),
    pytest.param(write("space.yaml", SPACE.replace("8]", "many]")), [], 6, "space.yaml:4: ", None, id="space-wrong-type"),
    pytest.param(write("study.yaml", "trails: 4\n"), ["--study-file", "study.yaml"], 6, "study.yaml:1: unknown key", None,
                 id="study-file"),
    pytest.param(nothing, ["--slo", "fast"], 2, "cannot read the limit 'fast'", "p95 ttft<=300ms", id="slo"),
    pytest.param(nothing, ["--objective", "speed"], 2, "unknown objective", "output_tokens_per_s", id="objective"),
    pytest.param(nothing, ["--workload", "chatt"], 2, "unknown workload", "chat, rag", id="workload"),
    pytest.param(nothing, ["--budget", "soon"], 2, "--budget 'soon' is not a duration", "1h30m", id="budget"),
    pytest.param(nothing, ["--image", "vllm/vllm-openai:latest"], 2, "not pinned", "digest", id="image"),
    pytest.param(write("out", "a file"), ["--out", "out"], 9, "cannot write", "--out", id="out-is-a-file"),
    pytest.param(nothing, ["--out", "/proc/nowhere"], 9, "cannot write", "--out", id="out-not-writable"),
    pytest.param(nothing, ["--storage", "nonsense"], 8, "is not a URL", "journal://", id="storage-no-url"),
]


@pytest.mark.parametrize(("prepare", "words", "code", "says", "hint"), BAD)
def test_bad_input_gets_one_error_of_its_kind_and_writes_nothing(
    place: Path, llmtune: Llmtune, prepare: Callable[[Path], None], words: list[str], code: int, says: str,
    hint: str | None, monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepare(place)
    monkeypatch.setitem(LAUNCHERS, "process", Never)
    before = tree(place)
    held(optimize(llmtune, *words), code, says, hint)
    left = {name for name in tree(place).keys() - before.keys() if not name.endswith("study.lock")}
    assert left == set()


def test_a_wrong_option_is_a_usage_error(place: Path, llmtune: Llmtune) -> None:
    for words in (["--trials", "0"], ["--trials", "x"], ["--seed", "-1"], ["--nope"], ["--verify-rounds", "1"]):
        said = optimize(llmtune, *words)
        assert said.code == 2
        assert "Traceback" not in said.err
        assert words[0] in said.err


# --- other commands


def test_models_lists_the_aliases(llmtune: Llmtune) -> None:
    said = llmtune("models")
    assert said.code == 0
    assert "llama-3-70b" in said.out


def test_version(llmtune: Llmtune) -> None:
    said = llmtune("--version")
    assert said.code == 0
    assert said.out.startswith("llmtune ")


def test_a_dry_run_starts_and_writes_nothing(
    place: Path, llmtune: Llmtune, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LAUNCHERS, "process", Never)
    before = tree(place)
    said = optimize(llmtune, "--dry-run", "-v")
    assert said.code == 0
    assert "PREDICTED" in said.out
    assert "nothing was started" in said.out
    assert "workload: option" in said.out
    shown = json.loads(optimize(llmtune, "--dry-run", "--json").out)
    assert shown["predicted"] is True
    assert shown["space_size"] == 2
    assert shown["study"]["seed"] == 0
    assert tree(place) == before


def test_a_study_file_asks_the_same(place: Path, llmtune: Llmtune) -> None:
    (place / "study.yaml").write_text(
        "model: tiny\nengine-command: engine/bin/vllm\nspace: space.yaml\nworkload: 8x6@c4\nrequests: 12\ntrials: 2\n"
        "set: {enforce-eager: true}\n")
    by_file = json.loads(llmtune("optimize", "--study-file", "study.yaml", "--dry-run", "--json").out)["study"]
    by_options = json.loads(optimize(llmtune, "--set", "enforce-eager=true", "--dry-run", "--json").out)["study"]
    assert by_file["name"] == by_options["name"], "the name carries the hash of the question"
    assert by_file["sources"]["model"] == "study.yaml:1"
    assert by_options["sources"]["model"] == "option"
