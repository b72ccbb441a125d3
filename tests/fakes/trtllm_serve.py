"""A stand-in for TensorRT-LLM's `trtllm-serve`, which cannot run where there is no GPU. It says so in log and answers.

    trtllm-serve [serve] MODEL [--config FILE.yaml] [options]

It is as strict as the real one: an option or a key of the file that its release does not have, a wrong type or a value
that is not among the choices stops the start with the real one's words (click's, pydantic's), and the file wins over the
options. What exists is read from tuner/facts/data/trtllm/flags.json, by this program's own code.

It loads no model. It pretends to have eight GPUs of 8 GiB: weights as large as the model's files, activations of 256 KiB
for each token of max_num_tokens, and free_gpu_memory_fraction of the rest as KV cache of 64 KiB a token (half with fp8).
Over HTTP it streams words at a pace that slows with the number of running requests, at most max_batch_size of them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import yaml
from packaging.version import Version

from tests.fakes.fake_engine import Engine, answer, leave

ROOT = Path(__file__).parents[2]
TABLE: dict[str, Any] = json.loads((ROOT / "tuner/facts/data/trtllm/flags.json").read_text())
GIB = 1 << 30
GPUS = 8
GPU_BYTES = 8 * GIB
TOKEN_BYTES = 64 << 10
ACTIVATION_BYTES = 256 << 10
SAID = "STAND-IN for trtllm-serve {version}: it loads no model and uses no GPU, and its answers are made up"


def install(folder: Path, version: str, *, says: str | None = None) -> Path:
    """Make an environment whose trtllm-serve is this stand-in, of this release; return the program.

    `says` is the release that its metadata name, when that is another one.
    """
    named = f"{says or version}+cpu.standin"
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.symlink_to(sys.executable)
    code = (f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.fakes.trtllm_serve import main; "
            f"main({version!r}, sys.argv[1:])")
    program = folder / "bin" / "trtllm-serve"
    program.write_text(f"#!{python}\nimport os, sys\n"
                       f"os.execv({sys.executable!r}, [{sys.executable!r}, '-c', {code!r}, *sys.argv[1:]])\n")
    program.chmod(0o755)
    site = folder / f"lib/python3.{sys.version_info.minor}/site-packages"
    info = site / f"tensorrt_llm-{named}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tensorrt_llm\nVersion: {named}\n")
    return program


def log(text: str, level: str = "I") -> None:
    print(f"[{time.strftime('%m/%d/%Y-%H:%M:%S')}] [TRT-LLM] [{level}] {text}", flush=True)


def refuse_option(text: str) -> NoReturn:
    """End as click does."""
    print(f"Usage: trtllm-serve [OPTIONS] MODEL\nTry 'trtllm-serve --help' for help.\n\nError: {text}", file=sys.stderr)
    leave(2)
    raise SystemExit


def refuse_key(key: str, text: str, kind: str, value: object) -> NoReturn:
    """End as pydantic does below the real program's traceback."""
    print('Traceback (most recent call last):\n  File "tensorrt_llm/commands/serve.py", line 1, in serve\n'
          f"pydantic_core._pydantic_core.ValidationError: 1 validation error for TorchLlmArgs\n{key}\n"
          f"  {text} [type={kind}, input_value={value!r}, input_type={type(value).__name__}]\n"
          f"    For further information visit https://errors.pydantic.dev/2.11/v/{kind}", file=sys.stderr, flush=True)
    leave(1)
    raise SystemExit


