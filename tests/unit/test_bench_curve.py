"""A sweep drawn in the terminal and as a page."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.unit.measure_records import lane, run
from tuner.app.bench import BenchAsk, bench
from tuner.app.events import Event
from tuner.cli.curve import WIDTH, draw_curve
from tuner.domain.bench import BenchResult, Level
from tuner.domain.engine import ServerMetrics
from tuner.domain.slo import parse_slo
from tuner.domain.workload import ClosedLoop, Fixed, Workload
from tuner.errors import UsageError
from tuner.measure.objective import meets
from tuner.measure.requests import measure
from tuner.output.bench_page import bench_page, load_points

pytestmark = pytest.mark.unit

SLO = parse_slo("p95 ttft<=60ms")


def workload(clients: int) -> Workload:
    return Workload(name="t", input_tokens=Fixed(tokens=8), output_tokens=Fixed(tokens=5),
                    arrivals=ClosedLoop(concurrency=clients), requests=30)


def level(clients: int, every_ms: float, gap_ms: float = 20.0) -> Level:
    records = [one for number in range(clients) for one in lane(30, number=100 * number, every_ms=every_ms, gap_ms=gap_ms)]
    found = measure(run(records, ClosedLoop(concurrency=clients)), SLO)
    return Level(label=f"c{clients}", workload=workload(clients), measurement=found, meets_slo=meets(found, SLO),
                 before=ServerMetrics(), after=ServerMetrics())


def swept(*levels: Level) -> BenchResult:
    kept = [one for one in levels if one.meets_slo]
    return BenchResult(tool_version="1", url="http://h:1", model="<m>", dialect="vllm", api="completions", seed=0,
                       slo=SLO, levels=levels,
                       knee=kept[-1].label if kept else None)


@pytest.fixture(scope="module")
def result() -> BenchResult:
    return swept(level(1, 100.0), level(4, 360.0, gap_ms=70.0))


def test_every_level_has_its_line_with_mark_interval_and_limit(result: BenchResult) -> None:
    lines = draw_curve(result)
    panels = [line for line in lines if not line.startswith("  ")]
    assert [panel.partition(",")[0] for panel in panels[:3]] == ["output tok/s", "TTFT ms (p95 ttft<=60ms)", "p95 ITL ms"]
    drawn = [line for line in lines if line.startswith("  c")]
    assert len(drawn) == 3 * len(result.levels)
    assert all(line.index("|", 7) - line.index("|") == WIDTH + 1 for line in drawn)
    for line in drawn[0::2]:
        assert line.count("o") == 1
        assert line.endswith("knee")
    for line in drawn[1::2]:
        assert line.count("x") == 1
        assert not line.endswith("knee")
    assert all(line.count(":") == 1 or "o" in line or "x" in line for line in drawn[2:4])
    assert ": limit" in lines[-1]


def test_more_is_drawn_further_right(result: BenchResult) -> None:
    first, second = (line.index(mark) for line, mark in zip(draw_curve(result)[1:3], "ox", strict=True))
    rates = [one.measurement.output_tokens_per_s.value for one in result.levels]
    assert (first < second) == (rates[0] < rates[1])


def test_one_level_is_no_curve(result: BenchResult) -> None:
    assert draw_curve(swept(result.levels[0])) == []


def test_the_page_is_whole_and_speaks_of_nothing_outside(result: BenchResult) -> None:
    text = bench_page(result)
    assert text == bench_page(result)
    assert "<m>" not in text
    assert "&lt;m&gt;" in text
    assert "c1 is the highest measured level that keeps p95 ttft&lt;=60ms" in text
    assert "<script" not in text
    assert "src=" not in text
    svg = text[text.index("<svg"):text.index("</svg>") + 6]
    said = {element.text for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")}
    assert {"output tokens/s", "p95 TTFT, ms", "p95 ITL, ms", "SLO 60"} <= said
    assert text.count("<td>") == 2 * 7


def test_load_points_are_the_measured_numbers(result: BenchResult) -> None:
    points = load_points(result)
    assert [point.clients for point in points] == [1, 4]
    assert points[0].output_tokens_per_s == result.levels[0].measurement.output_tokens_per_s
    assert [point.meets_slo for point in points] == [True, False]


def test_an_earlier_result_is_not_replaced_unasked(tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text("{}")
    (tmp_path / "requests-c9.jsonl.gz").write_text("old")
    told: list[Event] = []
    with pytest.raises(UsageError, match="earlier bench") as caught:
        bench(BenchAsk(url="http://127.0.0.1:9", workload=workload(1), slo=SLO, out=tmp_path), told.append)
    assert "--force" in str(caught.value.hint)
    assert (tmp_path / "bench.json").read_text() == "{}"
    assert (tmp_path / "requests-c9.jsonl.gz").exists()
    assert told == []
