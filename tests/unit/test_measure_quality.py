from __future__ import annotations

import pytest

from tests.unit.measure_records import lane, record, run
from tuner.domain.load_record import LoadRun
from tuner.domain.trial import Warn
from tuner.measure.quality import client_limits, quality_warnings

pytestmark = pytest.mark.unit


def kinds(load: LoadRun, samples: int = 1000) -> set[Warn]:
    ended = [one for one in load.records if one.ok or one.failed]
    return {warning.kind for warning in quality_warnings(load, ended, samples)}


def test_a_clean_run_has_no_warning() -> None:
    assert kinds(run(lane(40))) == set()
    assert client_limits(run(lane(40))) == []


@pytest.mark.parametrize(("load", "words"), [
    (run(lane(40), cpu_s=3.9), "core"),
    (run(lane(40), lag_ms=[0.1] * 90 + [30.0] * 10), "event loop"),
    (run([record(n, start_ms=n * 100, sent_late_ms=20) for n in range(40)]), "late"),
])
def test_a_client_that_was_the_bottleneck_is_named(load: LoadRun, words: str) -> None:
    assert words in client_limits(load)[0]
    assert kinds(load) == {Warn.CLIENT_LIMITED}


def test_lag_is_judged_by_what_is_measured() -> None:
    slow = [record(n, start_ms=n * 5000, chunks_ms=(3000, 4000)) for n in range(10)]
    assert client_limits(run(slow, lag_ms=[30.0])) == []


def test_two_workers_have_two_cores() -> None:
    assert client_limits(run(lane(40), cpu_s=5.0)) != []
    assert client_limits(run(lane(40), cpu_s=5.0, workers=2)) == []


@pytest.mark.parametrize(("changes", "kind"), [
    ({"error": "truncated"}, Warn.TRUNCATED),
    ({"error": "reset"}, Warn.ERRORS),
    ({"count_mismatch": True, "from_usage": False}, Warn.COUNT_MISMATCH),
    ({"from_usage": False}, Warn.NO_USAGE),
])
def test_what_is_wrong_with_answers(changes: dict[str, object], kind: Warn) -> None:
    load = run([*lane(40), record(40, start_ms=4000, **changes)])  # type: ignore[arg-type]
    assert kind in kinds(load)


def test_a_handful_of_requests_is_few() -> None:
    assert kinds(run(lane(10)), samples=10) == {Warn.FEW_REQUESTS}


def test_batched_events_are_the_client_s_fault_only_when_it_was_late() -> None:
    assert client_limits(run(lane(40), reads=100, multi_event_reads=90)) == []
    assert "several events" in client_limits(run(lane(40), reads=100, multi_event_reads=90, lag_ms=[5.0]))[0]


def test_prompts_of_another_length_are_told() -> None:
    longer = [record(n, start_ms=n * 100, input_tokens=12) for n in range(40)]
    assert kinds(run(longer)) == {Warn.LENGTHS_OFF}
    assert kinds(run([record(n, start_ms=n * 100, input_tokens=None) for n in range(40)])) == set()
