"""From what was asked to the question: models, workloads, pins, baselines, and every wrong word in its own error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes import plans
from tests.fakes.fake_adapter import make_model
from tuner.app import resolve as module
from tuner.app.ask import Ask
from tuner.app.named import resolve_model, resolve_workload
from tuner.app.resolve import Resolved, resolve
from tuner.domain.hardware import Hardware
from tuner.domain.study import EngineInstall
from tuner.domain.workload import ClosedLoop, Fixed, OpenLoop
from tuner.errors import FlagError, HardwareError, LlmtuneError, ModelError, SpaceError, UsageError
from tuner.search.screen import screen

pytestmark = pytest.mark.unit

CPU_BUILD = EngineInstall(engine="vllm", version="0.32.0", build="cpu", program=("/opt/vllm/bin/vllm", "serve"))
CUDA_BUILD = CPU_BUILD.model_copy(update={"build": "cuda"})


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A machine of our choice; nothing of the real one is looked at."""

    def set_up(hardware: Hardware = plans.CPU, install: EngineInstall = CPU_BUILD) -> None:
        monkeypatch.setattr(module, "detect_hardware", lambda: hardware)
        monkeypatch.setattr(module, "detect_engine", lambda *_: install)

    monkeypatch.setenv("HF_HOME", str(tmp_path / "no-cache"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.chdir(tmp_path)
    set_up()
    return set_up


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    return str(make_model(tmp_path / "tiny"))


def ask(model: str, **changes: Any) -> Resolved:
    fields: dict[str, Any] = {"model": model, "workload": "8x8@c4", **changes}
    return resolve(Ask(**fields), dict.fromkeys(fields, "option"))


def refusal(model: str, **changes: Any) -> LlmtuneError:
    with pytest.raises(LlmtuneError) as caught:
        ask(model, **changes)
    assert caught.value.message
    assert "\n" not in caught.value.message
    return caught.value


# --- the whole question


def test_the_question_of_a_local_model(machine: Any, tiny: str) -> None:
    found = ask(tiny)
    spec = found.spec
    assert (spec.model.name, spec.model.is_local) == ("tiny", True)
    assert spec.hardware == plans.CPU
    assert spec.engine == CPU_BUILD
    assert (spec.budget.trials, spec.budget.finalists, spec.budget.verify_rounds) == (20, 2, 3)
    assert spec.name == f"8x8-c4-{spec.question[:8]}"
    assert found.space.point_of(found.space.config({})) is not None
    assert spec.sources["workload"] == "option"
    assert spec.sources["hardware"] == "detected"
    assert spec.sources["trials"] == "default"
    assert found.out == Path("outputs")
    assert list(Path.cwd().iterdir()) == [Path.cwd() / "tiny"], "nothing was written"


def test_asking_twice_is_the_same_question(machine: Any, tiny: str) -> None:
    assert ask(tiny).spec == ask(tiny).spec
    assert ask(tiny, seed=3, trials=5).spec.question == ask(tiny).spec.question


@pytest.mark.parametrize(
    "changes",
    [{"workload": "8x9@c4"}, {"slo": "p95 ttft<=1s"}, {"objective": "p95_ttft"}, {"set": ("max-num-seqs=4",)},
     {"set": ("max-num-seqs=unset",)}, {"baseline": "vllm serve tiny --max-num-seqs 3"}],
    ids=lambda changes: str(next(iter(changes.items()))),
)
def test_another_question_has_another_name(machine: Any, tiny: str, changes: dict[str, Any]) -> None:
    assert ask(tiny, **changes).spec.name != ask(tiny).spec.name


def test_everything_that_can_be_said(machine: Any, tiny: str) -> None:
    found = ask(
        tiny, slo="p95 ttft<=300ms", objective="goodput-per-s", trials=7, budget="1h30m", finalists=3, verify_rounds=4,
        seed=5, study="mine", out="elsewhere", storage="sqlite:///x", model_name="served", start_timeout="5m",
        requests=99, image="registry:5000/own:1.2")
    spec = found.spec
    assert spec.objective == "goodput_per_s"
    assert (spec.budget.trials, spec.budget.seconds, spec.budget.start_timeout_s) == (7, 5400, 300)
    assert (spec.seed, spec.name, spec.model.name, spec.workload.requests) == (5, "mine", "served", 99)
    assert spec.engine.image == "registry:5000/own:1.2"
    assert (str(found.out), found.storage) == ("elsewhere", "sqlite:///x")


# --- models


def test_a_directory_an_alias_and_a_hub_id(machine: Any, tiny: str) -> None:
    assert resolve_model(tiny, None).source == "directory"
    assert resolve_model("./tiny", None).source == "directory"
    assert resolve_model("llama-3-70b", None).location == "meta-llama/Meta-Llama-3-70B-Instruct"
    assert resolve_model("somebody/model", "mine").name == "mine"


def test_a_hub_models_architecture_comes_from_the_cache(machine: Any, tmp_path: Path) -> None:
    assert resolve_model("some/body", None).architecture is None
    snapshot = tmp_path / "no-cache" / "hub" / "models--some--body" / "snapshots" / "a"
    make_model(snapshot)
    assert resolve_model("some/body", None).attention_heads == 9


@pytest.mark.parametrize(
    ("text", "kind", "says", "hint"),
    [
        ("llama-3-70", ModelError, "neither a known alias", "llama-3-70b"),
        ("./nowhere", ModelError, "is not a directory", None),
        ("/nowhere/at/all", ModelError, "is not a directory", None),
        ("~nobody-at-all/model", ModelError, "is not a directory", None),
        ("x" * 5000, ModelError, "neither a known alias", "lists all"),
        ("", UsageError, "no model", "--model"),
    ],
    ids=["near", "relative", "absolute", "home", "long", "empty"],
)
def test_no_model(machine: Any, text: str, kind: type, says: str, hint: str | None) -> None:
    error = refusal(text)
    assert type(error) is kind
    assert says in error.message
    assert hint is None or hint in (error.hint or "")


def test_nobody_said_which_model(machine: Any) -> None:
    with pytest.raises(UsageError, match="no model") as caught:
        resolve(Ask(), {})
    assert "--model" in (caught.value.hint or "")


# --- can it run here at all


def test_the_cuda_build_needs_a_gpu(machine: Any, tiny: str) -> None:
    machine(plans.CPU, CUDA_BUILD)
    error = refusal(tiny)
    assert isinstance(error, HardwareError)
    assert "no NVIDIA GPU" in error.message
    assert "CPU build" in (error.hint or "")


def test_a_model_that_is_larger_than_the_memory(machine: Any) -> None:
    machine(plans.CPU)
    error = refusal("llama-3-70b", workload="chat")
    assert isinstance(error, HardwareError)
    assert "PREDICTED" in error.message
    assert error.exit_code == 7


def test_an_architecture_that_is_not_served(machine: Any, tmp_path: Path) -> None:
    folder = make_model(tmp_path / "bert")
    config = folder / "config.json"
    config.write_text(config.read_text().replace("LlamaForCausalLM", "BertModel"))
    assert isinstance(refusal(str(folder)), ModelError)
    config.write_text(config.read_text().replace("BertModel", "BrandNewForCausalLM"))
    assert any("generic back end" in note for note in ask(str(folder)).notes)


def test_notes_on_what_is_not_known(machine: Any) -> None:
    machine(plans.H100, CUDA_BUILD.model_copy(update={"version": "9.9.0"}))
    notes = ask("somebody/model").notes
    assert any("architecture of somebody/model is not known" in note for note in notes)
    assert any("9.9.0" in note for note in notes)
    machine(plans.H100, CPU_BUILD)
    assert any("GPUs stay idle" in note for note in ask("somebody/model").notes)


# --- workloads


def test_short_forms(machine: Any) -> None:
    closed = resolve_workload("512x256@c64", None)
    assert closed.input_tokens == Fixed(tokens=512)
    assert closed.output_tokens == Fixed(tokens=256)
    assert closed.arrivals == ClosedLoop(concurrency=64)
    assert resolve_workload("512x256", None).arrivals == closed.arrivals
    opened = resolve_workload("512x256@2.5/s", 40)
    assert isinstance(opened.arrivals, OpenLoop)
    assert (opened.arrivals.rate_per_s, opened.requests) == (2.5, 40)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("chatt", UsageError), ("512", UsageError), ("512x", UsageError), ("512x256@64", UsageError),
        ("0x256", UsageError), ("512x0@c4", UsageError), ("512x256@c0", UsageError), ("512x256@0/s", UsageError),
        ("512x256@c999999999", UsageError), ("none.yaml", SpaceError),
    ],
)
def test_no_workload(machine: Any, tiny: str, text: str, kind: type) -> None:
    error = refusal(tiny, workload=text)
    assert type(error) is kind
    assert text in error.message


