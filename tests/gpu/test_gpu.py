"""What only a machine with an NVIDIA GPU can show."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.output.bundle import load_plan
from tuner.runtime.detect import detect_hardware
from tuner.runtime.gpu import memory_used_bytes, wait_gpu_memory_back

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1800)]


def test_inventory_names_gpus() -> None:
    hardware = detect_hardware()
    assert hardware.kind == "cuda"
    assert all(gpu.memory_bytes > 1 << 30 and gpu.capability for gpu in hardware.gpus)
    assert len(memory_used_bytes()) == len(hardware.gpus)


def test_optimize_gives_gpu_memory_back(tmp_path: Path) -> None:
    """Needs a vLLM of the CUDA build on PATH and a model that LLMTUNE_GPU_MODEL names."""
    model = os.environ.get("LLMTUNE_GPU_MODEL")
    if model is None or shutil.which("vllm") is None:
        pytest.skip("set LLMTUNE_GPU_MODEL and put vllm on PATH")
    base = memory_used_bytes()
    command = [
        sys.executable, "-m", "tuner", "optimize", "--model", model, "--workload", "128x64@c16", "--trials", "2",
        "--finalists", "1", "--verify-rounds", "2", "--out", str(tmp_path), "--study", "gpu",
    ]
    subprocess.run(command, check=True)
    plan = load_plan(next(tmp_path.glob("*/gpu/plan.json")))
    assert plan.measured
    assert plan.launch.devices >= 1
    assert wait_gpu_memory_back(base).settled
