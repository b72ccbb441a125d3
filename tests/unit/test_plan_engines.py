"""`plan`: which engine, today's prices, reserved prices and hosted ones: reasons and sources, never a made-up number."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from tuner.app.plan import Planned, make_plan
from tuner.app.plan_ask import PlanAsk
from tuner.app.refresh_prices import refresh, rows_of
from tuner.cli.main import app
from tuner.errors import ServerError, SpaceError, UsageError
from tuner.facts.catalog import model_by_alias
from tuner.facts.prices import api_price_of, known_api_prices, known_prices, load_api_prices, load_prices, price_of
from tuner.facts.read import data

pytestmark = pytest.mark.unit

ALL = "vllm,trtllm,llama.cpp,ollama"


def plan(**more: object) -> Planned:
    fields: dict[str, object] = {"model": "llama-3.1-8b", "gpu": "h100", "gpus": 1, "workload": "512x128@c64"}
    return make_plan(PlanAsk.model_validate(fields | more))


def ranks(planned: Planned) -> dict[str, str]:
    return {one.engine: one.rank for one in planned.answer.engines}


@pytest.fixture(scope="module")
def many() -> Planned:
    return plan(engines=ALL)


def test_many_streams_want_an_engine_that_batches(many: Planned) -> None:
    assert ranks(many)["vllm"] == "first choice"
    assert ranks(many)["llama.cpp"] == "possible"
    slots = next(one for one in many.answer.engines if one.engine == "llama.cpp")
    assert any("more than about 50" in reason for reason in slots.reasons)


def test_one_user_wants_the_simplest_one() -> None:
    found = ranks(plan(engines=ALL, workload="512x128@c1"))
    assert (found["ollama"], found["vllm"]) == ("first choice", "possible")


def test_what_is_not_predicted_says_so_and_gives_no_speed(many: Planned) -> None:
    for one in many.answer.engines:
        assert one.predicted == (one.engine == "vllm")
        assert any("not predicted" in reason for reason in one.reasons) != one.predicted
    beside = next(one for one in many.answer.engines if one.engine == "trtllm").reasons
    assert any("PREDICTED; mean error" in reason for reason in beside)


def test_what_cannot_work_is_ruled_out_with_the_reason() -> None:
    wide = plan(model="llama-3.1-70b", gpus=4, engines=ALL)
    assert ranks(wide)["ollama"] == "not for this"
    amd = plan(gpu="mi300x", engines=ALL)
    trtllm = next(one for one in amd.answer.engines if one.engine == "trtllm")
    assert trtllm.rank == "not for this"
    assert "does not run on MI300X" in trtllm.reasons[0]
    packed = plan(model="llama-3.1-8b-fp8", engines="llama.cpp")
    assert "GGUF" in packed.answer.engines[0].reasons[0]


def test_every_engine_has_its_facts_and_their_source() -> None:
    table = data("engine_choice.yaml")
    assert set(ALL.split(",")) == set(table["engines"])
    for facts in table["engines"].values():
        assert facts["source"]
        assert facts["effort"]


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(UsageError, match="tgi") as caught:
        plan(engines="vllm,tgi")
    assert "ollama" in (caught.value.hint or "")


def test_a_price_of_a_gpu_that_is_not_asked_for_is_refused() -> None:
    with pytest.raises(UsageError, match="given for L4") as caught:
        plan(price=("l4=0.8",))
    assert "--gpu" in (caught.value.hint or "")


def test_reserved_prices_are_shown_and_can_rank() -> None:
    plain, promised = plan(), plan(reserved=True)
    one, two = plain.answer.options[0], promised.answer.options[0]
    assert one.cost is not None
    assert one.cost_reserved is not None
    assert two.cost is not None
    assert two.cost.per_hour == one.cost_reserved.per_hour < one.cost.per_hour
    assert "reserved, example of 2026" in (two.price or "")
    assert "--reserved" in promised.answer.command


def test_a_gpu_without_a_reserved_price_has_no_cost() -> None:
    answer = plan(gpu="mi300x", reserved=True).answer
    assert answer.options[0].cost is None
    assert any("no reserved price of MI300X" in note for note in answer.notes)


def test_the_known_hosted_price_of_the_model_is_compared_with(many: Planned) -> None:
    assert "DeepInfra, example of 2026-11-05" in (many.answer.api_price or "")
    assert "million tokens a month" in (many.answer.options[0].break_even or "")
    stated = plan(api_price="0.2/0.6").answer
    assert "as you said" in (stated.api_price or "")
    unknown = plan(model="llama-3-8b").answer
    assert (unknown.api_price, unknown.options[0].break_even) == (None, None)


def test_every_hosted_price_is_of_a_known_model_and_has_date_and_source() -> None:
    for price in known_api_prices():
        assert model_by_alias(price.model) is not None
        assert price.as_of[:2] == "20"
        assert price.source in price.text
    known = model_by_alias("qwen3-8b")
    assert known is not None
    cheap = [api_price_of(known.location, known_api_prices(), share) for share in (0.99, 0.01)]
    assert [one.provider for one in cheap if one] == ["Alibaba", "Fireworks, 4B to 16B"]


def test_common_clouds_have_both_kinds_of_price() -> None:
    rows = known_prices()
    for gpu in ("H100-SXM5-80GB", "H200-SXM-141GB", "B200-180GB", "A100-SXM4-80GB"):
        low, high = price_of(gpu, {}, rows, "reserved"), price_of(gpu, {}, rows)
        assert low is not None
        assert high is not None
        assert low.usd < high.usd
    providers = " ".join(row.provider for row in rows)
    assert all(name in providers for name in ("AWS", "Azure", "Google", "CoreWeave", "Lambda", "Nebius", "RunPod"))


def test_a_file_can_hold_hosted_prices(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("api_tokens:\n  - {model: llama-3-8b, prompt: 1, answer: 2, as_of: 2026-12-01, source: contract}\n")
    assert load_api_prices(file)[0].answer == 2
    assert load_prices(file) == ()
    planned = plan(model="llama-3-8b", prices=str(file), price=("h100=2",))
    assert "contract" in (planned.answer.api_price or "")
    assert "--prices" in planned.answer.command
    file.write_text("api_tokens:\n  - {model: llama-3-8b}\n")
    with pytest.raises(SpaceError, match="prompt, answer"):
        load_api_prices(file)
    file.write_text("gpu_hours:\n  - {gpu: h100, usd: 2, kind: lease}\n")
    with pytest.raises(SpaceError, match="on-demand"):
        load_prices(file)


@dataclass
class Item:
    provider: str
    instance_name: str
    price: float
    gpu_name: str | None
    gpu_memory: float | None
    gpu_count: int = 1
    location: str = "us"


ITEMS = [Item("aws", "p5.48xlarge", 55.04, "H100", 80, 8), Item("aws", "p5.4xlarge", 7.5, "H100", 80),
         Item("runpod", "h100-pcie", 2.89, "H100", 80), Item("x", "tpu", 3.0, "v5e", 16), Item("x", "cpu", 1.0, None, None),
         Item("lambda", "gpu_1x_a100", 1.99, "A100", 40), Item("x", "free", 0.0, "H100", 80)]


def test_offers_become_rows_by_gpu_of_the_cheapest_instance() -> None:
    rows = rows_of(ITEMS, "2026-12-01")
    assert [(row["gpu"], row["usd"]) for row in rows] == [
        ("A100-SXM4-40GB", 1.99), ("H100-PCIE-80GB", 2.89), ("H100-SXM5-80GB", 6.88)]
    assert "p5.48xlarge" in rows[2]["provider"]


def hunt(monkeypatch: pytest.MonkeyPatch, **attributes: object) -> None:
    module = ModuleType("gpuhunt")
    vars(module).update(attributes)
    monkeypatch.setitem(sys.modules, "gpuhunt", module)


def test_refreshed_prices_are_a_price_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt(monkeypatch, query=lambda **_: ITEMS)
    file = tmp_path / "today.yaml"
    assert refresh(file) == 3
    assert {row.gpu for row in load_prices(file)} == {"A100-SXM4-40GB", "H100-PCIE-80GB", "H100-SXM5-80GB"}


def test_without_the_extra_or_the_network_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gpuhunt", None)
    with pytest.raises(UsageError, match="not installed"):
        refresh(tmp_path / "p.yaml")

    def fail(**_: object) -> None:
        raise OSError("no route")

    hunt(monkeypatch, query=fail)
    with pytest.raises(ServerError, match="no route"):
        refresh(tmp_path / "p.yaml")


def test_the_command_shows_prices_use_and_engines() -> None:
    done = CliRunner().invoke(app, ["plan", "--model", "llama-3.1-8b", "--gpu", "h100", "--rate", "2/s",
                                    "--engines", "vllm,ollama"])
    assert done.exit_code == 0
    for words in ("with a commitment", "example of 2026", "PREDICTED use of the first", "idle and paid for",
                  "first choice: vLLM", "price of the hosted API", "PREDICTED break-even"):
        assert words in " ".join(done.output.split()), words


def test_unknown_names_get_the_nearest_five_and_where_all_are() -> None:
    with pytest.raises(UsageError) as caught:
        plan(gpu="h1000")
    assert "h100" in (caught.value.hint or "")
    assert "`llmtune models --gpus` lists all" in (caught.value.hint or "")
    listed = CliRunner().invoke(app, ["models", "--gpus"])
    assert listed.exit_code == 0
    assert "h100, h100-80gb" in listed.output
