"""The step-time model: its terms point the right way, and it is as wrong as its data file says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.capacity.fit import Fit, Point
from tuner.capacity.latency import (
    Rates,
    Shape,
    StepTime,
    coefficients,
    lone_ttft,
    rates_of,
    shape_of,
    steady_tpot,
    step_time,
)
from tuner.capacity.published import spec_of
from tuner.capacity.refusal import Refused
from tuner.domain.engine import Footprint
from tuner.domain.model import ModelSpec
from tuner.facts.catalog import model_by_alias
from tuner.facts.gpus import GpuFacts, gpu_table
from tuner.facts.read import data

pytestmark = pytest.mark.unit


def model(alias: str) -> ModelSpec:
    found = model_by_alias(alias)
    assert found is not None
    return found


def built(alias: str, gpu: str = "H100-SXM5-80GB", **footprint: object) -> StepTime:
    step = step_time(model(alias), Footprint.model_validate(footprint), gpu_table()[gpu])
    assert isinstance(step, StepTime)
    return step


def test_one_sequence_of_a_dense_model_takes_as_long_as_its_weights_take_to_read() -> None:
    step = built("llama-3-8b")
    alone = step.seconds(1, 100)
    reading = (8.03e9 - 1.05e9 / 2) * 2 / 3.35e12
    assert reading < alone < 1.6 * reading


def test_published_step_of_llama_70b_fp8_on_four_h100() -> None:
    """tp4, 64 at once, 1024/1024 on vLLM: 17.9 to 19 ms a token in public tables."""
    spec = spec_of("meta-llama/Llama-3.1-70B", "fp8")
    assert spec is not None
    step = step_time(spec, Footprint(tensor_parallel=4), gpu_table()["H100-SXM5-80GB"])
    assert isinstance(step, StepTime)
    assert 14 < 1e3 * steady_tpot(step, 64, 1024, 1024, 8192) < 24


@given(
    sequences=st.integers(1, 512), each=st.integers(1, 8000), prompt=st.integers(0, 8192), more=st.integers(1, 500)
)
def test_more_work_never_takes_less_time(sequences: int, each: int, prompt: int, more: int) -> None:
    step = built("llama-3-70b", tensor_parallel=4)
    base = step.seconds(sequences, sequences * each, prompt, prompt * prompt / 2)
    assert step.seconds(sequences + more, (sequences + more) * each, prompt, prompt * prompt / 2) > base
    assert step.seconds(sequences, sequences * (each + more), prompt, prompt * prompt / 2) > base
    assert step.seconds(sequences, sequences * each, prompt + more, (prompt + more) ** 2 / 2) > base


def test_tensor_parallelism_shortens_a_step_but_not_in_proportion() -> None:
    times = [built("llama-3-70b", tensor_parallel=ranks).seconds(32, 32_000) for ranks in (1, 2, 4, 8)]
    assert times == sorted(times, reverse=True)
    assert times[0] / times[3] < 8


def test_without_a_link_between_gpus_splitting_pays_less() -> None:
    gpu = gpu_table()["L40S"]
    near = gpu.model_copy(update={"link_gbs": 450.0})

    def gain(card: GpuFacts) -> float:
        one, eight = (step_time(model("llama-3-8b"), Footprint(tensor_parallel=ranks), card) for ranks in (1, 8))
        assert isinstance(one, StepTime)
        assert isinstance(eight, StepTime)
        return one.seconds(64, 64_000, 2048, 2048 * 1024) / eight.seconds(64, 64_000, 2048, 2048 * 1024)

    assert gain(gpu) < gain(near)


def test_experts_are_read_as_far_as_tokens_touch_them() -> None:
    step = built("qwen3-30b-a3b")
    few, many = step.seconds(1, 100), step.seconds(64, 6400)
    dense = built("qwen3-32b")
    assert few < 0.5 * dense.seconds(1, 100)
    assert many > 2 * few


def test_half_the_bits_of_weights_are_faster_where_reading_decides() -> None:
    plain, small = built("llama-3-70b", tensor_parallel=4), built("llama-3-70b", tensor_parallel=4, weight_bits=8.0)
    assert 0.5 < small.seconds(8, 8000) / plain.seconds(8, 8000) < 0.85


def test_a_small_cache_type_shortens_long_contexts() -> None:
    plain, small = built("llama-3-70b", tensor_parallel=4), built("llama-3-70b", tensor_parallel=4, kv_bits=8.0)
    assert small.seconds(64, 64 * 8000) < 0.85 * plain.seconds(64, 64 * 8000)
    assert small.seconds(1, 10) == pytest.approx(plain.seconds(1, 10), rel=0.01)


def test_windows_bound_what_is_read_of_the_cache() -> None:
    step = built("gpt-oss-120b")
    short, middle, long = (step.seconds(16, 16 * tokens) for tokens in (100, 2000, 4000))
    assert (long - middle) / 2000 < (middle - short) / 1900 * 1.01


def test_pipeline_stages_take_as_long_for_a_token_and_spread_the_batch() -> None:
    whole, staged = built("llama-3-70b", tensor_parallel=8), built("llama-3-70b", tensor_parallel=8, pipeline_parallel=2)
    assert staged.seconds(1, 100) == pytest.approx(whole.seconds(0.5, 50), rel=1e-6)
    assert staged.seconds(256, 256_000) < whole.seconds(256, 256_000)


@pytest.mark.parametrize("gpu", ["GB10", "RTX 2080 Ti", "P100"])
def test_a_gpu_without_rates_is_refused_by_name(gpu: str) -> None:
    refused = step_time(model("llama-3-8b"), Footprint(), gpu_table()[gpu])
    assert isinstance(refused, Refused)
    assert gpu in refused.reason


def test_a_model_without_sizes_is_refused_by_name() -> None:
    bare = ModelSpec(requested="x/y", name="y", location="x/y", source="hub")
    refused = shape_of(bare, Footprint(), gpu_table()["L40S"])
    assert isinstance(refused, Refused)
    assert "y" in refused.reason


def test_a_longer_prompt_waits_for_more_chunks() -> None:
    step = built("llama-3-8b")
    assert lone_ttft(step, 1, 16_000, 100, 2048) > 1.5 * lone_ttft(step, 1, 8_000, 100, 2048)


def test_the_data_file_says_how_wrong_it_is() -> None:
    stored = data("step_time.yaml")
    for engine in ("vllm", "trtllm"):
        assert coefficients(engine).bandwidth <= 1
        for cell in stored["held_out"][engine].values():
            assert cell["n"] > 100
            assert 0 < cell["median"] < 20
            assert cell["low"] < 1 < cell["high"]
    assert stored["held_out"]["vllm"]["fold"]["mape"] <= 13.0


def synthetic(shape: Shape, rates: Rates) -> list[Point]:
    truth = coefficients().model_copy(update={"layer_us": 70.0, "bandwidth": 0.6})
    points = []
    for in_flight in (1, 4, 16, 64):
        for prompt, output in ((128, 512), (1024, 256), (4096, 128)):
            point = Point("vllm", "m", "g", shape, rates, in_flight, prompt, output, 1.0, 1.0)
            tpot, ttft = point.predict(truth)
            points.append(Point("vllm", "m", "g", shape, rates, in_flight, prompt, output, tpot, ttft))
    return points


def test_the_fit_finds_the_times_of_a_machine_that_is_slower_than_the_priors() -> None:
    gpu = gpu_table()["L40S"]
    shape, rates = shape_of(model("llama-3-8b"), Footprint(), gpu), rates_of(gpu)
    assert isinstance(shape, Shape)
    assert isinstance(rates, Rates)
    points = synthetic(shape, rates)
    fit = Fit(["vllm"], trust=0.02)
    found = fit.coefficients(fit.run(points[::2]), "vllm")
    errors = [point.predict(found)[0] / point.tpot_ms - 1 for point in points[1::2]]
    assert max(map(abs, errors)) < 0.06
