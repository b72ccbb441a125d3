"""Every metric once: its name, unit, direction, formula, edge cases, and what other tools call it.

Other tools: vLLM 0.32 `vllm bench serve`, guidellm 0.8, AIPerf 0.13 and MLPerf inference, as read in their sources.
A name in brackets is a different formula under a similar name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table of metrics. `elsewhere` maps tool to its name for the nearest thing."""

    name: str
    unit: str
    direction: Literal["minimize", "maximize"]
    formula: str
    edge_cases: str
    elsewhere: Mapping[str, str] = field(default_factory=dict)


METRICS: tuple[Metric, ...] = (
    Metric("ttft_ms", "ms", "minimize", "first token - start",
           "The first chunk with a token of any kind, reasoning included, role-only and empty chunks not. Start is the "
           "intended send time in an open loop, the hand-over to the socket in a closed one.",
           {"vllm": "(ttft: any chunk with choices)", "guidellm": "time_to_first_token_ms",
            "aiperf": "time_to_first_token", "mlperf": "TTFT"}),
    Metric("itl_ms", "ms", "minimize", "gap between reads that brought tokens",
           "One sample for each gap, pooled over requests; several tokens or events in one read are one arrival. "
           "Answers of one arrival have none.",
           {"vllm": "itl", "guidellm": "(inter_token_latency_ms: a mean per request)",
            "aiperf": "inter_chunk_latency"}),
    Metric("tpot_ms", "ms", "minimize", "(last token - first token) / (n - tokens in the first arrival)",
           "One sample for each request; the first arrival's tokens are not counted. None for answers of one arrival.",
           {"vllm": "tpot", "guidellm": "(time_per_output_token_ms: includes the first token)",
            "aiperf": "inter_token_latency", "mlperf": "TPOT"}),
    Metric("e2e_ms", "ms", "minimize", "last token - start", "One sample for each good answer.",
           {"vllm": "e2el", "guidellm": "request_latency", "aiperf": "request_latency"}),
    Metric("normalized_ms", "ms", "minimize", "(last token - start) / output tokens",
           "One sample for each good answer, so that long and short answers can be compared.",
           {"guidellm": "time_per_output_token_ms"}),
    Metric("output_tokens_per_s", "1/s", "maximize", "output tokens that arrived in the window / window",
           "Tokens of failed requests do not count; those of warm-up requests that run into the window do, because the "
           "server made them. Never total over total, which is low by up to a third.",
           {"vllm": "(output_throughput: total over total)", "guidellm": "output_tokens_per_second",
            "aiperf": "(output_token_throughput: total over total)", "mlperf": "tokens per second"}),
    Metric("total_tokens_per_s", "1/s", "maximize", "(prompt tokens + output tokens) in the window / window",
           "A prompt counts when its first token arrives.",
           {"vllm": "(total_token_throughput: total over total)", "guidellm": "tokens_per_second"}),
    Metric("requests_per_s", "1/s", "maximize", "good answers that ended in the window / window",
           "Failed requests do not count.",
           {"vllm": "(request_throughput: total over total)", "guidellm": "requests_per_second",
            "aiperf": "(request_throughput: total over total)"}),
    Metric("goodput_per_s", "1/s", "maximize", "answers within every limit that ended in the window / window",
           "A request keeps a limit when its own value does: its mean or percentile of gaps for itl. Only with an SLO.",
           {"vllm": "request_goodput", "aiperf": "goodput"}),
    Metric("slo_attainment", "share", "maximize", "requests within every limit / requests",
           "Failed requests are not within. Only with an SLO.", {}),
    Metric("error_rate", "share", "minimize", "failed requests / requests that ended",
           "Requests that llmtune cut off are left out. Truncated answers are failures.",
           {"vllm": "(failed: error events in a stream are not counted)", "guidellm": "errored"}),
)