class Release:
    """What one release takes."""

    def __init__(self, version: str) -> None:
        self.version = Version(version)
        self.entries = {name: entry for name, entry in TABLE["flags"].items() if self._alive(entry)}

    def _alive(self, entry: dict[str, Any]) -> bool:
        since, until = entry.get("since"), entry.get("until")
        return (not since or Version(since) <= self.version) and (not until or self.version <= Version(until))

    def now(self, history: list[list[Any]]) -> Any:
        return [value for since, value in history if Version(since) <= self.version][-1]

    def option(self, word: str) -> tuple[str, dict[str, Any]]:
        for name, entry in self.entries.items():
            if word in (*entry.get("cli", ()), *(entry.get("aliases", ()) if entry.get("where") != "cli" else ())):
                return name, entry
        refuse_option(f"No such option: {word}")

    def parse(self, words: list[str]) -> tuple[str, dict[str, Any], Path | None]:
        """Return model, settings of the options, and the file."""
        models: list[str] = []
        settings: dict[str, Any] = {}
        file: Path | None = None
        waiting = list(reversed(words))
        while waiting:
            word = waiting.pop()
            if not word.startswith("-"):
                models.append(word)
                continue
            name, attached, value = word.partition("=")
            if name in ("--config", "--extra_llm_api_options"):
                file = Path(value if attached else waiting.pop())
                continue
            key, entry = self.option(name)
            kind = self.now(entry["kinds"])
            if kind == "bool":
                settings[key] = not name.startswith("--no-")
                continue
            if not attached and not waiting:
                refuse_option(f"Option '{name}' requires an argument.")
            settings[key] = self.convert(name, kind, value if attached else waiting.pop(), entry)
        if not models:
            refuse_option("Missing argument 'MODEL'.")
        if len(models) > 1:
            refuse_option(f"Got unexpected extra argument ({models[1]})")
        return models[0], settings, file

    def convert(self, name: str, kind: str, text: str, entry: dict[str, Any]) -> Any:
        choices = self.now(entry["choices"]) if "choices" in entry else None
        if choices and text not in choices:
            refuse_option(f"Invalid value for '{name}': {text!r} is not one of {', '.join(map(repr, choices))}.")
        try:
            return {"int": int, "float": float}.get(kind, str)(text)
        except ValueError:
            refuse_option(f"Invalid value for '{name}': {text!r} is not a valid {kind}.")

    def read(self, file: Path) -> dict[str, Any]:
        """Return the settings of the file by dotted names."""
        document = yaml.safe_load(file.read_text())
        if not isinstance(document, dict):
            print(f"TypeError: '{type(document).__name__}' object is not a mapping", file=sys.stderr)
            leave(1)
        settings: dict[str, Any] = {}
        for key, value in document.items():
            if isinstance(value, dict) and any(name.startswith(f"{key}.") for name in self.entries):
                for part, inner in value.items():
                    settings[f"{key}.{part}"] = self.checked(f"{key}.{part}", inner)
            else:
                settings[key] = self.checked(key, value)
        return settings

    def checked(self, key: str, value: Any) -> Any:
        entry = self.entries.get(key)
        if entry is None or entry.get("where") == "cli":
            refuse_key(key, "Extra inputs are not permitted", "extra_forbidden", value)
        kind = self.now(entry["kinds"])
        choices = self.now(entry["choices"]) if "choices" in entry else None
        types = {"int": int, "float": (int, float), "bool": bool, "json": dict, "json_list": list, "str": (str, bool)}
        if value is None:
            return value
        if not isinstance(value, types[kind]) or (kind in ("int", "float") and isinstance(value, bool)):
            refuse_key(key, f"Input should be a valid {kind}", f"{kind}_type", value)
        if choices and value not in choices:
            refuse_key(key, f"Input should be {', '.join(map(repr, choices))}", "literal_error", value)
        low, high = entry.get("range", (None, None))
        if (low is not None and value < low) or (high is not None and value > high):
            refuse_key(key, f"Value error, {key} must be between {low} and {high}", "value_error", value)
        return value


