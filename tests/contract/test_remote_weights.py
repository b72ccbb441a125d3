"""Sizes of weights over HTTP, from servers that serve ranges, ignore them, redirect, lie and break off."""

from __future__ import annotations

import json
import re
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tuner.app.plan import make_plan
from tuner.app.plan_ask import PlanAsk
from tuner.app.remote_weights import with_remote_weights
from tuner.capacity.weights import total_bytes
from tuner.cli.main import app
from tuner.domain.engine import Footprint
from tuner.domain.model import ModelSpec
from tuner.errors import ModelError, UsageError
from tuner.facts.catalog import model_by_hub_id
from tuner.runtime import hub

pytestmark = pytest.mark.contract

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256,
    "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000,
    "max_position_embeddings": 2048, "torch_dtype": "bfloat16",
}  # fmt: skip
TOKEN = "a-word-that-must-not-travel"


def shard(*tensors: tuple[str, int], padding: int = 0) -> bytes:
    header: dict[str, object] = {"__metadata__": {"format": "pt" + " " * padding}}
    at = 0
    for name, size in tensors:
        header[name] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"\0" * min(at, 1000)


class Hub:
    """A server of files that notes what it was asked and with which credentials."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.status: dict[str, int] = {}
        self.ranges = True
        self.asked: list[tuple[str, str | None, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                return None

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.split("?")[0]
        self.asked.append((path, request.headers.get("Authorization"), request.headers.get("Range")))
        if path in self.redirects:
            request.send_response(302)
            request.send_header("Location", self.redirects[path])
            request.end_headers()
            return
        body = self.files.get(path)
        status = self.status.get(path, 200 if body is not None else 404)
        wanted = re.fullmatch(r"bytes=0-(\d+)", request.headers.get("Range") or "")
        request.send_response(206 if wanted and self.ranges and status == 200 else status)
        whole = body or b""
        part = whole[: int(wanted[1]) + 1] if wanted and self.ranges else whole
        if wanted and self.ranges:
            request.send_header("Content-Range", f"bytes 0-{len(part) - 1}/{len(whole)}")
        request.send_header("Content-Length", str(len(part)))
        request.end_headers()
        request.wfile.write(part)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def server() -> Iterator[Hub]:
    found = Hub()
    yield found
    found.close()


@pytest.fixture
def other() -> Iterator[Hub]:
    found = Hub()
    yield found
    found.close()


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)


def put(server: Hub, files: dict[str, bytes], folder: str = "/m") -> str:
    server.files |= {f"{folder}/{name}": body for name, body in files.items()}
    server.files.setdefault(f"{folder}/config.json", json.dumps(LLAMA).encode())
    return server.address + folder


def model(name: str = "own/model") -> ModelSpec:
    return model_by_hub_id(name)


def test_the_tensors_of_all_shards_and_nothing_else(server: Hub) -> None:
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-2.safetensors"}}
    files = {
        "model.safetensors.index.json": json.dumps(index).encode(),
        "model-1.safetensors": shard(("model.layers.0.w", 4_000_000_000)),
        "model-2.safetensors": shard(("model.layers.3.w", 200), ("mtp.w", 7), ("model.layers.4.w", 9), ("lm_head", 50)),
    }
    spec = with_remote_weights(model(), put(server, files))
    assert spec.weight_bytes == 4_000_000_250, "without the extra layers for speculation"
    assert (spec.architecture, spec.layers, spec.location) == ("LlamaForCausalLM", 4, "own/model")
    weights = total_bytes(spec, Footprint())
    assert weights is not None
    assert (weights.bytes, weights.text) == (4_000_000_250, "sizes in the headers of the weight files")


def test_one_file_and_a_header_longer_than_the_first_range(server: Hub) -> None:
    spec = with_remote_weights(model(), put(server, {"model.safetensors": shard(("w", 100), padding=200_000)}))
    assert spec.weight_bytes == 100
    ranges = [asked for path, _, asked in server.asked if path.endswith("model.safetensors")]
    assert len(ranges) == 2


def test_a_server_without_ranges_is_hung_up_on(server: Hub) -> None:
    server.ranges = False
    long = shard(("w", 100), padding=100_000) + b"\0" * 1_000_000
    assert with_remote_weights(model(), put(server, {"model.safetensors": long})).weight_bytes == 100


def test_a_known_model_keeps_its_counted_parameters(server: Hub) -> None:
    known = model("meta-llama/Meta-Llama-3-8B-Instruct")
    spec = with_remote_weights(known, put(server, {"model.safetensors": shard(("w", 16_060_522_496))}))
    assert (spec.weight_bytes, spec.parameters) == (16_060_522_496, known.parameters)


def test_quantization_that_lies_beside(server: Hub) -> None:
    beside = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    files = {"model.safetensors": shard(("w", 10)), "hf_quant_config.json": json.dumps(beside).encode()}
    spec = with_remote_weights(model(), put(server, files))
    assert (spec.quantization, spec.kv_quantization) == ("modelopt", "fp8")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "/m/model.safetensors is not there"),
        ({"model.safetensors": b""}, "is no safetensors file"),
        ({"model.safetensors": b"abc"}, "is no safetensors file"),
        ({"model.safetensors": struct.pack("<Q", 1 << 60) + b"{}"}, "is no safetensors file"),
        ({"model.safetensors": struct.pack("<Q", 90_000_000) + b"{}"}, "ends within its header"),
        ({"model.safetensors": struct.pack("<Q", 4) + b"\xff{}!"}, "a header that is not understood"),
        ({"model.safetensors": struct.pack("<Q", 6) + b'{"a":1'}, "a header that is not understood"),
        ({"model.safetensors": struct.pack("<Q", 7) + b'{"a":1}'}, "a header that is not understood"),
        ({"model.safetensors": b"version https://git-lfs.github.com/spec/v1"}, "is no safetensors file"),
        ({"model.safetensors.index.json": b"<html>"}, "names no weight files"),
        ({"model.safetensors.index.json": b'{"weight_map": {}}'}, "names no weight files"),
        ({"model.safetensors.index.json": b'{"weight_map": {"a": "../../x.safetensors"}}'}, "names no weight files"),
        ({"model.safetensors.index.json": b'{"weight_map": {"a": "http://x/a.safetensors"}}'}, "names no weight files"),
        ({"model.safetensors.index.json": b'{"weight_map": {"a": "a.safetensors"}}'}, "/m/a.safetensors is not there"),
        ({"config.json": b"{", "model.safetensors": shard(("w", 2))}, "config.json:1: not valid JSON"),
        ({"config.json": b"{}", "model.safetensors": shard(("w", 2))}, "names no architecture"),
    ],
)
def test_what_is_wrong_is_said(server: Hub, files: dict[str, bytes], message: str) -> None:
    address = put(server, files)
    with pytest.raises(ModelError) as caught:
        with_remote_weights(model(), address)
    assert message in caught.value.message


@pytest.mark.parametrize(("status", "words"), [(401, "may not be read"), (403, "may not be read"), (500, "HTTP 500")])
def test_what_the_server_refuses(server: Hub, status: int, words: str) -> None:
    address = put(server, {})
    server.status["/m/config.json"] = status
    with pytest.raises(ModelError) as caught:
        with_remote_weights(model(), address)
    assert words in caught.value.message
    assert TOKEN not in caught.value.message + (caught.value.hint or "")


def test_the_token_goes_to_the_hub_and_not_along_with_a_redirect(server: Hub, other: Hub) -> None:
    address = put(server, {})
    other.files["/store/x"] = shard(("w", 40))
    server.redirects["/m/model.safetensors"] = other.address + "/store/x?signature=1"
    assert with_remote_weights(model(), address).weight_bytes == 40
    assert {credentials for _, credentials, _ in server.asked} == {f"Bearer {TOKEN}"}
    assert [(path, credentials) for path, credentials, _ in other.asked] == [("/store/x", None)]


def test_a_redirect_on_the_same_host_keeps_the_token(server: Hub) -> None:
    address = put(server, {"model.safetensors": shard(("w", 40))}, "/renamed")
    server.redirects |= {f"/m/{name}": f"/renamed/{name}" for name in ("config.json", "model.safetensors")}
    assert with_remote_weights(model(), address.replace("renamed", "m")).weight_bytes == 40
    assert {credentials for _, credentials, _ in server.asked} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize("target", ["/m/config.json", "ftp://x/y", ""])
def test_redirects_that_lead_nowhere(server: Hub, target: str) -> None:
    server.redirects["/m/config.json"] = target
    with pytest.raises(ModelError, match="redirect"):
        with_remote_weights(model(), server.address + "/m")


@pytest.mark.parametrize("address", ["http://example.org/m", "ftp://x/m", "not an address", "https://", "hub2"])
def test_only_https_addresses_are_asked(address: str) -> None:
    with pytest.raises(ModelError, match="address"):
        with_remote_weights(model(), address)


def test_a_password_in_the_address_is_refused() -> None:
    with pytest.raises(ModelError) as caught:
        with_remote_weights(model(), "https://me:secret@example.org/m")
    assert "secret" not in caught.value.message


def test_tls_is_never_left() -> None:
    url = hub.httpx.URL("https://hub.example/x")
    with pytest.raises(ModelError, match="redirects to where nothing is read from"):
        hub._next(url, "http://hub.example/x")


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(ModelError, match="cannot be read") as caught:
        with_remote_weights(model(), "http://127.0.0.1:9/m")
    assert "network" in (caught.value.hint or "")


def test_a_directory_needs_no_network(tmp_path: Path) -> None:
    spec = model().model_copy(update={"source": "directory", "location": str(tmp_path)})
    with pytest.raises(UsageError, match="is a directory"):
        with_remote_weights(spec, "hub")


def test_plan_works_with_the_exact_bytes(server: Hub) -> None:
    address = put(server, {"model.safetensors": shard(("w", 20 << 30))})
    ask = PlanAsk(model="meta-llama/Meta-Llama-3-8B-Instruct", gpu="h100", gpus=1, workload="512x256@c4")
    config = {**LLAMA, "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 128256,
              "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192}  # fmt: skip
    server.files["/m/config.json"] = json.dumps(config).encode()
    exact = make_plan(ask.model_copy(update={"weights_from": address, "lossless": True}))
    estimate = make_plan(ask.model_copy(update={"lossless": True}))
    assert exact.answer.options[0].memory["weights"] == pytest.approx(20, abs=0.01)
    assert estimate.answer.options[0].memory["weights"] == pytest.approx(14.96, abs=0.1)
    assert f"--weights-from {address}" in exact.answer.command


def test_check_reads_what_the_files_name(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    put(server, {"model.safetensors": shard(("w", 200 << 30))}, "/own/big/resolve/main")
    script = tmp_path / "serve.sh"
    script.write_text("vllm serve own/big --host 127.0.0.1\nvllm serve own/gone --host 127.0.0.1\n")
    result = CliRunner().invoke(app, ["check", str(script), "--gpu", "h100", "--weights-from", "hub"])
    assert result.exit_code == 1
    assert f"{script}:1: error memory: does not fit 1 x " in result.output
    assert "warning: http://127.0.0.1" in result.output
    assert "own/gone/resolve/main has no config.json" in result.output
    assert TOKEN not in result.output
    offline = CliRunner().invoke(app, ["check", str(script), "--gpu", "h100"])
    assert "memory" not in offline.output


def test_check_wants_a_model_for_an_address(tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text("vllm serve own/big\n")
    result = CliRunner().invoke(app, ["check", str(script), "--weights-from", "https://example.org/m"])
    assert "needs --model" in str(result.exception)
