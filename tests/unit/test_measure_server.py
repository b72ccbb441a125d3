from __future__ import annotations

import pytest

from tests.unit.measure_records import lane, record, run
from tuner.domain.engine import ServerMetrics
from tuner.domain.load_record import LoadRun
from tuner.domain.trial import Environment, Warn
from tuner.domain.workload import ClosedLoop, Fixed, Sessions, TrafficClass, Workload
from tuner.measure.requests import measure
from tuner.measure.server import server_warnings, shares_prefixes, with_server

pytestmark = pytest.mark.unit

PLAIN = Workload(name="w", input_tokens=Fixed(tokens=10), output_tokens=Fixed(tokens=5),
                 arrivals=ClosedLoop(concurrency=1), requests=40)
LOAD = run(lane(40))  # 200 output tokens
START = ServerMetrics(generation_tokens=1000, prompt_tokens=0, preemptions=2, prefix_queries=100, prefix_hits=50)


def kinds(after: dict[str, float], load: LoadRun = LOAD, workload: Workload = PLAIN,
          environment: Environment | None = None) -> list[Warn]:
    end = START.model_copy(update=after)
    return [warning.kind for warning in server_warnings(load, workload, START, end, environment=environment)]


@pytest.mark.parametrize(("made", "expected"), [
    (1200, []), (1201, []), (1198, []), (1190, [Warn.COUNT_MISMATCH]), (1300, [Warn.COUNT_MISMATCH]), (900, []),
])
def test_the_server_s_count_must_be_the_client_s(made: float, expected: list[Warn]) -> None:
    assert kinds({"generation_tokens": made}) == expected


def test_what_broke_off_may_have_been_made_to_its_end() -> None:
    cut = record(40, start_ms=4000, chunks_ms=(10, 20), error="interrupted", asked_output_tokens=100)
    load = run([*lane(40), cut])
    assert kinds({"generation_tokens": 1202}, load) == []
    assert kinds({"generation_tokens": 1300}, load) == []
    assert kinds({"generation_tokens": 1310}, load) == [Warn.COUNT_MISMATCH]


def test_counters_that_are_missing_say_nothing() -> None:
    assert list(server_warnings(LOAD, PLAIN, ServerMetrics(), ServerMetrics())) == []


def test_preemptions_and_unexpected_prefix_hits() -> None:
    after: dict[str, float] = {"generation_tokens": 1200, "preemptions": 5, "prefix_queries": 1100, "prefix_hits": 150}
    assert kinds(after) == [Warn.PREEMPTIONS, Warn.PREFIX_HITS]
    assert kinds(after, workload=PLAIN.model_copy(update={"shared_prefix": 0.5})) == [Warn.PREEMPTIONS]
    assert kinds({"generation_tokens": 1200, "prefix_queries": 1100, "prefix_hits": 60}) == []


def test_which_workloads_share_prefixes() -> None:
    assert not shares_prefixes(PLAIN)
    one = TrafficClass(name="a", weight=1, input_tokens=Fixed(tokens=9), output_tokens=Fixed(tokens=9), shared_prefix=0.5)
    assert shares_prefixes(PLAIN.model_copy(update={"classes": (one,)}))
    assert shares_prefixes(PLAIN.model_copy(update={"prompts_file": "x"}))
    assert shares_prefixes(PLAIN.model_copy(update={"arrivals": Sessions(users=1, turns=Fixed(tokens=2))}))


@pytest.mark.parametrize(("environment", "expected"), [
    (Environment(host_cpu_share=0.05, cpu_steal_share=0.01), []),
    (Environment(host_cpu_share=0.5), [Warn.HOST_BUSY]),
    (Environment(cpu_steal_share=0.1), [Warn.HOST_BUSY]),
    (Environment(), []),
])
def test_a_busy_host_is_told(environment: Environment, expected: list[Warn]) -> None:
    assert kinds({"generation_tokens": 1200}, environment=environment) == expected


def test_the_warnings_join_the_measurement() -> None:
    found = measure(LOAD)
    joined = with_server(found, LOAD, PLAIN, START, START.model_copy(update={"preemptions": 9}))
    assert [w.kind for w in joined.warnings] == [*(w.kind for w in found.warnings), Warn.COUNT_MISMATCH, Warn.PREEMPTIONS]
