"""Run by the engine's own Python: lets vLLM's configuration layer judge settings, also for GPUs that are not here.

No server starts, no weight is read and no GPU is touched. Kernels, drivers and memory are not judged. It leans on
internals of vLLM 0.32, which `tuner/facts/data/vllm/judge.yaml` says; it imports nothing of llmtune.

    stdin   one JSON line {"gpu": {"name", "capability": [major, minor], "memory_bytes", "count"}, "parent": pid} (gpu
            may be null: the CPU itself), then a line per question {"arguments": ["MODEL_DIR", "--flag", ...],
            "env": {NAME: value}}
    stdout  {"ready": version}, then a line per answer {"verdict": "accepted", "resolved": {...}} |
            {"verdict": "refused", "reason"} | {"verdict": "unknown", "reason"}
    exit    0 at the end of stdin; at once when the parent is gone
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any, NoReturn, TextIO

PARENT_POLL_S = 1.0
_REFUSALS = (ValueError, NotImplementedError, AssertionError)
_NOT_ITS_WORD = (ImportError, AttributeError, LookupError, OSError, RuntimeError, TypeError)
_NO_KERNELS = ("vllm._C_stable_libtorch", "vllm.vllm_flash_attn._vllm_fa2_C", "vllm.vllm_flash_attn._vllm_fa3_C")
_OPERATIONS = ("block_fp8", "fp8", "fp4")
_ABOUT_FILES = re.compile(
    r"trust_remote_code|repo_type|Repo id|huggingface\.co|offline mode|locate the file|no file named|Can't load|"
    r"couldn't connect|not a valid model identifier|Invalid repository ID|tokenizer|not installed|pip install|"
    r"\bimport\b",
    re.IGNORECASE,
)
_PREAMBLE = re.compile(r"^\d+ validation errors? for \w+\s*", re.MULTILINE)


class Refusal(Exception):  # noqa: N818  (it is an answer)
    """The engine's parser does not take the arguments."""


def main() -> int:
    """Answer questions until stdin ends."""
    answers = _own_stdout()
    setup = json.loads(sys.stdin.readline() or "{}")
    threading.Thread(target=_watch, args=(setup["parent"],), daemon=True).start()
    here = os.path.realpath(__file__).rpartition("/")[0]
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != here]
    if setup["gpu"] is not None:
        stand_in(setup["gpu"])
    judge = Judge()
    _say(answers, {"ready": importlib.import_module("vllm").__version__})
    for line in sys.stdin:
        question = json.loads(line)
        _say(answers, judge.answer(question["arguments"], question["env"]))
    return 0


def _own_stdout() -> TextIO:
    """Keep stdout for answers: what the engine prints goes to stderr."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def _say(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _watch(parent: int) -> NoReturn:
    """End with the parent, also in the middle of a question."""
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_S)
    os._exit(1)


def stand_in(gpu: dict[str, Any]) -> None:
    """Put a platform into vLLM that answers what the configuration layer asks of a GPU."""
    for name in _NO_KERNELS:
        _empty_if_missing(name)
    torch = importlib.import_module("torch")
    platforms: Any = importlib.import_module("vllm.platforms")
    base = importlib.import_module("vllm.platforms.cuda").CudaPlatformBase
    capability_of = importlib.import_module("vllm.platforms.interface").DeviceCapability
    have = capability_of(*gpu["capability"])

    def reaches(_: object, capability: Any, device_id: int = 0) -> bool:  # noqa: ANN401, ARG001
        return bool(have >= capability if isinstance(capability, tuple) else have.to_int() >= capability)

    facts: dict[str, object] = {
        "get_device_capability": have,
        "get_device_name": gpu["name"],
        "get_device_uuid": "GPU-0",
        "get_device_total_memory": gpu["memory_bytes"],
        "is_fully_connected": True,
        "log_warnings": None,
        "device_count": gpu["count"],
        "num_compute_units": 132,
        "manual_seed_all": None,
    }
    methods: dict[str, Any] = {name: classmethod(_always(value)) for name, value in facts.items()}
    platform = type("StandIn", (base,), {**methods, "has_device_capability": classmethod(reaches)})()
    platforms._current_platform = platforms.current_platform = platform  # noqa: SLF001
    torch.cuda.device_count = _always(gpu["count"])
    _define_operations(torch)


def _always(value: object) -> Any:  # noqa: ANN401
    def answer(*_: object, **__: object) -> object:
        return value

    return answer


def _empty_if_missing(name: str) -> None:
    """Put an empty module in the place of a compiled one that only the CUDA build has.

    Trying to import it would not do: its package remembers the failure.
    """
    folder, _, stem = name.removeprefix("vllm").replace(".", "/").rpartition("/")
    root = importlib.import_module("vllm").__path__[0]
    if not any(Path(root + folder).glob(stem + ".*")):
        sys.modules[name] = types.ModuleType(name)


def _define_operations(torch: Any) -> None:  # noqa: ANN401
    """Say that the kernels of a CUDA build are there, where they are not: only the engine's start can tell."""
    library = torch.library.Library("_C", "FRAGMENT")
    names = [f"cutlass_scaled_mm_supports_{kind}" for kind in _OPERATIONS]
    for name in (*names, "cutlass_group_gemm_supported"):
        if not hasattr(torch.ops._C, name):  # noqa: SLF001
            library.define(name + "(int cap) -> bool")
            library.impl(name, _always(True), "CompositeExplicitAutograd")  # noqa: FBT003
    Judge.kept.append(library)