def test_a_workload_file(machine: Any, tiny: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "schema_version: 1\nwhy: ours\ninput_tokens: {kind: uniform, low: 4, high: 9}\n"
        "output_tokens: {kind: fixed, tokens: 8}\narrivals: {kind: closed, concurrency: 2}\nrequests: 20\n")
    workload = ask(tiny, workload=str(file)).spec.workload
    assert (workload.name, workload.longest, workload.requests) == ("mine", 17, 20)
    file.write_text(file.read_text().replace("low: 4", "low: 44"))
    error = refusal(tiny, workload=str(file))
    assert error.message.startswith(f"{file}:3: ")
    assert "low must not be above high" in error.message


def test_the_longest_request_must_fit(machine: Any, tiny: str) -> None:
    assert "508 tokens" not in ask(tiny, workload="500x8@c1").command
    error = refusal(tiny, workload="505x8@c1")
    assert "513 tokens" in error.message
    assert "512" in error.message
    assert "64" in refusal(tiny, workload="60x8@c1", set=("max-model-len=64",)).message


# --- SLO, objective, budget, image, engine


@pytest.mark.parametrize(
    ("changes", "kind", "says"),
    [
        ({"slo": "ttft<=300ms"}, UsageError, "no percentile"),
        ({"objective": "speed"}, UsageError, "unknown objective"),
        ({"objective": "goodput_per_s"}, UsageError, "there is none"),
        ({"budget": "long"}, UsageError, "--budget"),
        ({"start_timeout": "1"}, UsageError, "--start-timeout"),
        ({"image": "vllm/vllm-openai"}, UsageError, "not pinned"),
        ({"image": "vllm/vllm-openai:latest"}, UsageError, "not pinned"),
        ({"image": "localhost:5000/vllm"}, UsageError, "not pinned"),
        ({"engine": "vlm"}, UsageError, "unknown engine"),
        ({"space": "none.yaml"}, SpaceError, "no such file"),
        ({"set": ("max-num-seqs",)}, UsageError, "has no value"),
        ({"set": ("=4",)}, UsageError, "has no value"),
        ({"set": ("max-num-seq=4",)}, FlagError, "has no flag --max-num-seq"),
        ({"set": ("swap-space=4",)}, FlagError, "no longer has --swap-space"),
        ({"set": ("max-num-seqs=many",)}, FlagError, "takes a whole number"),
        ({"set": ("enforce-eager=maybe",)}, FlagError, "is on or off"),
        ({"set": ("port=80",)}, FlagError, "cannot be set here"),
        ({"set": ("env:HF_TOKEN=x",)}, FlagError, "secret"),
        ({"set": ("env:VLLM_USE_V1=1",)}, FlagError, "does not read the variable"),
        ({"set": ("max-num-seqs=0",)}, FlagError, "cannot work"),
        ({"set": ("tensor-parallel-size=2",)}, FlagError, "9 attention heads cannot be split"),
        ({"baseline": "vllm serve other --max-num-seqs 4"}, UsageError, "the baseline serves other"),
        ({"baseline": "vllm serve tiny --swap-space 4"}, FlagError, "no longer has --swap-space"),
        ({"baseline": "echo"}, SpaceError, "no `vllm serve` command"),
        ({"baseline": "none.sh"}, SpaceError, "cannot be read"),
        ({"baseline": "vllm serve tiny --config x.yaml"}, FlagError, "--config cannot be set here"),
    ],
    ids=lambda value: str(next(iter(value.items()))) if isinstance(value, dict) else None,
)
def test_wrong_words(machine: Any, tiny: str, changes: dict[str, Any], kind: type, says: str) -> None:
    error = refusal(tiny, **changes)
    assert isinstance(error, kind)
    assert says in error.message


