"""The commands that built a TensorRT engine, for the releases that still have them (up to 1.2.x).

TensorRT-LLM removed `trtllm-build`, the conversion scripts and the TensorRT backend from its sources in July 2026 (pull
requests 15763, 15767, 15907, 15918; docs/source/legacy/tensorrt-backend-removal.md).
"""

from __future__ import annotations

from tuner.domain.engine import EngineConfig
from tuner.domain.model import ModelSpec
from tuner.errors import FlagError
from tuner.facts.flags import parse_version

LAST = "1.2.1"
"""The last release that has them."""
_DEFAULTS = {"max_batch_size": 2048, "max_num_tokens": 8192}
_DTYPES = {"bfloat16": "bfloat16", "float16": "float16", "half": "float16", "float32": "float32", "float": "float32"}


def build_script(model: ModelSpec, config: EngineConfig) -> str:
    """Return a script that converts the checkpoint and builds the engine, with every limit stated.

    Raises:
        FlagError: this version has no `trtllm-build`, or nothing says how long a sequence may be.

    """
    if parse_version(config.version) > parse_version(LAST):
        raise FlagError(
            f"TensorRT-LLM {config.version} has no trtllm-build: the TensorRT backend ended with {LAST}",
            hint="leave backend to the engine (pytorch)",
        )
    length = config.get("max_seq_len") or model.max_context
    if length is None:
        raise FlagError("nothing says how long a sequence may be", hint="set max_seq_len")
    tp, pp = config.get("tensor_parallel_size") or 1, config.get("pipeline_parallel_size") or 1
    limits = {name: config.get(name) or default for name, default in _DEFAULTS.items()} | {"max_seq_len": length}
    flags = " \\\n  ".join(f"--{name} {value}" for name, value in limits.items())
    dtype = _DTYPES.get(model.dtype or "", "bfloat16")
    return _SCRIPT.format(version=config.version, last=LAST, tp=tp, pp=pp, dtype=dtype, flags=flags)


_SCRIPT = """\
#!/usr/bin/env bash
#
# WARNING: legacy. The TensorRT backend ended with TensorRT-LLM {last}. Newer releases have neither trtllm-build nor
# convert_checkpoint.py and refuse an engine directory; move to the PyTorch backend, which needs no build.
# Nothing here was measured: the server that llmtune started built its engine by itself.
#
# Run by hand where TensorRT-LLM {version} and its GPUs are, only to build the engine ahead of the start.
#   MODEL_DIR   directory of the Hugging Face checkpoint
#   CONVERTER   convert_checkpoint.py of the model's family, from the sources of the same release
#   WORK_DIR    where checkpoint and engine go (default: ./trt-engine)
# Ranks of conversion, build and server are the same ({tp} x {pp}); trtllm-serve starts them itself, without mpirun.
set -euo pipefail

: "${{MODEL_DIR:?set MODEL_DIR to the directory of the checkpoint}}"
: "${{CONVERTER:?set CONVERTER to convert_checkpoint.py of TensorRT-LLM {version}}}"
work=${{WORK_DIR:-trt-engine}}

python3 "${{CONVERTER}}" --model_dir "${{MODEL_DIR}}" --output_dir "${{work}}/checkpoint" \\
  --dtype {dtype} --tp_size {tp} --pp_size {pp}
trtllm-build --checkpoint_dir "${{work}}/checkpoint" --output_dir "${{work}}/engine" \\
  {flags}

printf 'Start it with: trtllm-serve %s/engine --backend tensorrt --tokenizer %s\\n' "${{work}}" "${{MODEL_DIR}}"
"""
