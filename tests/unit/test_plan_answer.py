"""`plan`: from a question to ranked, labelled options, or to one clear refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tuner.app.plan import Planned, make_plan
from tuner.app.plan_ask import PlanAsk, parse_rate
from tuner.app.plan_evaluate import band_of
from tuner.app.plan_files import emit_planned, predicted_plan
from tuner.cli.main import app
from tuner.errors import LlmtuneError, ModelError, UsageError
from tuner.facts.gpus import gpu_table

pytestmark = pytest.mark.unit


def ask(**more: object) -> PlanAsk:
    return PlanAsk.model_validate({"model": "llama-3-8b", "gpu": "h100", "rate": "10/s"} | more)


@pytest.fixture(scope="module")
def chat_70b() -> Planned:
    return make_plan(ask(model="llama-3-70b", gpu="h100,l40s", rate="10/s", slo="p99 ttft<=800ms, p95 itl<=60ms"))


def test_the_best_option_serves_the_load_within_the_limits(chat_70b: Planned) -> None:
    best = chat_70b.answer.options[0]
    assert best.enough
    assert best.predicted.meets_slo
    assert best.capacity_per_replica is not None
    assert best.replicas * best.capacity_per_replica * 0.8 >= 10 * 0.999
    assert best.gpus == best.replicas * best.tensor_parallel * best.pipeline_parallel
    assert best.replicas_n_plus_1 == best.replicas + 1
    assert best.predicted.limits["p99 ttft<=800ms"] <= 800
    assert all(not option.enough or option.cost is None or best.cost is None
               or option.cost.per_hour >= best.cost.per_hour for option in chat_70b.answer.options)


def test_every_answer_is_labelled_and_says_how_wrong_it_is(chat_70b: Planned) -> None:
    """UP-F29: predictions that were off by half were printed as if they had been measured."""
    answer = chat_70b.answer
    assert answer.label == "PREDICTED"
    assert any("mean error" in text and "records" in text for text in answer.errors)
    assert any("no record of L40S" in text for text in answer.errors)
    assert "LoRA adapters" in answer.unmodelled
    for option in answer.options:
        assert option.band.low < 1 < option.band.high
        assert option.price is None or "example of 20" in option.price
        assert option.capacity_range is None or option.capacity_range[0] < (option.capacity_per_replica or 0)


def test_memory_is_broken_down_and_what_does_not_fit_is_named(chat_70b: Planned) -> None:
    memory = chat_70b.answer.options[0].memory
    parts = sum(size for name, size in memory.items() if name not in ("budget", "KiB of KV cache a token"))
    assert parts == pytest.approx(memory["budget"], abs=0.1)
    whole = [one for one in chat_70b.answer.ruled_out if one["config"] == "one GPU"]
    assert whole
    assert "weights 131.4" in whole[0]["reason"]


def test_the_front_is_not_beaten(chat_70b: Planned) -> None:
    able = [option for option in chat_70b.answer.options if option.enough and option.cost]
    front = [option for option in able if option.pareto]
    assert front
    for one in front:
        assert not any(
            other.cost.per_hour < one.cost.per_hour and other.predicted.e2e_ms["p95"] < one.predicted.e2e_ms["p95"]  # type: ignore[union-attr]
            for other in able)


def test_without_lossy_types_the_same_load_takes_more_gpus(chat_70b: Planned) -> None:
    plain = make_plan(ask(model="llama-3-70b", rate="10/s", slo="p99 ttft<=800ms, p95 itl<=60ms", lossless=True))
    assert all("fp8" not in option.settings.values() for option in plain.answer.options)
    assert plain.answer.options[0].gpus > chat_70b.answer.options[0].gpus
    assert not any("fp8" in note for note in plain.answer.notes)


def test_a_small_model_on_eight_gpus_is_replicas_not_one_wide_server() -> None:
    """Eight GPUs and a model of 8B: a wide server left them half idle in a public report."""
    planned = make_plan(ask(gpus=8, gpu="a100-40gb", rate=None, workload="256x128@c512"))
    best = planned.answer.options[0]
    assert (best.tensor_parallel, best.replicas) == (1, 8)


def test_a_strict_limit_on_the_time_between_tokens_wants_wide_servers() -> None:
    """Eight A100 and QwQ-32B: a wide server is best for latency, narrow ones for throughput."""
    quick = make_plan(ask(model="qwq-32b", gpu="a100", rate="1/s", slo="p50 itl<=16ms"))
    cheap = make_plan(ask(model="qwq-32b", gpu="a100", gpus=8, rate=None, workload="512x256@c256"))
    assert min(option.tensor_parallel for option in quick.answer.options) >= 4
    assert cheap.answer.options[0].tensor_parallel <= 2


def test_a_limit_on_ttft_gives_the_highest_rate_of_a_replica() -> None:
    loose = make_plan(ask(model="llama-3.1-8b", slo="p95 ttft<=2s", workload="rag"))
    tight = make_plan(ask(model="llama-3.1-8b", slo="p95 ttft<=250ms", workload="rag"))
    assert (loose.answer.options[0].capacity_per_replica or 0) > (tight.answer.options[0].capacity_per_replica or 0) > 0


def test_given_gpus_that_are_too_few_say_no() -> None:
    planned = make_plan(ask(model="llama-3-70b", gpus=2, rate="100/s"))
    assert not planned.answer.options[0].enough
    assert any("no option is enough" in note for note in planned.answer.notes)
    with pytest.raises(UsageError, match="no option serves"):
        emit_planned(planned, Path("nowhere"))


@pytest.mark.parametrize(("more", "words", "hint"), [
    ({"gpu": "h1000"}, "no GPU of that name", "h100"),
    ({"gpu": ","}, "no GPU is named", "--gpu"),
    ({"model": "llama-3-80b"}, "neither a known alias", "llama-3"),
    ({"rate": "fast"}, "is not a rate", "20/s"),
    ({"rate": "0/s"}, "is not a rate", "20/s"),
    ({"price": ("h100=-2",)}, "is not a price", "h100=2.50"),
    ({"api_price": "cheap"}, "is not a price", "0.20/0.60"),
    ({"headroom": 1.0}, "is not a share", "0.2"),
    ({"workload": "20000x100"}, "8192", "longer context"),
    ({"slo": "p99 itl<=1ms"}, "even alone a request takes", "larger GPUs"),
    ({"model": "llama-3.1-405b", "gpu": "t4"}, "no configuration of llama-3.1-405b fits", "larger GPUs"),
    ({"engine_version": "newest"}, "is not an engine version", "0.32.0"),
    ({"gpu": "gb10"}, "is not known", ""),
    ({"engine": "trtllm"}, "vllm only", "optimize"),
    ({"rate": None, "workload": "chat", "slo": "itl<=5"}, "no percentile", "say which"),
])
def test_what_is_not_known_or_cannot_be_is_one_clear_error(more: dict[str, object], words: str, hint: str) -> None:
    with pytest.raises(LlmtuneError) as caught:
        make_plan(ask(**more))
    assert words in caught.value.message
    assert hint in (caught.value.hint or "")


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(ModelError, match="nothing can be predicted"):
        make_plan(ask(model="someone/some-model"))


def test_rates() -> None:
    assert parse_rate("20/s") == 20
    assert parse_rate("600/min") == 10
    assert parse_rate("86400 per day") == 1
    assert parse_rate("1.5") == 1.5


def test_gpus_without_records_get_the_wider_band() -> None:
    known, other = band_of("H100-SXM5-80GB"), band_of("L4")
    assert "no record of L4" in other.of
    assert other.records > known.records


def test_a_stated_price_makes_the_cost() -> None:
    planned = make_plan(ask(price=("h100=2.00",)))
    best = planned.answer.options[0]
    assert best.cost is not None
    assert best.cost.per_hour == pytest.approx(2.0 * best.gpus)
    assert best.price == "$2 a GPU-hour, as you said"
    assert best.cost.used <= 1


def test_the_files_are_marked_predicted(tmp_path: Path, chat_70b: Planned) -> None:
    paths = emit_planned(chat_70b, tmp_path)
    compose = next(path for path in paths if path.name == "compose.yaml")
    text = compose.read_text()
    assert "PREDICTED" in text
    assert "MEASURED" not in text
    plan = predicted_plan(chat_70b)
    assert not plan.measured
    assert plan.verdict.kind == "not_verified"
    assert plan.config.key == chat_70b.found[0].candidate.config.key
    assert all("MEASURED" not in path.read_text() for path in paths if path.name == "report.md")


def test_the_command_prints_a_table_or_json() -> None:
    runner = CliRunner()
    words = ["plan", "--model", "llama-3-8b", "--gpu", "h100", "--rate", "5/s"]
    shown = runner.invoke(app, words)
    assert shown.exit_code == 0, shown.output
    numbers = [line for line in shown.output.splitlines() if "tokens" in line or "error" in line]
    assert shown.output.startswith("PREDICTED")
    assert any("mean error" in line for line in numbers)
    parsed = json.loads(runner.invoke(app, [*words, "--json"]).output)
    assert parsed["label"] == "PREDICTED"
    assert parsed["options"][0]["predicted"]["ttft_ms"]["p99"] > 0


def test_break_even_with_a_hosted_api() -> None:
    """One GPU at 2 $/h is 1460 $ a month: at 0.30 $ a million 4,867 million tokens a month pay for it."""
    planned = make_plan(ask(rate="1/s", workload="300x100", price=("h100=2.00",), api_price="0.2/0.6"))
    best = planned.answer.options[0]
    assert best.gpus == 1
    assert best.break_even is not None
    assert "4,867 million tokens a month" in best.break_even
    assert "dearer than the API" in best.break_even
    busy = make_plan(ask(rate="10/s", workload="300x100", price=("h100=2.00",), api_price="0.2/0.6"))
    assert "cheaper than the API" in (busy.answer.options[0].break_even or "")


def test_a_single_stream_is_told_of_simpler_engines() -> None:
    alone = make_plan(ask(rate=None, workload="256x128@c1", gpus=1))
    many = make_plan(ask(rate=None, workload="256x128@c32", gpus=1))
    assert any("llama.cpp" in note for note in alone.answer.notes)
    assert not any("llama.cpp" in note for note in many.answer.notes)


def test_three_gpus_are_never_split_in_three() -> None:
    """A scheduler that counted memory alone put 64 heads on three GPUs."""
    planned = make_plan(ask(model="llama-3-70b", gpus=3, rate=None, workload="256x128@c16"))
    assert {option.tensor_parallel for option in planned.answer.options} <= {1, 2}


def test_every_gpu_with_rates_can_be_planned_for() -> None:
    planned = make_plan(ask(gpu="rtx4090,l4,mi300x", rate="1/s", lossless=True))
    names = {option.gpu for option in planned.answer.options}
    assert names == {"RTX 4090", "L4", "MI300X"}
    assert names <= set(gpu_table())