# --- pins and baselines


def test_pins_by_any_name_and_kind(machine: Any, tiny: str) -> None:
    found = ask(tiny, set=("max_num_seqs=4", "enforce-eager=true", "gpu-memory-utilization=1", "-q=fp8",
                           "env:VLLM_CPU_KVCACHE_SPACE=1", "block-size=unset", "max-num-seqs=5"))
    assert found.space.config({}).values == {
        "max-num-seqs": 5, "enforce-eager": True, "gpu-memory-utilization": 1.0, "quantization": "fp8",
        "env:VLLM_CPU_KVCACHE_SPACE": "1"}
    open_flags = {dimension.flag for dimension in found.space.dimensions}
    assert not open_flags & {"max-num-seqs", "block-size"}


def test_a_baseline_keeps_its_own_and_takes_the_other_pins(machine: Any, tiny: str) -> None:
    found = ask(tiny, set=("max-num-seqs=4", "enforce-eager=true"),
                baseline=f"vllm serve {tiny} --max-num-seqs 7 --port 80")
    baseline = found.spec.baseline
    assert baseline is not None
    assert baseline.values == {"max-num-seqs": 7, "enforce-eager": True}
    assert any("keeps its own max-num-seqs" in note for note in found.notes)
    assert any("--port" in note for note in found.notes)


def test_a_baseline_that_names_no_model(machine: Any, tiny: str) -> None:
    baseline = ask(tiny, baseline='vllm serve "$MODEL" --max-num-seqs 7').spec.baseline
    assert baseline is not None
    assert baseline.get("max-num-seqs") == 7


def test_a_space_of_hopeless_values_leaves_the_defaults(machine: Any, tiny: str, tmp_path: Path) -> None:
    space = tmp_path / "space.yaml"
    space.write_text(
        "engine: vllm\nsettings:\n  - {flag: block-size, values: [16, 48]}\n  - {flag: max-num-seqs, values: [0]}\n")
    found = ask(tiny, space=str(space))
    model, hardware = found.spec.model, found.spec.hardware
    assert screen(found.space.config({}), model, hardware) is None
    assert all(screen(found.space.config(point), model, hardware) for point in found.space.points())
