"""`bench` and `compare` against the server of known times, and against servers that are none."""

from __future__ import annotations

import gzip
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.truth_server import Behaviour, InThread, _Answer
from tuner.app.bench import BenchAsk, bench
from tuner.app.compare import compare, load_result
from tuner.app.events import Event
from tuner.app.named import resolve_workload
from tuner.app.served import find_server
from tuner.cli.main import app  # noqa: F401  (the commands import without their load)
from tuner.cli.run_bench import notes
from tuner.domain.slo import Slo, parse_slo
from tuner.errors import ServerError, SpaceError, UsageError

pytestmark = [pytest.mark.contract, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    command = [sys.executable, str(ROOT / "tests" / "fakes" / "truth_server.py"), "--ttft-ms", "30", "--itl-ms", "5"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    process.terminate()
    process.wait(10)
    process.stdout.close()


def ask(url: str, workload: str, **more: object) -> BenchAsk:
    load = resolve_workload(workload, int(more.pop("requests", 24)))  # type: ignore[call-overload]
    return BenchAsk(url=url, workload=load, slo=more.pop("slo", Slo()), **more)  # type: ignore[arg-type]


def test_one_level_is_true_and_written(server: str, tmp_path: Path) -> None:
    told: list[Event] = []
    result = bench(ask(server, "8x16@c4", slo=parse_slo("p95 ttft<=10s"), out=tmp_path), told.append)
    level = result.levels[0]
    assert (level.label, level.measurement.completed, level.measurement.failed) == ("c4", 24, 0)
    assert level.meets_slo
    assert level.measurement.output_tokens == 24 * 16
    assert level.measurement.ttft_ms is not None
    assert level.measurement.ttft_ms.p50.value >= 29.5
    assert load_result(tmp_path) == result
    assert (tmp_path / level.requests_file).exists()
    assert told
    assert "c4" in (tmp_path / "bench.html").read_text()
    (tmp_path / "requests-c9.jsonl.gz").write_text("of an earlier level")
    again = bench(ask(server, "8x16@c4", out=tmp_path, force=True, seed=5), told.append)
    assert load_result(tmp_path) == again != result
    assert not (tmp_path / "requests-c9.jsonl.gz").exists()


def test_sweep_names_the_knee(server: str) -> None:
    result = bench(ask(server, "8x8", sweep=True, slo=parse_slo("p50 ttft<=1ms")), lambda event: None)
    assert [level.label for level in result.levels] == ["c1"]
    assert result.knee is None
    assert not result.levels[0].meets_slo


def test_duration_ends_a_level_without_blame(server: str) -> None:
    level = bench(ask(server, "8x8@c2", duration_s=1.5), lambda event: None).levels[0]
    assert level.stopped is None
    assert level.measurement.failed == 0
    assert 0.5 < level.measurement.duration_s < 20


def test_precision_ends_a_level(server: str) -> None:
    level = bench(ask(server, "8x8@c4", precision=0.3, duration_s=8.0), lambda event: None).levels[0]
    estimate = level.measurement.output_tokens_per_s
    assert level.stopped is None
    assert (estimate.high - estimate.low) / 2 < estimate.value
    assert level.measurement.duration_s < 12


def test_model_that_is_not_served(server: str) -> None:
    with pytest.raises(ServerError, match="does not serve 'other'") as caught:
        find_server(server, "other", None)
    assert caught.value.hint == "it serves: truth"


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", ""])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(UsageError):
        find_server(url, None, None)


class Stub(http.server.BaseHTTPRequestHandler):
    status, body = 200, b""

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.mark.parametrize(("status", "body", "said"), [
    (401, b"", "wants a key"),
    (404, b"not here", "without a list of models"),
    (200, b"<html>", "without a list of models"),
    (200, b'{"data": 3}', "without a list of models"),
    (200, b'{"data": []}', "serves 0 models"),
    (200, b'{"data": [{"id": "a"}, {"id": "b"}]}', "serves 2 models"),
])
def test_servers_that_cannot_be_loaded(status: int, body: bytes, said: str) -> None:
    handler = type("Handler", (Stub,), {"status": status, "body": body})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as stub:
        thread = threading.Thread(target=stub.serve_forever, daemon=True)
        thread.start()
        with pytest.raises(ServerError, match=said):
            find_server(f"http://127.0.0.1:{stub.server_port}", None, None)
        stub.shutdown()
        thread.join()


def test_nobody_there() -> None:
    with pytest.raises(ServerError, match="cannot connect") as caught:
        find_server("http://127.0.0.1:9", None, None)
    assert caught.value.exit_code == 13


def test_compare_needs_the_same_work(server: str, tmp_path: Path) -> None:
    one = bench(ask(server, "8x16@c4"), lambda event: None)
    two = bench(ask(server, "8x16@c4"), lambda event: None)
    ratios = {ratio.metric: ratio for ratio in compare(one, two)}
    assert 0.5 < ratios["output_tokens_per_s"].ratio.value < 2
    assert all(ratio.ratio.low <= ratio.ratio.value <= ratio.ratio.high for ratio in ratios.values())
    assert ratios["output_tokens_per_s"].a == one.levels[0].measurement.output_tokens_per_s
    with pytest.raises(UsageError, match="seeds differ"):
        compare(one, two.model_copy(update={"seed": 1}))
    with pytest.raises(UsageError, match="no load level in common"):
        compare(one, two.model_copy(update={"levels": ()}))
    with pytest.raises(UsageError, match="no result at"):
        load_result(tmp_path)
    (tmp_path / "bench.json").write_text(json.dumps({"schema_version": 1}))
    with pytest.raises(SpaceError, match="not a result of bench"):
        load_result(tmp_path)


def test_failures_are_told_in_the_servers_own_words(tmp_path: Path) -> None:
    server = InThread(Behaviour(ttft_ms=5, itl_ms=1, fault="http_503", fault_every=6))
    with server:
        result = bench(ask(server.url, "8x16@c4", out=tmp_path), lambda _: None)
    (level,) = result.levels
    assert level.measurement.errors["http_503"] > 0
    assert "busy" in level.first_words["http_503"]
    said = [line for line in notes(result) if "http_503" in line]
    assert said
    assert "busy" in said[0]
    assert load_result(tmp_path).levels[0].first_words == level.first_words


def test_a_server_that_repeats_the_key_does_not_bring_it_into_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "a-key-of-my-own-42"
    refuse = _Answer.refuse
    monkeypatch.setattr(_Answer, "refuse", lambda answer, status, why: refuse(answer, status, f"{why}: no such key {key}"))
    server = InThread(Behaviour(ttft_ms=5, itl_ms=1, fault="http_503", fault_every=6))
    with server:
        result = bench(ask(server.url, "8x16@c4", out=tmp_path, api_key=key), lambda _: None)
    texts = [gzip.decompress(path.read_bytes()) for path in tmp_path.glob("*.gz")]
    texts += [path.read_bytes() for path in tmp_path.iterdir() if path.suffix in (".json", ".html")]
    assert len(texts) >= 3
    assert any(b"redacted" in text for text in texts)
    assert not any(key.encode() in text for text in texts)
    assert "redacted" in result.levels[0].first_words["http_503"]