class Judge:
    """Holds the engine's own parser and the classes that it fills."""

    kept: list[object] = []  # noqa: RUF012  (libraries unregister their operations when they are collected)

    def __init__(self) -> None:
        launchers = importlib.import_module("vllm.entrypoints.launchers.cli_args")
        parsers = importlib.import_module("vllm.utils.argparse_utils")
        self._check = launchers.validate_parsed_serve_args
        self._parser = launchers.make_arg_parser(parsers.FlexibleArgumentParser(prog="vllm serve"))
        self._parser.error = _refuse
        self._arguments = importlib.import_module("vllm.engine.arg_utils").AsyncEngineArgs
        self._context = importlib.import_module("vllm.usage.usage_lib").UsageContext.OPENAI_API_SERVER

    def answer(self, arguments: list[str], env: dict[str, str]) -> dict[str, Any]:
        """Judge one command line under the variables of `env`."""
        before = {name: os.environ.get(name) for name in env}
        os.environ.update(env)
        try:
            return {"verdict": "accepted", "resolved": self._resolved(arguments)}
        except Refusal as error:
            return {"verdict": "refused", "reason": str(error)}
        except _REFUSALS as error:
            reason = _cause(error)
            return {"verdict": "unknown" if _ABOUT_FILES.search(reason) else "refused", "reason": reason}
        except _NOT_ITS_WORD as error:
            return {"verdict": "unknown", "reason": f"{type(error).__name__}: {_cause(error)}"}
        except SystemExit as error:
            return {"verdict": "unknown", "reason": f"the engine's parser ended with {error.code}"}
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def _resolved(self, arguments: list[str]) -> dict[str, Any]:
        parsed = self._parser.parse_args(arguments)
        if getattr(parsed, "model_tag", None) is not None:
            parsed.model = parsed.model_tag
        try:
            self._check(parsed)
        except TypeError as error:  # what vLLM raises for options that need one another
            raise Refusal(str(error).removeprefix("Error: ")) from error
        config = self._arguments.from_cli_args(parsed).create_engine_config(self._context)
        return _shown(config)


def _refuse(message: str) -> NoReturn:
    raise Refusal(message)


def _cause(error: BaseException) -> str:
    """Return what pydantic or vLLM says, without the frame around it, on one line."""
    text = _PREAMBLE.sub("", str(error)).split("[type=", maxsplit=1)[0]
    text = text.replace("Value error, ", "").replace("Assertion failed, ", "")
    return " ".join(text.split())[:600] or type(error).__name__


def _shown(config: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return what the server would really use, by the names of its flags."""
    scheduler, cache, model, parallel = (
        config.scheduler_config,
        config.cache_config,
        config.model_config,
        config.parallel_config,
    )
    shown = {
        "max-num-seqs": scheduler.max_num_seqs,
        "max-num-batched-tokens": scheduler.max_num_batched_tokens,
        "enable-chunked-prefill": scheduler.enable_chunked_prefill,
        "async-scheduling": scheduler.async_scheduling,
        "max-model-len": model.max_model_len,
        "dtype": str(model.dtype).removeprefix("torch."),
        "quantization": model.quantization,
        "block-size": cache.block_size,
        "kv-cache-dtype": cache.cache_dtype,
        "gpu-memory-utilization": cache.gpu_memory_utilization,
        "enable-prefix-caching": cache.enable_prefix_caching,
        "tensor-parallel-size": parallel.tensor_parallel_size,
        "pipeline-parallel-size": parallel.pipeline_parallel_size,
        "distributed-executor-backend": parallel.distributed_executor_backend,
        "cudagraph-mode": getattr(config.compilation_config.cudagraph_mode, "name", None),
        "max-cudagraph-capture-size": config.compilation_config.max_cudagraph_capture_size,
    }
    plain = {name: value if isinstance(value, (bool, int, float, str)) else str(value) for name, value in shown.items()}
    return {name: value for name, value in plain.items() if value not in ("None", "")}


if __name__ == "__main__":
    sys.exit(main())
