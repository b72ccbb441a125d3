"""How a trial is judged: what was seen becomes a measurement, a failure of its kind, or a fault of the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.fake_adapter import FakeAdapter
from tests.fakes.fake_launcher import FakeLauncher
from tests.fakes.studies import question
from tests.unit.measure_records import lane, record, run
from tuner.app import trial as module
from tuner.app.judge import Seen, judge
from tuner.app.load import Loaded, One
from tuner.app.trial import Bench, _last_words
from tuner.domain.engine import ServerMetrics
from tuner.domain.load_record import INTERRUPTED
from tuner.domain.trial import Dropped, Failed, FailureKind, Measured
from tuner.errors import HardwareError
from tuner.runtime.base import Teardown
from tuner.runtime.ready import NotReady, Ready
from tuner.runtime.settle import Settled

pytestmark = pytest.mark.unit

READY = Ready(seconds=2.0, answer_s=0.1)
OOM = "ERROR 01-01 00:00:00 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
FATAL = "ERROR 01-01 00:00:00 [core.py:1] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."


class Stub:
    """A server of which only the end is looked at."""

    def __init__(self, codes: list[int | None] | None = None, complete_after: int = 0, **teardown: Any) -> None:
        fields: dict[str, Any] = {"engine_s": 0.1, "check_s": 0.0, "forced": False, "left": (), "port_free": True}
        self.teardown = Teardown(**{**fields, **teardown})
        self._codes = codes or [None]
        self._complete_after = complete_after
        self.asked = 0

    def exit_code(self) -> int | None:
        return self._codes.pop(0) if len(self._codes) > 1 else self._codes[0]

    def log_complete(self) -> bool:
        self.asked += 1
        return self.asked > self._complete_after

    def cpu_seconds(self) -> float | None:
        return 1.5

    def fault(self) -> str | None:
        return None

    def log_text(self) -> str:
        return "the whole log" if self.asked > self._complete_after else "the begin"


STUDY = question(Path("nowhere"), {"a": (None, 1)}).spec


def seen(**changes: Any) -> Seen:
    fields: dict[str, Any] = {"ready": READY, "run": run(lane(30)), "start_s": 2.5, "memory": 123, **changes}
    dropped = fields.pop("dropped", None)
    load = fields.pop("run")
    counters = ServerMetrics(), ServerMetrics()
    if load is not None:
        fields["loaded"] = Loaded(One(STUDY.workload, load, *counters, dropped=dropped), dropped=dropped)
    return Seen(**fields)


def judged(server: Stub | None = None, **changes: Any) -> Any:
    return judge(STUDY, FakeAdapter(), seen(**changes), server)  # type: ignore[arg-type]


def not_ready(kind: str, exit_code: int | None = None) -> NotReady:
    return NotReady(kind=kind, detail=f"detail of {kind}", exit_code=exit_code, seconds=3.0)  # type: ignore[arg-type]


def test_a_good_run_is_a_measurement() -> None:
    outcome = judged()
    assert isinstance(outcome, Measured)
    assert (outcome.measurement.completed, outcome.measurement.failed) == (30, 0)
    assert (outcome.start_s, outcome.peak_memory_bytes) == (2.5, 123)


@pytest.mark.parametrize(
    ("changes", "kind", "phase", "says"),
    [
        pytest.param({"fault": "the watcher was killed"}, FailureKind.MACHINE, "load", "watcher", id="our-fault"),
        pytest.param({"ready": None}, FailureKind.MACHINE, "start", "cut off", id="no-start"),
        pytest.param({"run": None}, FailureKind.MACHINE, "load", "cut off", id="no-load"),
        pytest.param({"ready": not_ready("exited", 1), "run": None, "log": OOM}, FailureKind.OUT_OF_MEMORY, "start",
                     "CUDA out of memory", id="PT-06-oom-at-start"),
        pytest.param({"ready": not_ready("exited", 2), "run": None}, FailureKind.BAD_FLAG, "start", "refused", id="flag"),
        pytest.param({"ready": not_ready("fatal_line"), "run": None, "log": OOM}, FailureKind.OUT_OF_MEMORY, "start",
                     "CUDA out of memory", id="fatal-line"),
        pytest.param({"ready": not_ready("timeout"), "run": None}, FailureKind.HUNG, "start", "detail of timeout",
                     id="hung"),
        pytest.param({"ready": not_ready("timeout"), "run": None, "log": OOM}, FailureKind.OUT_OF_MEMORY, "start",
                     "detail of timeout; CUDA out of memory", id="timeout-with-a-cause"),
        pytest.param({"ready": not_ready("no_answer"), "run": None}, FailureKind.NOT_READY, "start", "no_answer",
                     id="no-answer"),
        pytest.param({"ready": not_ready("wrong_model"), "run": None}, FailureKind.MACHINE, "start", "wrong_model",
                     id="UP-B11"),
        pytest.param({"ready": not_ready("foreign_listener"), "run": None}, FailureKind.MACHINE, "start", "foreign",
                     id="PT-08"),
        pytest.param({"ready": not_ready("machine"), "run": None}, FailureKind.MACHINE, "start", "machine", id="machine"),
        pytest.param({"exit_code": 1, "log": OOM}, FailureKind.OUT_OF_MEMORY, "load", "died under load: CUDA out",
                     id="UP-F01"),
        pytest.param({"exit_code": -9}, FailureKind.OUT_OF_MEMORY, "load", "died under load: killed by SIGKILL",
                     id="killed"),
        pytest.param({"run": run([], stopped="everything fails"), "log": f"{OOM}\n{FATAL}"}, FailureKind.OUT_OF_MEMORY,
                     "load", "died under load: CUDA out", id="engine-dead-behind-a-living-front"),
        pytest.param({"run": run([], stopped="everything fails")}, FailureKind.LOAD_BROKEN, "load", "everything fails",
                     id="stopped"),
        pytest.param({"run": run([record(1, warmup=True)])}, FailureKind.LOAD_BROKEN, "load", "no request was finished",
                     id="only-warm-up"),
        pytest.param({"run": run([record(n, error="http_503", chunks_ms=()) for n in range(9)])}, FailureKind.LOAD_BROKEN,
                     "load", "9 of 9 requests failed (http_503)", id="UP-F05"),
        pytest.param({"run": run([*lane(88), *(record(n, error="reset") for n in range(12))])}, FailureKind.LOAD_BROKEN,
                     "load", "12 of 100 requests failed (reset)", id="an-eighth-failed"),
    ],
)
def test_never_a_number_for_a_server_that_failed(
    changes: dict[str, Any], kind: FailureKind, phase: str, says: str
) -> None:
    outcome = judged(**changes)
    assert isinstance(outcome, Failed)
    assert (outcome.failure, outcome.phase) == (kind, phase)
    assert says in outcome.reason


def test_a_few_failed_requests_are_counted_and_not_averaged() -> None:
    """UP-F25: failed requests drag averages."""
    slow = [record(1000 + n, start_ms=50.0 * n, error="timeout", chunks_ms=(), end_ms=60_000) for n in range(5)]
    clean, dirty = judged(run=run(lane(95))), judged(run=run([*lane(95), *slow]))
    assert dirty.measurement.failed == 5
    assert dirty.measurement.errors == {"timeout": 5}
    assert dirty.measurement.ttft_ms.p95.value == clean.measurement.ttft_ms.p95.value


def test_what_llmtune_cut_off_is_neither_good_nor_failed() -> None:
    cut = [record(1000 + n, error=INTERRUPTED, chunks_ms=()) for n in range(10)]
    outcome = judged(run=run([*lane(30), *cut]))
    assert isinstance(outcome, Measured)
    assert outcome.measurement.failed == 0


@pytest.mark.parametrize(
    ("teardown", "says"), [({"left": (123, 456)}, "123, 456"), ({"port_free": False}, "the port is still taken")]
)
def test_a_server_that_would_not_go_blames_the_machine(teardown: dict[str, Any], says: str) -> None:
    """UP-F18: what survives would falsify the next trial."""
    outcome = judged(Stub(**teardown))
    assert isinstance(outcome, Failed)
    assert outcome.failure is FailureKind.MACHINE
    assert says in outcome.reason


def test_a_run_that_was_ended_because_it_cannot_win_is_no_failure_and_no_result() -> None:
    why = ("slo", "p95 ttft<=1ms is out of reach: 9 of 9 requests missed it")
    outcome = judged(run=run(lane(9), stopped=why[1]), dropped=why)
    assert isinstance(outcome, Dropped)
    assert (outcome.rule, outcome.reason) == why
    assert outcome.measurement is not None
    assert outcome.measurement.completed == 9


def test_a_server_that_dies_while_its_run_is_ended_has_failed() -> None:
    why = ("slo", "out of reach")
    outcome = judged(run=run(lane(9), stopped=why[1]), dropped=why, exit_code=1, log=OOM)
    assert isinstance(outcome, Failed)
    assert outcome.failure is FailureKind.OUT_OF_MEMORY


def test_the_tail_of_the_log_is_kept() -> None:
    outcome = judged(exit_code=1, log="x" * 10_000 + "the end")
    assert isinstance(outcome, Failed)
    assert outcome.log_tail.endswith("the end")
    assert len(outcome.log_tail) == 4000
    assert outcome.exit_code == 1


# --- the last words


def last_words(server: Stub, **changes: Any) -> Seen:
    found = seen(**changes)
    _last_words(server, found)  # type: ignore[arg-type]
    return found


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL_S", 0.001)


@pytest.mark.usefixtures("patient")
def test_a_dead_servers_log_is_read_when_it_is_whole() -> None:
    found = last_words(Stub([1], complete_after=3))
    assert (found.exit_code, found.log) == (1, "the whole log")


@pytest.mark.usefixtures("patient")
def test_a_server_whose_load_broke_gets_a_moment_to_die() -> None:
    found = last_words(Stub([None, None, None, 1, 1]), run=run([], stopped="everything fails"))
    assert found.exit_code == 1


@pytest.mark.usefixtures("patient")
def test_a_living_server_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "sleep", lambda _: pytest.fail("waited"))
    found = last_words(Stub([None], complete_after=99))
    assert (found.exit_code, found.log) == (None, "the begin")


@pytest.mark.usefixtures("patient")
def test_no_wait_is_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LAST_WORDS_S", 0.02)
    assert last_words(Stub([None]), run=run([], stopped="everything fails")).exit_code is None
    assert last_words(Stub([1], complete_after=10**9)).exit_code == 1


def test_gpus_must_be_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "wait_gpu_memory_back", lambda *_, **__: Settled(
        settled=False, seconds=1.0, missing_bytes=3 << 30))
    with pytest.raises(HardwareError, match=r"3\.0 GiB more than before"):
        module._require_base(Bench(STUDY, FakeAdapter(), FakeLauncher(), Path("nowhere"), lambda _: None, gpu_base=()))
