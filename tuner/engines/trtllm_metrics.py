"""TensorRT-LLM's two ways to tell of itself: `/prometheus/metrics`, and `/metrics`, which is JSON.

The JSON is a list of iteration statistics since the last reading; it is empty without `enable_iter_perf_stats`, as the
Prometheus page is not there without `return_perf_metrics`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tuner.domain.engine import ServerMetrics
from tuner.domain.json_text import parse_json
from tuner.engines.prometheus import parse


class Iteration(NamedTuple):
    """One iteration: its own counts, and those of its KV cache, numbers only."""

    counts: dict[str, float]
    kv: dict[str, float]

    @property
    def kv_tokens(self) -> int | None:
        """Tokens that the KV cache holds."""
        blocks, size = self.kv.get("maxNumBlocks"), self.kv.get("tokensPerBlock")
        return int(blocks * size) if blocks and size else None

    @property
    def metrics(self) -> ServerMetrics:
        """The reading; hits and queries of the prefix cache in tokens."""
        size = self.kv.get("tokensPerBlock", 1)
        reused, missed = self.kv.get("reusedBlocks"), self.kv.get("missedBlocks")
        used, total = self.kv.get("usedNumBlocks"), self.kv.get("maxNumBlocks")
        return ServerMetrics(
            running=self.counts.get("numActiveRequests"),
            waiting=self.counts.get("numQueuedRequests"),
            kv_usage=used / total if used is not None and total else None,
            prefix_queries=None if reused is None or missed is None else (reused + missed) * size,
            prefix_hits=None if reused is None else reused * size,
        )


def last_iteration(text: str) -> Iteration | None:
    """Return the last of the iteration statistics, or None when this is not a list of them."""
    if not text.lstrip().startswith("["):
        return None
    try:
        found = parse_json(text)
    except ValueError:
        return None
    entries = [one for one in found if isinstance(one, dict)]
    return Iteration(_numbers(entries[-1]), _numbers(entries[-1].get("kvCacheStats"))) if entries else None


def prometheus_metrics(text: str) -> ServerMetrics:
    """Read `/prometheus/metrics` (tensorrt_llm/metrics/collector.py)."""
    samples = parse(text)
    return ServerMetrics(
        prompt_tokens=samples.total("trtllm_prompt_tokens_total"),
        generation_tokens=samples.total("trtllm_generation_tokens_total"),
        running=samples.total("trtllm_num_requests_running"),
        waiting=samples.total("trtllm_num_requests_waiting"),
        kv_usage=samples.mean("trtllm_kv_cache_utilization"),
        prefix_queries=samples.total("trtllm_prompt_tokens_total"),
        prefix_hits=samples.total("trtllm_prompt_cached_tokens_total"),
        requests_finished=samples.total("trtllm_request_success_total"),
    )


def _numbers(entry: Any) -> dict[str, float]:  # noqa: ANN401  (whatever JSON holds)
    if not isinstance(entry, dict):
        return {}
    return {
        key: float(value)
        for key, value in entry.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
