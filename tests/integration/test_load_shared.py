"""Load from several processes, conversations, traces and text of exact length, against the server of known times."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict

import pytest

from tests.fakes.truth_server import Behaviour, InThread, prompt_key
from tuner.domain.load_record import INTERRUPTED, RequestRecord
from tuner.domain.slo import parse_slo
from tuner.domain.workload import (
    Adapter,
    Arrivals,
    ClosedLoop,
    Fixed,
    OpenLoop,
    RatePoint,
    RateProfile,
    Sessions,
    Trace,
    Uniform,
    Workload,
)
from tuner.load.calibrate import calibrate
from tuner.load.driver import Progress
from tuner.load.prompts import build_requests
from tuner.load.run import run_load
from tuner.load.target import parse_target
from tuner.load.traces import TracePoint
from tuner.measure.quality import client_limits
from tuner.measure.requests import measure
from tuner.measure.sequential import Hopeless, UntilPrecise

pytestmark = pytest.mark.integration

FAST = {"ttft_ms": 10.0, "itl_ms": 2.0}


def workload(arrivals: Arrivals, requests: int = 24, **changes: object) -> Workload:
    fields: dict[str, object] = {
        "name": "t", "input_tokens": Uniform(low=5, high=20), "output_tokens": Uniform(low=8, high=24),
        "arrivals": arrivals, "requests": requests, "warmup_requests": 2, "timeout_s": 20,
    }
    return Workload.model_validate(fields | changes)


@pytest.mark.parametrize("arrivals", [
    ClosedLoop(concurrency=6), OpenLoop(rate_per_s=40), Sessions(users=4, turns=Uniform(low=1, high=3), think_s=0.02),
])
def test_workers_send_everything_once_and_lose_nothing(arrivals: Arrivals) -> None:
    shape = workload(arrivals)
    requests = build_requests(shape, vocab_size=2048, seed=1, salt="a")
    progress: list[Progress] = []
    seen: list[RequestRecord] = []
    server = InThread(Behaviour(**FAST))
    with server as truth:
        run = run_load(server.url, "truth", requests, shape, workers=2, on_progress=progress.append,
                       on_record=seen.append)
    assert run.workers == 2
    assert [record.id for record in run.records] == [request.id for request in requests]
    assert all(record.ok for record in run.records)
    assert len(truth.records) == len(requests)
    prompts = {request.id: list(request.prompt) for request in requests}
    assert all(record.output_tokens == truth.truth_of(prompt_key(prompts[record.id])).tokens for record in run.records)
    assert sorted(record.id for record in seen) == sorted(prompts)
    assert progress[-1].done == len(requests)
    assert measure(run).completed == 24


def test_workers_share_the_clients() -> None:
    shape = workload(ClosedLoop(concurrency=5), 30)
    server = InThread(Behaviour(**FAST))
    with server as truth:
        run_load(server.url, "truth", build_requests(shape, vocab_size=2048, seed=1, salt="a"), shape, workers=3)
        assert 3 <= truth.most_running <= 5


def test_one_client_is_never_two_workers() -> None:
    shape = workload(ClosedLoop(concurrency=1), 6)
    server = InThread(Behaviour(**FAST))
    with server as truth:
        run = run_load(server.url, "truth", build_requests(shape, vocab_size=2048, seed=1, salt="a"), shape, workers=4)
        assert truth.most_running == 1
    assert run.workers == 1
    assert len(run.records) == 8


@pytest.mark.parametrize("by", ["stop", "ctrl-c"])
def test_workers_end_at_once_with_what_they_have(by: str) -> None:
    shape = workload(ClosedLoop(concurrency=4), 40, output_tokens=Fixed(tokens=500))
    server = InThread(Behaviour(ttft_ms=10, itl_ms=20))
    begun: list[float] = []

    def stop() -> str | None:
        if server.server.running and not begun:
            begun.append(time.monotonic())
        late = bool(begun) and time.monotonic() - begun[0] > 0.5
        if late and by == "ctrl-c":
            if len(begun) == 1:
                begun.append(0.0)
                os.kill(os.getpid(), signal.SIGINT)
            return None
        return "enough" if late else None

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with server as truth:
            run = run_load(server.url, "truth", build_requests(shape, vocab_size=2048, seed=1, salt="a"), shape,
                           workers=2, stop=stop, keep_on_interrupt=True)
            sent = sum(one.tokens for one in truth.records)
    finally:
        signal.signal(signal.SIGINT, before)
    assert run.stopped == ("enough" if by == "stop" else INTERRUPTED)
    received = sum(record.output_tokens for record in run.records)
    assert received > 10
    assert sent / 2 < received <= sent  # the server sends on for a moment, until it sees that they are gone
    assert {record.error for record in run.records} == {INTERRUPTED}
    assert time.monotonic() - begun[0] < 15


def test_a_server_that_fails_everything_ends_all_workers() -> None:
    shape = workload(ClosedLoop(concurrency=4), 2000)
    server = InThread(Behaviour(**FAST, fault="http_503"))
    with server:
        run = run_load(server.url, "truth", build_requests(shape, vocab_size=2048, seed=1, salt="a"), shape, workers=2)
    assert run.stopped is not None
    assert "every request fails: http_503" in run.stopped
    assert len(run.records) < 2000


def test_conversations_take_turns_and_think() -> None:
    shape = workload(Sessions(users=3, turns=Fixed(tokens=3), think_s=0.05), 27, warmup_requests=0)
    server = InThread(Behaviour(**FAST))
    with server as truth:
        run = run_load(server.url, "truth", build_requests(shape, vocab_size=2048, seed=1, salt="a"), shape)
    assert truth.most_running <= 3
    turns = defaultdict(list)
    for record in run.records:
        turns[record.session].append(record)
    assert [len(own) for own in turns.values()] == [3] * 9
    for own in turns.values():
        assert all(after.start_ns >= before.end_ns for before, after in itertools.pairwise(own))
        assert own[2].asked_input_tokens > own[1].asked_input_tokens > own[0].asked_input_tokens
    pauses = [(b.start_ns - a.end_ns) / 1e9 for own in turns.values() for a, b in itertools.pairwise(own)]
    assert 0.02 < sum(pauses) / len(pauses) < 0.2
    assert measure(run).completed == 27


def test_a_trace_is_sent_at_its_times() -> None:
    points = [TracePoint(0.0, 30, 5), TracePoint(0.3, 600, 6, (1, 2)), TracePoint(0.5, 600, 7, (1, 3))]
    shape = workload(Trace(path="unused"), 3, warmup_requests=0)
    requests = build_requests(shape, vocab_size=2048, seed=1, salt="a", trace=points)
    server = InThread(Behaviour(**FAST))
    with server:
        run = run_load(server.url, "truth", requests, shape)
    first = run.records[0].start_ns
    assert [(record.start_ns - first) / 1e9 for record in run.records] == pytest.approx([0, 0.3, 0.5], abs=1e-6)
    assert [record.output_tokens for record in run.records] == [5, 6, 7]
    assert [record.input_tokens for record in run.records] == [30, 600, 600]


def test_a_step_of_the_rate_is_followed() -> None:
    steps = (RatePoint(at_s=0, rate_per_s=10), RatePoint(at_s=1, rate_per_s=10), RatePoint(at_s=1, rate_per_s=40))
    shape = workload(RateProfile(points=steps, burstiness=None), 50, warmup_requests=0)
    server = InThread(Behaviour(**FAST))
    with server:
        run = run_load(server.url, "truth", build_requests(shape, vocab_size=2048, seed=1, salt="a"), shape)
    early = sum(record.start_ns - run.started_ns < 1.001e9 for record in run.records)
    assert early == pytest.approx(10, abs=1)
    assert (run.records[-1].start_ns - run.started_ns) / 1e9 == pytest.approx(2.0, abs=0.05)


def test_adapters_are_asked_for_by_name() -> None:
    shape = workload(ClosedLoop(concurrency=4), adapters=(Adapter(model="truth", weight=1), Adapter(model="x", weight=1)))
    server = InThread(Behaviour(**FAST))
    with server:
        run = run_load(server.url, "truth", build_requests(shape, vocab_size=2048, seed=1, salt="a"), shape)
    assert {(record.group, record.error) for record in run.records} == {("truth", None), ("x", "http_404")}
    assert set(measure(run).groups) == {"truth", "x"}


def test_words_are_measured_in_the_server_s_tokens() -> None:
    server = InThread(Behaviour(**FAST))
    with server:
        scale = calibrate(parse_target(server.url, "truth", api="chat"))
        shape = workload(ClosedLoop(concurrency=2), 6, input_tokens=Fixed(tokens=200))
        requests = build_requests(shape, vocab_size=None, seed=1, salt="a", as_text=True, scale=scale)
        run = run_load(server.url, "truth", requests, shape, api="chat")
    assert scale.tokens_per_word == pytest.approx(1.0, abs=0.01)
    assert scale.overhead > 0
    assert all(record.input_tokens == pytest.approx(200, abs=2) for record in run.records)


def test_a_hopeless_slo_ends_the_run_early() -> None:
    shape = workload(ClosedLoop(concurrency=2), 400)
    watch = Hopeless(parse_slo("p95 ttft<=5ms"))
    server = InThread(Behaviour(**FAST))
    with server:
        run = run_load(server.url, "truth", build_requests(shape, vocab_size=2048, seed=1, salt="a"), shape,
                       on_record=watch.add, stop=watch.reason)
    assert run.stopped is not None
    assert "p95 ttft<=5ms is out of reach" in run.stopped
    assert len(run.records) < 60


def test_a_run_is_as_long_as_the_interval_needs() -> None:
    shape = workload(ClosedLoop(concurrency=8), 20_000, output_tokens=Fixed(tokens=16))
    watch = UntilPrecise(0.1, cap_s=30, clock=time.monotonic_ns)
    server = InThread(Behaviour(**FAST))
    with server:
        run = run_load(server.url, "truth", build_requests(shape, vocab_size=2048, seed=1, salt="a"), shape,
                       on_record=watch.add, stop=watch.reason)
    assert run.stopped == "the throughput is known to 10.0%"
    found = watch.estimate()
    assert found is not None
    assert found.value == pytest.approx(measure(run).output_tokens_per_s.value, rel=0.1)


def test_a_client_that_cannot_keep_up_is_named() -> None:
    """Something burns the client's loop: 30 ms of work in every tick of its own."""
    shape = workload(ClosedLoop(concurrency=16), 160)

    def burn(_: RequestRecord) -> None:
        end = time.perf_counter() + 0.03
        while time.perf_counter() < end:
            pass

    server = InThread(Behaviour(**FAST))
    with server:
        run = run_load(server.url, "truth", build_requests(shape, vocab_size=2048, seed=1, salt="a"), shape,
                       on_record=burn)
    assert client_limits(run)
    assert "client_limited" in {warning.kind.value for warning in measure(run).warnings}


MAIN_PROCESS = """
import sys
from tuner.domain.workload import ClosedLoop, Fixed, Workload
from tuner.load.prompts import build_requests
from tuner.load.run import run_load

shape = Workload(name="t", input_tokens=Fixed(tokens=8), output_tokens=Fixed(tokens=500),
                 arrivals=ClosedLoop(concurrency=4), requests=40)
run_load(sys.argv[1], "truth", build_requests(shape, vocab_size=2048, seed=1, salt="a"), shape, workers=2)
"""


def test_workers_are_gone_when_the_main_process_is() -> None:
    """A worker whose pipe closes ends by itself."""
    server = InThread(Behaviour(ttft_ms=10, itl_ms=20))
    with server as truth, subprocess.Popen([sys.executable, "-c", MAIN_PROCESS, server.url]) as main:
        deadline = time.monotonic() + 30
        while not truth.running and time.monotonic() < deadline:
            time.sleep(0.05)
        assert truth.running
        main.kill()
        while truth.running and time.monotonic() < deadline:
            time.sleep(0.05)
        assert truth.running == 0
