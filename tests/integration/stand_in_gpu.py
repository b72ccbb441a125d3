"""Run by the engine's own Python: lets vLLM's configuration layer judge settings for GPUs that are not here.

stand_in_gpu.py MODEL_DIR TOKENIZER_DIR '{"name": ..., "capability": [9, 0], "gib": 80, "count": 8}' '[{...}, ...]'
prints one JSON line a configuration: {"ok": true, "max_num_seqs": ..., ...} or {"ok": false, "error": "..."}.
Kernels and hardware support are not judged. It leans on internals of 0.32, so it belongs to tests.
"""

from __future__ import annotations

import json
import os
import sys
import types

os.environ.update(HF_HUB_OFFLINE="1", VLLM_LOGGING_LEVEL="ERROR")
sys.modules["vllm._C_stable_libtorch"] = types.ModuleType("vllm._C_stable_libtorch")

import torch  # noqa: E402
import vllm.platforms as platforms  # noqa: E402
from vllm.platforms.cuda import CudaPlatformBase  # noqa: E402
from vllm.platforms.interface import DeviceCapability  # noqa: E402

MODEL, TOKENIZER, GPU, CONFIGS = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])
HAVE = DeviceCapability(*GPU["capability"])


class StandIn(CudaPlatformBase):
    """Answers what the configuration layer asks of a GPU."""

    @classmethod
    def get_device_capability(cls, device_id=0):
        return HAVE

    @classmethod
    def has_device_capability(cls, capability, device_id=0):
        return capability <= HAVE if isinstance(capability, tuple) else HAVE.to_int() >= capability

    @classmethod
    def get_device_name(cls, device_id=0):
        return GPU["name"]

    @classmethod
    def get_device_uuid(cls, device_id=0):
        return "GPU-0"

    @classmethod
    def get_device_total_memory(cls, device_id=0):
        return GPU["gib"] * 2**30

    @classmethod
    def is_fully_connected(cls, ids):
        return True

    @classmethod
    def log_warnings(cls):
        return None

    @classmethod
    def device_count(cls):
        return GPU["count"]

    @classmethod
    def num_compute_units(cls, device_id=0):
        return 132

    @classmethod
    def manual_seed_all(cls, seed):
        return None


platforms._current_platform = platforms.current_platform = StandIn()
torch.cuda.device_count = lambda: GPU["count"]
for name in ("_vllm_fa2_C", "_vllm_fa3_C"):
    sys.modules["vllm.vllm_flash_attn." + name] = types.ModuleType(name)
OPS = torch.library.Library("_C", "FRAGMENT")
for name in ("cutlass_scaled_mm_supports_block_fp8", "cutlass_scaled_mm_supports_fp8", "cutlass_group_gemm_supported",
             "cutlass_scaled_mm_supports_fp4"):
    if not hasattr(torch.ops._C, name):
        OPS.define(name + "(int cap) -> bool")
        OPS.impl(name, lambda cap: True, "CompositeExplicitAutograd")

from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: E402
from vllm.usage.usage_lib import UsageContext  # noqa: E402

for settings in CONFIGS:
    try:
        arguments = AsyncEngineArgs(model=MODEL, tokenizer=TOKENIZER, **settings)
        config = arguments.create_engine_config(UsageContext.OPENAI_API_SERVER)
    except (ValueError, NotImplementedError, AssertionError) as error:
        answer = {"ok": False, "error": str(error)[:400]}
    else:
        answer = {
            "ok": True,
            "max_num_seqs": config.scheduler_config.max_num_seqs,
            "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
            "block_size": config.cache_config.block_size,
            "gpu_memory_utilization": config.cache_config.gpu_memory_utilization,
            "dtype": str(config.model_config.dtype),
        }
    sys.stdout.write("ANSWER " + json.dumps(answer) + "\n")
