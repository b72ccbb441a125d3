"""What would make it fit: every change that is named is predicted to be enough when it is made."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tuner.app.check import context_of
from tuner.capacity.memory import MemoryPlan, memory_plan
from tuner.capacity.remedies import remedies
from tuner.domain.engine import EngineConfig, Setting, Value
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.engines import ENGINES
from tuner.facts.catalog import model_by_alias
from tuner.facts.gpus import parse_hardware
from tuner.inspect.inspect_file import check_text

pytestmark = pytest.mark.unit

VERSIONS = {"vllm": "0.33.0", "trtllm": "1.2.0"}


def known(alias: str) -> ModelSpec:
    spec = model_by_alias(alias)
    assert spec is not None
    return spec


def plan_of(model: ModelSpec, hardware: Hardware, values: dict[str, Value], engine: str) -> tuple[MemoryPlan, Any]:
    settings = tuple(Setting(flag=flag, value=value) for flag, value in values.items())
    footprint = ENGINES[engine].footprint(
        model, EngineConfig(engine=engine, version=VERSIONS[engine], settings=settings)
    )
    plan = memory_plan(model, footprint, hardware)
    assert isinstance(plan, MemoryPlan)
    return plan, footprint


def changed(step: str, values: dict[str, Value], hardware: Hardware) -> tuple[dict[str, Value], Hardware] | None:
    """Make the change that a remedy names."""
    found = re.match(r"(?:--)?([a-z][a-z_.-]+)(?: |: )(\S+?)(?: |$)", step)
    if found is None or step.startswith(("a ", "an ")):
        return None
    text: Value = found[2]
    for kind in (int, float):
        try:
            text = kind(found[2])
            break
        except ValueError:
            continue
    count = re.search(r"on (\d+) such GPUs", step)
    cards = hardware.model_copy(update={"gpus": hardware.gpus[:1] * int(count[1])}) if count else hardware
    return {**values, found[1]: text}, cards


CASES: list[Any] = [
    pytest.param("llama-3.1-8b", "l4", {}, "vllm", ["--max-model-len 30", "--tensor-parallel-size 2 on 2", "22 GiB"], id="context"),
    pytest.param("llama-3-70b", "h100", {}, "vllm", ["--tensor-parallel-size 2 on 2 such GPUs", "197 GiB"], id="weights"),
    pytest.param("llama-3.1-8b", "h100", {"gpu-memory-utilization": 0.3}, "vllm", ["--gpu-memory-utilization 0.4"], id="share"),
    pytest.param("qwen2.5-72b", "h100x2", {"tensor-parallel-size": 2}, "vllm", ["--quantization fp8 (check the quality)"], id="fp8"),
    pytest.param("deepseek-r1", "h100x8", {"tensor-parallel-size": 8}, "vllm", ["--pipeline-parallel-size 2 on 16", "a smaller model"], id="hosts"),
    pytest.param("llama-3.1-8b", "l4", {"max_seq_len": 131072}, "trtllm", ["tensor_parallel_size: 2 on 2"], id="trtllm"),
    pytest.param("llama-3-8b", "a10g", {"kv_cache_config.free_gpu_memory_fraction": 0.1, "max_seq_len": 8192}, "trtllm", ["kv_cache_config.free_gpu_memory_fraction: 0."], id="fraction"),
]  # fmt: skip


@pytest.mark.parametrize(("alias", "gpu", "values", "engine", "words"), CASES)
def test_each_change_is_enough(alias: str, gpu: str, values: dict[str, Value], engine: str, words: list[str]) -> None:
    model, hardware = known(alias), parse_hardware(gpu)
    plan, footprint = plan_of(model, hardware, values, engine)
    assert plan.verdict != "fits"
    steps = remedies(model, footprint, hardware, plan, engine=engine)
    for word in words:
        assert any(word in step for step in steps), steps
    made = 0
    for step in steps:
        change = changed(step, values, hardware)
        if change is not None:
            made += 1
            after, _ = plan_of(model, change[1], change[0], engine)
            assert after.margin >= 0, step
    assert made


def test_a_stated_cache_has_no_share_to_raise() -> None:
    model, hardware = known("llama-3.1-8b"), parse_hardware("h100")
    plan, footprint = plan_of(model, hardware, {"kv-cache-memory-bytes": "1G"}, "vllm")
    assert not any("utilization" in step for step in remedies(model, footprint, hardware, plan))


def test_check_names_them_for_both_engines() -> None:
    vllm = check_text("x.sh", "vllm serve meta-llama/Llama-3.1-8B-Instruct\n", context_of(None, "l4", None))
    (found,) = [issue for issue in vllm if issue.rule == "memory"]
    assert "least harm first: --max-model-len 30" in found.fix
    text = "trtllm-serve meta-llama/Llama-3.3-70B-Instruct --host 0.0.0.0 --max_batch_size 8 --max_seq_len 8192\n"
    trtllm = check_text("x.sh", text, context_of("1.2.0", "h100", None))
    (found,) = [issue for issue in trtllm if issue.rule == "memory"]
    assert (found.severity, "tensor_parallel_size: 2 on 2 such GPUs" in found.fix) == ("error", True)
