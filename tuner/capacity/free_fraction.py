"""TensorRT-LLM's share of free memory, beside vLLM's share of the device: the same number means something else.

cache = (device - weights - activations - others) x kv_cache_config.free_gpu_memory_fraction, and at most max_tokens
(tensorrt_llm/_torch/pyexecutor/_util.py; docs/source/features/kvcache.md). A number is converted, never copied.
"""

from __future__ import annotations


def kv_bytes_of(
    device: int, used: int, fraction: float, *, max_tokens: int | None = None, bytes_per_token: float | None = None
) -> int:
    """Bytes of KV cache that a fraction of the free memory gives; below zero by what is missing when nothing is free.

    `used` is weights, activations, libraries and other servers, all in bytes.
    """
    free = device - used
    if free <= 0:
        return free
    share = int(free * fraction)
    if max_tokens is not None and bytes_per_token is not None:
        return min(share, int(max_tokens * bytes_per_token))
    return share


def fraction_for(device: int, used: int, kv_bytes: int) -> float | None:
    """Share of the free memory (TensorRT-LLM) that gives this cache, or None when the device cannot hold it."""
    free = device - used
    return kv_bytes / free if 0 <= kv_bytes <= free and free else None


def utilization_for(device: int, used: int, kv_bytes: int) -> float | None:
    """Share of the device (vLLM) that gives this cache to a server alone on it, or None when it cannot hold it."""
    wanted = used + kv_bytes
    return wanted / device if 0 < wanted <= device else None
