"""The client against a server whose tokens and times are known by construction: counts are exact, failures fail."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Sequence

import pytest

from tests.fakes.truth_server import Behaviour, InThread, TruthServer, prompt_key
from tuner.domain.load_record import INTERRUPTED, LoadRun
from tuner.domain.workload import Arrivals, ClosedLoop, Fixed, OpenLoop, Uniform, Workload
from tuner.load.driver import Progress
from tuner.load.prompts import Request, build_requests
from tuner.load.run import run_load
from tuner.load.target import Api
from tuner.measure.requests import measure

pytestmark = pytest.mark.integration

FAST = {"ttft_ms": 10.0, "itl_ms": 2.0}


def workload(
    requests: int = 12, arrivals: Arrivals | None = None, *, tokens: int = 0, timeout_s: float = 20.0, warmup: int = 0
) -> Workload:
    return Workload(
        name="t", input_tokens=Uniform(low=5, high=20),
        output_tokens=Fixed(tokens=tokens) if tokens else Uniform(low=8, high=24),
        arrivals=arrivals or ClosedLoop(concurrency=4), requests=requests, warmup_requests=warmup, timeout_s=timeout_s,
    )


def built(shape: Workload, api: Api = "completions", salt: str = "a") -> list[Request]:
    return build_requests(shape, vocab_size=2048, seed=1, salt=salt, as_text=api == "chat")


def loaded(
    behaviour: Behaviour, shape: Workload | None = None, *, api: Api = "completions", ignore_eos: bool = True
) -> tuple[LoadRun, TruthServer]:
    shape = shape or workload()
    server = InThread(behaviour)
    with server as truth:
        run = run_load(server.url, "truth", built(shape, api), shape, api=api, ignore_eos=ignore_eos)
    return run, truth


def kinds(run: LoadRun) -> list[str]:
    return [record.error or "ok" for record in run.records]


def assert_true_to(run: LoadRun, truth: TruthServer, requests: Sequence[Request]) -> None:
    """Every answer's token total is the server's own, and no token came before it was sent."""
    prompts = {request.id: request.prompt for request in requests}
    assert len(run.records) == len(truth.records)
    for record in run.records:
        sent = truth.truth_of(prompt_key(list(prompts[record.id])))
        assert record.output_tokens == sent.tokens == record.asked_output_tokens
        assert sum(record.chunk_tokens) == record.output_tokens
        assert record.input_tokens == sent.input_tokens or record.input_tokens is None
        assert record.first_ns is not None
        assert record.first_ns >= sent.received_ns
        assert record.sent_ns is not None
        assert record.sent_ns <= sent.received_ns


WIRES = {
    "plain": Behaviour(**FAST),
    "crlf": Behaviour(**FAST, crlf=True),
    "no blank after data": Behaviour(**FAST, blank=False),
    "pings": Behaviour(**FAST, ping=True),
    "crlf and pings": Behaviour(**FAST, ping=True, crlf=True),
    "several tokens a chunk": Behaviour(**FAST, tokens_per_chunk=4),
    "several tokens a chunk, no usage": Behaviour(**FAST, tokens_per_chunk=4, usage="none"),
    "several tokens a chunk, running usage": Behaviour(**FAST, tokens_per_chunk=3, usage="continuous"),
    "two events a packet": Behaviour(**FAST, events_per_packet=2),
    "events split over packets": Behaviour(**FAST, split_events=True),
    "no usage": Behaviour(**FAST, usage="none"),
    "running usage": Behaviour(**FAST, usage="continuous"),
    "empty first chunk": Behaviour(**FAST, empty_first=True),
    "tokens without text": Behaviour(**FAST, blank_tokens_every=3),
    "closing chunk without text": Behaviour(**FAST, finish_chunk=True),
    "quotes and backslashes": Behaviour(**FAST, quotes=True),
    "ends with the connection": Behaviour(**FAST, framing="close"),
    "one request a connection": Behaviour(**FAST, close_each=True),
    "slow accept": Behaviour(**FAST, slow_accept_ms=50),
    "no [DONE]": Behaviour(**FAST, fault="no_done"),
    "closed right after [DONE]": Behaviour(**FAST, fault="close_after_done"),
}


@pytest.mark.parametrize("name", WIRES)
def test_counts_are_exact_however_it_is_written(name: str) -> None:
    shape = workload()
    run, truth = loaded(WIRES[name], shape)
    assert kinds(run) == ["ok"] * 12
    assert_true_to(run, truth, built(shape))


@pytest.mark.parametrize("behaviour", [
    Behaviour(**FAST, role_chunk=True), Behaviour(**FAST, reasoning=5), Behaviour(**FAST, reasoning=5, usage="none"),
    Behaviour(**FAST, role_chunk=True, finish_chunk=True), Behaviour(**FAST, crlf=True, ping=True, tokens_per_chunk=4),
])
def test_counts_are_exact_in_chat(behaviour: Behaviour) -> None:
    run, truth = loaded(behaviour, api="chat")
    assert kinds(run) == ["ok"] * 12
    assert sum(r.output_tokens for r in run.records) == sum(r.tokens for r in truth.records)
    assert all(r.output_tokens == r.asked_output_tokens for r in run.records)


def test_a_role_chunk_sent_at_once_is_not_the_first_token() -> None:
    run, _ = loaded(Behaviour(ttft_ms=200, itl_ms=2, role_chunk=True), workload(4), api="chat")
    assert all(r.first_ns is not None and r.first_ns - r.start_ns >= 199e6 for r in run.records)


def test_reasoning_is_the_first_token_and_the_answer_is_told_apart() -> None:
    run, _ = loaded(Behaviour(ttft_ms=20, itl_ms=20, reasoning=5), workload(4, tokens=8), api="chat")
    for record in run.records:
        assert record.first_ns is not None
        assert record.answer_ns is not None
        assert record.answer_ns - record.first_ns >= 80e6


def test_several_events_in_a_read_are_seen() -> None:
    run, _ = loaded(Behaviour(ttft_ms=20, itl_ms=20, events_per_packet=2), workload(4, tokens=8))
    assert run.multi_event_reads == run.reads == 16
    assert all(list(record.chunk_tokens) == [2, 2, 2, 2] for record in run.records)


@pytest.mark.parametrize(("fault", "kind"), [
    ("http_429", "http_429"), ("http_503", "http_503"), ("error_event", "stream_error"),
    ("named_error", "stream_error"), ("abort", "stream_error"), ("truncate", "truncated"), ("empty", "empty"),
    ("reset", "reset"), ("cut", "reset"), ("not_json", "protocol"), ("not_stream", "protocol"),
])
def test_failures_are_failures_and_the_others_stay_good(fault: str, kind: str) -> None:
    run, truth = loaded(Behaviour(**FAST, fault=fault, fault_every=3))  # type: ignore[arg-type]
    assert sorted(kinds(run)) == sorted(["ok"] * 8 + [kind] * 4)
    good = [record for record in run.records if record.ok]
    sent = [record for record in truth.records if record.fault is None]
    assert sum(record.output_tokens for record in good) == sum(record.tokens for record in sent)
    found = measure(run)
    assert (found.completed, found.failed, found.errors) == (8, 4, {kind: 4})
    assert all(record.detail for record in run.records if not record.ok)


@pytest.mark.parametrize("fault", ["stall", "no_answer"])
def test_a_silent_server_is_left_after_the_time_limit(fault: str) -> None:
    started = time.monotonic()
    run, _ = loaded(Behaviour(**FAST, fault=fault, fault_every=3), workload(timeout_s=0.6))  # type: ignore[arg-type]
    assert kinds(run).count("timeout") == 4
    assert kinds(run).count("ok") == 8
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("usage", ["low", "high"])
def test_a_wrong_usage_is_noticed_and_not_believed(usage: str) -> None:
    run, _ = loaded(Behaviour(**FAST, usage=usage))  # type: ignore[arg-type]
    assert all(record.ok and record.count_mismatch and not record.from_usage for record in run.records)
    assert all(record.output_tokens == record.asked_output_tokens for record in run.records)


def test_an_early_stop_counts_only_where_it_was_forbidden() -> None:
    run, _ = loaded(Behaviour(**FAST, fault="truncate"), workload(4), ignore_eos=False)
    assert kinds(run) == ["ok"] * 4


def test_an_unknown_model_is_refused_with_the_server_s_words() -> None:
    server = InThread(Behaviour(**FAST))
    with server:
        run = run_load(server.url, "other", built(workload()), workload())
    assert kinds(run) == ["http_404"] * 12
    assert "does not exist" in run.records[0].detail


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run = run_load(f"http://127.0.0.1:{port}", "m", built(workload(500)), workload(500))
    assert set(kinds(run)) == {"connect"}
    assert run.stopped is not None
    assert "every request fails" in run.stopped
    assert len(run.records) < 50


def test_a_name_that_does_not_resolve() -> None:
    run = run_load("http://no-such-host.invalid", "m", built(workload(2)), workload(2))
    assert kinds(run) == ["connect", "connect"]


def test_a_server_that_speaks_no_http() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def talk() -> None:
        for _ in range(2):
            peer, _ = listener.accept()
            peer.recv(100)
            peer.sendall(b"SSH-2.0-x\r\n")
            peer.close()

    threading.Thread(target=talk, daemon=True).start()
    shape = workload(2, ClosedLoop(concurrency=1), timeout_s=5)
    run = run_load(f"http://127.0.0.1:{listener.getsockname()[1]}", "m", built(shape), shape)
    listener.close()
    assert set(kinds(run)) == {"protocol"}


def test_tls_to_a_plain_server_is_a_failure_to_connect() -> None:
    server = InThread(Behaviour(**FAST))
    with server:
        shape = workload(2, timeout_s=3)
        run = run_load(server.url.replace("http", "https"), "truth", built(shape), shape)
    assert set(kinds(run)) == {"connect"}


def test_a_connection_that_went_stale_is_opened_again() -> None:
    """A server may close a kept-alive connection just when the next request is on its way."""
    listener = socket.create_server(("127.0.0.1", 0))
    event = b'data: {"choices": [{"text": "a", "finish_reason": "length"}]}\n\n'
    answer = (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(event)) + event

    def serve_one_each() -> None:
        for _ in range(3):
            peer, _ = listener.accept()
            peer.recv(65536)
            peer.sendall(answer)
            peer.recv(1)  # the next request comes, and is not answered
            peer.close()

    threading.Thread(target=serve_one_each, daemon=True).start()
    shape = workload(3, ClosedLoop(concurrency=1), tokens=1, timeout_s=5)
    run = run_load(f"http://127.0.0.1:{listener.getsockname()[1]}", "m", built(shape), shape)
    listener.close()
    assert kinds(run) == ["ok"] * 3
    assert [record.retries for record in run.records] == [0, 1, 1]


def test_closed_loop_keeps_its_clients_and_its_connections() -> None:
    run, truth = loaded(Behaviour(**FAST), workload(40, ClosedLoop(concurrency=8), warmup=4))
    assert truth.most_running <= 8
    assert truth.connections == 8
    assert [record.warmup for record in run.records] == [True] * 4 + [False] * 40


def test_open_loop_sends_on_time_whatever_comes_back() -> None:
    shape = workload(40, OpenLoop(rate_per_s=100, burstiness=None))
    run, truth = loaded(Behaviour(ttft_ms=300, itl_ms=1), shape)
    assert truth.most_running > 20
    assert all(record.start_ns == record.scheduled_ns for record in run.records)
    gaps = {(b.scheduled_ns - a.scheduled_ns) / 1e6 for a, b in zip(run.records, run.records[1:], strict=False)}
    assert all(gap == pytest.approx(10, abs=0.001) for gap in gaps)
    assert all(record.sent_ns is not None and record.sent_ns >= record.scheduled_ns for record in run.records)


def test_progress_is_told_and_ends_complete() -> None:
    seen: list[Progress] = []
    server = InThread(Behaviour(ttft_ms=50, itl_ms=10))
    with server:
        run_load(server.url, "truth", built(workload()), workload(), on_progress=seen.append)
    assert len(seen) > 2
    assert (seen[-1].done, seen[-1].total, seen[-1].in_flight, seen[-1].failed) == (12, 12, 0, 0)
    assert [one.done for one in seen] == sorted(one.done for one in seen)


def test_stop_ends_the_run_at_once_with_what_it_has() -> None:
    server = InThread(Behaviour(ttft_ms=10, itl_ms=50))
    shape = workload(40, tokens=100)
    started = time.monotonic()
    with server as truth:
        run = run_load(server.url, "truth", built(shape), shape,
                       stop=lambda: "the server died" if time.monotonic() - started > 0.5 else None)
        assert run.stopped == "the server died"
        assert set(kinds(run)) == {INTERRUPTED}
        assert all(record.output_tokens > 0 for record in run.records)
        deadline = time.monotonic() + 5
        while truth.running and time.monotonic() < deadline:
            time.sleep(0.01)
        assert truth.running == 0
    assert time.monotonic() - started < 8


@pytest.mark.parametrize("keep", [True, False])
def test_ctrl_c(keep: bool) -> None:
    server = InThread(Behaviour(ttft_ms=10, itl_ms=50))
    shape = workload(40, tokens=100)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    try:
        with server:
            timer.start()
            if keep:
                run = run_load(server.url, "truth", built(shape), shape, keep_on_interrupt=True)
                assert run.stopped == INTERRUPTED
                assert set(kinds(run)) == {INTERRUPTED}
            else:
                with pytest.raises(KeyboardInterrupt):
                    run_load(server.url, "truth", built(shape), shape)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


def test_a_defect_of_the_client_is_raised_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise AssertionError("on purpose")

    monkeypatch.setattr("tuner.load.driver.to_record", broken)
    with pytest.raises(AssertionError, match="on purpose"):
        loaded(Behaviour(**FAST))


def test_plain_asyncio_does_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.load.driver.loop_factory", lambda: asyncio.new_event_loop)
    shape = workload()
    run, truth = loaded(Behaviour(**FAST), shape)
    assert_true_to(run, truth, built(shape))


def test_prompts_of_two_runs_never_meet() -> None:
    server = InThread(Behaviour(**FAST))
    with server as truth:
        for salt in ("first", "second"):
            run_load(server.url, "truth", built(workload(), salt=salt), workload())
    assert len({record.key for record in truth.records}) == 24
    asked = [body["max_tokens"] for body in truth.bodies]
    assert sorted(asked[:12]) == sorted(asked[12:])


def test_no_request_asked_for_is_an_empty_run() -> None:
    run, _ = loaded(Behaviour(**FAST), workload().model_copy(update={"requests": 0}))
    assert run.records == ()
