"""Made-up engines with cliffs, regions that do not run, interactions, conditions between settings and noise.

They were written before any sampler was tried on them, and constants are not changed afterwards: a world that is
adapted to a sampler measures nothing. None of them is a model of a real engine; each has one habit that real ones have.
"""

from __future__ import annotations

import math
import random
from functools import cache

from benchmarks.search.world import Point, Truth, World, space_of
from tuner.search.spaces import Choice

OOM = "CUDA out of memory"
BATCH = ("max-num-seqs", "max-num-batched-tokens")


def worlds() -> list[World]:
    """Return all of them, the smallest first."""
    return [small(), latency(), rugged(), memory(), parallel()]


def small() -> World:
    """48 configurations, smooth, all run: nothing but saturation and one interaction."""
    def truth(point: Point) -> Truth:
        seqs = _number(point["max-num-seqs"], 128)
        tokens = _number(point["max-num-batched-tokens"], 2048)
        rate = 1000 * seqs / (seqs + 24) * tokens / (tokens + 300)
        rate *= 1.12 if point["async-scheduling"] and seqs >= 64 else 0.98 if point["async-scheduling"] else 1.0
        rate *= 0.97 if point["enable-prefix-caching"] is False else 1.0
        return Truth(start_s=70, load_s=60, score=rate, noise=0.015, boot_noise=0.008)

    space = space_of(
        ("max-num-seqs", (None, 16, 64, 256)), ("max-num-batched-tokens", (None, 512, 8192)),
        ("async-scheduling", (None, True)), ("enable-prefix-caching", (None, False)),
    )
    return World("smooth-48", "smooth, everything runs", space, "maximize", truth,
                 levels_flags=BATCH)


def latency() -> World:
    """10,368 configurations, p95 latency is minimised; the best lies beside what does not run, and noise is large."""
    def truth(point: Point) -> Truth:
        seqs = _number(point["max-num-seqs"], 256)
        tokens = _number(point["max-num-batched-tokens"], 2048)
        graphs, steps = _number(point["max-cudagraph-capture-size"], 64), _number(point["stream-interval"], 1)
        if graphs * tokens > 512 * 4096 or (point["attention-backend"] == "FLASHINFER" and point["block-size"] == 64):
            return Truth(start_s=95, reason=OOM if graphs * tokens > 512 * 4096 else "block size is not supported")
        wait = 400 * math.exp(-seqs / 90)
        step = 14 + 0.05 * min(seqs, 160) + tokens / 500
        step *= 1.35 if seqs > graphs else 1.0
        step *= {None: 1.0, "FLASHINFER": 0.93, "TRITON_ATTN": 1.15}[_text(point["attention-backend"])]
        prefill = 900 / math.sqrt(tokens / 512)
        total = wait + 60 * step + prefill + (25 if steps >= 4 else 0)
        return Truth(start_s=60 + graphs / 8, load_s=90, score=total, noise=0.04, boot_noise=0.02)

    space = space_of(
        ("max-num-seqs", (None, 16, 32, 64, 128, 512)),
        ("max-num-batched-tokens", (None, 512, 1024, 4096, 8192, 16384)),
        ("max-cudagraph-capture-size", (None, 128, 256, 512)),
        ("attention-backend", (None, "FLASHINFER", "TRITON_ATTN")),
        ("block-size", (None, 32, 64)), ("stream-interval", (None, 4)), ("enable-prefix-caching", (None, False)),
        ("disable-cascade-attn", (None, True)),
    )
    about = "latency, the best beside a cliff, 4 % noise, two settings without effect"
    return World("latency-10k", about, space, "minimize", truth, levels_flags=BATCH)


