"""The memory model against what engines logged at their start: tests/data/memory_points.csv, sources in each row."""

from __future__ import annotations

import pytest

from benchmarks.memory_error import allowed
from benchmarks.memory_points import GIB, SUSPECT, count, model_of, number, plan_of, rows
from tuner.capacity import kv
from tuner.capacity.memory import MemoryPlan
from tuner.capacity.refusal import Refused
from tuner.domain.engine import Footprint

pytestmark = pytest.mark.unit

ROWS = {row["id"]: row for row in rows()}
COMPLETE = [name for name, row in ROWS.items() if row["completeness"] == "full"]
KNOWN = [name for name in COMPLETE if model_of(ROWS[name]) is not None and number(ROWS[name], "gpu_total_gib")]
GROUPED = [name for name in KNOWN if name.startswith("planner19") and ROWS[name]["pp"] == "1"]


def plan(name: str, *, measured_weights: bool = False) -> MemoryPlan:
    found = plan_of(ROWS[name], measured_weights=measured_weights)
    assert isinstance(found, MemoryPlan)
    return found


@pytest.mark.parametrize("known", [False, True], ids=["from-config", "weights-known"])
@pytest.mark.parametrize("name", [name for name in KNOWN if name not in SUSPECT])
def test_kv_cache_memory_is_what_the_engine_logged(name: str, known: bool) -> None:
    logged = number(ROWS[name], "avail_kv_gib")
    assert logged is not None
    assert abs(plan(name, measured_weights=known).available / GIB - logged) <= allowed(logged)


@pytest.mark.parametrize("name", [name for name in KNOWN if name not in SUSPECT])
def test_fits_is_not_wrong_where_the_margin_is_clear(name: str) -> None:
    logged, found = number(ROWS[name], "avail_kv_gib"), plan(name)
    assert logged is not None
    needed = (found.kv_for_one or 0) / GIB
    if abs(logged - needed) > 1.0:
        assert found.verdict in (("fits", "marginal") if logged > needed else ("does_not_fit", "marginal"))
        assert (found.margin > 0) is (logged > needed)


@pytest.mark.parametrize("name", GROUPED)
def test_weights_from_config_alone(name: str) -> None:
    logged = number(ROWS[name], "weights_gib")
    assert logged is not None
    found = plan(name)
    weights = (found.weights + found.term("rotary tables")) / GIB
    assert weights == pytest.approx(logged, rel=0.03)


@pytest.mark.parametrize("name", GROUPED)
def test_blocks_and_concurrency_follow_from_the_bytes(name: str) -> None:
    """Layer groups, padding and windows: exact but for the two digits that the log prints."""
    row, found = ROWS[name], plan(name)
    logged, tokens, concurrency = number(row, "avail_kv_gib"), number(row, "kv_tokens"), number(row, "max_concurrency")
    context = count(row, "max_model_len")
    assert logged is not None
    assert tokens is not None
    assert concurrency is not None
    assert context is not None
    model = model_of(row)
    assert model is not None
    footprint = Footprint(
        tensor_parallel=count(row, "tp") or 1, kv_bits=32.0 if row["dtype"] == "float32" else 16.0,
        kv_dtype="fp8" if row["kv_dtype"] == "fp8" else None, version="0.19.0",
    )
    cut = kv.pool(kv.layer_kinds(model, footprint), footprint)
    assert cut is not None
    blocks = logged * GIB / cut.block_bytes
    slack = 0.006 / logged + 2e-4
    assert blocks / cut.group_count * cut.block_tokens == pytest.approx(tokens, rel=slack)
    step = count(row, "max_num_batched_tokens") or 8192
    assert tokens / cut.block_tokens * cut.group_count / cut.blocks_for(context, step) == pytest.approx(
        concurrency, rel=1e-3, abs=0.006
    )
    assert found.block_bytes == cut.block_bytes


def test_the_suspects_are_few_and_say_why() -> None:
    assert set(SUSPECT) <= set(COMPLETE)
    assert len(SUSPECT) <= 3
    assert all(SUSPECT.values())


def test_the_row_whose_utilization_is_misprinted_agrees_at_the_right_one() -> None:
    row = {**ROWS["planner11-2"], "gpu_memory_utilization": "0.95"}
    found = plan_of(row)
    assert isinstance(found, MemoryPlan)
    assert found.available / GIB == pytest.approx(3.33, abs=0.7)


@pytest.mark.parametrize("name", [name for name in COMPLETE if name not in KNOWN])
def test_what_is_not_known_is_not_predicted(name: str) -> None:
    found = plan_of(ROWS[name])
    assert found is None or isinstance(found, Refused)


def test_most_complete_rows_are_predicted() -> None:
    assert len(KNOWN) >= 54
    assert len([name for name in KNOWN if name not in SUSPECT]) >= 51