class StandIn(Engine):
    """The server."""

    def __init__(self, options: argparse.Namespace, settings: dict[str, Any], version: str) -> None:
        super().__init__(options, {"max-num-seqs": str(settings.get("max_batch_size") or 2048)})
        self.values = settings
        self.version = version
        self.max_num_tokens = int(settings.get("max_num_tokens") or 8192)
        self.block = int(settings.get("kv_cache_config.tokens_per_block") or 32)
        self.kv_blocks = 0

    async def start(self) -> None:
        log(SAID.format(version=self.version), "W")
        log("Using LLM with PyTorch backend")
        log(f"Prefetching {self.weights() / GIB:.2f}GB checkpoint files.")
        log("Loading weights concurrently: 100%")
        self.allocate()
        log("Creating CUDA graph instances for 34 batch sizes.")
        try:
            server = await asyncio.start_server(self.serve, self.options.host, self.options.port)
        except OSError as error:
            print(f"ERROR:    [Errno 98] {error}", flush=True)
            leave(1)
        print("INFO:     Application startup complete.", flush=True)
        print(f"INFO:     Uvicorn running on http://{self.options.host}:{self.options.port} (Press CTRL+C to quit)", flush=True)
        async with server:
            await server.serve_forever()

    def weights(self) -> int:
        folder = Path(self.options.model)
        return sum(path.stat().st_size for path in folder.glob("*.safetensors"))

    def allocate(self) -> None:
        """Do the sum that the real engine does on its device, and end as it does when it does not come out."""
        world = 1
        for kind in ("tensor", "pipeline", "context"):
            world *= int(self.values.get(f"{kind}_parallel_size") or 1)
        if world > GPUS:
            print(f"ValueError: the world size {world} is larger than the {GPUS} GPUs of this node", file=sys.stderr)
            leave(1)
        used = self.weights() // world + self.max_num_tokens * ACTIVATION_BYTES
        free = GPU_BYTES - used
        log(f"Memory used after loading model weights (inside torch) in memory usage profiling: {self.weights() / GIB:.2f} GiB")
        if free <= 0:
            self.out_of_memory("Model resources created during usage", used, "reduce max_num_tokens")
        fraction = self.values.get("kv_cache_config.free_gpu_memory_fraction")
        pool = int(free * (0.9 if fraction is None else fraction))
        token = TOKEN_BYTES // (2 if self.values.get("kv_cache_config.dtype") == "fp8" else 1)
        self.kv_blocks = pool // (token * self.block)
        tokens = self.kv_blocks * self.block
        if not tokens:
            self.out_of_memory("KV cache", pool, "reduce free_gpu_memory_fraction")
        length = int(self.values.get("max_seq_len") or 4096)
        if tokens < length:
            log(f"Adjusted max_seq_len to {tokens}", "W")
        print(f"[TensorRT-LLM][INFO] Number of tokens per block: {self.block}.\n[TensorRT-LLM][INFO] [MemUsageChange] "
              f"Allocated {pool / GIB:.2f} GiB for max tokens in paged KV cache ({tokens}).", flush=True)
        batch = self.values.get("max_batch_size") or 2048
        log(f"max_seq_len={min(length, tokens)}, max_num_requests={batch}, max_num_tokens={self.max_num_tokens}, "
            f"max_batch_size={batch}")

    def out_of_memory(self, component: str, wanted: int, knob: str) -> NoReturn:
        log("Executor creation failed due to insufficient GPU memory.", "E")
        print("\nThe following component could not be created: " + component, file=sys.stderr)
        print(f"Total GPU memory (GiB): {GPU_BYTES / GIB:.2f}\nPlease refer to the TensorRT LLM documentation for "
              f"information on how to control the memory usage through TensorRT LLM configuration options: {knob}\n"
              f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted / GIB:.2f} GiB.\n"
              "RuntimeError: Executor worker returned error", file=sys.stderr, flush=True)
        leave(1)
        raise SystemExit

    async def route(self, method: str, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if path == "/version":
            await answer(writer, 200, {"version": self.version, "note": SAID.format(version=self.version)})
        elif path == "/metrics":
            await answer(writer, 200, [self.iteration()] if self.values.get("enable_iter_perf_stats") else [])
        elif path == "/prometheus/metrics" and self.values.get("return_perf_metrics"):
            await answer(writer, 200, self.metrics(), kind="text/plain")
        elif path == "/settings":
            await answer(writer, 200, self.values)
        else:
            await super().route(method, path, body, writer)

    async def complete(self, body: dict[str, Any], writer: asyncio.StreamWriter, *, chat: bool) -> None:
        for key in ("top_k", "best_of", "n"):
            if isinstance(body.get(key), int) and body[key] < 0:
                await answer(writer, 400, {"object": "error", "message": f"require {key} >= 0, got {body[key]}"})
                return
        prompt = body.get("prompt")
        known = len(prompt) if isinstance(prompt, list) else len(str(prompt).split())
        if known > self.max_num_tokens and not self.values.get("enable_chunked_prefill"):
            text = (f"The sum of prompt length ({float(known)}), query length (0) should not exceed max_num_tokens "
                    f"({self.max_num_tokens})")
            await answer(writer, 400, {"object": "error", "message": text, "type": "BadRequestError", "code": 400})
            return
        await super().complete(body, writer, chat=chat)

    def iteration(self) -> dict[str, Any]:
        used = min(self.kv_blocks, self.running * 4)
        return {"iter": self.finished, "numActiveRequests": self.running, "numQueuedRequests": self.waiting, "kvCacheStats": {
            "maxNumBlocks": self.kv_blocks, "usedNumBlocks": used, "freeNumBlocks": self.kv_blocks - used,
            "tokensPerBlock": self.block, "reusedBlocks": 0, "missedBlocks": self.prompt_tokens // self.block}}

    def metrics(self) -> str:
        values = {
            "num_requests_running": self.running, "num_requests_waiting": self.waiting,
            "kv_cache_utilization": min(1.0, self.running / 100), "prompt_tokens_total": self.prompt_tokens,
            "generation_tokens_total": self.generation_tokens, "request_success_total": self.finished,
            "prompt_cached_tokens_total": 0,
        }
        labels = f'{{model_name="{self.options.served_model_name}",engine_type="trtllm"}}'
        return "".join(f"trtllm_{name}{labels} {float(value)}\n" for name, value in values.items())


def main(version: str, words: list[str]) -> None:
    """Serve as this release would."""
    signal.signal(signal.SIGTERM, lambda *_: leave(0))
    release = Release(version)
    model, settings, file = release.parse(words[1:] if words[:1] == ["serve"] else words)
    if file is not None:
        settings |= release.read(file)
    if settings.get("backend") == "tensorrt":
        log("The stand-in does not build engines; it serves as the PyTorch backend would", "W")
    name = settings.get("served_model_name") or (Path(model).name if Path(model).is_dir() else model)
    options = argparse.Namespace(
        model=model, host=settings.get("host", "localhost"), port=settings.get("port", 8000), served_model_name=name,
        fault=[], itl_ms=2.0, ttft_ms=5.0, step_cost=0.02)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(StandIn(options, settings, version).start())


if __name__ == "__main__":
    main(os.environ.get("STAND_IN_VERSION", TABLE["versions"][-1]), sys.argv[1:])