def rugged() -> World:
    """1,200 configurations without any order: effects of values and of pairs are random, and 62 % are refused."""
    rng = random.Random(20261201)
    sizes = {"a": 5, "b": 5, "c": 4, "d": 4, "e": 3}
    single = {(flag, value): rng.gauss(0, 0.22) for flag, size in sizes.items() for value in range(size)}
    flags = list(sizes)
    pair = {
        (one, two, left, right): rng.gauss(0, 0.10)
        for place, one in enumerate(flags) for two in flags[place + 1 :]
        for left in range(sizes[one]) for right in range(sizes[two])
    }
    refused = {("a", 3), ("d", 2)}
    refused_pairs = {key for key in pair if rng.random() < 0.03}

    def truth(point: Point) -> Truth:
        at = {flag: 0 if point[flag] is None else int(str(point[flag])[1:]) for flag in flags}
        pairs = [(one, two, at[one], at[two]) for place, one in enumerate(flags) for two in flags[place + 1 :]]
        default = all(value == 0 for value in at.values())
        if not default and (refused & set(at.items()) or refused_pairs & set(pairs)):
            return Truth(start_s=35, reason="this combination is not supported")
        effect = sum(single[item] for item in at.items()) + sum(pair[key] for key in pairs)
        return Truth(start_s=50 + 10 * at["c"], load_s=45, score=500 * math.exp(effect), noise=0.02, boot_noise=0.015)

    space = space_of(*((flag, (None, *(f"v{value}" for value in range(1, size)))) for flag, size in sizes.items()))
    about = "no order, pairs matter, two values and some pairs are refused: 62 % of all"
    return World("rugged-1200", about, space, "maximize", truth, levels_flags=("a", "b"))


def memory() -> World:
    """27,648 configurations on one GPU: a batch that memory bounds, and an SLO on the gap between tokens."""
    def truth(point: Point) -> Truth:
        seqs = _number(point["max-num-seqs"], 256)
        tokens = _number(point["max-num-batched-tokens"], 2048)
        share = _number(point["gpu-memory-utilization"], 0.92)
        fp8 = point["quantization"] == "fp8"
        kv8 = point["kv-cache-dtype"] == "fp8"
        weights = 8.2 if fp8 else 15.6
        activation = 1.1 + tokens / 4096 + seqs / 400
        room = share * 24 - weights - activation
        if room < 1.0:
            return Truth(start_s=48, reason="No available memory for the cache blocks")
        if share > 0.94 and tokens >= 8192:
            return Truth(start_s=120, reason=OOM)
        fits = room / (0.11 if kv8 else 0.21)
        running = min(seqs, fits, 220.0)
        step = (9.0 if fp8 else 15.0) + 0.045 * running + (0.015 * running if kv8 else 0.0)
        mode = _text(point["performance-mode"])
        step *= 0.94 if mode == "interactivity" else 1.0
        rate = 1000 * running / step * (1.03 if mode == "throughput" else 1.0) * tokens / (tokens + 250)
        rate *= 0.72 if seqs > 1.3 * fits else 1.0
        rate *= 1 - 0.03 * (point["block-size"] == 16) - 0.02 * (point["enable-prefix-caching"] is False)
        gap = step * (1 + 1.6 * tokens / (tokens + 6000)) * (1.25 if seqs > 1.3 * fits else 1.0)
        wait = 200 + 900 * max(0.0, 1 - running / 150)
        return Truth(start_s=85 + (25 if mode else 0) + (20 if fp8 else 0), load_s=100, score=rate, noise=0.018,
                     boot_noise=0.01, violations={"p95 itl<=42ms": gap / 42 - 1, "p95 ttft<=900ms": wait / 900 - 1})

    def ruled_out(point: Point) -> bool:
        return point["enable-chunked-prefill"] is False and _number(point["max-num-batched-tokens"], 2048) < 4096

    space = space_of(
        ("max-num-seqs", (None, 32, 64, 128, 256, 512)),
        ("max-num-batched-tokens", (None, 1024, 2048, 4096, 8192, 16384)),
        ("gpu-memory-utilization", (None, 0.88, 0.92, 0.95)), ("kv-cache-dtype", (None, "fp8")),
        ("quantization", (None, "fp8")), ("block-size", (None, 16, 32, 64)), ("enable-prefix-caching", (None, False)),
        ("performance-mode", (None, "throughput", "interactivity")), ("enable-chunked-prefill", (None, False)),
    )
    return World("memory-27k", "one GPU, memory bounds the batch, an SLO on two latencies", space, "maximize", truth,
                 ruled_out, BATCH)


def parallel() -> World:
    """92,160 points: several GPUs, score for each; speculation has settings of its own; starts take 2 to 12 minutes."""
    def truth(point: Point) -> Truth:
        width = int(_number(point["tensor-parallel-size"], 1))
        seqs = _number(point["max-num-seqs"], 256)
        tokens = _number(point["max-num-batched-tokens"], 8192)
        fp8 = point["quantization"] == "fp8"
        level = int(_number(point["optimization-level"], 2))
        start_s = 150 + 40 * width + {0: -60, 1: 0, 2: 60, 3: 200}[level] + (30 if fp8 else 0)
        if (70 if fp8 else 140) / width > 74:
            return Truth(start_s=70, reason=OOM)
        if point["kv-cache-dtype"] == "fp8" and point["attention-backend"] == "TRITON_ATTN":
            return Truth(start_s=55, reason="TRITON_ATTN does not take this KV cache")
        if point["speculative"] == "eagle" and width == 8:
            return Truth(start_s=90, reason="the draft model has too few heads to split")
        room = (78 * width - (70 if fp8 else 140)) / width
        fits = room * width / (0.32 if point["kv-cache-dtype"] == "fp8" else 0.64)
        running = min(seqs, fits, 300.0)
        step = (35.0 if fp8 else 62.0) / width + 2.2 * math.log2(width) + 0.06 * running / math.sqrt(width)
        step *= {0: 1.35, 1: 1.1, 2: 1.0, 3: 0.99}[level]
        gain = 1.0
        if point["speculative"]:
            ahead = int(_number(point["speculative-tokens"], 3))
            accepted = (0.72 if point["speculative"] == "eagle" else 0.40) ** 1.1
            length = (1 - accepted ** (ahead + 1)) / (1 - accepted)
            gain = length / (1 + (0.09 if point["speculative"] == "eagle" else 0.02) * ahead + running * ahead / 900)
        rate = 1000 * running / step * gain / width * tokens / (tokens + 500)
        rate *= {None: 1.0, "FLASHINFER": 1.05, "TRITON_ATTN": 0.9}[_text(point["attention-backend"])]
        rate *= 0.8 if seqs > 1.4 * fits else 1.0
        rate *= 1.02 if point["async-scheduling"] else 1.0
        gap = step / gain * (1 + tokens / 24000)
        return Truth(start_s=start_s, load_s=120, score=rate, noise=0.02, boot_noise=0.01,
                     violations={"p95 itl<=45ms": gap / 45 - 1})

    def ruled_out(point: Point) -> bool:
        return point["tensor-parallel-size"] is None and point["quantization"] is None

    space = space_of(
        ("tensor-parallel-size", (None, 2, 4, 8)), ("max-num-seqs", (None, 32, 64, 128, 512)),
        ("max-num-batched-tokens", (None, 2048, 4096, 16384)), ("quantization", (None, "fp8")),
        ("kv-cache-dtype", (None, "fp8")), ("attention-backend", (None, "FLASHINFER", "TRITON_ATTN")),
        ("optimization-level", (None, 0, 1, 3)), ("speculative", (None, "ngram", "eagle")),
        ("speculative-tokens", (None, 1, 5, 7)), ("async-scheduling", (None, True)),
        needs={"speculative-tokens": {"speculative": ("ngram", "eagle")}},
    )
    about = "1 to 8 GPUs, score for each, conditional speculation, starts of 2 to 12 minutes"
    return World("parallel-92k", about, space, "maximize", truth, ruled_out, BATCH)


@cache
def _text(value: Choice) -> str | None:
    return None if value is None else str(value)


def _number(value: Choice, unset: float) -> float:
    return unset if value is None else float(value)
